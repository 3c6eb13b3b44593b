/* hold.h -- tw_hold(): which families it is for, with and without Redis.
 * Always true: a family's kind (takes_holds) says the same from its opening on. */
#ifndef TWI_RESERVE_HOLD_H
#define TWI_RESERVE_HOLD_H

#include "tallywheel.h"

/* ---- hold redis ----
 * tw_hold() and tw_hold_release() where Redis decides. */

tw_status twi_hold_redis_take(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict);
tw_status twi_hold_redis_give(tw_family *family, tw_key key);
/* Does the same, and answers later. If `call` is NULL, no caller gets the answer. */
tw_status twi_hold_redis_start(tw_request *call, tw_family *family, tw_key key, int64_t limit);
tw_status twi_hold_redis_give_async(tw_request *call, tw_family *family, tw_key key);

/* Returns why a family with these options is not for tw_hold(), or NULL if it is. */
const char *twi_hold_refusal(const tw_family *family, const tw_family_options *options);

#endif
