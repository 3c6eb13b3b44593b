/* flush.h -- how a call waits for turns: tw_flush() and tw_ready(). */
#ifndef TWI_FLUSH_H
#define TWI_FLUSH_H

#include "tallywheel.h"

/* Makes some progress, for a caller that waits for the turn's work. `waits` is the number of earlier calls. */
void twi_flush_wait_for_turn(tw_engine *engine, uint32_t waits);

#define TWI_FLUSH_NO_LEADER \
    "timeout_ms: no process made a turn meanwhile: nobody leads this shared engine (tw_lead()), or the leader " \
    "is stopped"
/* Returns true if no turn of a shared engine has ended since so many had. */
bool twi_flush_has_no_leader(tw_engine *engine, uint32_t turns);

#endif
