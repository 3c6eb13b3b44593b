/* socket.h -- the connection: a table of functions over one socket, so that a simulator can stand in for it.  Step 5.
 *
 * Always true: no function waits, none raises a signal; after connect() failed or anything answered -1 the connection
 * is closed by the caller, and what was on it is of unknown outcome. Time comes from the caller. */
#ifndef TWI_SYNC_WIRE_SOCKET_H
#define TWI_SYNC_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sync/wire/url.h"

struct twi_transport {
    /* Begins to connect, or goes on: 1 connected, 0 under way (call again), -1 failed. `deadline_ms`: when the caller
     * will give up; with several addresses each gets its share of what is left. */
    int (*connect)(void *ctx, const struct twi_url *url, int64_t now_ms, int64_t deadline_ms);
    ssize_t (*send)(void *ctx, const void *data, size_t size); /* bytes taken, 0: would wait, -1: broken */
    ssize_t (*recv)(void *ctx, void *data, size_t size);       /* bytes read, 0: nothing yet, -1: broken or closed */
    void (*close)(void *ctx);                                  /* harmless when not connected */
    int (*fd)(void *ctx, bool *wants_write);                   /* -1: none; wants_write: while connecting */
    const char *(*why)(void *ctx);                             /* what went wrong last */
};

struct twi_socket;
extern const struct twi_transport twi_socket_transport; /* its ctx is a struct twi_socket */
/* `may_thread`: names are looked up by a helper thread; else here and now, once (host-driven engines). NULL: no
 * memory. */
struct twi_socket *twi_socket_create(const struct twi_url *url, bool may_thread);
void twi_socket_destroy(struct twi_socket *link);
void twi_socket_abandon(
    struct twi_socket *link); /* in a forked child: closes its copy of the descriptor and says nothing */

#endif
