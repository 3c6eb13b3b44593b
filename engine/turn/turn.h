/* turn.h -- the TURN: background work in bounded rounds (engine.h). It is roll-over, sync and reclamation.
 * Always true: at most one thread owns the turn at a time. */
#ifndef TWI_TURN_TURN_H
#define TWI_TURN_TURN_H

#include "tallywheel.h"
#include "engine/core/state.h"

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

/* Of a shared engine (processes.h). The first one tries to lead now. The second one returns true if this thread leads;
 * a candidate tries when that is due. */
bool twi_turn_lead(tw_engine *engine);
bool twi_turn_leads(tw_engine *engine);

/* ---- flush serve ----
 * tw_flush() in a shared engine. Any process takes a number. The leader takes a ticket of its sync for
 * all numbers that were given until then, and says when it is done.
 * Always true: a number is served only after a collection that began after it was given. Marks of threads that have
 * ended are finished earlier in the same turn (twi_dirty_heal). A leader that ends leaves numbers that are not served,
 * and the next one takes a new ticket for them. */

/* Any thread of any process. */
uint64_t twi_flush_take(tw_engine *engine);
enum twi_ticket twi_flush_state(const tw_engine *engine, uint64_t number);
/* Called by the owner of the turn, in each turn before the sync's. */
void twi_flush_serve(tw_engine *engine);

#endif
