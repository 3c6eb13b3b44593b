/* url.h -- the parts of a Redis URL. It names one server, the nodes of a cluster, or the sentinels of a master.
 *
 *   redis://[user:password@]host[:port][/db]                       one server; default port 6379
 *   unix://[user:password@]/path[?db=N]                            the same over a unix socket
 *   redis+cluster://[user:password@]host[:port][,...]              some nodes of a cluster; default port 6379
 *   redis+sentinel://[user:password@]host[:port][,...]/name[/db]   sentinels, default port 26379; a master's name
 * `rediss` in place of `redis` means TLS. `valkey` and `valkeys` are other words for `redis` and `rediss`. The login is
 * that of Redis, not that of the sentinels.
 * The file works on text only. Always true: an error text names the fault, and never repeats the user, the password or
 * the URL itself. */
#ifndef TWI_SYNC_WIRE_URL_H
#define TWI_SYNC_WIRE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- endpoint ----
 * where one server listens, and with which protocol. It has all data that a transport needs in order to
 * connect. Pure data: no login, no database, no state. Always true: a copy of an endpoint is as good as the
 * endpoint. */

#define TWI_HOST_SIZE 256          /* of a host, with its NUL */
#define TWI_ENDPOINT_NAME_SIZE 300 /* of "host:port", with its NUL */

struct twi_endpoint {
    bool is_unix;                    /* `host` is the path of a socket, and `port` is unused */
    bool is_tls;                     /* TLS is spoken from the first byte on */
    uint16_t port;                   /* 1 to 65535 */
    char host[TWI_HOST_SIZE];        /* a name, or an address without brackets. A path has at most 107 bytes */
    char verify_name[TWI_HOST_SIZE]; /* with TLS, the name that the certificate must have; "" for `host` */
};

/* How a node of a Redis Cluster describes the place of another one. */
enum twi_endpoint_found {
    TWI_ENDPOINT_HERE,
    TWI_ENDPOINT_UNKNOWN, /* it is unknown to the node */
    TWI_ENDPOINT_BAD      /* no host name or address, or no port */
};

/* Reads a host and a port. An empty host means the host of `asked`, which is the node that sent it; "?" means an
 * unknown host. TLS and the name to verify are those of `asked`. */
enum twi_endpoint_found twi_endpoint_read(const struct twi_endpoint *asked, const char *host, size_t size, int64_t port,
                                          struct twi_endpoint *endpoint);
bool twi_endpoint_equals(const struct twi_endpoint *a, const struct twi_endpoint *b);
/* Writes "host:port", "[::1]:port" or the path, for log lines. */
void twi_endpoint_name(const struct twi_endpoint *endpoint, char *out, size_t size);

/* ---- tls options ----
 * the options of the user about TLS (tw_options.redis_tls_*), for the files of this room. */

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

#define TWI_URL_SIZE_MAX 2048
#define TWI_URL_ERROR_MAX 160 /* room for any error text, with its NUL */
#define TWI_URL_SEEDS_MAX 64u

enum twi_url_kind { TWI_URL_ONE, TWI_URL_CLUSTER, TWI_URL_SENTINEL };

/* One host of the URL; twi_url_seed() reads it. */
struct twi_url_seed {
    uint16_t host_at; /* in `hosts` */
    uint16_t port;
};

struct twi_url {
    enum twi_url_kind kind;
    bool is_unix;
    bool is_tls;
    bool has_password;
    uint32_t db;
    uint32_t seed_count; /* 1 to TWI_URL_SEEDS_MAX; of TWI_URL_ONE: 1 */
    struct twi_url_seed seeds[TWI_URL_SEEDS_MAX];
    char hosts[TWI_URL_SIZE_MAX + 1]; /* one text after the other, each with its NUL */
    char user[256];                   /* "" if there is none */
    char password[1024];              /* percent-decoded; never a NUL within */
    char master[256];                 /* for TWI_URL_SENTINEL, the name of the master at the sentinels */
};

/* Returns false on an error; `error` then has the reason, and `url` is empty. */
bool twi_url_parse(const char *text, struct twi_url *url, char *error, size_t error_size);
void twi_url_wipe(struct twi_url *url);
/* The seed number `i`, below seed_count. */
struct twi_endpoint twi_url_seed(const struct twi_url *url, uint32_t i);

#endif
