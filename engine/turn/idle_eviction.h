/* idle_eviction.h -- endless families where idle keys make room (TW_ON_FULL_EVICT_IDLE): what the rest of the engine asks of
 * idle_eviction.c.
 * Always true: only families whose `evicts_idle` is set come here. */
#ifndef TWI_TURN_IDLE_EVICTION_H
#define TWI_TURN_IDLE_EVICTION_H

#include "engine/count/idle_lookup.h"

/* Half of keys_max: two generations hold it all. */
TWI_INLINE uint64_t twi_idle_eviction_share(uint64_t keys_max) {
    return keys_max / 2;
}

/* Is the previous generation, which is complete and still counts, to be sealed? */
bool twi_idle_eviction_is_due(struct tw_family *family, const struct twi_generation *generation);
/* A cell of the previous generation was frozen: if it was in use, its key goes on in the current one. */
void twi_idle_eviction_frozen(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                              uint32_t *work);
/* It goes: nothing of it is owed. */
void twi_idle_eviction_dropped(struct tw_family *family, struct twi_generation *generation);
/* Begins the next era, when it is time and nothing older than the current generation is left. Answers in how many ms to
 * look again. */
int64_t twi_idle_eviction_turn(struct tw_family *family);
/* Redis has told a total with the acknowledgement of an item; `acked` includes it. */
void twi_idle_eviction_take_total(const struct twi_item *item, int64_t total, int64_t acked);

#endif
