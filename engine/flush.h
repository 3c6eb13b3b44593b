/* flush.h -- how a call waits for turns. */
#ifndef TWI_FLUSH_H
#define TWI_FLUSH_H

#include "tallywheel.h"

/* Makes some progress, for a caller that waits for the turn's work. `waits` is the number of earlier calls. */
void twi_flush_wait_for_turn(tw_engine *engine, uint32_t waits);

#endif
