/* tls_none.c -- replaces the other files of TLS in a build without OpenSSL. There is never a struct twi_tls, so no
 * other function of them is ever called with one. */
#include "sync/wire/tls.h"

#include <stdio.h>

struct twi_tls *twi_tls_create(const struct twi_tls_options *options, char *error, size_t error_size) {
    (void)options;
    snprintf(error, error_size, "redis_url: rediss:// needs TLS, and this library was built without it (-Dtls)");
    return NULL;
}

void twi_tls_destroy(struct twi_tls *tls) {
    (void)tls;
}

void twi_tls_forked(void) {
}

struct twi_tls_counts twi_tls_counts(const struct twi_tls *tls) {
    (void)tls;
    return (struct twi_tls_counts){0};
}

bool twi_tls_news(struct twi_tls *tls, struct twi_tls_news *news) {
    (void)tls, (void)news;
    return false;
}

const struct twi_transport twi_tls_transport = {0};
