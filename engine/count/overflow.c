/* overflow.c -- see overflow.h. */
#include "engine/count/overflow.h"

#include "engine/base/why.h"
#include "engine/table/spill.h"

tw_status twi_overflow_add(struct twi_call *call, struct twi_place *place, int64_t delta, bool is_first,
                           int64_t *view) {
    twi_check_dear(place->generation != NULL);
    uint64_t before;
    place->cell = &place->generation->overflow;
    place->meta = twi_load_relaxed(&place->cell->meta);
    switch (twi_cell_add(place->cell, place->meta, delta, &before)) {
    case TWI_ADD_FROZEN: return TWI_AGAIN;
    case TWI_ADD_RANGE: return twi_refuse_for(TWI_WHY_SUM);
    default: break;
    }
    twi_place_mark(call, place, before);
    struct twi_arena *arena = &call->engine->arena;
    bool noted = is_first ? twi_spill_add_first(arena, place->generation, &call->lookup, call->self->shard, delta)
                          : twi_spill_add(arena, place->generation, &call->lookup, call->self->shard, delta);
    if (!noted) twi_port_count(call->engine, overflow_sketches_refused, 1);
    *view = twi_word_value(before) + delta;
    twi_port_count(call->engine, overflow_increments, 1);
    return TW_OVERFLOWED;
}

/* Changes what is known of the guest. */
static tw_status change(const struct twi_call *call, struct twi_guests *guests, int64_t n, int64_t most,
                        int64_t *view) {
    twi_check_dear(guests != NULL);
    struct twi_guest guest;
    do {
        twi_guest_find(guests, &call->lookup, 0, &guest);
        *view = guest.value;
        if (twi_saturated_sum(guest.value, n) > most) {
            twi_guest_touch(guests, &guest);
            return TW_DENIED;
        }
        if (n == 0) return TW_OK;
        if (n < -guest.value) return TW_ERR_RANGE;
        if (n > TWI_GUEST_MOST - guest.value) return TW_ERR_FULL;
    } while (!twi_guest_set(guests, &call->lookup, &guest, guest.value + n));
    if (twi_guest_gives_up(&guest, 0)) twi_port_count(call->engine, evicted, 1);
    *view += n;
    return TW_OK;
}

tw_status twi_guest_add(struct twi_call *call, struct twi_place *place, int64_t n, int64_t most, int64_t *view) {
    twi_check_dear(place->generation != NULL);
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, place->generation);
    *view = 0;
    if (guests == NULL) return TW_ERR_FULL;
    tw_status status = change(call, guests, n, most, view);
    int64_t all;
    if (status != TW_OK || n == 0) return status;
    status = twi_overflow_add(call, place, n, *view == n, &all);
    if (status == TW_OVERFLOWED) return TW_OK;
    twi_guest_note(call, place->generation, -n); /* the window was sealed, so the units count nowhere */
    return status;
}

void twi_guest_note(const struct twi_call *call, struct twi_generation *generation, int64_t n) {
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, generation);
    int64_t view, known;
    if (guests == NULL) return;
    while (change(call, guests, n, INT64_MAX, &view) == TW_ERR_RANGE) { /* it was given up, and has begun again */
        known = twi_guest_view(call, generation);
        if (known == 0) return;
        if (n < -known) n = -known;
    }
}
