/* counted.h -- the common part of all limits that a counter of this process decides. This header is a template. Each
 * kind compiles it with other functions, so that a decision calls nothing that it does not need. Limits of one window
 * are in counted.c, limits that several engines share in share.c, and sliding limits in sliding.c. acquire_fast.h
 * decides the common cases of the first two inline; this file decides all cases.
 * Always true: a count rises by one compare-and-swap, and only if it then stays within the limit. An add is never
 * made and undone (trap E36). So without Redis exactly `limit` units are admitted. A call that is denied on a known
 * key does not write. If a denial may change within a few milliseconds, the exact clock decides it. So a thread that
 * sleeps for `retry_after_ms` is then admitted, if no other thread calls. */
#ifndef TWI_LIMIT_COUNTED_H
#define TWI_LIMIT_COUNTED_H

#include "tallywheel.h"
#include "engine/count/dirty.h"
#include "engine/count/lookup.h"
#include "engine/limit/decision.h"
#include "engine/limit/limit_stats.h"
#include "engine/table/stripe.h"

/* ---- slice ----
 * slices: the parts of a limit that contending threads spend without disturbing each other. */

struct twi_cell;
struct twi_stripes;
struct twi_taken;
struct twi_thread;

tw_status twi_slices_take(struct twi_cell *cell, uint64_t meta, int64_t n, int64_t limit, const struct twi_thread *self,
                          struct twi_taken *taken);
/* Takes n units off the count, if the view is at least `least` afterwards. Returns TW_OK or TW_ERR_RANGE. TWI_AGAIN
 * means that the cell was sealed. */
tw_status twi_slices_put_back(struct twi_cell *cell, uint64_t meta, int64_t n, int64_t least, bool *unlisted);

/* The functions that differ between these limits. Pass it as a constant, so that they are inlined. */
struct twi_counting {
    /* Called first, to subtract the counts of other windows from the limit. NULL means that the counts of other
     * windows do not matter. If `looks` is true, the call only looks, and `carry` makes no counter. */
    void (*carry)(const struct twi_call *call, bool looks, int64_t limit, struct twi_decision *decision);
    /* Called if the key has no counter here. Returns the greatest count that may be admitted. */
    int64_t (*unknown)(const struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision);
    /* Called if the key has a counter. It takes n units from the counter with twi_counted_take(). */
    tw_status (*take)(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                      struct twi_decision *decision);
    /* After how long a denied call is admitted if no other thread calls; -1 means never. */
    int64_t (*retry_ms)(const struct tw_family *family, int64_t n, int64_t limit, const struct twi_decision *decision);
};

/* Does tw_acquire() for a limit of one window from which no other engine spends. */
tw_status twi_counted_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

/* ---- units ---- */

/* Takes n units from the stripes. A cell without stripes was sealed. */
static inline tw_status twi_counted_take_striped(const struct twi_call *call, const struct twi_place *place, int64_t n,
                                                 int64_t most, struct twi_decision *decision) {
    struct twi_taken taken;
    uint64_t meta = twi_load_acquire(&place->cell->meta); /* S2: the cell may have become striped after the lookup */
    twi_dirty_begin(call->self, call->engine, place->generation, place->cell);
    tw_status status = twi_slices_take(place->cell, meta, n, most, call->self, &taken);
    decision->view = taken.used;
    decision->bound = taken.bound;
    if (taken.unlisted) twi_dirty_list(call->engine, place->generation, place->cell, meta);
    twi_dirty_end(call->self);
    return status;
}

