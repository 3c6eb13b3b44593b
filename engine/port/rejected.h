/* rejected.h -- counters whose keys Redis rejects (wrong type, overflow, no number). The others are sent without them.
 *
 *   rejected ─▶ returned with a wait ─▶ the wait is over: to be sent again ─▶ acknowledged, or rejected again
 * Two users keep such a book. The engine (collector.rejected) stores which counters wait, and until when. Meanwhile the
 * collector skips a counter and leaves its DIRTY set, so adders do not mark it again. A rejected key costs one attempt
 * per wait, however often it is counted on. Each store of sync/ stores which counters are rejected, and how long each
 * waits next. The wait doubles with each rejected try. A request that was under way when the key was rejected is no new
 * try.
 * Always true: a counter is in a book at most once. One thread at a time, the owner of the turn, uses a book. A counter
 * that finds no room is sent again at the next interval, is not counted as new, and loses no count. */
#ifndef TWI_PORT_REJECTED_H
#define TWI_PORT_REJECTED_H

#include "engine/port/items.h"

#define TWI_REJECTED_MAX 65536u /* some 4 MiB; rejected keys are rare, but one wrong deployment may produce many */
#define TWI_REJECTED_WAIT_MIN_MS 1000
#define TWI_REJECTED_WAIT_MAX_MS 60000

struct twi_rejected_key {
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t due_ms;   /* the monotonic time when the wait ends; a rejection before this time is no new try */
    int64_t until_ms; /* used by sync; the entry is dropped after this time */
    uint64_t number;  /* used by sync; batches up to this number were frozen before the last rejection */
    uint32_t wait_ms; /* used by sync; the last wait */
    uint32_t next;    /* index + 1 of the next entry of its bucket */
    bool has_delta;   /* used by the engine; the item had a delta */
};

/* A zeroed struct is an empty book. */
struct twi_rejected {
    struct twi_rejected_key *keys;
    uint32_t *buckets; /* `bucket_count` words, each with index + 1 of the first entry; 0 means none */
    /* bucket_count is a power of two. It is equal to room, unless memory was short */
    uint32_t count, room, bucket_count;
    int64_t due_ms; /* used by the engine; if count != 0, no wait ends before this */
};

void twi_rejected_clear(struct twi_rejected *rejected);
void twi_rejected_free(struct twi_rejected *rejected);
/* Each entry is in the chain of its bucket, and in no other. For checks. */
bool twi_rejected_is_valid(const struct twi_rejected *rejected);

/* ---- used by the engine, for counters that wait ---- */

enum twi_waiting_since {
    TWI_WAITS_FROM_NOW,
    TWI_WAITS_ALREADY, /* it waited already; the later time counts */
    TWI_WAITS_NOT      /* no room, or no memory */
};
enum twi_waiting_since twi_rejected_wait(struct twi_rejected *rejected, const struct twi_item *item, int64_t due_ms);
bool twi_rejected_waits(const struct twi_rejected *rejected, const struct twi_generation *generation,
                        const struct twi_cell *cell);
/* Takes one entry whose wait is over; begin with *at = 0. Returns false if there are no more; then due_ms is computed
 * again. */
bool twi_rejected_take(struct twi_rejected *rejected, int64_t now_ms, uint32_t *at, struct twi_rejected_key *key);
void twi_rejected_end_waits(struct twi_rejected *rejected, int64_t now_ms); /* every wait is over now */

/* ---- used by a store, for counters that are rejected ---- */

/* A counter was rejected while `last` was the last batch frozen. Returns how long it has to wait. `*first` becomes true
 * if it was not rejected earlier. */
uint32_t twi_rejected_again(struct twi_rejected *rejected, const struct twi_item *item, uint64_t last, int64_t now_ms,
                            bool *first);
/* A counter was settled as a part of batch `number`. Returns whether it has an entry. The entry stays if that batch
 * was frozen before its latest rejection. */
bool twi_rejected_settled(struct twi_rejected *rejected, const struct twi_item *item, uint64_t number);
void twi_rejected_renumber(struct twi_rejected *rejected, uint64_t last); /* batches were renumbered, up to `last` */
/* How many counters are rejected now. Drops the entries that were not rejected again for three times their wait. Their
 * windows were dropped, or their units were given up. */
uint32_t twi_rejected_count(struct twi_rejected *rejected, int64_t now_ms);

#endif
