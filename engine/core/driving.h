/* driving.h -- what those do who drive the calls that wait for Redis: the second thread; where the host drives, and
 * while the engine closes, the owner of the turn.
 * Always true: one thread at a time. */
#ifndef TWI_CORE_DRIVING_H
#define TWI_CORE_DRIVING_H

#include "tallywheel.h"

/* One round: requests and their answers, but no `done`. Never waits. */
void twi_driving_step(tw_engine *engine);
/* When it is to be called next, unless twi_driving_fd() is readable before; monotonic. */
int64_t twi_driving_wake_ms(const tw_engine *engine);
int twi_driving_fd(const tw_engine *engine); /* -1 means none */

#endif
