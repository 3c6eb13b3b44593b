/* flush.h -- how a call waits for turns. */
#ifndef TWI_FLUSH_H
#define TWI_FLUSH_H

#include "tallywheel.h"

/* Some progress, for who waits for the turn's work; it was called so many times before. */
void twi_flush_wait_for_turn(tw_engine *engine, uint32_t waits);

#endif
