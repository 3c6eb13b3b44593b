/* acquire.h -- tw_acquire() of a limit that is decided by what is counted here. */
#ifndef TWI_LIMIT_ACQUIRE_H
#define TWI_LIMIT_ACQUIRE_H

#include "engine/limit/decision.h"

extern const struct twi_limit_kind twi_limit_counted; /* soft, and hard without Redis */

/* The decision where nothing is known yet. */
twi_hot_acquire twi_acquire_slow;

#endif
