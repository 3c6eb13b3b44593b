/* poison.h -- counters that Redis refuses (wrong type, overflow, no number). Each waits by itself; the others go on.
 * Pure but for its memory. Always true: an entry begins with a refusal. It ends when a later batch with that counter
 * is acknowledged or found late, or when the counter has not been refused again for three times its wait (its window
 * was dropped, or its units were given up). The wait doubles with each refused try. A refusal before the wait is
 * over is no try: its batch was already under way. Without room a newcomer gets no entry: it waits the longest wait
 * and is not reported as new. Nothing else is lost. */
#ifndef TWI_SYNC_BATCH_POISON_H
#define TWI_SYNC_BATCH_POISON_H

#include "engine/port/items.h"

#define TWI_POISON_ENTRIES 65536u /* some 3 MiB; refused keys are rare, but one wrong deployment may produce many */
#define TWI_POISON_WAIT_MIN_MS 1000
#define TWI_POISON_WAIT_MAX_MS 60000

struct twi_poisoned {
    const struct twi_generation *generation;
    const struct twi_cell *cell;
    int64_t again_ms; /* a refusal before this time is no new try */
    int64_t until_ms; /* the entry is dropped after this time */
    uint64_t number;  /* batches up to this number were frozen before it went back: they do not contain what waits */
    uint32_t wait_ms;
    uint32_t next; /* the next entry of its bucket: index + 1 */
};

struct twi_poison {
    struct twi_poisoned *entries;
    uint32_t *buckets;    /* `room` of them: index + 1 of the first, 0: none */
    uint32_t count, room; /* room: a power of two */
};

/* A counter was refused while `last` was the last batch frozen. Returns how long it is to wait; `*first`: it was not
 * refused before. */
uint32_t twi_poison_add(struct twi_poison *poison, const struct twi_item *item, uint64_t last, int64_t now_ms,
                        bool *first);
/* A counter was settled as a part of batch `number`. Returns whether it has an entry. The entry stays if that batch
 * was frozen before its latest refusal. */
bool twi_poison_remove(struct twi_poison *poison, const struct twi_item *item, uint64_t number);
void twi_poison_renumber(struct twi_poison *poison, uint64_t last); /* batches were renumbered, up to `last` */
/* How many counters are refused now. Drops the entries whose time is over. */
size_t twi_poison_count(struct twi_poison *poison, int64_t now_ms);
void twi_poison_free(struct twi_poison *poison);

#endif
