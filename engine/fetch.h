/* fetch.h -- what holds for every call that waits for Redis, and how it waits for turns. */
#ifndef TWI_FETCH_H
#define TWI_FETCH_H

#include "tallywheel.h"

/* TW_OK where a call may wait for Redis. */
tw_status twi_engine_may_wait(tw_engine *engine);
/* Some progress, for who waits for the turn's work; it was called so many times before. */
void twi_engine_wait_for_turn(tw_engine *engine, uint32_t waits);
/* TW_ERR_MODE in a host-driven engine, which has nobody that would end the wait. */
tw_status twi_engine_check_thread(const tw_engine *engine);

#endif
