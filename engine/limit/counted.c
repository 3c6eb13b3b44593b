/* counted.c -- see counted.h. */
#include "engine/limit/counted.h"

#include "engine/count/contention.h"
#include "engine/count/dirty.h"
#include "engine/limit/slice.h"
#include "engine/table/stripe.h"

/* Takes n units from the stripes. A cell without stripes was sealed. */
static tw_status take_striped(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t most,
                              struct twi_decision *decision) {
    struct twi_taken taken;
    uint64_t meta = twi_load_acquire(&place->cell->meta); /* S2: the cell may have become striped after the lookup */
    tw_status status = twi_slices_take(place->cell, meta, n, most, call->self, &taken);
    decision->view = taken.used;
    decision->bound = taken.bound;
    if (taken.unlisted) twi_dirty_list(call->engine, place->generation, place->cell, meta);
    return status;
}

tw_status twi_counted_take(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t most,
                           struct twi_decision *decision) {
    twi_check_dear(place->cell != NULL && n >= 0 && n <= TW_DELTA_MAX);
    uint64_t word = twi_load_acquire(&place->cell->local); /* C2 */
    int64_t *view = &decision->view;
    int64_t base = call->family->kind.synced ? twi_load_relaxed(&place->cell->base) : 0;
    for (;;) {
        if ((word & TWI_FROZEN) != 0) return take_striped(call, place, n, most, decision);
        int64_t value = twi_word_value(word);
        *view = twi_saturated_sum(value, base);
        if (twi_saturated_sum(*view, n) > most) return TW_DENIED;
        if (n == 0) return TW_OK;
        if (value > TW_COUNT_MAX - n) return twi_refuse_for(TWI_WHY_SUM);
        uint64_t after = (uint64_t)(value + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
        if (twi_cas_weak_acqrel(&place->cell->local, &word, after)) break;
        twi_contention_detect_acquire(call->engine, place->generation, place->cell, most, call->self);
    }
    *view += n;
    twi_place_mark(call, place, word);
    if (twi_saturated_sum(*view, 0) >= TWI_VALUE_EDGE) (void)twi_or_relaxed(&place->cell->meta, TWI_META_EDGE);
    return TW_OK;
}

/* ---- one try ---- */

/* Writes the window of the decision: that of the counter, or the one in which it would be made. */
static void fill_window(const struct twi_call *call, const struct twi_place *place, bool has_cell,
                        struct twi_decision *decision) {
    const struct tw_family *family = call->family;
    if (family->kind.from_first) {
        int64_t length_ms = family->rule.window_ms;
        decision->end_ms = has_cell ? twi_load_relaxed(&place->cell->end_ms) : twi_time_add(call->now_ms, length_ms);
        decision->start_ms = decision->end_ms - length_ms;
    } else if (has_cell || family->kind.evicts_idle) {
        decision->start_ms = has_cell ? twi_generation_start_ms(place->generation) : 0;
        decision->end_ms = has_cell ? twi_generation_end_ms(place->generation) : INT64_MAX;
    } else {
        struct twi_span span = twi_calendar_span(&family->rule, call->unix_ms);
        decision->start_ms = span.start_ms;
        decision->end_ms = span.end_ms;
    }
}

/* For families with idle eviction: no cell takes adds, but a frozen cell of the previous generation may show the
 * count. */
static void look_at_previous(const struct twi_place *place, struct twi_decision *decision) {
    decision->unknown = place->previous == NULL;
    if (place->previous != NULL)
        decision->view = twi_cell_view(place->previous, twi_load_relaxed(&place->previous->meta));
}

tw_status twi_counting_try(struct twi_call *call, const struct twi_counting *counting, int64_t n, int64_t limit,
                           struct twi_decision *decision) {
    struct twi_place place;
    bool evicts_idle = call->family->kind.evicts_idle, has_cell = twi_place_find(call, &place);
    if (!has_cell) {
        decision->view = 0;
        fill_window(call, &place, false, decision);
        if (evicts_idle) look_at_previous(&place, decision);
        int64_t most = counting->unknown(call, n, limit, decision);
        /* there is nothing to take, so no counter is made */
        if (n == 0 || n > most) return twi_saturated_sum(decision->view, n) > most ? TW_DENIED : TW_OK;
        if (!twi_call_is_current(call)) return TWI_AGAIN;
        decision->now_ms = call->now_ms;
        tw_status status = twi_place_make(call, &place);
        decision->full = status == TW_ERR_FULL;
        if (status != TW_OK) return status;
    }
    fill_window(call, &place, true, decision);
    decision->unknown = evicts_idle && !twi_cell_is_known(place.cell, place.meta);
    return counting->take(call, &place, n, limit, decision);
}

/* ---- limits of one window ---- */

static int64_t all_of_it(const struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision) {
    (void)call;
    (void)n;
    (void)decision;
    return limit;
}

static tw_status take(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                      struct twi_decision *decision) {
    tw_status status = twi_counted_take(call, place, n, limit, decision);
    /* The total is requested although the call was denied: it decides the next call. */
    if (decision->unknown && status == TW_DENIED)
        twi_dirty_mark(call->engine, place->generation, place->cell, place->meta);
    return status;
}

const struct twi_counting twi_counting_here = {.unknown = all_of_it, .take = take};

tw_status twi_counted_try(struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision) {
    return twi_counting_try(call, &twi_counting_here, n, limit, decision);
}
