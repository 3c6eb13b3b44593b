/* sliding.h -- TW_SHAPE_SLIDING: what the window before still weighs. */
#ifndef TWI_LIMIT_SLIDING_H
#define TWI_LIMIT_SLIDING_H

#include "tallywheel.h"

struct tw_family;
struct twi_call;
struct twi_decision;

/* What the window before last counted, and how much of it still weighs at call->now_ms. Inside a section; `looks`: no
 * counter is made for it. */
void twi_sliding_carry(const struct twi_call *call, bool looks, struct twi_decision *decision);
/* Somebody else decides (strict limits), but what the window before counted is to be known here when he cannot. */
void twi_sliding_request_total(tw_family *family, tw_key key);
/* Puts it into a verdict that was filled from the decision. */
void twi_sliding_fill_verdict(const struct tw_family *family, tw_status status, int64_t n, int64_t limit,
                              const struct twi_decision *decision, tw_verdict *verdict);

#endif
