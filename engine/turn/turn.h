/* turn.h -- the TURN: background work in bounded rounds (engine.h). It is roll-over, sync and reclamation.
 * Always true: at most one thread owns the turn at a time. */
#ifndef TWI_TURN_TURN_H
#define TWI_TURN_TURN_H

#include "tallywheel.h"

#define TWI_TURN_ANSWERS 256u /* results that one turn delivers to a host; the others wait for the next */

/* Runs one bounded round. The caller owns the turn. */
void twi_turn_run(tw_engine *engine);
bool twi_turn_take(tw_engine *engine);
void twi_turn_leave(tw_engine *engine);
/* At the end of the engine: the lines that the last turns kept back. */
void twi_turn_last_lines(tw_engine *engine);

/* Sleeps until a socket is ready or a thread wakes it, but for at most `ms`. */
void twi_turn_nap(tw_engine *engine, uint32_t ms);

/* The background thread, which runs the turns of an engine that is not host-driven. `run` calls twi_turn_loop(), which
 * returns when the thread has to stop. */
tw_status twi_turn_start_thread(tw_engine *engine, void *(*run)(void *engine));
void twi_turn_loop(tw_engine *engine);
void twi_turn_stop_thread(tw_engine *engine);

/* Of a shared engine (leader.h). The first one tries to lead now. The second one returns true if this thread leads; a
 * candidate tries when that is due. */
bool twi_turn_lead(tw_engine *engine);
bool twi_turn_leads(tw_engine *engine);

#endif
