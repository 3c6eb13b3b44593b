/* tls_flags.h -- the options of every command that goes to a Redis by TLS: --tls-ca and its kin. */
#ifndef TOOL_TLS_FLAGS_H
#define TOOL_TLS_FLAGS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    OPTION_TLS_CA = 0x1000, /* above each command's own */
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_TLS_SERVER_NAME,
    OPTION_TLS_INSECURE
};

/* In the table of getopt_long(). */
#define TLS_FLAGS \
    {"tls-ca", required_argument, NULL, OPTION_TLS_CA}, {"tls-cert", required_argument, NULL, OPTION_TLS_CERT}, \
        {"tls-key", required_argument, NULL, OPTION_TLS_KEY}, \
        {"tls-server-name", required_argument, NULL, OPTION_TLS_SERVER_NAME}, { \
        "tls-insecure", no_argument, NULL, OPTION_TLS_INSECURE \
    }

/* In the help text, behind --redis. */
#define TLS_FLAGS_HELP \
    "  --tls-ca FILE       for rediss://host: the authorities that are believed (default: the system's)\n" \
    "  --tls-cert FILE     the certificate to show, where Redis asks for one, and\n" \
    "  --tls-key FILE      its key\n" \
    "  --tls-server-name NAME   the name that Redis's certificate must bear (default: the URL's host)\n" \
    "  --tls-insecure      do not look at Redis's certificate: for trials only\n"

struct tls_flags {
    const char *ca_file, *cert_file, *key_file, *server_name;
    uint32_t insecure;
};

/* False: it is none of them. */
bool tls_flags_take(struct tls_flags *flags, int option, const char *given);
bool tls_flags_any(const struct tls_flags *flags);

/* `options`: a tw_options or a tw_audit_options. */
#define tls_flags_apply(flags, options) \
    ((options)->redis_tls_ca_file = (flags)->ca_file, (options)->redis_tls_cert_file = (flags)->cert_file, \
     (options)->redis_tls_key_file = (flags)->key_file, (options)->redis_tls_server_name = (flags)->server_name, \
     (options)->redis_tls_insecure = (flags)->insecure)

#endif
