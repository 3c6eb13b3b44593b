/* lost.h -- counts that will not reach Redis: added to the statistics and reported to on_lost. By the turn. */
#ifndef TWI_TURN_LOST_H
#define TWI_TURN_LOST_H

#include "tallywheel.h"

/* `reason` is one of TW_LOST_*. Does nothing if `delta` is 0. */
void twi_lost_report(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                     int reason);
/* The same for a distinct count. The engine cannot know how many of its elements Redis lacks, so on_lost gets a delta
 * of 0. */
void twi_lost_report_distinct(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int reason);
/* Reports, key by key, what tw_close() could not send. */
void twi_lost_report_unsent(tw_engine *engine);

#endif
