/* stock.h -- what tw_reserve(), tw_confirm() and tw_cancel() have in common, wherever the reservations are kept.
 * Always true: a verdict is filled whatever is answered; a token is a token upon TW_OK (and where it is not known whether the
 * units were reserved), else empty. */
#ifndef TWI_STOCK_H
#define TWI_STOCK_H

#include "engine/reserve.h"

/* A verdict that says nothing but what was asked for. */
void twi_stock_verdict(tw_verdict *verdict, const tw_family *family, int64_t limit);
/* stock_store.c: where Redis decides. */
tw_status twi_stock_reserve(const struct twi_order *order, struct twi_token *token, tw_verdict *verdict);
tw_status twi_stock_confirm(tw_engine *engine, const struct twi_token *token);
tw_status twi_stock_cancel(tw_engine *engine, const struct twi_token *token);

#endif
