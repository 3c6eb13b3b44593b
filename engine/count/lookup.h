/* lookup.h -- from a family and a key to the cell to count in: what tw_add, tw_get and tw_acquire have in common.
 * Always true: all of it runs inside a section; a cell that is answered has been published (table.h, T9). */
#ifndef TWI_COUNT_LOOKUP_H
#define TWI_COUNT_LOOKUP_H

#include "engine/count/call.h"
#include "engine/count/dirty.h"
#include "engine/count/idle_lookup.h"
#include "engine/core/window_map.h"

/* The live cell of families from first: this generation's, or the one before's, or a later life (table.h). */
bool twi_place_find_incarnation(const struct twi_call *call, struct twi_place *place);

/* The key's cell in the call's window, or false. place->generation is the window's, or NULL if it is not held. */
TWI_INLINE bool twi_place_find(const struct twi_call *call, struct twi_place *place) {
    struct tw_family *family = call->family;
    place->generation = twi_window_at(family, call->unix_ms, !call->at);
    if (twi_unlikely(family->from_first)) return twi_place_find_incarnation(call, place);
    if (twi_unlikely(family->evicts_idle)) return twi_idle_find(call, place);
    if (twi_unlikely(place->generation == NULL)) return false;
    /* Event time only: by the clock nobody comes to a window that is over for good (docs/CONCURRENCY.md). */
    if (twi_unlikely(call->at) && twi_generation_is_packed(place->generation)) return false;
    place->cell = twi_table_find(&call->engine->arena, place->generation, &call->lookup);
    if (twi_unlikely(place->cell == NULL)) return false;
    place->meta = twi_cell_publish(place->cell);
    return true;
}

/* Makes the key's cell (or finds that somebody has). TW_OK; TW_ERR_FULL (place->generation may be set: its overflow
 * counter can take the count); TWI_AGAIN: the clock has moved or the window was sealed, decide again. */
tw_status twi_place_make(struct twi_call *call, struct twi_place *place);

/* What a window that is held shows of the call's key: by its table, or by what was packed of it. Inside a section. */
int64_t twi_view_in(const struct twi_call *call, struct twi_generation *generation);

/* After an add that returned `before`. */
TWI_INLINE void twi_place_mark(const struct twi_call *call, const struct twi_place *place, uint64_t before) {
    if ((before & TWI_DIRTY) == 0 && call->family->synced)
        twi_dirty_mark(call->engine, place->generation, place->cell, place->meta);
}

/* With Redis: sees to it that the key's total comes with a later collection. Once per collection and key: DIRTY stays until
 * then. */
void twi_place_request_total(const struct twi_call *call, const struct twi_place *place);

/* Adds to the counter, wherever it counts, and marks it. *local: the sum after it, unless the call is blind. */
enum twi_added twi_place_add(const struct twi_call *call, const struct twi_place *place, int64_t delta, int64_t *local);

#endif
