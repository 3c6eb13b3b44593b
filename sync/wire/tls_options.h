/* tls_options.h -- the options of the user about TLS (tw_options.redis_tls_*), for the files of this room. */
#ifndef TWI_SYNC_WIRE_TLS_OPTIONS_H
#define TWI_SYNC_WIRE_TLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* NULL, or "": not given. Files are PEM. */
struct twi_tls_options {
    const char *ca_file;     /* the trusted authorities; the system's if not given */
    const char *cert_file;   /* our certificate, and those that lead to its authority */
    const char *key_file;    /* the key of cert_file */
    const char *server_name; /* the name that every certificate must have; the host's if not given */
    bool insecure;           /* certificates are not checked */
};

/* For a connection without TLS. Returns false if an option is given, and `error` then names it. Whoever gave it
 * assumes that TLS is used. */
bool twi_tls_options_are_unset(const struct twi_tls_options *options, char *error, size_t error_size);

#endif
