/* gauge.h -- gauges with Redis: what this engine counts as present is said again and again. By the turn. */
#ifndef TWI_TURN_GAUGE_H
#define TWI_TURN_GAUGE_H

#include "tallywheel.h"

struct tw_family;

/* Says again what is present, where it is time. */
void twi_gauge_turn(tw_engine *engine);
/* Nothing is present here any more: the engine or the family is being closed. */
bool twi_gauge_leaves(const struct tw_family *family);

#endif
