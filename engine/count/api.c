/* api.c -- counting and reading: the calls of tallywheel.h. Step 1 of the flow in docs/ARCHITECTURE.md.
 * Every call checks its arguments, enters a section, reads the clock, finds the cell, acts, and leaves. If the cell
 * turns out to be frozen (its window was sealed meanwhile), the call reads the clock and decides again. It never waits.
 * Always true: a call that returns an error has changed nothing. */
#include "engine/count/api.h"

#include "engine/core/agenda.h"
#include "engine/count/lookup.h"
#include "engine/table/packed.h"
#include "engine/base/sized.h"
#include "engine/core/window_map.h"

#include <stdlib.h>

/* ---- adding ---- */

static tw_status overflow(struct twi_call *call, struct twi_place *place, int64_t delta, int64_t *view) {
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
    case TWI_ADD_RANGE: return twi_sum_refuse();
    default: break;
    }
    twi_place_mark(call, place, before);
    *view = twi_word_value(before) + delta;
    twi_port_count(call->engine, overflow_increments, 1);
    return TW_OVERFLOWED;
}

/* One attempt. TWI_AGAIN: the window changed meanwhile. */
static tw_status add_once(struct twi_call *call, int64_t delta, int64_t *view) {
    struct twi_place place;
    if (twi_unlikely(!twi_place_find(call, &place))) {
        tw_status status = twi_place_make(call, &place);
        if (status == TW_ERR_FULL) return overflow(call, &place, delta, view);
        if (status != TW_OK) return status;
    }
    enum twi_added added = twi_place_add(call, &place, delta, view);
    if (twi_unlikely(added != TWI_ADDED)) return added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_sum_refuse();
    if (call->family->kind.synced) *view = twi_saturated_sum(*view, twi_load_relaxed(&place.cell->base));
    return TW_OK;
}

static tw_status refuse_late(void) {
    return twi_refuse(TW_ERR_LATE,
                      "unix_ms: its window has ended, and lateness_ms is over, too, or tw_close_until() has passed it");
}

/* Checks that the window of call->unix_ms takes counts at call->now_ms. */
static tw_status check_event_time(const struct twi_call *call) {
    struct tw_family *family = call->family;
    struct twi_span span = twi_calendar_span(&family->rule, call->unix_ms);
    if (twi_family_takes_until(family, span.end_ms) <= call->now_ms) return refuse_late();
    if (span.start_ms > call->now_ms &&
        twi_time_add(call->now_ms, twi_load_relaxed(&family->policy.earliness_ms)) < call->unix_ms)
        return twi_refuse(TW_ERR_EARLY, "unix_ms: further ahead of the engine's clock than earliness_ms");
    return TW_OK;
}

/* Counts a late call. If the family has no lateness and no watermark, the turn also logs it once. */
static void note_late(const struct twi_call *call) {
    struct tw_family *family = call->family;
    twi_port_count(call->engine, late_increments, 1);
    if (!call->at || twi_load_relaxed(&family->policy.lateness_ms) != 0 || twi_load_relaxed(&family->marks.is_late) ||
        twi_load_relaxed(&family->marks.watermark_ms) != INT64_MIN)
        return;
    twi_store_relaxed(&family->marks.is_late, true);
    twi_store_release(&family->requests.changed, true);
    twi_agenda_notify(family);
}

tw_status twi_add_call(struct twi_call *call, int64_t delta, int64_t *view) {
    if (twi_unlikely(call->family->kind.is_gcra)) return twi_gcra_refuse(); /* the words of GCRA are times */
    for (;;) {
        tw_status status = twi_call_now(call);
        if (twi_unlikely(call->at) && status == TW_OK) status = check_event_time(call);
        if (twi_likely(status == TW_OK)) status = add_once(call, delta, view);
        if (twi_likely(status == TW_OK || status == TW_OVERFLOWED)) {
            (void)twi_count_increments(call->engine, call->self, 1);
            return status;
        }
        if (status == TW_ERR_LATE) note_late(call);
        if (status != TWI_AGAIN) return status;
        /* Sealed. By the clock the window is over, which the next round sees. A call with an event time is late from
         * now on, even if the clock that it read is a little behind the turn's. */
        if (call->at) {
            struct twi_generation *generation = twi_window_at(call->family, call->unix_ms, false);
            if (generation != NULL && twi_load_acquire(&generation->phase) >= TWI_SEALING) {
                note_late(call);
                return refuse_late();
            }
        }
    }
}

