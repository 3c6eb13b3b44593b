/* active.h -- which stores have something to do. The steps of a turn walk only these stores, so a turn's cost depends
 * on the stores in use, not on all that exist.
 *
 *   made ─▶ active ─nothing to do─▶ idle ─┬ a batch, a deferred counter, a redirect ─▶ active
 *                                        ├ its ledger is to be written (30 s) ──────▶ active
 *                                        └ its connection, or the map, changed ─────▶ active
 * Always true at the end of a turn. An idle store has no task for a later turn. It is open, and knows this engine. It
 * has no request under way, no unsettled batch, and no deferred or rejected counter. No redirect, question or flush
 * waits for it. Its connection accepts requests. So code that gives such a store a task must wake it.
 * twi_active_is_sound() looks at every store; checks at level 3 call it in each turn.
 *
 * Users' own tags may make thousands of stores. Of these at most `places` (1,024) have something to send at a time.
 * A store that gets counts when no place is free waits. Its counters are deferred. Adds still count there, and no
 * count is lost. Otherwise it is like an idle store. The first store that waits wakes when another store has sent
 * its counts, after a few replies. A store that cannot send now, because its node is unreachable or its slot moves,
 * uses no place. The stores of the default template's tags (redis_tags) need no place. With one Redis its store is
 * always active. */
#ifndef TWI_SYNC_MESSAGE_ACTIVE_H
#define TWI_SYNC_MESSAGE_ACTIVE_H

#include <stdbool.h>
#include <stdint.h>

struct twi_store;
struct twi_sync;

/* A new store. sync->active.stores has room for as many as sync->stores. */
void twi_active_add(struct twi_sync *sync, struct twi_store *store);
/* Gives the store something to do, with a place or without one. If a round of tw_flush() collects, it joins. */
void twi_active_wake(struct twi_sync *sync, struct twi_store *store);
void twi_active_wake_all(struct twi_sync *sync);
/* Called when the store gets counts. Returns true if it is active. Returns false if it waits for a place, and its
 * counts must be deferred. */
bool twi_active_ask(struct twi_sync *sync, struct twi_store *store);
/* Called when a round of tw_flush() begins. The stores that have a task, or deferred counters, join it. Another
 * store joins when it becomes active. */
void twi_active_join(struct twi_sync *sync);
/* Before the steps of a turn walk stores: wakes those whose ledger is to be written, those whose connection accepts no
 * requests, and those for which there is a place. */
void twi_active_begin(struct twi_sync *sync, int64_t now_ms);
/* At the end of a turn, when connections were ended: wakes the stores of those. */
void twi_active_look(struct twi_sync *sync);
/* Then, as soon as the engine knows of all active stores: stores with nothing to do become idle. */
void twi_active_drop_idle(struct twi_sync *sync, int64_t now_ms);
/* Returns true if a store waits and there is a place, so that the next turn is due at once. */
bool twi_active_has_next(const struct twi_sync *sync);
/* Checks "always true". Traps if it is false. */
bool twi_active_is_sound(const struct twi_sync *sync);

#endif
