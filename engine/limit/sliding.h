/* sliding.h -- TW_SHAPE_SLIDING: what the previous windows still weigh. */
#ifndef TWI_LIMIT_SLIDING_H
#define TWI_LIMIT_SLIDING_H

#include "tallywheel.h"

#define TWI_SLIDING_COUNTS (TW_SUB_WINDOWS_MAX + 1) /* of this window, and of all that the stretch covers */

struct tw_family;
struct twi_call;
struct twi_decision;

/* One try (counted.h). `decision` has room for TWI_SLIDING_COUNTS counts. */
tw_status twi_sliding_try(struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision);
/* For strict limits: Redis decides, but the previous count must be known here for the time when Redis does not
 * reply. */
void twi_sliding_request_total(tw_family *family, tw_key key);
/* After how long a denied call is admitted if nobody else calls; -1: never. */
int64_t twi_sliding_retry_ms(const struct tw_family *family, int64_t n, int64_t limit,
                             const struct twi_decision *decision);
/* Adds the previous windows' part to a verdict that was filled from the decision. */
void twi_sliding_fill_verdict(const struct tw_family *family, tw_status status, int64_t n, int64_t limit,
                              const struct twi_decision *decision, tw_verdict *verdict);

#endif