bool twi_add_new(tw_family *family, struct twi_generation *generation, tw_key key, uint64_t hash, int64_t delta,
                 int64_t *view) {
    tw_engine *engine = family->engine;
    struct twi_call call = {
        .family = family, .engine = engine, .self = twi_thread_self, .lookup = twi_lookup_key(hash, key)};
    struct twi_place place = {.generation = generation};
    uint64_t before;
    call.now_ms = call.unix_ms = twi_clock_now_ms(&engine->clock);
    if (!twi_generation_holds(generation, call.now_ms) || twi_place_make(&call, &place) != TW_OK ||
        twi_cell_add(place.cell, place.meta, delta, &before) != TWI_ADDED)
        return false;
    twi_place_mark(&call, &place, before);
    *view = twi_word_value(before) + delta;
    if (family->kind.synced) *view = twi_saturated_sum(*view, twi_load_relaxed(&place.cell->base));
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
    if (twi_unlikely(delta_is_out_of_range(delta))) return twi_delta_refuse();
    tw_status status = twi_call_begin_hashed(&call, family, key, hash);
    if (twi_unlikely(status != TW_OK)) return status;
    call.without_sum = view == NULL;
    status = twi_add_call(&call, delta, &seen);
    twi_call_end(&call);
    if (view != NULL && status >= 0) *view = seen;
    return status;
}

tw_status tw_add(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    twi_check(family != NULL);
    return family->kind.hot_add(family, key, delta, view);
}

static tw_status begin_at(struct twi_call *call, tw_family *family, tw_key key, int64_t unix_ms) {
    if (family->kind.is_gcra) return twi_gcra_refuse();
    if (!family->kind.has_starts)
        return twi_refuse(TW_ERR_MODE, "window: calls with a time are for aligned and calendar windows");
    if (!twi_calendar_holds(unix_ms)) return twi_time_refuse();
    tw_status status = twi_call_begin(call, family, key);
    call->at = true;
    call->unix_ms = unix_ms;
    return status;
}

