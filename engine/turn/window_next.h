/* window_next.h -- the next window of a family. Called by the turn. */
#ifndef TWI_TURN_WINDOW_NEXT_H
#define TWI_TURN_WINDOW_NEXT_H

#include "engine/turn/rollover_parts.h"

/* From the middle of the present window on, continues to prepare the next window. */
void twi_window_prepare(struct twi_rollover *rollover);
/* Gives up the window that is being prepared. */
void twi_window_abandon(struct twi_rollover *rollover);

#endif
