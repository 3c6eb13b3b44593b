/* api.c -- the calls of tallywheel.h that count and read, which are step 1 of the flow in docs/ARCHITECTURE.md. Every
 * call checks its arguments, enters a section, reads the clock, finds the cell, acts, and leaves. If the cell is frozen
 * (because its window was sealed meanwhile), the call reads the clock and decides again. It never waits.
 * Always true: a call that returns an error has not changed a count. */
#include "engine/count/api.h"

#include "engine/base/probe.h"
#include "engine/count/event_time.h"
#include "engine/count/lookup.h"
#include "engine/table/packed.h"
#include "engine/table/spill.h"
#include "engine/base/sized.h"
#include "engine/core/window_map.h"

#include <stdlib.h>

tw_status twi_count_refuse(const tw_family *family) {
    return family->kind.is_gcra ? twi_refuse_for(TWI_WHY_GCRA) : twi_refuse_for(TWI_WHY_DISTINCT);
}

/* ---- adding ---- */

static tw_status overflow(struct twi_call *call, struct twi_place *place, int64_t delta, int64_t *view) {
    TWI_PROBE2(table_full, call->family->options.name, delta);
    if (twi_load_relaxed(&call->family->policy.on_full) == TW_ON_FULL_REJECT || place->generation == NULL) {
        twi_port_count(call->engine, rejected_increments, 1);
        return twi_refuse(TW_ERR_FULL, place->generation == NULL
                                           ? "memory_bytes_max: there is no room to begin this window"
                                           : "on_full: there is no room for a new key, and the family rejects");
    }
    uint64_t before;
    place->cell = &place->generation->overflow;
    place->meta = twi_load_relaxed(&place->cell->meta);
    switch (twi_cell_add(place->cell, place->meta, delta, &before)) {
    case TWI_ADD_FROZEN: return TWI_AGAIN;
    case TWI_ADD_RANGE: return twi_refuse_for(TWI_WHY_SUM);
    default: break;
    }
    twi_place_mark(call, place, before);
    if (!twi_spill_add(&call->engine->arena, place->generation, &call->lookup, call->self->shard, delta))
        twi_port_count(call->engine, overflow_sketches_refused, 1);
    *view = twi_word_value(before) + delta;
    twi_port_count(call->engine, overflow_increments, 1);
    return TW_OVERFLOWED;
}

/* Makes one attempt. Returns TWI_AGAIN if the window changed meanwhile. */
static tw_status add_once(struct twi_call *call, int64_t delta, int64_t *view) {
    struct twi_place place;
    if (twi_unlikely(!twi_place_find(call, &place))) {
        tw_status status = twi_place_make(call, &place);
        if (status == TW_ERR_FULL) return overflow(call, &place, delta, view);
        if (status != TW_OK) return status;
    }
    enum twi_added added = twi_place_add(call, &place, delta, view);
    if (twi_unlikely(added != TWI_ADDED)) return added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_refuse_for(TWI_WHY_SUM);
    if (call->family->kind.synced) *view = twi_saturated_sum(*view, twi_load_relaxed(&place.cell->base));
    return TW_OK;
}

tw_status twi_add_call(struct twi_call *call, int64_t delta, int64_t *view) {
    if (twi_unlikely(call->family->kind.keeps_no_counts)) return twi_count_refuse(call->family);
    for (;;) {
        tw_status status = twi_call_now(call);
        if (twi_unlikely(call->at) && status == TW_OK) status = twi_event_check(call);
        if (twi_likely(status == TW_OK)) status = add_once(call, delta, view);
        if (twi_likely(status == TW_OK || status == TW_OVERFLOWED)) {
            (void)twi_count_increments(call->engine, call->self, 1);
            return status;
        }
        if (status == TWI_AGAIN && call->at) status = twi_event_after_seal(call);
        if (status != TWI_AGAIN) return status;
        /* Sealed. By the clock the window has ended. The next try sees this. */
    }
}

