/* acquire.c -- tw_acquire() and tw_acquire_some() of every kind of limit. */
#include "engine/limit/acquire.h"

#include "engine/limit/shadow.h"

tw_status twi_acquire_slow(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    return family->kind.limit->by_counter(family, key, n, limit, verdict);
}

/* ---- the calls ---- */

tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    twi_check(family != NULL);
    return twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
}

#define SOME_TRIES 8 /* first tries ask for what the verdict shows as left; later ones halve n, so the loop ends */

/* Returns the most units that the limit can give. A count below zero leaves room for more than the limit. A bucket is
 * never asked for more than its burst. It would deny that without a look at the exact clock, and show too few units as
 * left. */
static int64_t most_of(tw_family *family, tw_key key, int64_t n_max, int64_t limit, tw_verdict *verdict) {
    twi_check(n_max > 0);
    int64_t most = twi_limit_most_at_once(family, limit);
    if (n_max <= most) return n_max;
    if (most == 0) most = 1;
    if (!family->kind.limit->is_counted) return most; /* Redis has the count, or the family has no counts */
    verdict->remaining = 0;
    (void)twi_load_relaxed (&family->kind.hot_acquire)(family, key, 0, limit, verdict); /* n == 0 only looks */
    if (verdict->remaining > most) most = verdict->remaining;
    return most < n_max ? most : n_max;
}

/* Tries n units, then the number that the verdict shows as left, then a half of the last number, and so on. A lease
 * or an engine's share may give less than the verdict shows. */
static tw_status take_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                           tw_verdict *verdict) {
    twi_check(n_max > 0 && taken != NULL && verdict != NULL);
    int64_t n = most_of(family, key, n_max, limit, verdict);
    for (uint32_t tries = 0;; tries++) {
        tw_status status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
        *taken = status == TW_OK ? n : 0;
        /* shadow mode admits all units and does not count them */
        if (status == TW_OK && !verdict->allowed) *taken = n_max;
        if ((status != TW_DENIED && status != TW_PENDING) || n <= 1) return status;
        int64_t left = verdict->cause != TW_CAUSE_OUTAGE ? verdict->remaining : n; /* a part of n may be here */
        n = status == TW_DENIED && left < n && tries < SOME_TRIES ? left : n / 2;
        if (n < 1) n = 1; /* if one unit is denied, the verdict shows when to try again */
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

/* ---- the same calls, with a result that comes later if the limit waits for Redis ---- */

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
