/* timeout_check.h -- writes a log line when redis_timeout_ms is too short for the way to Redis. */
#ifndef TWI_TURN_TIMEOUT_CHECK_H
#define TWI_TURN_TIMEOUT_CHECK_H

#include "tallywheel.h"

/* Checks once a second whether it is less than three round trips, or whether calls get no answer in time while counts
 * are acknowledged. Only the turn calls it. */
void twi_timeout_check(tw_engine *engine);

#endif