bool twi_add_new(const struct twi_insert *insert, int64_t *view) {
    struct twi_generation *generation = insert->generation;
    tw_family *family = generation->family;
    struct twi_cell *cell;
    uint64_t before = 0; /* the word of a new cell, before its first delta */
    if (twi_unlikely(family->kind.checks_keys) && twi_call_check_key(family, insert->lookup.key) != TW_OK) return false;
    enum twi_found found = twi_place_insert(insert, &cell);
    if (found != TWI_INSERTED &&
        (found != TWI_FOUND || twi_cell_add(cell, twi_cell_publish(cell), insert->first_delta, &before) != TWI_ADDED))
        return false;
    *view = twi_word_value(before) + insert->first_delta;
    if (!generation->synced) return true;
    if ((before & TWI_DIRTY) == 0) twi_dirty_mark(family->engine, generation, cell, twi_load_relaxed(&cell->meta));
    *view = twi_saturated_sum(*view, twi_load_relaxed(&cell->base));
    return true;
}

static bool delta_is_out_of_range(int64_t delta) {
    return delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX;
}

tw_status twi_add_slow(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    return twi_add_hashed(family, key, delta, view, 0);
}

tw_status twi_add_hashed(tw_family *family, tw_key key, int64_t delta, int64_t *view, uint64_t hash) {
    struct twi_call call;
    int64_t seen = 0;
    if (twi_unlikely(delta_is_out_of_range(delta))) return twi_refuse_for(TWI_WHY_DELTA);
    tw_status status = twi_call_begin_hashed(&call, family, key, hash);
    if (twi_unlikely(status != TW_OK)) return status;
    call.without_sum = view == NULL;
    status = twi_add_call(&call, delta, &seen);
    twi_call_end(&call);
    if (view != NULL && status >= 0) *view = seen;
    return status;
}

tw_status tw_add(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    return family->kind.hot_add(family, key, delta, view);
}

static tw_status begin_at(struct twi_call *call, tw_family *family, tw_key key, int64_t unix_ms) {
    if (family->kind.keeps_no_counts) return twi_count_refuse(family);
    return twi_call_begin_at(call, family, key, unix_ms);
}

tw_status tw_add_at(tw_family *family, tw_key key, int64_t delta, int64_t unix_ms, int64_t *view) {
    struct twi_call call;
    int64_t seen = 0;
    if (delta_is_out_of_range(delta)) return twi_refuse_for(TWI_WHY_DELTA);
    tw_status status = begin_at(&call, family, key, unix_ms);
    if (status != TW_OK) return status;
    call.without_sum = view == NULL;
    status = twi_add_call(&call, delta, &seen);
    twi_call_end(&call);
    if (view != NULL && status >= 0) *view = seen;
    return status;
}

