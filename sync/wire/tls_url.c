/* tls_url.c -- see tls_url.h. */
#include "sync/wire/tls_url.h"

bool twi_tls_url_read(const char *text, const struct twi_tls_options *options, struct twi_url *url,
                      struct twi_tls **tls, char *error, size_t error_size) {
    *tls = NULL;
    if (!twi_url_parse(text, url, error, error_size)) return false;
    if (!url->is_tls) return twi_tls_options_are_unset(options, error, error_size);
    *tls = twi_tls_create(options, error, error_size);
    return *tls != NULL;
}
