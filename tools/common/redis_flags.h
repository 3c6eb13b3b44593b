/* redis_flags.h -- the options of every command that connects to a Redis, in addition to --redis: passwords, and TLS.
 * Always true: a password comes from a file, the environment, or the URL. In the last case it is hidden first of all,
 * because every user sees the arguments of a command. */
#ifndef TOOL_REDIS_FLAGS_H
#define TOOL_REDIS_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "tools/common/options.h"

#define REDIS_PASSWORD "TALLYWHEEL_REDIS_PASSWORD"
#define SENTINEL_USER "TALLYWHEEL_SENTINEL_USER"
#define SENTINEL_PASSWORD "TALLYWHEEL_SENTINEL_PASSWORD"

/* In the table of options of a subcommand whose struct has `flags`, a struct redis_flags. */
#define REDIS_FLAGS(type, flags) \
    OPTION_TEXT("redis-password-file", type, flags.password_file), OPTION_TEXT("tls-ca", type, flags.ca_file), \
        OPTION_TEXT("tls-cert", type, flags.cert_file), OPTION_TEXT("tls-key", type, flags.key_file), \
        OPTION_TEXT("tls-server-name", type, flags.server_name), OPTION_FLAG("tls-insecure", type, flags.insecure)

/* In the help text, behind --redis. */
#define REDIS_FLAGS_HELP \
    "  --redis-password-file FILE  its first line is Redis's password; without it, and without one in the URL,\n" \
    "                      " REDIS_PASSWORD " of the environment is. The login of sentinels is\n" \
    "                      " SENTINEL_USER " and " SENTINEL_PASSWORD "\n" \
    "  --tls-ca FILE       for rediss://host: the trusted authorities (default: the system's)\n" \
    "  --tls-cert FILE     the client certificate, if Redis requires one, and\n" \
    "  --tls-key FILE      its key\n" \
    "  --tls-server-name NAME   the name that must be in Redis's certificate (default: the URL's host)\n" \
    "  --tls-insecure      do not verify Redis's certificate; for trials only\n"

struct redis_flags {
    const char *password_file;
    const char *ca_file, *cert_file, *key_file, *server_name;
    bool insecure;
};

/* Replaces each argument that is a URL of Redis with a password by a copy, and hides the password where others see it.
 * Once, before the arguments are looked at. Returns false if there is no memory. */
bool redis_flags_hide(int argc, char **argv);

bool redis_flags_any(const struct redis_flags *flags);
/* Puts the password of the file, or of the environment, into the URL, which has none, in memory. `*url` may be NULL,
 * which means no Redis. Returns false after a complaint, if the file cannot be read, or if the URL has a password,
 * too. */
bool redis_flags_finish(const struct redis_flags *flags, const char **url);

/* A callback of tw_options and tw_audit_options. */
int redis_flags_sentinel_password(void *ctx, char *out, size_t size);

/* `options` is a tw_options or a tw_audit_options. */
#define redis_flags_apply(flags, options) \
    ((options)->redis_tls_ca_file = (flags)->ca_file, (options)->redis_tls_cert_file = (flags)->cert_file, \
     (options)->redis_tls_key_file = (flags)->key_file, (options)->redis_tls_server_name = (flags)->server_name, \
     (options)->redis_tls_insecure = (flags)->insecure, (options)->sentinel_user = getenv(SENTINEL_USER), \
     (options)->sentinel_password = getenv(SENTINEL_PASSWORD) != NULL ? redis_flags_sentinel_password : NULL)

#endif
