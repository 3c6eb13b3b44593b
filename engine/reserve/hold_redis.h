/* hold_redis.h -- tw_hold() and tw_hold_release() where Redis decides. */
#ifndef TWI_RESERVE_HOLD_REDIS_H
#define TWI_RESERVE_HOLD_REDIS_H

#include "tallywheel.h"

tw_status twi_hold_redis_take(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict);
tw_status twi_hold_redis_give(tw_family *family, tw_key key);
/* Does the same, and answers later. If `call` is NULL, no caller gets the answer. */
tw_status twi_hold_redis_start(tw_request *call, tw_family *family, tw_key key, int64_t limit);
tw_status twi_hold_redis_give_async(tw_request *call, tw_family *family, tw_key key);

#endif