/* Takes n units from the counter, if the count then is at most `most`. */
static inline tw_status twi_counted_take(const struct twi_call *call, const struct twi_place *place, int64_t n,
                                         int64_t most, struct twi_decision *decision) {
    twi_check_dear(place->cell != NULL && n >= 0 && n <= TW_DELTA_MAX);
    uint64_t word = twi_load_acquire(&place->cell->local); /* C2 */
    int64_t *view = &decision->view;
    int64_t base = call->family->kind.synced ? twi_load_relaxed(&place->cell->base) : 0;
    for (;;) {
        if ((word & TWI_FROZEN) != 0) return twi_counted_take_striped(call, place, n, most, decision);
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

/* The `unknown` function for a limit of one window. The whole limit may be admitted, whatever the counter shows. */
TWI_INLINE int64_t twi_counted_unknown(const struct twi_call *call, int64_t n, int64_t limit,
                                       struct twi_decision *decision) {
    (void)call, (void)n, (void)decision;
    return limit;
}

/* The call is denied, but it still requests the total from Redis, because the total decides the next call. */
TWI_INLINE tw_status twi_counted_take_known(const struct twi_call *call, const struct twi_place *place, int64_t n,
                                            int64_t limit, struct twi_decision *decision) {
    tw_status status = twi_counted_take(call, place, n, limit, decision);
    if (decision->unknown && status == TW_DENIED)
        twi_dirty_mark(call->engine, place->generation, place->cell, place->meta);
    return status;
}

/* ---- one try ---- */

/* Writes the window of the decision. This is the window of the counter, or the window of a new counter. */
TWI_INLINE void twi_counting_fill_window(const struct twi_call *call, const struct twi_place *place, bool has_cell,
                                         struct twi_decision *decision) {
    const struct tw_family *family = call->family;
    if (family->kind.from_first) {
        int64_t length_ms = family->rule.window_ms;
        decision->end_ms = has_cell ? twi_load_relaxed(&place->cell->end_ms) : twi_time_add(call->now_ms, length_ms);
        decision->start_ms = decision->end_ms - length_ms;
    } else if (has_cell) {
        decision->start_ms = twi_generation_start_ms(place->generation);
        decision->end_ms = twi_generation_end_ms(place->generation);
    } else if (family->kind.evicts_idle) {
        decision->start_ms = 0;
        decision->end_ms = INT64_MAX;
    } else {
        struct twi_span span = twi_calendar_span(&family->rule, call->unix_ms);
        decision->start_ms = span.start_ms;
        decision->end_ms = span.end_ms;
    }
}

/* Called for families with idle eviction if no cell accepts adds. A frozen cell of the previous generation may still
 * show the count. */
static inline void twi_counting_look_at_previous(const struct twi_place *place, struct twi_decision *decision) {
    decision->unknown = place->previous == NULL;
    if (place->previous != NULL)
        decision->view = twi_cell_view(place->previous, twi_load_relaxed(&place->previous->meta));
}

/* Decides with the guest of a key that has no counter, because the window is full (table/guests.h). */
tw_status twi_counted_take_guest(struct twi_call *call, struct twi_place *place, int64_t n, int64_t limit,
                                 struct twi_decision *decision);

/* Finds or makes the counter, and decides. Returns TWI_AGAIN if the clock has moved, or the window was sealed. */
TWI_INLINE tw_status twi_counting_try(const struct twi_counting *counting, struct twi_call *call, int64_t n,
                                      int64_t limit, struct twi_decision *decision) {
    struct twi_place place;
    if (counting->carry != NULL) {
        counting->carry(call, n == 0 || n > limit, limit, decision);
        limit -= decision->carried;
    }
    if (!twi_place_find(call, &place)) {
        decision->view = 0;
        twi_counting_fill_window(call, &place, false, decision);
        if (call->family->kind.evicts_idle) twi_counting_look_at_previous(&place, decision);
        if (twi_guest_may_be(call->family, place.generation))
            return twi_counted_take_guest(call, &place, n, limit, decision);
        int64_t most = counting->unknown(call, n, limit, decision);
        /* the call takes no units, so no counter is made */
        if (n == 0 || n > most) return twi_saturated_sum(decision->view, n) > most ? TW_DENIED : TW_OK;
        if (!twi_call_is_current(call)) return TWI_AGAIN;
        decision->now_ms = call->now_ms;
        tw_status status = twi_place_make(call, &place);
        if (status == TW_ERR_FULL && twi_guest_begins(call, place.generation))
            return twi_counted_take_guest(call, &place, n, limit, decision);
        decision->full = status == TW_ERR_FULL;
        if (status != TW_OK) return status;
    }
    twi_counting_fill_window(call, &place, true, decision);
    decision->unknown = call->family->kind.evicts_idle && !twi_cell_is_known(place.cell, place.meta);
    return counting->take(call, &place, n, limit, decision);
}

/* ---- the call ---- */

/* Returns true for a denial that the exact clock may change. A denial that waits for other engines or for Redis
 * (retry_ms) does not change before the end of the window. */
TWI_INLINE bool twi_counting_is_behind(const struct twi_counting *counting, struct twi_call *call, int64_t n,
                                       int64_t limit, const struct twi_decision *decision) {
    if (decision->retry_ms != 0) return twi_call_is_behind(call, twi_decision_left_ms(decision));
    return twi_call_is_behind(call, counting->retry_ms != NULL ? counting->retry_ms(call->family, n, limit, decision)
                                                               : twi_decision_retry_ms(decision, n, limit));
}

/* `decision` begins as a copy of this struct in each try. It contains only a place for counts. */
TWI_INLINE tw_status twi_counting_decide(const struct twi_counting *counting, tw_family *family, tw_key key, int64_t n,
                                         int64_t limit, struct twi_decision *decision) {
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    bool exact = false;
    do {
        *decision = (struct twi_decision){.counts = decision->counts};
        status = twi_call_now(&call);
        decision->now_ms = call.now_ms;
        if (status == TW_OK) status = twi_counting_try(counting, &call, n, limit, decision);
        if (status == TW_DENIED && !exact) {
            exact = true;
            if (twi_counting_is_behind(counting, &call, n, limit, decision)) status = TWI_AGAIN;
        }
    } while (status == TWI_AGAIN);
    if (decision->full && status == TW_ERR_FULL) status = twi_limit_when_full(family, call.self, n);
    if (n != 0 && !decision->full && status == TW_OK)
        twi_limit_stats_count_admitted(family, call.self, decision->view + decision->carried, limit);
    if (n != 0 && status == TW_DENIED)
        twi_limit_stats_count_denied(family, call.self, twi_decision_cause(decision, n, limit));
    if (n != 0 && decision->full && status == TW_ERR_FULL)
        twi_limit_stats_count_denied(family, call.self, TW_CAUSE_FULL);
    twi_call_end(&call);
    return status;
}

/* The complete decision, which makes no assumption about the key or the family's state. */
TWI_INLINE tw_status twi_counting_acquire(const struct twi_counting *counting, tw_family *family, tw_key key, int64_t n,
                                          int64_t limit, struct twi_decision *decision, tw_verdict *verdict) {
    tw_status status = twi_limit_is_in_range(n, limit) ? twi_counting_decide(counting, family, key, n, limit, decision)
                                                       : twi_units_refuse(n);
    if (verdict != NULL) twi_verdict_fill(verdict, family->kind.synced, status, n, limit, decision);
    return status;
}

/* ---- refund ----
 * units return to the window from which they were taken, by a refund or because a call is undone.
 * A refund returns units that a caller names, so it must not lower the count below 0: the caller may be wrong. Undo
 * takes back what the engine itself has just added, like an add of the negative number. It has no such bound. Other
 * threads may have lowered the count meanwhile, and the engine's units are in it all the same.
 * Always true: after TW_OK of an undo, the count is the sum of the deltas of all other calls. */

struct twi_call;
struct twi_place;

/* Receives the units that a refund took off a count. Returns false if there is no memory; the caller then raises the
 * count again. Call it inside a section. */
typedef bool twi_refund_keep(struct twi_call *call, const struct twi_place *place, int64_t n);
/* Lowers the count of that window by n units for `keep`. If `keep` is NULL, the units are dropped. */
tw_status twi_refund_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep);
tw_status twi_undo_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep);
/* Implement `refund` and `undo` of struct twi_limit_kind for limits whose units are counts in cells. */
tw_status twi_refund_count(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms);
tw_status twi_undo_count(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

/* ---- no limit ----
 * the kind of limit of families without a limit. */

/* For TW_KIND_DISTINCT every call of chapter 9 is refused. */
extern const struct twi_limit_kind twi_limit_none;

#endif
