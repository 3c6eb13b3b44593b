/* reserve_redis.h -- reservations that Redis keeps. */
#ifndef TWI_RESERVE_RESERVE_REDIS_H
#define TWI_RESERVE_RESERVE_REDIS_H

#include "tallywheel.h"

struct twi_reserve_request;
struct twi_token;

tw_status twi_reserve_redis_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict);
tw_status twi_reserve_redis_confirm(tw_engine *engine, const struct twi_token *token);
tw_status twi_reserve_redis_cancel(tw_engine *engine, const struct twi_token *token);
/* Does the same, and answers later. If `call` is NULL, no caller gets the answer. */
tw_status twi_reserve_redis_start(tw_request *call, const struct twi_reserve_request *request);
tw_status twi_reserve_redis_settle(tw_request *call, tw_engine *engine, const struct twi_token *token, bool confirms);

#endif
