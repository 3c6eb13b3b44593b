/* shape.h -- arithmetic of limits that use more than one window: sliding limits count a part of the previous window,
 * and GCRA limits store a time instead of a count.
 * Always true: all arithmetic uses integers, of 128 bits if a product needs them. Without Redis the result is exact,
 * up to the rounding that each file describes. */
#ifndef TWI_LIMIT_SHAPE_H
#define TWI_LIMIT_SHAPE_H

#include "engine/count/lookup.h"

__extension__ typedef __int128 twi_wide;

/* Returns a * b / c, rounded down or rounded up. No argument is below 0, and the result fits in 63 bits. */
TWI_INLINE int64_t twi_share_down(int64_t a, int64_t b, int64_t c) {
    return (int64_t)((twi_wide)a * b / c);
}
TWI_INLINE int64_t twi_share_up(int64_t a, int64_t b, int64_t c) {
    return (int64_t)(((twi_wide)a * b + c - 1) / c);
}

#endif
