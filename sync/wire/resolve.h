/* resolve.h -- host names to addresses, without making anybody wait. A short-lived thread asks, and rings.
 * It is the only thread that a host-driven engine starts. Addresses in digits need none.
 * Always true: a look-up that is stuck delays nothing, not even closing. Its thread owns what it writes to, and touches
 * nothing else: no engine, no connection. Whichever comes last frees the look-up: its owner or its thread. */
#ifndef TWI_SYNC_WIRE_RESOLVE_H
#define TWI_SYNC_WIRE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

struct addrinfo;
struct twi_lookup;

/* Reads an address written in digits, at once and without a thread. NULL means `host` is a name. The caller frees the
 * result with freeaddrinfo(). */
struct addrinfo *twi_resolve_digits(const char *host, uint16_t port);

struct twi_lookup *twi_lookup_begin(const char *host,
                                    uint16_t port); /* NULL if there is no memory, or no thread could be made */
/* Readable from the answer on; -1 if no descriptor was left, and the owner looks from time to time. The look-up closes
 * it. */
int twi_lookup_fd(const struct twi_lookup *lookup);
/* False means that there is no answer yet. True means that the look-up is over, and the caller owns `*found` (NULL
 * means failed, `*why` says why). */
bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why);
/* Nobody wants the answer any more. */
void twi_lookup_abandon(struct twi_lookup *lookup);
/* In a forked child, where the thread does not exist. */
void twi_lookup_forget(struct twi_lookup *lookup);

#endif
