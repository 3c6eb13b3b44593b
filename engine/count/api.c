/* api.c -- the calls of tallywheel.h that count and read, which are step 1 of the flow in docs/ARCHITECTURE.md. Every
 * call checks its arguments, enters a section, reads the clock, finds the cell, acts, and leaves. If the cell is frozen
 * (because its window was sealed meanwhile), the call reads the clock and decides again. It never waits.
 * Always true: a call that returns an error has not changed a count. */
#include "engine/count/api.h"

#include "engine/base/grow.h"
#include "engine/base/probe.h"
#include "engine/base/why.h"
#include "engine/core/agenda.h"
#include "engine/core/family.h"
#include "engine/core/window_map.h"
#include "engine/count/call.h"
#include "engine/count/dirty.h"
#include "engine/count/lookup.h"
#include "engine/table/packed.h"
#include "engine/table/stripe.h"

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
    struct twi_generation *generation = place->generation;
    tw_status status = twi_overflow_add(call, place, delta, false, view);
    /* the limit of the key counts what tw_add() added, too */
    if (status == TW_OVERFLOWED && twi_guest_begins(call, generation)) twi_guest_note(call, generation, delta);
    return status;
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

static tw_status reset_guest(struct twi_call *call, struct twi_place *place, int64_t *taken) {
    int64_t view;
    *taken = twi_guest_view(call, place->generation);
    if (*taken == 0) return TW_OK;
    tw_status status = twi_guest_add(call, place, -*taken, INT64_MAX, &view);
    if (status == TW_OK) (void)twi_count_increments(call->engine, call->self, 1);
    return status == TW_ERR_RANGE ? TWI_AGAIN : status; /* it was given up meanwhile */
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
            if (twi_guest_may_be(call.family, place.generation)) {
                status = reset_guest(&call, &place, &taken);
                continue;
            }
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
    if (twi_likely(status == TW_OK)) {
        if (find_with_interest(&call, &place))
            seen = twi_cell_view(place.cell, place.meta);
        else if (twi_guest_may_be(family, place.generation))
            seen = twi_guest_view(&call, place.generation);
    }
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
    TWI_NEED(family);
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
    } else if (status == TW_OK && twi_guest_may_be(family, place.generation)) {
        seen.local = seen.view = twi_guest_view(&call, place.generation);
        seen.error_bound = TW_UNBOUNDED; /* it may have been given up before */
    }
    twi_call_end(&call);
    if (status == TW_OK && reading != NULL) twi_sized_copy(reading, size, &seen, sizeof seen);
    return status;
}

/* ---- pin ----
 * adds to one counter without looking it up each time.
 *
 * A pin remembers a cell, and the span of engine time in which the memory of this cell surely belongs to its window.
 * The span is the window itself. A generation is closed, and later dropped, only when engine time has reached its end.
 * So a thread that reads an earlier time inside a section entered that section before the generation was unlinked, and
 * reclamation waits for it (trap E32). Outside the span, the pin looks its key up again. It also does so if the cell is
 * frozen or at an edge of its range.
 * Always true: `cell` is used only inside a section, within the span, and in the process that found it. */

struct tw_pin {
    tw_family *family;
    struct twi_generation *generation;
    struct twi_cell *cell; /* NULL means that the key must be looked up */
    int64_t start_ms, end_ms;
    uint32_t process; /* the process that found the cell; after a fork the cell belongs to the parent */
    bool is_plain;    /* the family has no Redis, and short sections are allowed */
    uint32_t key_size;
    unsigned char key[];
};

