/* parked.c -- deferred counters: their store accepts no counts for now (items.h).
 *
 *   collected ─▶ parked ─▶ the store can take them: to be sent again (dirty.c)
 * A deferred counter has PARKED in its meta word. The collector skips it and leaves its DIRTY set, so adders mark it at
 * most once. So an unreachable store costs one place in a list for each of its counters, however often threads count in
 * them.
 * Always true: a deferred counter is in one list, once, and its generation's `outstanding` includes it. */
#include "engine/base/grow.h"
#include "engine/turn/collect.h"

#include "engine/count/dirty.h"
#include "engine/turn/restore_notes.h"

#include <stdlib.h>

#define ROOM_FIRST 64u

bool twi_port_park(struct twi_parking *parking, const struct twi_item *item) {
    twi_check((item->flags & TWI_ITEM_GAUGE) == 0);
    if (!twi_grow(&parking->items, sizeof *parking->items, &parking->room, (size_t)parking->count + 1, ROOM_FIRST))
        return false;
    struct twi_cell *cell = item->cell;
    uint64_t meta = twi_or_relaxed(&cell->meta, TWI_META_PARKED); /* only the turn reads it */
    struct twi_cold *cold = twi_generation_cold(item->generation, cell, meta);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) - item->delta);
    if (item->units != 0) twi_restore_note_returned(item, true);
    if ((item->flags & TWI_ITEM_ASKED) != 0) twi_store_relaxed(&cell->asked, 1);
    item->family->engine->collector.items_out -= item->delta != 0;
    if ((meta & TWI_META_PARKED) != 0) { /* counted again, so collected twice; the list has it already */
        item->generation->turn.outstanding--;
        return true;
    }
    parking->items[parking->count++] = (struct twi_parked){item->generation, cell};
    return true;
}

bool twi_port_unpark(tw_engine *engine, struct twi_parking *parking, uint32_t count_max) {
    twi_check(parking->count <= parking->room);
    for (; parking->count != 0 && count_max > 0; count_max--) {
        const struct twi_parked *parked = &parking->items[--parking->count];
        /* one instruction; no ordering is needed */
        uint64_t meta = twi_and_acqrel(&parked->cell->meta, ~TWI_META_PARKED);
        twi_dirty_owe(engine, parked->generation, parked->cell, meta);
        twi_check(parked->generation->turn.outstanding != 0);
        parked->generation->turn.outstanding--;
    }
    if (parking->count != 0) return true;
    twi_port_parking_free(parking);
    return false;
}

void twi_port_parking_free(struct twi_parking *parking) {
    free(parking->items);
    *parking = (struct twi_parking){0};
}
