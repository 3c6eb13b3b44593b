/* reserve.h -- what tw_reserve(), tw_reserve_confirm() and tw_reserve_cancel() have in common, wherever the reservations
 * are kept.
 * Always true: a verdict is filled whatever is answered; a token is a token upon TW_OK (and where it is not known
 * whether the units were reserved), else empty. */
#ifndef TWI_RESERVE_RESERVE_H
#define TWI_RESERVE_RESERVE_H

#include "engine/reserve/reserve_local.h"

/* A verdict that says nothing but what was asked for. */
void twi_reserve_verdict(tw_verdict *verdict, const tw_family *family, int64_t limit);

#endif