tw_status tw_reset(tw_family *family, tw_key key, int64_t *last) {
    struct twi_call call;
    if (family->kind.keeps_no_counts) return twi_count_refuse(family);
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    int64_t taken;
    do {
        struct twi_place place;
        taken = 0; /* a try that found the window sealed has taken no units, whatever it read */
        status = twi_call_now(&call);
        if (status != TW_OK) break;
        if (!twi_place_find(&call, &place)) {
            if (!call.family->kind.evicts_idle || place.previous == NULL)
                break; /* the key is unknown, so its count is 0 already */
            status = twi_place_make(&call, &place);
            if (status == TWI_AGAIN) continue;
            if (status != TW_OK) break;
        }
        taken = twi_cell_view(place.cell, place.meta);
        TWI_RACE_POINT(view_read_not_taken_away);
        int64_t local;
        enum twi_added added = twi_place_add(&call, &place, taken == INT64_MIN ? INT64_MAX : -taken, &local);
        if (added == TWI_ADDED) (void)twi_count_increments(call.engine, call.self, 1);
        status = added == TWI_ADDED ? TW_OK : added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_refuse_for(TWI_WHY_SUM);
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    if (last != NULL && status == TW_OK) *last = taken;
    return status == TW_ERR_FULL ? twi_refuse_for(TWI_WHY_FULL) : status;
}

/* ---- reading ---- */

static bool find_with_interest(struct twi_call *call, struct twi_place *place) {
    place->previous = NULL;
    bool found = twi_place_find(call, place);
    if (!call->family->kind.synced) return found;
    if (!found && (call->at || !twi_may_take_interest(call) || twi_place_make(call, place) != TW_OK)) {
        if (!call->family->kind.evicts_idle || place->previous == NULL) return false;
        place->cell = place->previous; /* the frozen cell accepts no adds, but shows the whole count */
        place->generation = place->previous_in;
        place->meta = twi_load_relaxed(&place->cell->meta);
        return true;
    }
    twi_place_request_total(call, place);
    return true;
}

tw_status tw_get(tw_family *family, tw_key key, int64_t *view) {
    struct twi_call call;
    struct twi_place place;
    if (family->kind.keeps_no_counts) return twi_count_refuse(family);
    tw_status status = twi_call_begin(&call, family, key);
    if (twi_unlikely(status != TW_OK)) return status;
    int64_t seen = 0;
    status = twi_call_now(&call);
    if (twi_likely(status == TW_OK) && find_with_interest(&call, &place)) seen = twi_cell_view(place.cell, place.meta);
    twi_call_end(&call);
    if (view != NULL && status == TW_OK) *view = seen;
    return status;
}

tw_status tw_get_at(tw_family *family, tw_key key, int64_t unix_ms, int64_t *view) {
    struct twi_call call = {.engine = family->engine}; /* gcc -O3 of the one file thinks that `call` may be unset */
    tw_status status = begin_at(&call, family, key, unix_ms);
    if (status != TW_OK) return status;
    int64_t seen = 0;
    status = twi_call_now(&call);
    struct twi_generation *generation = twi_window_find(family, twi_calendar_span(&family->rule, unix_ms).start_ms);
    if (status == TW_OK && generation != NULL) {
        seen = twi_view_in(&call, generation);
    } else if (status == TW_OK) {
        status = twi_absent_window_status(family, unix_ms, call.now_ms);
    }
    twi_call_end(&call);
    if (view != NULL && status == TW_OK) *view = seen;
    return status;
}

tw_status tw_read_sized(tw_family *family, tw_key key, tw_reading *reading, size_t size) {
    struct twi_call call;
    struct twi_place place;
    if (family->kind.keeps_no_counts) return twi_count_refuse(family);
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    tw_reading seen;
    memset(&seen, 0, sizeof seen); /* this clears the padding, too, because the struct is copied as bytes */
    seen.known = !family->kind.synced;
    seen.age_ms = TW_UNBOUNDED;
    seen.error_bound = family->kind.synced ? TW_UNBOUNDED : 0;
    status = twi_call_now(&call);
    if (status == TW_OK && find_with_interest(&call, &place)) {
        seen.local = twi_cell_local(place.cell, place.meta);
        seen.view = seen.local;
        if (family->kind.synced) {
            struct twi_cold *cold = twi_cell_cold(place.cell, place.meta);
            int64_t acked = twi_load_relaxed(&cold->acked), base = twi_load_relaxed(&place.cell->base);
            int64_t total_state = twi_load_relaxed(&cold->total_state);
            seen.view = twi_saturated_sum(seen.local, base);
            int64_t rest = twi_idle_unsent(place.generation, place.cell, place.meta); /* 0 without idle eviction */
            seen.unsent = seen.local - acked + rest;
            seen.known = total_state != 0;
            seen.total = seen.known ? twi_saturated_sum(base, acked - rest) : 0;
            if (seen.known) seen.age_ms = twi_clock_mono_ms(&call.engine->clock) - twi_total_state_ms(total_state);
        }
    }
    twi_call_end(&call);
    if (status == TW_OK && reading != NULL) twi_sized_copy(reading, size, &seen, sizeof seen);
    return status;
}
