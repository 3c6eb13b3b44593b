/* settle.h -- applies the answers of Redis to counters: acknowledged, returned, parked or lost. engine/port/items.h
 * declares their functions for sync/. */
#ifndef TWI_TURN_SETTLE_H
#define TWI_TURN_SETTLE_H

#include "engine/core/family.h"
#include "tallywheel.h"

/* Called when the item is settled, or no longer waits. Only the turn calls it. */
TWI_INLINE void twi_item_let_go(const struct twi_item *item) {
    twi_check(item->generation->turn.outstanding != 0);
    item->generation->turn.outstanding--;
    item->family->engine->collector.items_out -= item->delta != 0;
}

/* ---- lost ----
 * counts that will not reach Redis: they are added to the statistics and reported to on_lost. By the turn. */

/* `reason` is a TW_LOST_ constant. Does nothing if `delta` is 0. */
void twi_lost_report(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                     int reason);
/* Does the same for a distinct count. The engine cannot know how many elements Redis lacks, so on_lost gets a delta
 * of 0. */
void twi_lost_report_distinct(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int reason);
/* Reports for each key the counts that tw_close() could not send. */
void twi_lost_report_unsent(tw_engine *engine);

#endif
