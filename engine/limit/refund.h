/* refund.h -- tw_refund(): units go back to the window they were taken from. */
#ifndef TWI_LIMIT_REFUND_H
#define TWI_LIMIT_REFUND_H

#include "tallywheel.h"

struct twi_call;
struct twi_place;

/* Where the units go that a count was lowered by. False: no memory; the count is put up again. Inside a section. */
typedef bool twi_refund_keep(struct twi_call *call, const struct twi_place *place, int64_t n);
/* Lowers the count of that window by n units, and gives them to `keep`; NULL: to nobody. */
tw_status twi_refund_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep);
/* How a limit whose units are counts in cells puts them back (struct twi_limit_kind). */
tw_status twi_refund_count(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

#endif
