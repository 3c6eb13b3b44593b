/* heavy.h -- the heavy keys among those that found no room, read from the sketches of a walk's generations (spill.h),
 * with the counts that the walk finds of the same keys in the tables added to them.
 * A key is listed if its certain count is at least an eighth of the greatest count that a key without an entry can
 * have. So a key of more than 1 % of the overflowed counts is listed; keys that only took over the count of other ones
 * are not, which would be above exact ones. While no shard has given an entry up, all keys are listed, exactly. A key
 * that got a counter later, and is not listed, is shown with the value of its counter.
 * Always true: with adds that had returned before the reading began, a listed key's true count is at most `count.view`,
 * and at least that less `count.error`. One thread uses it. */
#ifndef TWI_COUNT_HEAVY_H
#define TWI_COUNT_HEAVY_H

#include "engine/core/family.h"

struct twi_heavy_key {
    tw_count count;
    uint64_t hash;
};

struct twi_heavy {
    tw_engine *engine;
    struct twi_heavy_key *keys;
    size_t used;
    uint32_t *index; /* numbers + 1 by hash, with open addressing */
    size_t places;   /* a power of two */
    void *bytes;     /* the keys */
};

/* Reads the sketches. Returns false if there is no memory. twi_heavy_free() is called in any case. */
bool twi_heavy_read(struct twi_heavy *heavy, tw_engine *engine, struct twi_generation *const *generations,
                    size_t count);
/* The walk shows a counter. If its key is listed, it is added there, and true is returned. */
bool twi_heavy_absorb(struct twi_heavy *heavy, const tw_count *count);
void twi_heavy_free(struct twi_heavy *heavy);

#endif
