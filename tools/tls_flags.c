/* tls_flags.c -- see tls_flags.h. */
#include "tls_flags.h"

#include <stddef.h>

bool tls_flags_take(struct tls_flags *flags, int option, const char *given) {
    switch (option) {
    case OPTION_TLS_CA: flags->ca_file = given; return true;
    case OPTION_TLS_CERT: flags->cert_file = given; return true;
    case OPTION_TLS_KEY: flags->key_file = given; return true;
    case OPTION_TLS_SERVER_NAME: flags->server_name = given; return true;
    case OPTION_TLS_INSECURE: flags->insecure = 1; return true;
    default: return false;
    }
}

bool tls_flags_any(const struct tls_flags *flags) {
    return flags->ca_file != NULL || flags->cert_file != NULL || flags->key_file != NULL ||
           flags->server_name != NULL || flags->insecure != 0;
}
