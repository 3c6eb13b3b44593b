/* poison.h -- counters that Redis refuses (wrong type, overflow, no number): each waits by itself, the others go on.
 * Pure but for its memory. Always true: a counter stands here from its refusal until it is acknowledged or given up, or
 * until it has not been refused again for three times its wait (its window was dropped meanwhile). Its wait doubles
 * with each try; refusals of batches that were under way since before the last one are no try. Without room the
 * newcomer is forgotten: it waits the longest wait, is not told as news, and nothing else is lost. */
#ifndef TWI_SYNC_BATCH_POISON_H
#define TWI_SYNC_BATCH_POISON_H

#include "engine/port/items.h"

#define TWI_POISON_ENTRIES 65536u /* some 3 MiB; refused keys are rare, and one wrong deployment may make them many */
#define TWI_POISON_WAIT_MIN_MS 1000
#define TWI_POISON_WAIT_MAX_MS 60000

struct twi_poisoned {
    const struct twi_generation *generation;
    const struct twi_cell *cell;
    int64_t again_ms; /* a refusal before that was of no new try */
    int64_t until_ms; /* forgotten after that */
    uint64_t number;  /* batches up to there were frozen before it went back: they do not contain what waits */
    uint32_t wait_ms;
    uint32_t next; /* in its bucket: index + 1 */
};

struct twi_poison {
    struct twi_poisoned *entries;
    uint32_t *buckets;    /* `room` of them: index + 1 of the first, 0: none */
    uint32_t count, room; /* room: a power of two */
};

/* Refused, while `last` was the last batch frozen: returns how long it is to wait; `*first` whether this is news. */
uint32_t twi_poison_add(struct twi_poison *poison, const struct twi_item *item, uint64_t last, int64_t now_ms,
                        bool *first);
/* Settled as a part of batch `number`: returns whether it stood here. It goes on standing here if that batch is
 * older. */
bool twi_poison_remove(struct twi_poison *poison, const struct twi_item *item, uint64_t number);
void twi_poison_renumber(struct twi_poison *poison, uint64_t last); /* batches have new numbers, up to `last` */
/* How many are refused now; forgets those that did not come back. */
size_t twi_poison_count(struct twi_poison *poison, int64_t now_ms);
void twi_poison_free(struct twi_poison *poison);

#endif
