/* shape.h -- arithmetic of limits that use more than one window: sliding limits count a part of the previous window,
 * and GCRA limits store a time instead of a count.
 * Always true: all arithmetic uses integers, of 128 bits if a product needs them. Without Redis the result is exact,
 * up to the rounding that each file describes. */
#ifndef TWI_LIMIT_SHAPE_H
#define TWI_LIMIT_SHAPE_H

#include "engine/count/lookup.h"

__extension__ typedef __int128 twi_wide;

__extension__ typedef unsigned __int128 twi_wide_bits;

/* Returns a / c, rounded down. The result fits in 63 bits. */
TWI_INLINE int64_t twi_wide_divided(twi_wide_bits a, int64_t c) {
    twi_check_dear(c > 0 && (uint64_t)(a >> 63) < (uint64_t)c);
#if defined(__x86_64__)
    if (!__builtin_constant_p(c)) { /* a compiler calls a function, because it does not know that the result fits */
        uint64_t quotient, rest;
        __asm__("divq %4" : "=a"(quotient), "=d"(rest) : "a"((uint64_t)a), "d"((uint64_t)(a >> 64)), "r"(c) : "cc");
        return (int64_t)quotient;
    }
#endif
    return (int64_t)(a / (uint64_t)c);
}

/* Returns a * b / c, rounded down or rounded up. No argument is below 0, and the result fits in 63 bits. */
TWI_INLINE int64_t twi_share_down(int64_t a, int64_t b, int64_t c) {
    return twi_wide_divided((twi_wide_bits)(uint64_t)a * (uint64_t)b, c);
}
TWI_INLINE int64_t twi_share_up(int64_t a, int64_t b, int64_t c) {
    return twi_wide_divided((twi_wide_bits)(uint64_t)a * (uint64_t)b + (uint64_t)c - 1, c);
}

#endif
