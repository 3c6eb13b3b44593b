/* reserve_redis.h -- reservations that Redis keeps. */
#ifndef TWI_RESERVE_RESERVE_REDIS_H
#define TWI_RESERVE_RESERVE_REDIS_H

#include "tallywheel.h"

struct twi_order;
struct twi_token;

tw_status twi_stock_reserve(const struct twi_order *order, struct twi_token *token, tw_verdict *verdict);
tw_status twi_stock_confirm(tw_engine *engine, const struct twi_token *token);
tw_status twi_stock_cancel(tw_engine *engine, const struct twi_token *token);

#endif
