/* lease_epoch.h -- the epoch of one store, in which its leases are valid: when this engine takes part, its requests,
 * and the meaning of a reply.
 *
 *   no leases ─one is placed▶ requested ─reply▶ known ─another connection▶ requested
 *   known ─nothing held or requested for some seconds (several stores), or the engine is closed▶ leaving ─reply▶ left
 * Always true: only the turn uses this. At most one message is awaited on the store's present connection. While the
 * engine has units of a store that it would have to state again, it takes part in that store's epoch. A departure is
 * sent until it is acknowledged, and names the incarnation that ends. A late copy does not end a later incarnation
 * (leases.lua). */
#ifndef TWI_TURN_LEASE_EPOCH_H
#define TWI_TURN_LEASE_EPOCH_H

#include "engine/turn/lease_stores.h"

/* With one Redis, an engine that has a hard family takes part from the beginning. */
bool twi_lease_epoch_is_joined(const tw_engine *engine, const struct twi_lease_store *store);
/* Leases of this store may send. */
TWI_INLINE bool twi_lease_epoch_may_speak(const struct twi_lease_store *store) {
    return store->known && !store->is_leaving && !store->left;
}
/* Returns true if *message has to be sent. `is_over` means that the engine is being closed, and that every unit was
 * returned. */
bool twi_lease_epoch_request(tw_engine *engine, struct twi_lease_store *store, uint64_t serial, bool is_over,
                             struct twi_lease_message *message);
/* Applies the reply. Returns true if another epoch has begun. Then all leases of this store are to be restated. */
bool twi_lease_epoch_answered(tw_engine *engine, struct twi_lease_store *store, const struct twi_lease_message *message,
                              const struct twi_lease_answer *answer);
/* One lease less is to be restated. */
void twi_lease_epoch_restated(struct twi_lease_store *store);

#endif
