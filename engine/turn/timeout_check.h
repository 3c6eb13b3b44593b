/* timeout_check.h -- says in the log when redis_timeout_ms is too short for the way to Redis. */
#ifndef TWI_TURN_TIMEOUT_CHECK_H
#define TWI_TURN_TIMEOUT_CHECK_H

#include "tallywheel.h"

/* Once a second: is it less than three round trips, or do calls have no answer in time while counts are acknowledged?
 * By the turn. */
void twi_timeout_check(tw_engine *engine);

#endif
