/* call_guard.h -- which threads may wait: the checks of every call that waits for Redis or for the turn. */
#ifndef TWI_CORE_CALL_GUARD_H
#define TWI_CORE_CALL_GUARD_H

#include "tallywheel.h"

struct twi_thread;

/* TW_ERR_MODE inside hooks and sections. `self` NULL: TW_ERR_MEMORY. */
tw_status twi_guard_thread(const struct twi_thread *self);
/* TW_ERR_MODE in a host-driven engine: no thread would end the wait. */
tw_status twi_guard_engine(const tw_engine *engine);
/* TW_OK if this thread may wait, and the engine is open. */
tw_status twi_guard_may_wait(tw_engine *engine);

#endif
