/* collect.h -- from counters with unsent deltas to frozen batches. See collect.c. */
#ifndef TWI_SYNC_TURN_COLLECT_H
#define TWI_SYNC_TURN_COLLECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- stores ----
 * makes the store of each key slot in use, and sorts collected items by store.
 *
 * The keys of one slot can be in one script, so a store has a ledger and a separate marker in that slot:
 * tw:ledger:{14}:<32 digits>, tw:marker:{14}. The first store has the engine-wide names (tw:live). Always true: a
 * store's index is the engine's (twi_port_store()). An item in a batch of a store has its index. */

struct twi_store;
struct twi_sync;

/* The most items of one collection. A collection is cut by store, so it is large. Then batches are, too. */
#define TWI_STORES_ITEMS_MAX 16384u

#define TWI_STORES_NAMES_MAX (1u << 20) /* bytes of their names that are kept; the others are rendered again */

/* Before the first store is named. This engine has a store for each slot. Returns false if there is no memory. */
bool twi_stores_begin(struct twi_sync *sync);
/* Gives the store its slot, and its marker's name. */
void twi_stores_name(const struct twi_sync *sync, struct twi_store *store, uint32_t slot);
/* The slot of the engine's own names, and its index. */
bool twi_stores_name_first(struct twi_sync *sync, struct twi_store *store);
/* Sorts the staged items by store, and makes the stores that are missing. Returns how many items there are. The
 * others were returned because there was no memory. */
size_t twi_stores_sort(struct twi_sync *sync, size_t count);
/* Makes the stores that the engine has met for its leases. Without memory that is tried again in the next turn. */
void twi_stores_make(struct twi_sync *sync);
/* Returns whether the store accepts batches now. Then it has a record of this engine, and its server answers.
 * Otherwise items are deferred. */
bool twi_stores_may_take(const struct twi_store *store);
/* Opens the stores that have no ledger of this instance, while their connections have room. */
void twi_stores_open(struct twi_sync *sync, int64_t now_ms);
void twi_stores_end(struct twi_sync *sync);

struct twi_store;
struct twi_sync;

void twi_collect(struct twi_sync *sync, int64_t now_ms);
uint64_t twi_sync_unsettled(const struct twi_store *store); /* returns the batches whose items are not settled */
bool twi_sync_is_full(const struct twi_sync *sync);         /* so many batches exist that no more are frozen */
/* Returns true if the store has deferred items, and accepts them now. */
bool twi_collect_may_unpark(const struct twi_store *store);

#endif
