/* recover_flags.h -- flags of list members that an owner of the turn left when it ended in the middle of one.
 * Threads: only the owner of the turn calls this function. It may be repeated, also if it did not end. */
#ifndef TWI_TURN_RECOVER_FLAGS_H
#define TWI_TURN_RECOVER_FLAGS_H

#include "engine/core/state.h"

/* Clears flags that promise a step which nobody will make any more. A flag of which that is not
 * certain yet stays, and engine->turn.has_doubts makes the next turn call this again. */
void twi_recover_flags(tw_engine *engine);

#endif
