/* restore.h -- what the turn restores in a Redis that has forgotten counts, when another process continues. All
 * else of restore.c is called through the port (engine/port/items.h).
 * Always true: only the owner of the turn calls this. */
#ifndef TWI_TURN_RESTORE_H
#define TWI_TURN_RESTORE_H

#include "engine/core/state.h"

/* Another process makes the turns from now on. The windows in the list are kept until they are walked. */
void twi_restore_inherit(tw_engine *engine);

#endif