tw_status tw_add_at(tw_family *family, tw_key key, int64_t delta, int64_t unix_ms, int64_t *view) {
    struct twi_call call;
    int64_t seen = 0;
    if (delta_is_out_of_range(delta)) return twi_delta_refuse();
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
    if (family->kind.is_gcra) return twi_gcra_refuse();
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    int64_t taken = 0;
    do {
        struct twi_place place;
        status = twi_call_now(&call);
        if (status != TW_OK) break;
        if (!twi_place_find(&call, &place)) {
            if (!call.family->kind.evicts_idle || place.previous == NULL)
                break; /* unknown key: its count is 0 already */
            status = twi_place_make(&call, &place);
            if (status == TWI_AGAIN) continue;
            if (status != TW_OK) break;
        }
        taken = twi_cell_view(place.cell, place.meta);
        int64_t local;
        enum twi_added added = twi_place_add(&call, &place, taken == INT64_MIN ? INT64_MAX : -taken, &local);
        if (added == TWI_ADDED) (void)twi_count_increments(call.engine, call.self, 1);
        status = added == TWI_ADDED ? TW_OK : added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_sum_refuse();
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    if (last != NULL && status == TW_OK) *last = taken;
    return status == TW_ERR_FULL ? twi_full_refuse() : status;
}

/* ---- reading ---- */

/* True: enough memory and keys are left for reading an unknown key to make a counter (trap E41). */
static bool may_take_interest(const struct twi_call *call) {
    struct twi_arena *arena = &call->engine->arena;
    uint64_t most = twi_load_relaxed(&call->family->quota.keys_max);
    struct twi_generation *generation = twi_window_at(call->family, call->unix_ms, true);
    if (most != 0 && generation != NULL && twi_load_relaxed(&generation->keys) >= most - most / 4) return false;
    return (uint64_t)twi_arena_bytes_used(arena) < arena->bytes_max - arena->bytes_max / 4;
}

static bool find_with_interest(struct twi_call *call, struct twi_place *place) {
    place->previous = NULL;
    bool found = twi_place_find(call, place);
    if (!call->family->kind.synced) return found;
    if (!found && (call->at || !may_take_interest(call) || twi_place_make(call, place) != TW_OK)) {
        if (!call->family->kind.evicts_idle || place->previous == NULL) return false;
        place->cell = place->previous; /* the frozen cell takes no adds, but shows the whole count */
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
    if (family->kind.is_gcra) return twi_gcra_refuse();
    tw_status status = twi_call_begin(&call, family, key);
    if (twi_unlikely(status != TW_OK)) return status;
    int64_t seen = 0;
    status = twi_call_now(&call);
    if (twi_likely(status == TW_OK) && find_with_interest(&call, &place)) seen = twi_cell_view(place.cell, place.meta);
    twi_call_end(&call);
    if (view != NULL && status == TW_OK) *view = seen;
    return status;
}

/* The window is not held. TW_OK: it may be empty; TW_ERR_LATE: it is over for good. */
static tw_status status_of_absent_window(struct tw_family *family, int64_t unix_ms, int64_t now_ms) {
    struct twi_span span = twi_calendar_span(&family->rule, unix_ms);
    int64_t lateness_ms = twi_load_acquire(&family->policy.lateness_ms); /* F2 */
    int64_t until_ms =
        twi_time_add(twi_time_add(span.end_ms, lateness_ms), twi_load_acquire(&family->policy.history_ms));
    if (now_ms < until_ms && span.end_ms > twi_load_relaxed(&family->marks.gone_ms)) return TW_OK;
    return twi_refuse(TW_ERR_LATE, "unix_ms: its window is over for longer than history_ms keeps it");
}

tw_status tw_get_at(tw_family *family, tw_key key, int64_t unix_ms, int64_t *view) {
    struct twi_call call;
    tw_status status = begin_at(&call, family, key, unix_ms);
    if (status != TW_OK) return status;
    int64_t seen = 0;
    status = twi_call_now(&call);
    struct twi_generation *generation = twi_window_find(family, twi_calendar_span(&family->rule, unix_ms).start_ms);
    if (status == TW_OK && generation != NULL) {
        seen = twi_view_in(&call, generation);
    } else if (status == TW_OK) {
        status = status_of_absent_window(family, unix_ms, call.now_ms);
    }
    twi_call_end(&call);
    if (view != NULL && status == TW_OK) *view = seen;
    return status;
}

tw_status tw_read_sized(tw_family *family, tw_key key, tw_reading *reading, size_t size) {
    struct twi_call call;
    struct twi_place place;
    if (family->kind.is_gcra) return twi_gcra_refuse();
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    tw_reading seen;
    memset(&seen, 0, sizeof seen); /* clears the padding, too: the struct is copied as bytes */
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

/* ---- walking ---- */

#define EACH_BYTES 8192

/* Counts are copied into a buffer inside a section, and shown to the visitor outside of it. A slow visitor holds up
 * nothing but this one generation. */
struct each {
    struct twi_generation *generation;
    uint32_t packed;          /* its packed form; 0: walk the table */
    struct twi_cursor cursor; /* used for the table; the next one for the packed form */
    struct twi_packed_cursor packed_cursor;
    int64_t now_ms;
    bool lives_only;
    /* Idle eviction: the other of the two generations. A key that is in both is shown with the older generation, by the
     * newer one's cell. The successor may come after its generation was walked, but the frozen cell was there
     * before. */
    struct twi_generation *newer, *older;
    size_t used;
    alignas(8) unsigned char buffer[EACH_BYTES];
};
struct each_record {
    int64_t view, local, end_ms;
    uint64_t size;
};
static_assert(sizeof(struct each_record) + TW_KEY_SIZE_MAX <= EACH_BYTES, "the longest key fits");

/* False: the buffer is full. */
static bool copy_record(struct each *each, const struct each_record *record, const void *key) {
    size_t size = sizeof *record + ((record->size + 7) & ~(size_t)7);
    if (each->used + size > EACH_BYTES) return false;
    memcpy(each->buffer + each->used, record, sizeof *record);
    memcpy(each->buffer + each->used + sizeof *record, key, record->size);
    each->used += size;
    return true;
}

static struct twi_cell *same_key_in(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    tw_engine *engine = generation->family->engine;
    tw_key key = tw_bytes(cell->key, meta & TWI_META_SIZE);
    struct twi_lookup_key lookup = twi_lookup_key(engine->hashing.fn(&engine->hashing.secret, key.data, key.size), key);
    return twi_table_find(&engine->arena, generation, &lookup);
}

static bool copy_count(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct each *each = ctx;
    if (each->older != NULL && same_key_in(each->older, cell, meta) != NULL) return true;
    struct twi_cell *successor = each->newer != NULL ? same_key_in(each->newer, cell, meta) : NULL;
    if (successor != NULL) {
        cell = successor;
        meta = twi_cell_publish(successor);
    }
    int64_t local = twi_cell_local(cell, meta);
    struct each_record record = {.view = twi_view_of(cell, meta, local),
                                 .local = local,
                                 .end_ms = twi_load_relaxed(&cell->end_ms),
                                 .size = meta & TWI_META_SIZE};
    if (each->lives_only && record.end_ms <= each->now_ms) return true;
    if (copy_record(each, &record, cell->key)) return true;
    each->cursor.index--; /* visit it again with an empty buffer */
    return false;
}

static bool copy_final(void *ctx, tw_key key, struct twi_final final) {
    struct each_record record = {
        .view = twi_saturated_sum(final.local, final.base), .local = final.local, .size = key.size};
    return copy_record(ctx, &record, key.data);
}

/* False: stop. Either the visitor wants no more, or it has forked and this is the child, where the window does not
 * exist. */
static bool show_buffer(const struct twi_thread *self, const struct each *each,
                        bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    for (size_t at = 0; at < each->used;) {
        struct each_record record;
        memcpy(&record, each->buffer + at, sizeof record);
        tw_count count = {.key = tw_bytes(each->buffer + at + sizeof record, record.size),
                          .view = record.view,
                          .local = record.local};
        count.start_ms = twi_generation_start_ms(each->generation);
        count.end_ms = each->lives_only ? record.end_ms : twi_generation_end_ms(each->generation);
        if (!visit(ctx, &count) || twi_thread_self != self) return false;
        at += sizeof record + ((record.size + 7) & ~(size_t)7);
    }
    return true;
}

/* `readers.all` keeps the generation, also between two sections, and `readers.of_table` keeps the table. */
static bool each_of(struct twi_thread *self, tw_engine *engine, struct each *each,
                    bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    bool more = true;
    while (more && !each->cursor.done && !each->packed_cursor.done) {
        each->used = 0;
        twi_section_enter(self);
        if (each->packed != 0)
            twi_packed_walk(&engine->arena, each->packed, &each->packed_cursor, copy_final, each);
        else
            twi_table_walk(&engine->arena, each->generation, &each->cursor, copy_count, each);
        twi_section_leave(self);
        more = show_buffer(self, each, visit, ctx);
    }
    if (!more) return false;
    struct twi_cell *spill = &each->generation->overflow;
    uint64_t meta = twi_load_relaxed(&spill->meta);
    int64_t others = twi_load_relaxed(&each->generation->turn.wants_totals) ? twi_load_relaxed(&spill->base) : 0;
    int64_t local = twi_cell_local(spill, meta); /* read once: adds go on meanwhile */
    if (local != 0 || others != 0) {
        tw_count count = {.view = twi_saturated_sum(local, others),
                          .local = local,
                          .start_ms = twi_generation_start_ms(each->generation),
                          .end_ms = twi_generation_end_ms(each->generation)};
        more = visit(ctx, &count) && twi_thread_self == self;
    }
    return more;
}

/* If there is no packed form yet, this section began before its publication. The turn gives the table back after the
 * section, and by then sees readers.of_table. */
static void begin_each(struct each *each) {
    (void)twi_add_acqrel(&each->generation->readers.all, 1);
    each->packed = twi_load_acquire(&each->generation->packed); /* K2, pairs with K1 */
    TWI_RACE_POINT(each_form_chosen);
    if (each->packed == 0) (void)twi_add_acqrel(&each->generation->readers.of_table, 1);
}

static bool each_window(struct twi_thread *self, tw_family *family, int64_t start_ms, int64_t now_ms, tw_status *status,
                        bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    struct each each = {.now_ms = now_ms, .lives_only = family->kind.from_first};
    twi_section_enter(self);
    each.generation = twi_window_find(family, start_ms);
    if (each.generation != NULL) begin_each(&each);
    twi_section_leave(self);
    if (each.generation == NULL) {
        if (family->kind.has_starts) *status = status_of_absent_window(family, start_ms, now_ms);
        return true;
    }
    bool more = each_of(self, family->engine, &each, visit, ctx);
    if (twi_thread_self != self) { /* the visitor has forked and counted in the child: this window is the parent's */
        *status = twi_refuse(TW_ERR_FORKED, "visit: it has forked; what was visited is the parent's");
        return false;
    }
    if (each.packed == 0) (void)twi_sub_acqrel(&each.generation->readers.of_table, 1);
    (void)twi_sub_acqrel(&each.generation->readers.all, 1);
    return more;
}

static struct twi_generation *hold(struct tw_family *family, int64_t eviction_epoch) {
    struct twi_generation *generation = twi_window_find(family, eviction_epoch);
    if (generation != NULL) (void)twi_add_acqrel(&generation->readers.all, 1);
    return generation;
}

/* Idle eviction: walks the previous generation, then the keys that only the current one has. */
static tw_status each_previous(struct twi_thread *self, tw_family *family,
                               bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    twi_section_enter(self);
    int64_t eviction_epoch = twi_load_acquire(&family->eviction_epoch); /* G5 */
    struct twi_generation *older = hold(family, eviction_epoch - 1), *newer = hold(family, eviction_epoch);
    twi_section_leave(self);
    bool more = true;
    if (older != NULL) {
        struct each each = {.generation = older, .newer = newer};
        more = each_of(self, family->engine, &each, visit, ctx);
    }
    if (more && newer != NULL) {
        struct each each = {.generation = newer, .older = older};
        (void)each_of(self, family->engine, &each, visit, ctx);
    }
    if (twi_thread_self != self)
        return twi_refuse(TW_ERR_FORKED, "visit: it has forked; what was visited is the parent's");
    if (older != NULL) (void)twi_sub_acqrel(&older->readers.all, 1);
    if (newer != NULL) (void)twi_sub_acqrel(&newer->readers.all, 1);
    return TW_OK;
}

tw_status tw_each(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    twi_check(family != NULL && visit != NULL);
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_relaxed(&engine->life.stopped) && !self->in_hook) return twi_refuse(TW_ERR_CLOSED, NULL);
    int64_t now_ms = twi_clock_now_ms(&engine->clock), at_ms = unix_ms == TW_NOW ? now_ms : unix_ms;
    if (unix_ms != TW_NOW && !family->kind.has_starts && family->kind.from_first)
        return twi_refuse(TW_ERR_MODE, "unix_ms: in a TW_WINDOW_FROM_FIRST family tw_each() knows TW_NOW only");
    if (unix_ms != TW_NOW && !twi_calendar_holds(unix_ms)) return twi_time_refuse();
    if (family->kind.evicts_idle) return each_previous(self, family, visit, ctx);
    tw_status status = TW_OK;
    bool more =
        each_window(self, family, twi_calendar_span(&family->rule, at_ms).start_ms, now_ms, &status, visit, ctx);
    if (more && family->kind.from_first)
        (void)each_window(self, family, twi_calendar_previous_start(&family->rule, at_ms), now_ms, &status, visit, ctx);
    return status;
}