tw_status tw_pin_open(tw_family *family, tw_key key, tw_pin **pin) {
    TWI_NEED(family);
    TWI_NEED(pin);
    tw_status status = twi_call_check_key(family, key);
    if (status != TW_OK) return status;
    if (twi_load_relaxed(&family->engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    tw_pin *made = calloc(1, sizeof *made + key.size);
    if (made == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    made->family = family;
    made->key_size = (uint32_t)key.size;
    made->is_plain = !family->kind.synced && twi_section_may_be_short();
    memcpy(made->key, key.data, key.size);
    *pin = made;
    return TW_OK;
}

void tw_pin_close(tw_pin *pin) {
    free(pin);
}

/* Remembers where the key is counted now. Call it inside a section. */
static void remember(tw_pin *pin, const struct twi_call *call) {
    struct twi_place place;
    pin->cell = NULL;
    if (pin->family->kind.from_first || pin->family->kind.evicts_idle || !twi_place_find(call, &place))
        return; /* in these families cells end one by one, so the key is looked up each time */
    pin->generation = place.generation;
    pin->start_ms = place.generation->start_ms > 0 ? place.generation->start_ms : 0; /* twi_clock_peek_ms() */
    pin->end_ms = place.generation->end_ms;
    pin->process = call->self->process;
    pin->cell = place.cell;
}

static tw_status add_anew(tw_pin *pin, int64_t delta, int64_t *view) {
    struct twi_call call;
    int64_t seen = 0;
    if (delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX) return twi_refuse_for(TWI_WHY_DELTA);
    tw_status status = twi_call_begin(&call, pin->family, tw_bytes(pin->key, pin->key_size));
    if (status != TW_OK) return status;
    call.without_sum = view == NULL;
    status = twi_add_call(&call, delta, &seen);
    if (status == TW_OK) remember(pin, &call);
    twi_call_end(&call);
    if (view != NULL && status >= 0) *view = seen;
    return status;
}

/* Adds to a counter that is not plain: it is striped, without DIRTY, sampled, or at an edge of its range. */
static __attribute__((noinline)) tw_status add_to(tw_pin *pin, int64_t delta, int64_t *view) {
    tw_family *family = pin->family;
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    twi_section_enter(self);
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    struct twi_cell *cell = pin->cell;
    struct twi_counted counted;
    uint64_t meta;
    if (twi_unlikely(now_ms < pin->start_ms || now_ms >= pin->end_ms)) goto anew;
    meta = twi_load_relaxed(&cell->meta);
    twi_dirty_begin(self, engine, pin->generation, cell);
    if (twi_unlikely(twi_stripes_add(cell, meta, delta, view != NULL, self, &counted) != TWI_ADDED)) goto anew;
    twi_contention_mark(engine, pin->generation, cell, meta, &counted);
    twi_dirty_end(self);
    int64_t count = twi_count_increments(engine, self, 1);
    if (view != NULL)
        *view = twi_view_of(cell, meta, counted.local);
    else if ((meta & TWI_META_STRIPED) == 0)
        twi_contention_detect(engine, pin->generation, cell, counted.local - delta, delta, count, self);
    twi_section_leave(self);
    return twi_call_over(engine, count);
anew:
    twi_dirty_end(self);
    twi_section_leave(self);
    return add_anew(pin, delta, view);
}

/* Called after a plain add without a view has counted. Samples whether other threads have added since. The caller is
 * inside a section, short or not, and this function leaves the section. */
static TWI_COLD tw_status sample(const tw_pin *pin, int64_t before, int64_t delta, int64_t count) {
    struct twi_thread *self = twi_thread_self;
    self->depth++; /* the called functions enter their own sections */
    twi_contention_detect_add(pin->family->engine, pin->generation, pin->cell, before, delta, self);
    twi_section_leave(self);
    return twi_call_over(pin->family->engine, count);
}

/* In the plain case, a family without Redis, the code calls no function. */
tw_status tw_pin_add(tw_pin *pin, int64_t delta, int64_t *view) {
    TWI_NEED(pin);
    tw_engine *engine = pin->family->engine;
    struct twi_thread *self = twi_thread_self;
    /* In a forked child the record is wiped, and the cell belongs to the parent. */
    if (twi_unlikely(self->process != pin->process) || twi_unlikely(pin->cell == NULL) ||
        twi_unlikely(delta != (int32_t)delta) || twi_unlikely(twi_load_relaxed(&engine->life.gate)))
        return add_anew(pin, delta, view);
    if (twi_unlikely(!pin->is_plain)) return add_to(pin, delta, view);
    bool outermost = twi_section_enter_short(self);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* a stale time is in no window of a pin */
    TWI_RACE_POINT(pin_time_read_not_added);
    struct twi_cell *cell = pin->cell;
    uint64_t before;
    if (twi_unlikely(now_ms < pin->start_ms) || twi_unlikely(now_ms >= pin->end_ms) ||
        twi_unlikely((twi_load_relaxed(&cell->meta) & (TWI_META_EDGE | TWI_META_STRIPED)) != 0) ||
        twi_unlikely(!twi_cell_count(cell, delta, &before))) {
        twi_section_leave_short(self, outermost);
        return add_to(pin, delta, view);
    }
    int64_t count = twi_count_increments(engine, self, 1);
    if (view != NULL)
        *view = twi_word_value(before) + delta;
    else if (twi_unlikely(cell == self->sampled) || twi_unlikely((count & (TWI_CONTENTION_EVERY - 1)) == 0))
        return sample(pin, twi_word_value(before), delta, count);
    twi_section_leave_short(self, outermost);
    return twi_call_over(engine, count);
}

/* ---- watermark ----
 * tw_close_until() notes how far event time has come, as reported by the application.
 * Always true: a watermark only rises. If the watermark has passed a window, and the window has ended by the clock, it
 * accepts no more counts, whatever the lateness is. The roll-over uses it (rollover.c). */

tw_status tw_close_until(tw_family *family, int64_t unix_ms) {
    TWI_NEED(family);
    tw_engine *engine = family->engine;
    if (!family->kind.has_starts)
        return twi_refuse(TW_ERR_MODE, "window: a watermark is for aligned and calendar windows");
    if (family->kind.is_gcra) return twi_refuse_for(TWI_WHY_GCRA);
    if (!twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    if (twi_thread_here() == NULL)
        return twi_refuse_for(twi_thread_why()); /* this call also renews the engine in a forked child */
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    int64_t now_ms = twi_clock_read(&engine->clock), ahead_ms = twi_load_relaxed(&family->policy.earliness_ms);
    if (twi_calendar_span(&family->rule, unix_ms).start_ms > now_ms && twi_time_add(now_ms, ahead_ms) < unix_ms)
        return twi_refuse(TW_ERR_EARLY, "unix_ms: further ahead of the engine's clock than earliness_ms");
    if (!twi_family_raise(&family->marks.watermark_ms, unix_ms)) return TW_OK;
    twi_store_release(&family->requests.changed, true);
    twi_agenda_notify(family);
    return TW_OK;
}
