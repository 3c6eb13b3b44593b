/* lost.h -- counts that will not reach Redis: they are added to the statistics and reported to on_lost. By the turn. */
#ifndef TWI_TURN_LOST_H
#define TWI_TURN_LOST_H

#include "tallywheel.h"

/* `reason` is a TW_LOST_ constant. Does nothing if `delta` is 0. */
void twi_lost_report(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                     int reason);
/* Does the same for a distinct count. The engine cannot know how many elements Redis lacks, so on_lost gets a delta
 * of 0. */
void twi_lost_report_distinct(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int reason);
/* Reports for each key the counts that tw_close() could not send. */
void twi_lost_report_unsent(tw_engine *engine);

#endif
