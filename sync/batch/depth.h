/* depth.h -- how much is under way to Redis at once: no more than the distance to Redis requires, and no more than the
 * link carries in time.
 *
 * Redis processes the whole input of one client before it looks at the next client. So other clients wait for all
 * our keys under way, not for one batch. That is a microsecond or two for each key. Near Redis one small batch at a
 * time is enough to keep it busy. It serves others while we read the reply and make the next batch. Far from Redis,
 * as many keys are under way as it could process in half of the round trip. So a client as far away as we are waits
 * at most half as long again as without us. A thin link counts as a distance. While a key is on its way, Redis
 * serves other clients. The bytes under way have a separate bound. The reply to the last request has to come before
 * its deadline (estimate.h). Always true: 1 to TWI_PIPELINE_MAX batches of near_keys to TWI_BATCH_ITEMS_MAX keys;
 * more of either only for a longer distance. */
#ifndef TWI_SYNC_BATCH_DEPTH_H
#define TWI_SYNC_BATCH_DEPTH_H

#include "sync/wire/estimate.h"

#define TWI_PIPELINE_MAX 4u /* batches in flight: 4000 keys a round trip; the ledger remembers eight */

struct twi_load {
    uint32_t keys;    /* in a batch */
    uint32_t batches; /* at once */
};

/* `near_keys` is the number of keys of a batch when Redis is near. */
struct twi_load twi_depth_load(const struct twi_estimate *estimate, uint32_t near_keys);
/* Returns the bytes of one batch. Two are under way at once, so that the link is never idle. */
uint32_t twi_depth_batch_bytes(const struct twi_estimate *estimate, uint32_t timeout_ms);

#endif
