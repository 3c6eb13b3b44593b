/* acquire.c -- tw_acquire(), tw_acquire_some(), and the complete decision of limits that a counter of this process
 * decides (counted.h). acquire_fast.h decides their common cases inline. This file decides all cases.
 * Always true: a denial that a few milliseconds can change is decided by the exact clock. So a thread that sleeps for
 * `retry_after_ms` is admitted, if nobody else calls. */
#include "engine/limit/acquire.h"

#include "engine/count/lookup.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/shadow.h"
#include "engine/limit/sliding.h"

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
        if (status == TW_OK) status = family->kind.limit->try_once(&call, n, limit, decision);
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
    if (!family->kind.limit->is_counted) return most; /* Redis has the count, or there is none */
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
