/* turn_check.h -- walks over the whole state of the turn, for tests and checks of level 3; and the check of
 * redis_timeout_ms. Threads: the owner of the turn calls these functions, and callers may count meanwhile. */
#ifndef TWI_TURN_TURN_CHECK_H
#define TWI_TURN_TURN_CHECK_H

#include "engine/core/family.h"
#include "tallywheel.h"

/* Checks a window of its family, and the window's leases. */
bool twi_generation_is_valid(tw_engine *engine, struct twi_generation *generation);
/* Checks the roster, the agenda, the stores of leases, and each window of each family. */
bool twi_turn_is_valid(tw_engine *engine);

/* ---- timeout check ----
 * writes a log line if redis_timeout_ms is too short for the way to Redis. */

/* Checks once a second whether redis_timeout_ms is below three round trips, or whether calls get no reply in time
 * while counts are acknowledged. Only the turn calls it. */
void twi_timeout_check(tw_engine *engine);

#endif
