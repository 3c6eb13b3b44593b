/* where.c -- see where.h. */
#include "sync/wire/where.h"

#include "engine/base/check.h"
#include "sync/wire/tls.h"

/* where->tls is NULL if the URL names no TLS. */
static bool read_tls(struct twi_where *where, const tw_options *options, char *error, size_t error_size) {
    const struct twi_tls_options tls = {.ca_file = options->redis_tls_ca_file,
                                        .cert_file = options->redis_tls_cert_file,
                                        .key_file = options->redis_tls_key_file,
                                        .server_name = options->redis_tls_server_name,
                                        .insecure = options->redis_tls_insecure != 0};
    if (!where->url.is_tls) return twi_tls_options_are_unset(&tls, error, error_size);
    where->tls = twi_tls_create(&tls, error, error_size);
    return where->tls != NULL;
}

bool twi_where_read(struct twi_where *where, const tw_options *options, char *error, size_t error_size) {
    *where = (struct twi_where){0};
    if (!twi_url_parse(options->redis_url, &where->url, error, error_size)) return false;
    twi_check(where->url.seed_count >= 1 && where->url.seed_count <= TWI_URL_SEEDS_MAX);
    where->login = (struct twi_login){.user = where->url.user,
                                      .password = where->url.password,
                                      .ask = options->redis_password,
                                      .ask_ctx = options->redis_password_ctx};
    where->sentinel_login = (struct twi_login){
        .user = options->sentinel_user, .ask = options->sentinel_password, .ask_ctx = options->sentinel_password_ctx};
    if (!read_tls(where, options, error, error_size)) return false;
    twi_check((where->tls != NULL) == where->url.is_tls);
    where->transport = where->tls ? &twi_tls_transport : &twi_socket_transport;
    where->shared = where->tls;
    return true;
}

void twi_where_free(struct twi_where *where) {
    twi_tls_destroy(where->tls);
    twi_url_wipe(&where->url);
}
