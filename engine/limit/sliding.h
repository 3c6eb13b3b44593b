/* sliding.h -- limits with TW_SHAPE_SLIDING: the part of the previous windows. */
#ifndef TWI_LIMIT_SLIDING_H
#define TWI_LIMIT_SLIDING_H

#include "tallywheel.h"

#define TWI_SLIDING_COUNTS (TW_SUB_WINDOWS_MAX + 1) /* the counts of all windows that the stretch covers */

struct tw_family;

/* For strict limits. Redis decides the limit, but the engine must know the previous count for the time when Redis
 * does not reply. */
void twi_sliding_request_total(tw_family *family, tw_key key);
/* The complete decision (counted.h). */
tw_status twi_sliding_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

#endif
