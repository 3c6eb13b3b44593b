/* amount.h -- small arithmetic on counts, limits and times.
 * Always true: no function overflows. A sum that does not fit in 64 bits becomes the nearest number that fits. */
#ifndef TWI_BASE_AMOUNT_H
#define TWI_BASE_AMOUNT_H

#include "engine/base/check.h"

#include <stdint.h>

TWI_INLINE int64_t twi_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
TWI_INLINE int64_t twi_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

TWI_INLINE int64_t twi_saturated_sum(int64_t a, int64_t b) {
    int64_t sum;
    if (twi_unlikely(__builtin_add_overflow(a, b, &sum))) return a < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

#endif
