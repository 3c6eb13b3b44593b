/* rollover.h -- the roll-over of all families. Only the turn calls these functions. Hooks of users run here. */
#ifndef TWI_TURN_ROLLOVER_H
#define TWI_TURN_ROLLOVER_H

#include "tallywheel.h"

struct twi_generation;

void twi_rollover_turn(tw_engine *engine);
/* Called when the engine closes. From now on every window is ended. */
void twi_rollover_begin_end(tw_engine *engine);
/* Returns true when every window is sealed and drained and its hook is done (while the engine closes), or only
 * waits. */
bool twi_rollover_is_done(tw_engine *engine);
/* Called while closing. Returns true when every window is sealed. */
bool twi_rollover_is_sealed(tw_engine *engine);
/* Called while closing. Returns how many windows the turns have met so far. */
uint64_t twi_rollover_windows(tw_engine *engine);
/* Takes a window without counts out of its family, after its time. Its memory is given back as that of any other. */
void twi_rollover_take_away(tw_engine *engine, struct twi_generation *generation);

#endif
