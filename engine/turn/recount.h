/* recount.h -- counts the keys of endless families again after threads have ended inside their calls (recount.c). */
#ifndef TWI_TURN_RECOUNT_H
#define TWI_TURN_RECOUNT_H

#include "engine/core/state.h"

/* Called in each turn. Without such an end it is one comparison. */
void twi_recount_turn(tw_engine *engine);

#endif
