/* window_reclaim.h -- the memory of dropped windows. Called by the turn. */
#ifndef TWI_TURN_WINDOW_RECLAIM_H
#define TWI_TURN_WINDOW_RECLAIM_H

#include "tallywheel.h"

/* Gives back memory that no thread can read any more, one piece in each turn. */
void twi_window_reclaim(tw_engine *engine);

#endif
