/* depth.h -- how much is under way to Redis at once: as little as the way there asks for.
 *
 * A Redis works off everything that lies in one client's input before it looks at the next client. So what others wait
 * for is not one batch of ours but all that we have under way: a microsecond or two for each key. Near a Redis one
 * small batch at a time keeps it busy enough, and it serves others while we read the answer and make the next. Far from
 * it as many keys are under way as it could take in half of the way there and back, so that a client as far away as we
 * are waits at most half as long again as without us. The way is the quickest answer of the last seconds, of those that
 * were asked for while nothing else was under way: not what we, or others, make Redis busy with for a while.
 * Where the host runs the turns, an answer is read when the host gets to it: that is a part of the way, and the latest
 * answer tells it. Pure: times come from the caller. Always true: 1 to TWI_PIPELINE_MAX batches of TWI_NEAR_KEYS to
 * TWI_BATCH_ITEMS_MAX keys; more of either only for a longer way. */
#ifndef TWI_SYNC_BATCH_DEPTH_H
#define TWI_SYNC_BATCH_DEPTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TWI_PIPELINE_MAX 4u /* batches in flight: 4000 keys a round trip; the ledger remembers eight */
#define TWI_NEAR_KEYS \
    64u /* in a batch, where Redis is near: some 140 us of its one thread (docs/SYNC.md has the table) */

struct twi_depth {
    int64_t quickest_us[2]; /* in this half of the time, and in the one before; 0: no answer was timed */
    int64_t half_us;        /* when this half began */
    bool by_latest;         /* set before use: the host runs the turns */
};

struct twi_load {
    uint32_t keys;    /* in a batch */
    uint32_t batches; /* at once */
};

/* The keys of a batch where Redis is near. Simulators take fewer, so that batches are many. */
extern _Atomic uint32_t twi_near_limit_keys;

/* An answer came `took_us` after its question, on which nothing else was under way; it was about so many keys. */
void twi_depth_note(struct twi_depth *depth, int64_t took_us, uint32_t keys, int64_t now_us);
/* There and back; 0: not known yet, and taken for near. */
int64_t twi_depth_way_us(const struct twi_depth *depth);
void twi_depth_forget(struct twi_depth *depth); /* the next server may be nearer */
struct twi_load twi_depth_load(const struct twi_depth *depth);

#endif
