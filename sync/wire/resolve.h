/* resolve.h -- host names to addresses, without making a turn wait: a helper thread asks, the turn looks again later.
 * Always true: a look-up that is stuck delays nothing, not even closing. If the engine abandons a look-up, the helper
 * thread frees it when the resolver returns. */
#ifndef TWI_SYNC_WIRE_RESOLVE_H
#define TWI_SYNC_WIRE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

struct addrinfo;
struct twi_lookup;

/* Reads an address written in digits, at once and without a thread. NULL: `host` is a name. The caller frees the result
 * with freeaddrinfo(). */
struct addrinfo *twi_resolve_digits(const char *host, uint16_t port);
/* Waits for the answer: only for host-driven engines, in tw_open(). NULL: `*why` says why. */
struct addrinfo *twi_resolve_now(const char *host, uint16_t port, const char **why);

struct twi_lookup *twi_lookup_begin(const char *host, uint16_t port); /* NULL: no memory, or no thread could be made */
/* False: there is no answer yet. True: the look-up is freed, and the caller owns `*found` (NULL: failed, `*why` says
 * why). */
bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why);
/* Nobody wants the answer any more. Whichever comes last frees the look-up: this call or its thread. */
void twi_lookup_abandon(struct twi_lookup *lookup);
/* In a forked child, where the thread does not exist. */
void twi_lookup_forget(struct twi_lookup *lookup);

#endif
