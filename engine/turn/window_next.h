/* window_next.h -- the next window of a family. By the turn. */
#ifndef TWI_TURN_WINDOW_NEXT_H
#define TWI_TURN_WINDOW_NEXT_H

#include "engine/turn/rollover_parts.h"

/* Continues with the next window, from the middle of the present one on. */
void twi_window_prepare(struct twi_rollover *rollover);
/* Gives up the window that is being made. */
void twi_window_abandon(struct twi_rollover *rollover);

#endif
