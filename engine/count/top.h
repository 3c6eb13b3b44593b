/* top.h -- finds the heavy keys among the keys without a counter. It reads the sketches of a walk's generations
 * (spill.h), and adds the counts that the walk finds for the same keys in the tables. A key is listed if its certain
 * count is at least an eighth of the greatest count that a key without an entry can have. So a key with more than 1 %
 * of the overflowed counts is listed. Keys that only inherited the count of other keys are not listed, because they
 * would be shown above exact counts. While no shard has replaced an entry, all keys are listed, with exact counts. A
 * key that got a counter later and is not listed is shown with the value of its counter.
 * Always true for adds that had returned before the reading began: the true count of a listed key is at most
 * `count.view`, and at least `count.view` - `count.error`. Only one thread uses it. */
#ifndef TWI_COUNT_TOP_H
#define TWI_COUNT_TOP_H

#include "engine/core/family.h"

struct twi_heavy_key {
    tw_count count;
    uint64_t hash;
};

struct twi_heavy {
    tw_engine *engine;
    struct twi_heavy_key *keys;
    size_t used;
    uint32_t *index; /* numbers of entries + 1, by hash, with open addressing */
    size_t places;   /* the size of `index`, a power of two */
    void *bytes;     /* the keys */
};

/* Reads the sketches. Returns false if there is no memory. Call twi_heavy_free() in any case. */
bool twi_heavy_read(struct twi_heavy *heavy, tw_engine *engine, struct twi_generation *const *generations,
                    size_t count);
/* Called when the walk shows a counter. If the key is listed, the counter is added to its entry, and returns true. */
bool twi_heavy_absorb(struct twi_heavy *heavy, const tw_count *count);
void twi_heavy_free(struct twi_heavy *heavy);

#endif
