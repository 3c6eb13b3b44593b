/* second.h -- the second thread of an engine that has its own threads. It drives the calls that wait for Redis, and
 * calls `done` of those that name no queue, one after the other. In a shared engine it also looks at the waiters of its
 * process.
 * Always true: an engine that never waits has none, nor has one that its host drives. It runs from the first call that
 * waits until the engine closes. Its signals are blocked. */
#ifndef TWI_CORE_SECOND_H
#define TWI_CORE_SECOND_H

#include "tallywheel.h"

/* Starts the thread if there is none. TW_ERR_MEMORY: there is no thread or descriptor. Any thread. */
tw_status twi_second_start(tw_engine *engine);
/* Called when there is an answer for the thread. Any thread. */
void twi_second_wake(tw_engine *engine);
/* Ends it. Only tw_close() calls it, when no call can follow. */
void twi_second_stop(tw_engine *engine);
/* When the engine is opened, and in a forked child: there is no such thread. */
void twi_second_begin(tw_engine *engine);
void twi_second_end(tw_engine *engine);

#endif
