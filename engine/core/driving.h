/* driving.h -- the work of the thread that drives the calls that wait for Redis. It is the second thread, or, in a
 * host-driven engine and while the engine closes, the owner of the turn. In a shared engine each process has a sync of
 * its own for its calls, whoever leads. That sync makes no turns. It is made before the first such call.
 * Always true: one thread at a time drives. */
#ifndef TWI_CORE_DRIVING_H
#define TWI_CORE_DRIVING_H

#include "engine/port/driver.h"
#include "tallywheel.h"

/* The sync that makes the calls of this process. NULL means that there is none, or its driver makes no calls. */
struct twi_sync *twi_driving_sync(const tw_engine *engine);
/* Makes it if there is none. Any thread. Returns TW_ERR_REDIS in an engine without Redis. */
tw_status twi_driving_begin(tw_engine *engine);
/* Makes one round of requests and their answers, without any call of `done`. Never waits. */
void twi_driving_step(tw_engine *engine);
/* When it is to be called next, unless twi_driving_fd() is readable before; monotonic. */
int64_t twi_driving_wake_ms(const tw_engine *engine);
int twi_driving_fd(const tw_engine *engine); /* -1 means none */
/* From now on no call begins. The next step answers those under way. Any thread. */
void twi_driving_stop(tw_engine *engine);
/* How many calls have no result, or must still be taken back. */
uint32_t twi_driving_owed(const tw_engine *engine);
/* In a shared engine: this process makes no calls any more. */
void twi_driving_end(tw_engine *engine);
/* In a forked child: the sync that the parent made is the parent's. */
void twi_driving_abandon(tw_engine *engine);

#endif
