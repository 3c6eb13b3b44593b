/* collect.h -- takes the counts that are to be sent, and states gauges. For gauges the engine sends full statements of
 * its present counts again and again. Only the turn calls these. */
#ifndef TWI_TURN_COLLECT_H
#define TWI_TURN_COLLECT_H

#include "tallywheel.h"

struct tw_family;

/* Sends again all statements that are due. */
void twi_gauge_turn(tw_engine *engine);
/* Call it when the family gets its first window, or is closing. */
void twi_gauge_appoint(struct tw_family *family);
/* Returns true if this engine no longer has a present count, because the engine or the family is closing. */
bool twi_gauge_leaves(const struct tw_family *family);

#endif
