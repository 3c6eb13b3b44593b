/* resolve.h -- host names to addresses, without making anybody wait. A short-lived thread asks, and rings.
 * It is the only thread that a host-driven engine starts. Addresses in digits need no thread.
 * Always true: a look-up that is stuck delays nothing, not even closing. Its thread owns the memory to which it writes,
 * and touches no engine and no connection. The last user, the owner or the thread, frees the look-up. */
#ifndef TWI_SYNC_WIRE_RESOLVE_H
#define TWI_SYNC_WIRE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
