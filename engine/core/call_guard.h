/* call_guard.h -- the checks of every call that waits for Redis or for the turn, which decide whether the thread may
 * wait. */
#ifndef TWI_CORE_CALL_GUARD_H
#define TWI_CORE_CALL_GUARD_H

#include "tallywheel.h"

struct twi_thread;

/* Returns TW_ERR_MODE inside hooks and sections, and TW_ERR_MEMORY if `self` is NULL. */
tw_status twi_guard_thread(const struct twi_thread *self);
/* Returns TW_ERR_MODE in a host-driven engine, because no thread would end the wait. */
tw_status twi_guard_engine(const tw_engine *engine);
/* TW_OK if this thread may wait, and the engine is open. */
tw_status twi_guard_may_wait(tw_engine *engine);

#endif
