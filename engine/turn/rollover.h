/* rollover.h -- roll-over of all families. By the turn; hooks run here. */
#ifndef TWI_TURN_ROLLOVER_H
#define TWI_TURN_ROLLOVER_H

#include "tallywheel.h"

void twi_rollover_turn(tw_engine *engine);
/* True when every window has been sealed, drained and told (closing), or nothing is left to do but wait. */
bool twi_rollover_is_done(tw_engine *engine);
/* Closing: every window has been sealed. */
bool twi_rollover_is_sealed(tw_engine *engine);
void twi_rollover_reclaim(tw_engine *engine);

#endif
