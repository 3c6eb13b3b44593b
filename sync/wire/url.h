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

#include "sync/wire/endpoint.h"

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
