/* leader.h -- which process makes the turns of a shared engine (tw_options.shared).
 *
 * The thread that leads has a robust mutex in shared memory. So the kernel frees it when that thread ends, however it
 * ends, and the next candidate that tries it finds that out. A candidate is a process that called tw_lead(). It tries
 * twice a second, and at once after twi_leader_call(). In a host-driven engine the thread that took the mutex leads,
 * and no other thread makes turns. Otherwise it is the background thread of the process, and any thread of that process
 * may take the turn.
 * Always true: a process that does not lead never owns the turn. A private engine has none of this. */
#ifndef TWI_CORE_LEADER_H
#define TWI_CORE_LEADER_H

#include "engine/core/state.h"

#define TWI_LEADER_LOOK_MS 500 /* how often candidates try, and look whether somebody keeps the time */

/* For the process that opens the engine. */
void twi_leader_make(tw_engine *engine);
/* What belongs to a process, when it opens or joins the engine. */
void twi_leader_begin_here(tw_engine *engine);

/* For each turn of a shared engine: it notes when that was, and reports that the leader was replaced. */
void twi_leader_turn(tw_engine *engine);
/* How long ago the last turn was; -1 means that there was none. */
int64_t twi_leader_age_ms(const tw_engine *engine);

/* Returns true if this thread leads; if the engine is not host-driven, if a thread of this process does. */
bool twi_leader_is_here(const tw_engine *engine);
/* Returns true if a thread of this process leads, or ended as the leader and no other process leads since. */
bool twi_leader_leads(const tw_engine *engine);
enum twi_leader_try { TWI_LEADER_NOT, TWI_LEADER_SINCE_NOW, TWI_LEADER_AFTER_DEATH };
/* Tries to lead from now on. Not if this thread leads already. */
enum twi_leader_try twi_leader_take(tw_engine *engine);
/* Returns true if a candidate should try now: it was called, or a second has passed. */
bool twi_leader_is_due(tw_engine *engine);
/* Sleeps until then, or until twi_leader_call(). */
void twi_leader_await(tw_engine *engine);
/* The thread that leads hands over, and calls the candidates. */
void twi_leader_hand_over(tw_engine *engine);
/* All candidates try at once. Follows no pointer. */
void twi_leader_call(tw_engine *engine);

#endif
