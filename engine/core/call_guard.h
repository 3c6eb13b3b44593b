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
/* TW_OK if this process has the connection to Redis. TW_ERR_REDIS without Redis, and TW_ERR_MODE in a process that does
 * not lead a shared engine. */
tw_status twi_guard_redis(const tw_engine *engine);
/* Returns true if no other process has the engine: it is private, or no child was forked since it was opened. */
bool twi_guard_is_alone(const tw_engine *engine);
/* Returns TW_ERR_MODE if other processes may share the engine, because they would not see the change. */
tw_status twi_guard_families(const tw_engine *engine);
/* TW_OK if this thread may wait, and the engine is open. */
tw_status twi_guard_may_wait(tw_engine *engine);

#endif
