/* acquire.c -- tw_acquire(), tw_acquire_some(), and the kind of limit that counts: soft limits, and without Redis
 * hard and strict ones too.
 * acquire_fast.h decides the common cases of that kind inline. This file decides all cases.
 * Always true: one compare-and-swap raises a count, from a value that leaves room for n. An add is never made and
 * undone (trap E36). So without Redis exactly the limit is admitted. A call that is denied on a known key has only
 * loaded. A denial that a few milliseconds can change is decided by the exact clock: who sleeps for `retry_after_ms` is
 * admitted, if nobody else calls. */
#include "engine/limit/acquire.h"

#include "engine/count/contention.h"
#include "engine/count/lookup.h"
#include "engine/count/dirty.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/overshoot.h"
#include "engine/limit/refund.h"
#include "engine/limit/shape.h"
#include "engine/limit/share.h"
#include "engine/limit/slice.h"
#include "engine/limit/sliding.h"
#include "engine/table/stripe.h"
#include "engine/limit/shadow.h"

/* Takes n units from the stripes. A cell without stripes was sealed. */
static tw_status take_striped(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                              struct twi_decision *decision) {
    struct twi_taken taken;
    uint64_t meta = twi_load_acquire(&place->cell->meta); /* S2: the cell may have become striped after the lookup */
    tw_status status = twi_slices_take(place->cell, meta, n, limit, call->self, &taken);
    decision->view = taken.used;
    decision->bound = taken.bound;
    if (taken.unlisted) twi_dirty_list(call->engine, place->generation, place->cell, meta);
    return status;
}

static tw_status take(struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                      struct twi_decision *decision) {
    uint64_t word = twi_load_acquire(&place->cell->local); /* C2 */
    int64_t *view = &decision->view;
    int64_t base = call->family->kind.synced ? twi_load_relaxed(&place->cell->base) : 0;
    for (;;) {
        if ((word & TWI_FROZEN) != 0) return take_striped(call, place, n, limit, decision);
        int64_t value = twi_word_value(word);
        *view = twi_saturated_sum(value, base);
        if (twi_saturated_sum(*view, n) > limit) return TW_DENIED;
        if (n == 0) return TW_OK;
        if (value > TW_COUNT_MAX - n) return twi_refuse_for(TWI_WHY_SUM);
        uint64_t after = (uint64_t)(value + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
        if (twi_cas_weak_acqrel(&place->cell->local, &word, after)) break;
        twi_contention_detect_acquire(call->engine, place->generation, place->cell, limit, call->self);
    }
    *view += n;
    twi_place_mark(call, place, word);
    if (twi_saturated_sum(*view, 0) >= TWI_VALUE_EDGE) (void)twi_or_relaxed(&place->cell->meta, TWI_META_EDGE);
    return TW_OK;
}

/* For families with idle eviction: no cell takes adds, but a frozen cell of the previous generation may show the
 * count. */
static void look_at_previous(const struct twi_place *place, struct twi_decision *decision) {
    decision->end_ms = INT64_MAX;
    decision->unknown = place->previous == NULL;
    if (place->previous != NULL)
        decision->view = twi_cell_view(place->previous, twi_load_relaxed(&place->previous->meta));
}

static tw_status acquire_once(struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision) {
    struct twi_place place;
    if (call->family->kind.slides) {
        twi_sliding_carry(call, n == 0 || n > limit, limit, decision);
        limit -= decision->carried;
    }
    if (!twi_place_find(call, &place)) {
        struct twi_span span = twi_calendar_span(&call->family->rule, call->unix_ms);
        decision->view = 0;
        decision->start_ms = call->family->kind.evicts_idle  ? 0
                             : call->family->kind.from_first ? call->now_ms
                                                             : span.start_ms;
        decision->end_ms =
            call->family->kind.from_first ? twi_time_add(call->now_ms, call->family->rule.window_ms) : span.end_ms;
        if (call->family->kind.evicts_idle) look_at_previous(&place, decision);
        int64_t most = call->family->kind.shares ? twi_share_unknown(call, n, limit, decision) : limit;
        /* there is nothing to take, so no counter is made */
        if (n == 0 || n > most) return twi_saturated_sum(decision->view, n) > most ? TW_DENIED : TW_OK;
        if (!twi_call_is_current(call)) return TWI_AGAIN;
        decision->now_ms = call->now_ms;
        tw_status status = twi_place_make(call, &place);
        decision->full = status == TW_ERR_FULL;
        if (status != TW_OK) return status;
    }
    if (call->family->kind.from_first) {
        decision->end_ms = twi_load_relaxed(&place.cell->end_ms);
        decision->start_ms = decision->end_ms - call->family->rule.window_ms;
    } else {
        decision->start_ms = twi_generation_start_ms(place.generation);
        decision->end_ms = twi_generation_end_ms(place.generation);
    }
    decision->unknown = call->family->kind.evicts_idle && !twi_cell_is_known(place.cell, place.meta);
    if (call->family->kind.shares) {
        int64_t ceiling = twi_share_ceiling(call, &place, n, limit, decision);
        tw_status decided = take(call, &place, n, ceiling, decision);
        if (decided >= 0 && decided != TWI_AGAIN) {
            twi_share_decided(call, &place, n, limit, decided, decision);
            twi_overshoot_check(call->family, place.generation, place.cell, n, decision->view, limit);
        }
        return decided;
    }
    tw_status status = take(call, &place, n, limit, decision);
    /* The total is requested although the call was denied: it decides the next call. */
    if (decision->unknown && status == TW_DENIED)
        twi_dirty_mark(call->engine, place.generation, place.cell, place.meta);
    return status;
}

/* The table is full: the policy of the family decides. Two keys never share one counter (trap E40). */
static tw_status decide_full(struct tw_family *family) {
    return twi_load_relaxed(&family->policy.on_full_limit) == TW_FULL_LIMIT_ADMIT ? TW_OK
                                                                                  : twi_refuse_for(TWI_WHY_FULL);
}

/* True: a denial that the exact clock may turn. One that waits for other engines or Redis (retry_ms) turns only with
 * the window's end. */
static bool is_behind(struct twi_call *call, int64_t n, int64_t limit, const struct twi_decision *decision) {
    if (decision->retry_ms != 0) return twi_call_is_behind(call, twi_decision_left_ms(decision));
    return twi_call_is_behind(call, call->family->kind.slides ? twi_sliding_retry_ms(call->family, n, limit, decision)
                                                              : twi_decision_retry_ms(decision, n, limit));
}

static tw_status acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, struct twi_decision *decision) {
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    bool exact = false;
    do {
        *decision = (struct twi_decision){.counts = decision->counts};
        status = twi_call_now(&call);
        decision->now_ms = call.now_ms;
        if (status == TW_OK) status = acquire_once(&call, n, limit, decision);
        if (status == TW_DENIED && !exact) {
            exact = true;
            if (is_behind(&call, n, limit, decision)) status = TWI_AGAIN;
        }
    } while (status == TWI_AGAIN);
    if (decision->full && status == TW_ERR_FULL) status = decide_full(family);
    if (n != 0 && !decision->full && status == TW_OK)
        twi_limit_stats_count_admitted(family, call.self, decision->view + decision->carried, limit);
    if (n != 0 && status == TW_DENIED) twi_limit_stats_count_denied(family, call.self);
    twi_call_end(&call);
    return status;
}

