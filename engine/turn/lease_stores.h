/* lease_stores.h -- the leases of each store: which store a lease belongs to, the chain of leases that callers have
 * listed, and the queue of leases that the turn works on.
 *
 *   callers ─list▶ requested ─twi_lease_stores_sort()▶ listed, of its store ─▶ queue, of its store
 * One Redis is one store, and its record is a part of the engine. With several stores a record is made with the first
 * lease that is placed there, and is dropped when the engine has left that store's epoch.
 * Always true: only the turn uses this. A lease that has granted units, or that is in a queue or a chain, has its
 * store's record. */
#ifndef TWI_TURN_LEASE_STORES_H
#define TWI_TURN_LEASE_STORES_H

#include "engine/core/state.h"
#include "engine/limit/lease.h"

TWI_INLINE struct twi_lease *twi_lease_at(const struct twi_arena *arena, uint32_t line) {
    return twi_arena_at(arena, line);
}
TWI_INLINE struct twi_generation *twi_lease_generation(const struct twi_arena *arena, const struct twi_lease *lease) {
    return twi_arena_at(arena, lease->generation);
}

/* The record of that store. Returns NULL if the engine has no leases there. */
TWI_INLINE struct twi_lease_store *twi_lease_store_at(struct twi_leases *leases, uint32_t index) {
    if (index == 0) return &leases->first;
    return index <= leases->room ? leases->more[index - 1] : NULL;
}
/* The record of the store of a lease that is granted anything, or that is in a queue or a chain. */
TWI_INLINE struct twi_lease_store *twi_lease_store_of(tw_engine *engine, const struct twi_lease *lease) {
    return twi_lease_store_at(&engine->leases, lease->turn.in.store);
}
/* Frees the record; the engine has no leases there any more. */
void twi_lease_store_drop(struct twi_leases *leases, struct twi_lease_store *store);

/* Puts all leases that callers have listed into the chains of their stores. From here on, a caller that requests units
 * lists its lease again (J6). */
void twi_lease_stores_sort(tw_engine *engine);
/* The next lease of the store's chain. Returns NULL if there is none. */
struct twi_lease *twi_lease_store_next(tw_engine *engine, struct twi_lease_store *store);
/* No lease of the generation stays in a chain or a queue. */
void twi_lease_stores_forget(tw_engine *engine, const struct twi_generation *generation);

void twi_lease_enqueue(tw_engine *engine, struct twi_lease_store *store, struct twi_lease *lease);
struct twi_lease *twi_lease_dequeue(tw_engine *engine, struct twi_lease_store *store);
/* Something of this lease is granted or returned, so it is restated in each new epoch. */
void twi_lease_hold(struct twi_lease_store *store, struct twi_lease *lease);

void twi_lease_stores_free(struct twi_leases *leases);

/* For tests and checks of level 3. They check one lease, and the chains and queues of all stores. */
bool twi_lease_is_valid(tw_engine *engine, const struct twi_lease *lease);
bool twi_lease_stores_are_valid(tw_engine *engine);

#endif
