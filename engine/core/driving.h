/* driving.h -- the work of the thread that drives the calls that wait for Redis. It is the second thread, or, in a
 * host-driven engine and while the engine closes, the owner of the turn.
 * Always true: one thread at a time. */
#ifndef TWI_CORE_DRIVING_H
#define TWI_CORE_DRIVING_H

#include "tallywheel.h"

/* Makes one round of requests and their answers, without any call of `done`. Never waits. */
void twi_driving_step(tw_engine *engine);
/* When it is to be called next, unless twi_driving_fd() is readable before; monotonic. */
int64_t twi_driving_wake_ms(const tw_engine *engine);
int twi_driving_fd(const tw_engine *engine); /* -1 means none */

#endif
