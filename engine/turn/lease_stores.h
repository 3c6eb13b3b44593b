/* lease_stores.h -- the leases of each store: the store of a lease, the chain of leases that callers have listed, and
 * the queue of leases that need work of the turn.
 *
 *   callers ─list▶ requested ─twi_lease_stores_sort()▶ listed, of its store ─▶ queue, of its store
 * One Redis is one store. The record of that store is a part of the engine. With several stores, the first lease in a
 * store makes the record of the store. The record is dropped when the engine has left the store's epoch.
 * Always true: only the turn uses this file. If a lease has granted units, or is in a queue or a chain, the record
 * of its store exists. */
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

/* Returns the record of that store. Returns NULL if the engine has no leases there. */
TWI_INLINE struct twi_lease_store *twi_lease_store_at(struct twi_leases *leases, uint32_t index) {
    if (index == 0) return &leases->first;
    return index <= leases->room ? leases->more[index - 1] : NULL;
}
/* Returns the record of the store of a lease that has granted units, or that is in a queue or a chain. */
TWI_INLINE struct twi_lease_store *twi_lease_store_of(tw_engine *engine, const struct twi_lease *lease) {
    return twi_lease_store_at(&engine->leases, lease->turn.in.store);
}
/* Frees the record. The engine has no leases in that store any more. */
void twi_lease_store_drop(struct twi_leases *leases, struct twi_lease_store *store);
/* The engine is not in the store any more. If it comes again, it comes as one that was never there. */
void twi_lease_store_leave(struct twi_lease_store *store);

/* Moves all leases that callers have listed into the chains of their stores. If a caller requests units after this
 * point, it lists its lease again (J6). */
void twi_lease_stores_sort(tw_engine *engine);
/* Clears `listed` of a lease that is not in the callers' list. Callers that found the flag set have pushed nothing, so
 * the lease joins the chain of its store. */
void twi_lease_stores_unlist(tw_engine *engine, struct twi_lease *lease);
/* Lists the lease of this counter, if it has one, for the thread with this number, which ended and may have been about
 * to list it. */
void twi_lease_stores_heal(tw_engine *engine, struct twi_cell *cell, uint32_t number);
/* Returns the next lease of the store's chain. Returns NULL if the chain is empty. */
struct twi_lease *twi_lease_store_next(tw_engine *engine, struct twi_lease_store *store);
/* Removes all leases of the generation from chains and queues. */
void twi_lease_stores_forget(tw_engine *engine, const struct twi_generation *generation);

void twi_lease_enqueue(tw_engine *engine, struct twi_lease_store *store, struct twi_lease *lease);
struct twi_lease *twi_lease_dequeue(tw_engine *engine, struct twi_lease_store *store);
/* Called when units of this lease were granted or returned. Each new epoch then states the lease again. */
void twi_lease_hold(struct twi_lease_store *store, struct twi_lease *lease);

/* Another process makes the turns from now on: no message is in flight, every lease is looked at once more, and each
 * store's epoch is requested on the new connection. */
void twi_leases_inherit(tw_engine *engine);

void twi_lease_stores_free(struct twi_leases *leases);

/* The next two functions, for tests and checks of level 3, check a lease, and all chains and queues. */
bool twi_lease_is_valid(tw_engine *engine, const struct twi_lease *lease);
bool twi_lease_stores_are_valid(tw_engine *engine);

/* ---- lease epoch ----
 * the epoch of one store. In this epoch the leases of the store are valid. This file decides when the
 * engine takes part, what it requests, and what a reply means.
 *
 *   no leases ─one is placed▶ requested ─reply▶ known ─another connection▶ requested
 *   known ─nothing held or requested for some seconds (several stores), or the engine is closed▶ leaving ─reply▶ left
 * Always true: only the turn uses this. At most one message on the store's present connection has no reply yet.
 * While the engine has units of a store that it would have to state again, it takes part in the epoch of that store.
 * A departure is sent until it is acknowledged. It names the incarnation that ends. A late copy of it does not end a
 * later incarnation (leases.lua). */

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
