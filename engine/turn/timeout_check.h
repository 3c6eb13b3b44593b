/* timeout_check.h -- writes a log line if redis_timeout_ms is too short for the way to Redis. */
#ifndef TWI_TURN_TIMEOUT_CHECK_H
#define TWI_TURN_TIMEOUT_CHECK_H

#include "tallywheel.h"

/* Checks once a second whether redis_timeout_ms is below three round trips, or whether calls get no reply in time
 * while counts are acknowledged. Only the turn calls it. */
void twi_timeout_check(tw_engine *engine);

#endif
