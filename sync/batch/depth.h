/* depth.h -- how much is under way to Redis at once: no more than the distance to Redis calls for.
 *
 * Redis works off all that lies in one client's input before it looks at the next client. So other clients wait for
 * all that we have under way, not for one batch: a microsecond or two for each key. Near Redis, one small batch at a
 * time keeps it busy enough. It serves others while we read the reply and make the next batch. Far from Redis, as
 * many keys are under way as it could take in half of the round trip. So a client as far away as we are waits at
 * most half as long again as without us.
 * The round trip is the fastest reply of the last five to ten seconds, among the requests that were sent while
 * nothing else was under way. So the work that we, or others, give Redis for a while does not count as distance.
 * Where the host runs the turns, a reply is read only when the host runs the next turn. That delay is a part of the
 * round trip, so there the latest reply counts, not the fastest.
 * Pure: times come from the caller. Always true: 1 to TWI_PIPELINE_MAX batches of near_keys to
 * TWI_BATCH_ITEMS_MAX keys; more of either only for a longer round trip. */
#ifndef TWI_SYNC_BATCH_DEPTH_H
#define TWI_SYNC_BATCH_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#define TWI_PIPELINE_MAX 4u /* batches in flight: 4000 keys a round trip; the ledger remembers eight */

struct twi_depth {
    int64_t quickest_us[2]; /* the fastest of this half of the time, and of the half before; 0: no reply was timed */
    int64_t half_us;        /* when this half began */
    bool by_latest;         /* set before use: the host runs the turns */
    uint32_t near_keys;     /* set before use: the keys of a batch where Redis is near */
};

struct twi_load {
    uint32_t keys;    /* in a batch */
    uint32_t batches; /* at once */
};

/* Notes a reply that came `took_us` after its request, about so many keys. Nothing else was under way when the
 * request was sent. */
void twi_depth_note(struct twi_depth *depth, int64_t took_us, uint32_t keys, int64_t now_us);
/* The round trip; 0: not known yet, and treated as near. */
int64_t twi_depth_way_us(const struct twi_depth *depth);
void twi_depth_forget(struct twi_depth *depth); /* the next server may be nearer */
struct twi_load twi_depth_load(const struct twi_depth *depth);

#endif
