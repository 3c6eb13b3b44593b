/* refund.h -- units return to the window from which they were taken, by a refund or because a call is undone.
 * A refund returns units that a caller names, so it must not lower the count below 0: the caller may be wrong. Undo
 * takes back what the engine itself has just added, like an add of the negative number. It has no such bound. Other
 * threads may have lowered the count meanwhile, and the engine's units are in it all the same.
 * Always true: after TW_OK of an undo, the count is the sum of the deltas of all other calls. */
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
tw_status twi_undo_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep);
/* Implement `refund` and `undo` of struct twi_limit_kind for limits whose units are counts in cells. */
tw_status twi_refund_count(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms);
tw_status twi_undo_count(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

#endif
