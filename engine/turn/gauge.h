/* gauge.h -- gauges with Redis: the engine re-sends full statements of what it counts as present. By the turn. */
#ifndef TWI_TURN_GAUGE_H
#define TWI_TURN_GAUGE_H

#include "tallywheel.h"

struct tw_family;

/* Re-sends what is present, where it is due. */
void twi_gauge_turn(tw_engine *engine);
/* To be called when the family has its first window, or is closing. */
void twi_gauge_appoint(struct tw_family *family);
/* True if nothing is present here any more. The engine or the family is closing. */
bool twi_gauge_leaves(const struct tw_family *family);

#endif
