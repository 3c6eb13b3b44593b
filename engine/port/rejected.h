/* rejected.h -- the book of counters whose keys Redis rejects (wrong type, overflow, no number). All others are sent.
 *
 *   rejected ─▶ returned with a wait ─▶ the wait is over: to be sent again ─▶ acknowledged, or rejected again
 * There are two kinds of such books. The book of the engine (collector.rejected) has the counters that wait, and the
 * end of each wait. During the wait the collector skips the counter and leaves its DIRTY set, so that adders do not
 * mark it again. So a rejected key costs one attempt for each wait, however often threads count it. Each store of sync/
 * has a book of the counters that are rejected, with the length of the next wait. The wait doubles with each rejected
 * try. A request that was under way when the key was rejected does not count as a new try.
 * Always true: a book contains a counter at most once. Only the owner of the turn uses a book. If there is no room
 * for a counter, it is sent again at the next interval and not counted as new. No count is lost. */
#ifndef TWI_PORT_REJECTED_H
#define TWI_PORT_REJECTED_H

#include "engine/port/items.h"

#define TWI_REJECTED_MAX 65536u /* some 4 MiB; rejected keys are rare, but a faulty program may produce many */
#define TWI_REJECTED_WAIT_MIN_MS 1000
#define TWI_REJECTED_WAIT_MAX_MS 60000

struct twi_rejected_key {
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t due_ms;   /* the monotonic end of the wait; a rejection before it does not count as a new try */
    int64_t until_ms; /* for sync: the entry is dropped after this time */
    uint64_t number;  /* for sync: batches up to this number were frozen before the last rejection */
    uint32_t wait_ms; /* for sync: the length of the last wait */
    uint32_t next;    /* index + 1 of the next entry of its bucket */
    bool has_delta;   /* for the engine: the item had a delta */
};

/* A zeroed struct is an empty book. */
struct twi_rejected {
    struct twi_rejected_key *keys;
    uint32_t *buckets; /* words with index + 1 of the first entry of each bucket; 0: empty */
    /* bucket_count is a power of two. It is equal to room, unless memory was short */
    uint32_t count, room, bucket_count;
    int64_t due_ms; /* for the engine: if count is not 0, no wait ends before this time */
};

void twi_rejected_clear(struct twi_rejected *rejected);
void twi_rejected_free(struct twi_rejected *rejected);
/* Checks that each entry is in the chain of its bucket, and in no other chain. For checks. */
bool twi_rejected_is_valid(const struct twi_rejected *rejected);

/* ---- for the engine: counters that wait ---- */

enum twi_waiting_since {
    TWI_WAITS_FROM_NOW,
    TWI_WAITS_ALREADY, /* it was already waiting; the later time is used */
    TWI_WAITS_NOT      /* there is no room, or no memory */
};
enum twi_waiting_since twi_rejected_wait(struct twi_rejected *rejected, const struct twi_item *item, int64_t due_ms);
bool twi_rejected_waits(const struct twi_rejected *rejected, const struct twi_generation *generation,
                        const struct twi_cell *cell);
/* Takes one entry whose wait has ended. Begin with *at = 0. Returns false if there are no more such entries. Then
 * due_ms is computed again. */
bool twi_rejected_take(struct twi_rejected *rejected, int64_t now_ms, uint32_t *at, struct twi_rejected_key *key);
void twi_rejected_end_waits(struct twi_rejected *rejected, int64_t now_ms); /* every wait ends now */

/* ---- for a store: counters that are rejected ---- */

/* Called when a counter was rejected. `last` was the last batch that was frozen. Returns how long the counter must
 * wait. `*first` becomes true if it was not rejected earlier. */
uint32_t twi_rejected_again(struct twi_rejected *rejected, const struct twi_item *item, uint64_t last, int64_t now_ms,
                            bool *first);
/* Called when a counter was settled as a part of batch `number`. Returns true if the counter has an entry. The entry
 * stays if that batch was frozen before its latest rejection. */
bool twi_rejected_settled(struct twi_rejected *rejected, const struct twi_item *item, uint64_t number);
void twi_rejected_renumber(struct twi_rejected *rejected, uint64_t last); /* batches got new numbers, up to `last` */
/* Returns how many counters are rejected now. Drops entries that were not rejected again for three times their wait.
 * The windows of such entries were dropped, or their units were given up. */
uint32_t twi_rejected_count(struct twi_rejected *rejected, int64_t now_ms);

#endif
