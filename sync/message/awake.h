/* awake.h -- which stores have something to do. The steps of a turn walk these stores only, so a turn costs by the
 * stores that are in use, not by all that were ever met.
 *
 *   made ─▶ awake ─nothing to do─▶ at rest ─┬ a batch, a parked counter, a redirect ─▶ awake
 *                                           ├ its ledger is to be written (30 s) ────▶ awake
 *                                           └ its connection, or the map, changed ───▶ awake
 * Always true at the end of a turn: a store at rest has nothing that a later turn would do of itself. It is open, and
 * not in doubt. It has nothing under way, no unsettled batch, and no parked or refused counter. No redirect, question
 * or flush waits for it. Its connection takes requests. So whoever gives such a store something to do wakes it.
 * twi_awake_is_sound() looks at every store; checks at level 3 call it in each turn.
 *
 * Users' own tags may make thousands of stores. Of these at most `places` (1,024) have something to send at a time. A
 * store that gets counts when no place is free waits: its counters are parked, so they are counted on, and nothing is
 * lost. It differs from a store at rest in that only. The first that waits wakes when another store has sent what it
 * had: in the time of a few replies. A store that cannot send now, because its node is away or its slot moves, takes no
 * place. The stores of the default template's tags (redis_tags) need none.
 * With one Redis its store is always awake. */
#ifndef TWI_SYNC_MESSAGE_AWAKE_H
#define TWI_SYNC_MESSAGE_AWAKE_H

#include <stdbool.h>
#include <stdint.h>

struct twi_store;
struct twi_sync;

/* A new store. sync->awake.stores has room for as many as sync->stores. */
void twi_awake_add(struct twi_sync *sync, struct twi_store *store);
/* The store is given something to do, with a place or without one. If a round of tw_flush() collects, it joins. */
void twi_awake_wake(struct twi_sync *sync, struct twi_store *store);
void twi_awake_wake_all(struct twi_sync *sync);
/* The store gets counts. True means that it is awake. False means that it waits for a place, and its counts are to be
 * parked. */
bool twi_awake_ask(struct twi_sync *sync, struct twi_store *store);
/* A round of tw_flush() begins: those join that have something to do, or parked counters. Another joins as it wakes. */
void twi_awake_join(struct twi_sync *sync);
/* Before the steps of a turn walk stores: wakes those whose ledger is to be written, those whose connection takes no
 * requests, and those for which there is a place. */
void twi_awake_begin(struct twi_sync *sync, int64_t now_ms);
/* At the end of a turn, when connections were ended: wakes the stores of those. */
void twi_awake_look(struct twi_sync *sync);
/* Then, once the engine was told of all that are awake: stores with nothing to do go to rest. */
void twi_awake_rest(struct twi_sync *sync, int64_t now_ms);
/* A store waits, and there is a place: the next turn is due at once. */
bool twi_awake_has_next(const struct twi_sync *sync);
/* Checks "always true". Traps where it does not hold. */
bool twi_awake_is_sound(const struct twi_sync *sync);

#endif
