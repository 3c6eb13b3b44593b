/* reserve.h -- the common part of tw_reserve(), tw_reserve_confirm() and tw_reserve_cancel(), with and without Redis.
 * Always true: a verdict is filled, whatever the answer. A token is valid after TW_OK, and after TW_ERR_TIMEOUT, when
 * the units may have been reserved. Otherwise it is empty. */
#ifndef TWI_RESERVE_RESERVE_H
#define TWI_RESERVE_RESERVE_H

#include "tallywheel.h"
#include "engine/reserve/reserve_local.h"

/* Fills a verdict with only the arguments of the call. */
void twi_reserve_verdict(tw_verdict *verdict, const tw_family *family, int64_t limit);

#endif
