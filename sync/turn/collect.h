/* collect.h -- from counters with unsent deltas to frozen batches. See collect.c. */
#ifndef TWI_SYNC_TURN_COLLECT_H
#define TWI_SYNC_TURN_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

struct twi_store;
struct twi_sync;

void twi_collect(struct twi_sync *sync, int64_t now_ms);
uint64_t twi_sync_unsettled(const struct twi_store *store); /* returns the batches whose items are not settled */
bool twi_sync_is_full(const struct twi_sync *sync);         /* so many batches exist that no more are frozen */
/* Returns true if the store has deferred items, and accepts them now. */
bool twi_collect_may_unpark(const struct twi_store *store);

#endif
