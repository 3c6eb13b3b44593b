/* shape.h -- limits that are not of one window: sliding ones, which weigh the window before, and paced ones (GCRA), which keep a
 * time instead of a count.
 * Always true: all arithmetic is in integers, on 128 bits where a product needs them; without Redis it is exact to what each
 * file says of its rounding. */
#ifndef TWI_SHAPE_H
#define TWI_SHAPE_H

#include "engine/count.h"
#include "engine/limit.h"

__extension__ typedef __int128 twi_wide;

/* a * b / c, down and up; none below 0, and the answer within 63 bits. */
TWI_INLINE int64_t twi_share_down(int64_t a, int64_t b, int64_t c) {
    return (int64_t)((twi_wide)a * b / c);
}
TWI_INLINE int64_t twi_share_up(int64_t a, int64_t b, int64_t c) {
    return (int64_t)(((twi_wide)a * b + c - 1) / c);
}

/* sliding.c: what the window before last counted, and how much of it still weighs at call->now_ms. Inside a section; `looks`: no
 * counter is made for it. */
void twi_sliding_carry(const struct twi_call *call, bool looks, struct twi_decision *decision);
/* Somebody else decides (strict limits), but what the window before counted is to be known here when he cannot. */
void twi_sliding_ask(tw_family *family, tw_key key);
/* Puts it into a verdict that was filled from the decision. */
void twi_sliding_tell(const struct tw_family *family, tw_status status, int64_t n, int64_t limit,
                      const struct twi_decision *decision, tw_verdict *verdict);

extern const struct twi_limit_kind twi_limit_paced; /* gcra.c */
/* The key's bucket is not empty for so long from now, at least. Where there is no room for it, nothing is done. */
void twi_paced_raise(tw_family *family, tw_key key, int64_t ahead_ms);

#endif
