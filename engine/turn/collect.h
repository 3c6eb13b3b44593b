/* collect.h -- the common parts of collecting and settling. engine/port/items.h declares their functions for sync/. */
#ifndef TWI_TURN_COLLECT_H
#define TWI_TURN_COLLECT_H
#include "engine/core/family.h"

/* Called when the item is settled, or no longer waits. Only the turn calls it. */
TWI_INLINE void twi_item_let_go(const struct twi_item *item) {
    twi_check(item->generation->turn.outstanding != 0);
    item->generation->turn.outstanding--;
    item->family->engine->collector.items_out -= item->delta != 0;
}

#endif
