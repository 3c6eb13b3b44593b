/* socket.h -- the connection as a table of functions over one socket, so that a simulator can replace it.  Step 5.
 *
 * Always true: no function waits or raises a signal. Time comes from the caller. After connect(), send() or recv() has
 * returned -1, the caller closes the connection, and the outcome of the requests on it is unknown. */
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
    ssize_t (*send)(void *ctx, const void *data, size_t size); /* bytes accepted; 0 if it would wait, -1 if broken */
    ssize_t (*recv)(void *ctx, void *data, size_t size);       /* bytes read; 0 for none yet, -1 if broken or closed */
    void (*close)(void *ctx);                                  /* harmless when not connected */
    int (*fd)(void *ctx, bool *wants_write); /* the descriptor to wait for, or -1; wants_write: for writing, too */
    const char *(*why)(void *ctx);           /* the last error */

    /* Returns why the last error will come again until a person changes a certificate or an option. Returns NULL if
     * it may go away. */
    bool (*is_refused)(void *ctx);

    /* Returns the ctx of one more connection; NULL if there is no memory. `shared` is the common state of all
     * connections of this kind, a struct twi_tls for TLS (tls.h), NULL for sockets. `set` is the descriptor of a
     * socket set (base/socket_set.h), -1 if there is none. The connection puts the descriptor for which it waits
     * into that set. First this is the look-up of a name, then the socket, for writing, too, while it is dialled or
     * full. So a caller that waits for the set need not call fd(). */
    void *(*create)(void *shared, int set);
    void (*destroy)(void *ctx); /* what create() made, connected or not; NULL is harmless */
    void (*abandon)(void *ctx); /* the same in a forked child: it closes no descriptor and sends no data */
};

extern const struct twi_transport twi_socket_transport; /* sockets, TCP and unix */
/* Called by TLS, which sends and receives over such a socket itself. The first two are send() and recv(), and fail if
 * the number is not the socket's any more (descriptor.h). The last one sets whether it waits for writing now. */
ssize_t twi_socket_send(int fd, const void *data, size_t size);
ssize_t twi_socket_recv(int fd, void *data, size_t size);
void twi_socket_wants_write(void *ctx, bool wants_write);

#endif
