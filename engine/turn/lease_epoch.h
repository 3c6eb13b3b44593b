/* lease_epoch.h -- the epoch of one store. In this epoch the leases of the store are valid. This file decides when the
 * engine takes part, what it requests, and what a reply means.
 *
 *   no leases ─one is placed▶ requested ─reply▶ known ─another connection▶ requested
 *   known ─nothing held or requested for some seconds (several stores), or the engine is closed▶ leaving ─reply▶ left
 * Always true: only the turn uses this. At most one message on the store's present connection has no reply yet.
 * While the engine has units of a store that it would have to state again, it takes part in the epoch of that store.
 * A departure is sent until it is acknowledged. It names the incarnation that ends. A late copy of it does not end a
 * later incarnation (leases.lua). */
#ifndef TWI_TURN_LEASE_EPOCH_H
#define TWI_TURN_LEASE_EPOCH_H

#include "engine/turn/lease_stores.h"

/* With one Redis, an engine with a hard family takes part from the beginning. */
bool twi_lease_epoch_is_joined(const tw_engine *engine, const struct twi_lease_store *store);
/* Returns true if leases of this store may send messages. */
TWI_INLINE bool twi_lease_epoch_may_speak(const struct twi_lease_store *store) {
    return store->known && !store->is_leaving && !store->left;
}
/* Returns true if *message must be sent. `is_over` means that the engine is being closed and every unit was
 * returned. */
bool twi_lease_epoch_request(tw_engine *engine, struct twi_lease_store *store, uint64_t serial, bool is_over,
                             struct twi_lease_message *message);
/* Applies the reply. Returns true if another epoch has begun. Then all leases of this store must be stated again. */
bool twi_lease_epoch_answered(tw_engine *engine, struct twi_lease_store *store, const struct twi_lease_message *message,
                              const struct twi_lease_answer *answer);
/* Called when one lease fewer must be stated again. */
void twi_lease_epoch_restated(struct twi_lease_store *store);

#endif
