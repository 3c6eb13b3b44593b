/* lead.h -- leading a shared engine: tw_lead(), tw_process_died(), and what tw_close() does in one.
 * Always true: the thread that leads has the leader's mutex (core/processes.h). */
#ifndef TWI_LEAD_H
#define TWI_LEAD_H

#include "tallywheel.h"

/* tw_close() begins, and has so much time. Returns TW_ERR_MODE if another thread of this process leads, and only that
 * thread can hand over. */
tw_status twi_lead_may_close(tw_engine *engine, uint32_t timeout_ms);
/* How much of that time is left. */
uint32_t twi_lead_left_ms(const tw_engine *engine);
/* This process leaves the engine. Its threads have stopped. Returns true if the engine has to end, because the leader
 * has stopped it, or because the process that opened it is the last one. Then this thread leads. Otherwise this process
 * does not lead any more, and the engine waits for the next process, which may be forked later. */
bool twi_lead_is_last(tw_engine *engine);
/* The engine has ended for all. This process does not lead any more. */
void twi_lead_end(tw_engine *engine);

#endif