tw_status twi_acquire_slow(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    int64_t counts[TWI_SLIDING_COUNTS]; /* written where they are used: most families do not slide */
    struct twi_decision decision = {.counts = counts};
    tw_status status =
        twi_limit_is_in_range(n, limit) ? acquire(family, key, n, limit, &decision) : twi_units_refuse(n);
    if (verdict != NULL) twi_verdict_fill(verdict, family->kind.synced, status, n, limit, &decision);
    if (verdict != NULL && family->kind.slides && status >= 0)
        twi_sliding_fill_verdict(family, status, n, limit, &decision, verdict);
    if (verdict != NULL && verdict->retry_after_ms > 0)
        verdict->retry_after_ms = twi_time_add(verdict->retry_after_ms, family->engine->clock.grain_ms);
    return status;
}

/* ---- kinds ---- */

const struct twi_limit_kind twi_limit_counted = {.acquire = NULL, .put_back = twi_refund_count};

/* ---- the calls ---- */

tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    twi_check(family != NULL);
    return twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
}

#define SOME_TRIES 8 /* tries at what the verdict says is left; later tries halve n, so the loop ends */

/* The most units that the limit can give. A count below zero leaves room for more than the limit. */
static int64_t most_of(tw_family *family, tw_key key, int64_t n_max, int64_t limit, tw_verdict *verdict) {
    if (n_max <= limit) return n_max;
    int64_t most = limit > 0 ? limit : 1;
    if (family->kind.limit != &twi_limit_counted) return most; /* Redis has the count, or there is none */
    verdict->remaining = 0;
    (void)twi_load_relaxed (&family->kind.hot_acquire)(family, key, 0, limit, verdict); /* n == 0 only looks */
    if (verdict->remaining > most) most = verdict->remaining;
    return most < n_max ? most : n_max;
}

/* Tries n units, then the units that the verdict says are left, then halves. A lease or an engine's share may give less
 * than the verdict says. */
static tw_status take_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                           tw_verdict *verdict) {
    int64_t n = most_of(family, key, n_max, limit, verdict);
    for (uint32_t tries = 0;; tries++) {
        tw_status status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
        *taken = status == TW_OK ? n : 0;
        if (status == TW_OK && !verdict->allowed) *taken = n_max; /* shadow mode admits all units and counts none */
        if ((status != TW_DENIED && status != TW_PENDING) || n <= 1) return status;
        int64_t left = verdict->remaining;
        n = status == TW_DENIED && left < n && tries < SOME_TRIES ? left : n / 2;
        if (n < 1) n = 1; /* if one unit is denied, the verdict says when to try again */
    }
}

tw_status tw_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                          tw_verdict *verdict) {
    tw_verdict unasked;
    int64_t took = 0;
    twi_check(family != NULL);
    if (verdict == NULL) verdict = &unasked;
    tw_status status;
    if (n_max == 0 || !twi_limit_is_in_range(n_max, limit))
        status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n_max, limit, verdict);
    else if (family->kind.limit->some != NULL && !twi_load_relaxed(&family->policy.shadow))
        status = twi_shadow_acquire_some(family, key, n_max, limit, &took, verdict);
    else
        status = take_some(family, key, n_max, limit, &took, verdict);
    if (taken != NULL) *taken = took;
    return status;
}

/* ---- the same, answered later where the limit waits for Redis ---- */

tw_status tw_acquire_async(tw_request *request, tw_family *family, tw_key key, int64_t n, int64_t limit) {
    twi_check(request != NULL && family != NULL);
    if (twi_unlikely(family->kind.limit->start != NULL))
        return family->kind.limit->start(request, family, key, n, limit, false);
    return request->status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, &request->verdict);
}

tw_status tw_acquire_some_async(tw_request *request, tw_family *family, tw_key key, int64_t n_max, int64_t limit) {
    twi_check(request != NULL && family != NULL);
    if (family->kind.limit->start == NULL)
        return request->status = tw_acquire_some(family, key, n_max, limit, &request->taken, &request->verdict);
    return family->kind.limit->start(request, family, key, n_max, limit, n_max > 0);
}
