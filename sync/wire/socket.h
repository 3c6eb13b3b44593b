/* socket.h -- the connection as a table of functions over one socket, so that a simulator can replace it.  Step 5.
 *
 * Always true: no function waits or raises a signal. Time comes from the caller. After connect(), send() or recv() has
 * returned -1, the caller closes the connection, and the outcome of the requests on it is unknown. */
#ifndef TWI_SYNC_WIRE_SOCKET_H
#define TWI_SYNC_WIRE_SOCKET_H

#include "sync/wire/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- resolve ----
 * host names to addresses, without making anybody wait. A short-lived thread asks, and rings.
 * It is the only thread that a host-driven engine starts. Addresses in digits need no thread.
 * Always true: a look-up that is stuck delays nothing, not even closing. Its thread owns the memory to which it writes,
 * and touches no engine and no connection. The last user, the owner or the thread, frees the look-up. */

struct addrinfo;
struct twi_lookup;

/* Reads an address written in digits, at once and without a thread. Returns NULL if `host` is a name. The caller
 * frees the result with freeaddrinfo(). */
struct addrinfo *twi_resolve_digits(const char *host, uint16_t port);

struct twi_lookup *twi_lookup_begin(const char *host,
                                    uint16_t port); /* NULL if there is no memory, or no thread could be made */
/* The descriptor is readable when there is an answer; -1 if no descriptor was left, and the owner then looks from
 * time to time. The look-up closes it. */
int twi_lookup_fd(const struct twi_lookup *lookup);
/* Returns false if there is no answer yet. Returns true if the look-up has ended. The caller then owns `*found`, which
 * is NULL if it failed; `*why` has the reason. */
bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why);
/* Called if the answer is not needed any more. */
void twi_lookup_abandon(struct twi_lookup *lookup);
/* To be called in a forked child, in which the thread does not exist. */
void twi_lookup_forget(struct twi_lookup *lookup);

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
     * socket set (base/descriptor.h), -1 if there is none. The connection puts the descriptor for which it waits
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
