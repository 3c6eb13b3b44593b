/* shape.h -- limits that are not of one window: sliding ones, which weigh the window before, and paced ones (GCRA), which keep a
 * time instead of a count.
 * Always true: all arithmetic is in integers, on 128 bits where a product needs them; without Redis it is exact to what each
 * file says of its rounding. */
#ifndef TWI_LIMIT_SHAPE_H
#define TWI_LIMIT_SHAPE_H

#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

__extension__ typedef __int128 twi_wide;

/* a * b / c, down and up; none below 0, and the answer within 63 bits. */
TWI_INLINE int64_t twi_share_down(int64_t a, int64_t b, int64_t c) {
    return (int64_t)((twi_wide)a * b / c);
}
TWI_INLINE int64_t twi_share_up(int64_t a, int64_t b, int64_t c) {
    return (int64_t)(((twi_wide)a * b + c - 1) / c);
}

#endif
