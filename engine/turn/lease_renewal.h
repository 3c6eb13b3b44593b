/* lease_renewal.h -- the turn's part of leases: their beginning and end, and whether their units were returned. */
#ifndef TWI_TURN_LEASE_RENEWAL_H
#define TWI_TURN_LEASE_RENEWAL_H

#include "tallywheel.h"

struct twi_generation;
struct twi_leases;

/* Begins as a fresh instance. Also called in a forked child. */
void twi_leases_begin(struct twi_leases *leases);
void twi_leases_free(struct twi_leases *leases);
/* Called when no thread can reach this generation. It removes the generation's leases from all lists. By the turn. */
void twi_leases_forget(tw_engine *engine, struct twi_generation *generation);
/* Called while closing. Returns true if all units of all leases were returned and every store knows that this engine
 * no longer takes part. Also true if the engine never took part. */
bool twi_leases_are_over(tw_engine *engine);
/* Called while the family of the generation is being closed. Returns true if Redis has acknowledged the return of
 * all units of the generation, and no message about its leases is in flight. Then the generation is dropped. Each
 * call looks at `*work` leases at most, and the next call continues there. Windows are examined one after the other,
 * so the function returns false for a window that has to wait for another one. Only the turn calls it. */
bool twi_leases_are_returned(tw_engine *engine, struct twi_generation *generation, uint32_t *work);
/* Called when the window has ended. The units of dead engines in it are then free. Called by the turn. */
void twi_leases_end(tw_engine *engine, struct twi_generation *generation);

#endif
