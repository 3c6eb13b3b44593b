/* tls_options.c -- see tls_options.h. */
#include "sync/wire/tls_options.h"

#include <stdio.h>

bool twi_tls_options_are_unset(const struct twi_tls_options *options, char *error, size_t error_size) {
    const struct {
        const char *name, *value;
    } fields[] = {
        {"redis_tls_ca_file", options->ca_file},
        {"redis_tls_cert_file", options->cert_file},
        {"redis_tls_key_file", options->key_file},
        {"redis_tls_server_name", options->server_name},
        {"redis_tls_insecure", options->insecure ? "1" : NULL},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].value || !*fields[i].value) continue;
        snprintf(error, error_size, "%s: needs a redis_url that begins with rediss", fields[i].name);
        return false;
    }
    return true;
}
