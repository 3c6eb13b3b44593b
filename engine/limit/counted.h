/* counted.h -- takes units from the counter of a key: what all limits have in common that a counter of this process
 * decides. They differ in how far the count may rise, and in what a decision brings with it: limits of one window are
 * in counted.c, limits that several engines share in share.c, and sliding limits in sliding.c.
 * Always true: one compare-and-swap raises a count, from a value that leaves room for n. An add is never made and
 * undone (trap E36). So without Redis exactly the limit is admitted. A call that is denied on a known key has only
 * loaded. */
#ifndef TWI_LIMIT_COUNTED_H
#define TWI_LIMIT_COUNTED_H

#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

/* What such limits differ in. */
struct twi_counting {
    /* The key has no counter here: returns the greatest count that may be admitted. */
    int64_t (*unknown)(const struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision);
    /* The key has a counter: takes n units from it by twi_counted_take(). */
    tw_status (*take)(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                      struct twi_decision *decision);
};

/* One try: finds the counter, or makes it, and decides. TWI_AGAIN: the clock has moved, or the window was sealed. */
tw_status twi_counting_try(struct twi_call *call, const struct twi_counting *counting, int64_t n, int64_t limit,
                           struct twi_decision *decision);
/* Takes n units, if the count does not pass `most` by that. */
tw_status twi_counted_take(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t most,
                           struct twi_decision *decision);
/* One try of a limit of one window that no other engine spends from: TW_LIMIT_SOFT and TW_LIMIT_HARD without Redis. */
tw_status twi_counted_try(struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision);
extern const struct twi_counting twi_counting_here;

#endif
