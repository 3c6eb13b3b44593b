/* sliding.h -- the weight of the previous windows in limits with TW_SHAPE_SLIDING. */
#ifndef TWI_LIMIT_SLIDING_H
#define TWI_LIMIT_SLIDING_H

#include "tallywheel.h"

#define TWI_SLIDING_COUNTS (TW_SUB_WINDOWS_MAX + 1) /* the counts of this window, and of all that the stretch covers */

struct tw_family;

/* For strict limits. Redis decides, but the previous count must be known here for the time when Redis does not
 * reply. */
void twi_sliding_request_total(tw_family *family, tw_key key);
/* The complete decision (counted.h). */
tw_status twi_sliding_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

#endif
