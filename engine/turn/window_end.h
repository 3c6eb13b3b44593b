/* window_end.h -- the end of a window, step by step. Only the turn calls these functions. Hooks of users run here. */
#ifndef TWI_TURN_WINDOW_END_H
#define TWI_TURN_WINDOW_END_H

#include "engine/turn/windows.h"
#include "tallywheel.h"

/* Makes as many steps with this window as are possible now. */
void twi_window_step(struct twi_rollover *rollover, struct twi_generation *generation);
/* Returns true if later windows have to wait for this one. */
bool twi_window_holds_others_up(const struct twi_rollover *rollover, struct twi_generation *generation);

/* ---- window reclaim ----
 * the memory of dropped windows. Called by the turn. */

/* Gives back memory that no thread can read any more, one piece in each turn. */
void twi_window_reclaim(tw_engine *engine);

#endif
