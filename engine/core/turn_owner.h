/* turn_owner.h -- which thread owns the turn.
 * Always true: at most one thread owns it. The word has the number of its slot, so a thread that has ended in the
 * middle of a turn is found, and its slot serves no other thread before another one has taken over (turn/recover.h). */
#ifndef TWI_CORE_TURN_OWNER_H
#define TWI_CORE_TURN_OWNER_H

#include "engine/core/state.h"

/* Takes the turn for this thread if `from` owns it; 0 means nobody. Returns who owned it before: `from` means that this
 * thread has it. */
uint32_t twi_turn_own(tw_engine *engine, uint32_t from);
void twi_turn_disown(tw_engine *engine);

#endif
