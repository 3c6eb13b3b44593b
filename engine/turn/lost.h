/* lost.h -- what will not reach Redis: counted, and told to on_lost. By the turn. */
#ifndef TWI_TURN_LOST_H
#define TWI_TURN_LOST_H

#include "tallywheel.h"

/* `reason`: TW_LOST_*. `delta` 0 is nothing. */
void twi_lost_report(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                     int reason);
/* What tw_close() could not send, by key. */
void twi_lost_report_unsent(tw_engine *engine);

#endif
