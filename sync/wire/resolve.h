/* resolve.h -- host names to addresses without ever making a turn wait: a helper thread asks, the turn looks again
 * later. Always true: a look-up that is stuck holds up nobody, closing included; its thread frees what is left when it
 * comes back. */
#ifndef TWI_SYNC_WIRE_RESOLVE_H
#define TWI_SYNC_WIRE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

struct addrinfo;
struct twi_lookup;

/* An address written in digits, at once and without a thread. NULL: it is a name. Free with freeaddrinfo(). */
struct addrinfo *twi_resolve_digits(const char *host, uint16_t port);
/* Waits for the answer: host-driven engines, in tw_open() only. NULL: `*why` says why. */
struct addrinfo *twi_resolve_now(const char *host, uint16_t port, const char **why);

struct twi_lookup *twi_lookup_begin(const char *host, uint16_t port); /* NULL: no memory, or no thread could be made */
/* False: not answered yet. True: `*found` (or NULL, with `*why`) is the caller's, and the look-up is gone. */
bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why);
void twi_lookup_abandon(struct twi_lookup *lookup);
/* In a forked child: the thread is not there. */
void twi_lookup_forget(struct twi_lookup *lookup);

#endif
