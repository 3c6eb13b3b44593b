/* url.h -- where Redis is, from redis://[user:password@]host[:port][/db] or unix://[user:password@]/path[?db=N].
 * Pure text. Always true: an error text names what is wrong and never repeats user, password or the URL itself. */
#ifndef TWI_SYNC_WIRE_URL_H
#define TWI_SYNC_WIRE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_URL_SIZE_MAX 2048
#define TWI_URL_ERROR_MAX 160 /* what an error text needs, with its NUL */

struct twi_url {
    bool is_unix;
    char host
        [256]; /* a name or an address without brackets; unix: the path (at most 107 bytes: what a sockaddr_un holds) */
    uint16_t port; /* default 6379 */
    uint32_t db;
    bool has_password;
    char user[256];      /* "": none given */
    char password[1024]; /* percent-decoded; never a NUL within */
};

/* False: `error` says why, and `url` is empty. */
bool twi_url_parse(const char *text, struct twi_url *url, char *error, size_t error_size);
void twi_url_wipe(struct twi_url *url);
/* "host:port", "[::1]:port" or the path, for log lines. */
void twi_url_name(const struct twi_url *url, char *out, size_t size);

#endif
