/* recover.h -- makes the turn's state whole after its owner ended in the middle of a turn (recover.c).
 * Threads: only the owner of the turn calls these functions. They may be repeated, also if one of them did not end. */
#ifndef TWI_TURN_RECOVER_H
#define TWI_TURN_RECOVER_H

#include "engine/core/state.h"
#include "tallywheel.h"

/* ---- recover flags ----
 * flags of list members that an owner of the turn left when it ended in the middle of one.
 * Threads: only the owner of the turn calls this function. It may be repeated, also if it did not end. */

/* Clears flags that promise a step which nobody will make any more. A flag of which that is not
 * certain yet stays, and engine->turn.has_doubts makes the next turn call this again. */
void twi_recover_flags(tw_engine *engine);

/* By twi_turn_take(), when the last owner has ended. */
void twi_recover(tw_engine *engine);

/* The part that concerns what was collected for Redis: no item is out, no counter waits, and the lists of what is
 * marked are whole. A leader that begins to send calls it, too, because the items of the last leader were in its
 * process. */
void twi_recover_collected(tw_engine *engine);

/* ---- recover process ----
 * gives back what processes have left that shared the engine and have gone.
 * Always true: a place is free for another process only after everything of it is given back. */

/* Called by the owner of the turn, in each turn. A bounded piece of work. */
void twi_recover_processes(tw_engine *engine);

/* ---- heal ----
 * finishes what threads that have ended left unfinished (recover.c). */

/* Every turn calls it, before it examines families and collects counts. */
void twi_heal(tw_engine *engine);

/* ---- recount ----
 * counts the keys of endless families again after threads have ended inside their calls (recover.c). */

/* Called in each turn. Without such an end it is one comparison. */
void twi_recount_turn(tw_engine *engine);

#endif
