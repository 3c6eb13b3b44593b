/* recover.h -- makes the turn's state whole after its owner ended in the middle of a turn (recover.c).
 * Threads: only the owner of the turn calls these functions. They may be repeated, also if one of them did not end. */
#ifndef TWI_TURN_RECOVER_H
#define TWI_TURN_RECOVER_H

#include "engine/core/state.h"

/* By twi_turn_take(), when the last owner has ended. */
void twi_recover(tw_engine *engine);

/* The part that concerns what was collected for Redis: no item is out, no counter waits, and the lists of what is
 * marked are whole. A leader that begins to send calls it, too, because the items of the last leader were in its
 * process. */
void twi_recover_collected(tw_engine *engine);

#endif
