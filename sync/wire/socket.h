/* socket.h -- the connection: a table of functions over one socket, so that a simulator can take its place.  Step 5.
 *
 * Always true: no function waits, and none raises a signal. Time comes from the caller. After connect(), send()
 * or recv() has returned -1, the caller closes the connection, and the outcome of what was on it is unknown. */
#ifndef TWI_SYNC_WIRE_SOCKET_H
#define TWI_SYNC_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sync/wire/endpoint.h"

struct twi_transport {
    /* Begins to connect, or continues: 1 connected, 0 under way (call again with the same endpoint), -1 failed. The
     * caller gives up at `deadline_ms`. If there are several addresses, each gets an equal share of the time left. */
    int (*connect)(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms);
    ssize_t (*send)(void *ctx, const void *data, size_t size); /* bytes taken; 0 if it would wait, -1 if broken */
    ssize_t (*recv)(void *ctx, void *data, size_t size); /* bytes read; 0 for nothing yet, -1 if broken or closed */
    void (*close)(void *ctx);                            /* harmless when not connected */
    int (*fd)(void *ctx, bool *wants_write); /* what it waits for; -1 if none. wants_write: wait for writing, too */
    const char *(*why)(void *ctx);           /* the last error */

    /* Will what went wrong last go wrong again until somebody changes a certificate or an option? NULL: never so. */
    bool (*is_refused)(void *ctx);

    /* The ctx of one more connection; NULL if there is no memory. `shared`: what all connections of this kind have in
     * common, a struct twi_tls for TLS (tls.h); NULL for sockets. `set`: the descriptor of a socket set
     * (base/socket_set.h), in which the connection enters whatever it waits for: the look-up of a name, then its
     * socket, for writing, too, while it is dialled or full. So whoever waits for the set need not request fd(). -1 if
     * none. */
    void *(*create)(void *shared, int set);
    void (*destroy)(void *ctx); /* what create() made, connected or not; NULL is harmless */
    void (*abandon)(void *ctx); /* the same in a forked child: closes its copy of the descriptor and says nothing */
};

extern const struct twi_transport twi_socket_transport; /* sockets, TCP and unix */
/* What is on top of such a socket (TLS) sends and receives by itself. It waits for writing now, or does not. */
void twi_socket_wants_write(void *ctx, bool wants_write);

#endif
