/* refund.h -- tw_refund() returns units to the window from which they were taken. */
#ifndef TWI_LIMIT_REFUND_H
#define TWI_LIMIT_REFUND_H

#include "tallywheel.h"

struct twi_call;
struct twi_place;

/* Receives the units that a refund took off a count. Returns false if there is no memory; the caller then raises the
 * count again. Call it inside a section. */
typedef bool twi_refund_keep(struct twi_call *call, const struct twi_place *place, int64_t n);
/* Lowers the count of that window by n units for `keep`. If `keep` is NULL, the units are dropped. */
tw_status twi_refund_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep);
/* Implements put_back of struct twi_limit_kind for limits whose units are counts in cells. */
tw_status twi_refund_count(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

#endif
