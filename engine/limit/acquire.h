/* acquire.h -- tw_acquire() for limits that are decided by the counts of this process. */
#ifndef TWI_LIMIT_ACQUIRE_H
#define TWI_LIMIT_ACQUIRE_H

#include "engine/limit/decision.h"

/* The complete decision for a kind of limit that a counter of this process decides (`by_counter`). */
twi_hot_acquire twi_acquire_slow;

#endif
