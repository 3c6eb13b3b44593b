/* idle_eviction.h -- idle eviction in endless families (TW_ON_FULL_EVICT_IDLE). The roll-over and the settling call it.
 * Always true: only families with `evicts_idle` come here. */
#ifndef TWI_TURN_IDLE_EVICTION_H
#define TWI_TURN_IDLE_EVICTION_H

#include "engine/count/lookup.h"

/* The share of a generation is half of keys_max, because two generations have all keys. */
TWI_INLINE uint64_t twi_idle_eviction_share(uint64_t keys_max) {
    return keys_max / 2;
}

/* Returns true if the previous generation, which is complete and still counts, must be sealed now. */
bool twi_idle_eviction_is_due(struct tw_family *family, const struct twi_generation *generation);
/* Called when a cell of the previous generation was frozen. A used one gets a successor in the current generation. */
void twi_idle_eviction_frozen(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                              uint32_t *work);
/* Called when the generation is dropped and has no unsent counts. Counts the evicted keys. */
void twi_idle_eviction_dropped(struct tw_family *family, struct twi_generation *generation);
/* Begins the next epoch, if it is time and only the current generation is left. Returns the number of ms after which
 * to check again. */
int64_t twi_idle_eviction_turn(struct tw_family *family);
/* Called when Redis has sent a total with the acknowledgement of an item. `acked` includes the item's delta. */
void twi_idle_eviction_take_total(const struct twi_item *item, int64_t total, int64_t acked);

#endif
