/* lease_renewal.h -- leases in the turn: whether their units were returned, their beginning and their end. */
#ifndef TWI_TURN_LEASE_RENEWAL_H
#define TWI_TURN_LEASE_RENEWAL_H

#include "tallywheel.h"

struct twi_generation;
struct twi_leases;

/* Begins as a fresh instance; also in a forked child. */
void twi_leases_begin(struct twi_leases *leases);
void twi_leases_free(struct twi_leases *leases);
/* No thread can reach this generation any more. Its leases leave all lists. By the turn. */
void twi_leases_forget(tw_engine *engine, struct twi_generation *generation);
/* Called while closing. Returns true if every unit of a lease was returned, and every store has received that this
 * engine takes no part in leases any more, or if it never did. */
bool twi_leases_are_over(tw_engine *engine);
/* Called while its family is being closed. Returns true if Redis has acknowledged the return of every unit that the
 * generation has, and no message about its leases is in flight; then it is dropped. Looks at `*work` leases at most,
 * and continues from there. Windows are looked at one after the other, so it returns false for another window that was
 * not begun. Only the turn calls it. */
bool twi_leases_are_returned(tw_engine *engine, struct twi_generation *generation, uint32_t *work);
/* The window has ended. Its units of dead engines are free. By the turn. */
void twi_leases_end(tw_engine *engine, struct twi_generation *generation);

#endif
