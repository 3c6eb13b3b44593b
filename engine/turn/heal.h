/* heal.h -- finishes what threads that have ended left unfinished (heal.c). */
#ifndef TWI_TURN_HEAL_H
#define TWI_TURN_HEAL_H

#include "engine/core/state.h"

/* Every turn calls it, before it examines families and collects counts. */
void twi_heal(tw_engine *engine);

#endif
