/* acquire_all.h -- the order in which tw_acquire_all() takes its claims (acquire_all.c, fast/all_fast.h). */
#ifndef TWI_LIMIT_ACQUIRE_ALL_H
#define TWI_LIMIT_ACQUIRE_ALL_H

#include "engine/base/check.h"
#include "tallywheel.h"

#include <stdbool.h>
#include <stdint.h>

/* Of two claims on one key, the smaller limit comes first, because it must be kept before the units of the other claim
 * are counted. The order of a key without data
 * does not matter, because such a call is refused. */
bool twi_claim_comes_before_in_family(const tw_claim *a, const tw_claim *b);

TWI_INLINE bool twi_claim_comes_before(const tw_claim *a, const tw_claim *b) {
    if (twi_likely(a->family != b->family)) return (uintptr_t)a->family < (uintptr_t)b->family;
    return twi_claim_comes_before_in_family(a, b);
}

#endif
