/* reserve.h -- the common part of tw_reserve(), tw_reserve_confirm() and tw_reserve_cancel(), with and without Redis.
 * Always true: a verdict is filled, whatever the answer. A token is valid after TW_OK, and after TW_ERR_TIMEOUT, when
 * the units may have been reserved. Otherwise it is empty. */
#ifndef TWI_RESERVE_RESERVE_H
#define TWI_RESERVE_RESERVE_H

#include "tallywheel.h"
#include "engine/reserve/reserve_local.h"

/* ---- reserve redis ----
 * reservations that Redis keeps. */

struct twi_reserve_request;
struct twi_token;

tw_status twi_reserve_redis_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict);
tw_status twi_reserve_redis_confirm(tw_engine *engine, const struct twi_token *token);
tw_status twi_reserve_redis_cancel(tw_engine *engine, const struct twi_token *token);
/* Does the same, and answers later. If `call` is NULL, no caller gets the answer. */
tw_status twi_reserve_redis_start(tw_request *call, const struct twi_reserve_request *request);
tw_status twi_reserve_redis_settle(tw_request *call, tw_engine *engine, const struct twi_token *token, bool confirms);

/* Fills a verdict with only the arguments of the call. */
void twi_reserve_verdict(tw_verdict *verdict, const tw_family *family, int64_t limit);

#endif
