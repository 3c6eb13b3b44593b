/* acquire.c -- tw_acquire() and tw_acquire_some() of every kind of limit. */
#include "engine/limit/acquire.h"

#include "engine/core/calls.h"
#include "engine/core/operation.h"
#include "engine/core/queue.h"
#include "engine/count/lookup.h"
#include "engine/limit/decision.h"
#include "engine/limit/gcra.h"
#include "engine/limit/limit_stats.h"

#include <stdlib.h>

/* ---- shadow ----
 * shadow mode, and the statistics of limits that do not count their own statistics. In shadow mode every
 * call is admitted. The verdict contains the decision that the limit would have made.
 * Always true: in shadow mode a call returns TW_OK unless there is an error, and a full table is not an error. Units
 * that the limit would have denied are not counted as used, as with an active limit. */

/* Returns true for decisions by a lease, by Redis or by GCRA, whose statistics are counted here. Others do so
 * earlier. */
static bool counts_here(const tw_family *family, const tw_verdict *verdict) {
    twi_check_dear(verdict != NULL);
    if (verdict->decided_by == TW_BY_FULL) return false;
    return family->kind.is_gcra || verdict->decided_by == TW_BY_LEASE || verdict->decided_by == TW_BY_REDIS;
}

static void count(tw_family *family, struct twi_thread *self, tw_status status, const tw_verdict *verdict) {
    /* where a counter of this process decides, counted.h counts a full table, too */
    if (status == TW_ERR_FULL && family->kind.limit->by_counter == NULL)
        twi_limit_stats_count_denied(family, self, TW_CAUSE_FULL);
    if (status < 0 || !counts_here(family, verdict)) return;
    if (status == TW_DENIED) twi_limit_stats_count_denied(family, self, verdict->cause);
    if (status != TW_OK) return;
    if (verdict->decided_by == TW_BY_REDIS) twi_limit_stats_count(family, self, admitted_there);
    int64_t all = verdict->used + verdict->remaining; /* for GCRA this sum is the burst */
    if (twi_limit_is_near(verdict->used, all)) twi_limit_stats_count(family, self, near);
}

bool twi_shadow_admits(const tw_family *family, tw_status status) {
    return (status == TW_DENIED || status == TW_PENDING || status == TW_ERR_FULL) &&
           twi_load_relaxed(&family->policy.shadow);
}

tw_status twi_shadow_answered(tw_family *family, int64_t n, tw_status status, struct twi_why before,
                              const tw_verdict *verdict) {
    twi_check_dear(verdict != NULL);
    struct twi_thread *self = twi_thread_here();
    if (self == NULL || n == 0) return status;
    count(family, self, status, verdict);
    if (!twi_shadow_admits(family, status)) return status;
    if (status < 0) twi_why_restore(before); /* the call was not refused */
    twi_limit_stats_count(family, self, shadow_denied);
    return TW_OK;
}

tw_status twi_shadow_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    twi_check_dear(family->kind.limit->acquire != NULL && family->kind.limit->acquire != twi_shadow_acquire);
    tw_verdict unasked;
    if (verdict == NULL) verdict = &unasked;
    struct twi_why before = twi_why_now();
    tw_status status = family->kind.limit->acquire(family, key, n, limit, verdict);
    return twi_shadow_answered(family, n, status, before, verdict);
}

tw_status twi_shadow_some_answered(tw_family *family, tw_status status, const tw_verdict *verdict) {
    twi_check_dear(verdict != NULL);
    struct twi_thread *self = twi_thread_here();
    if (self != NULL) count(family, self, status, verdict);
    return status;
}

tw_status twi_acquire_slow(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    return family->kind.limit->by_counter(family, key, n, limit, verdict);
}

/* ---- the calls ---- */

tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    TWI_NEED(family);
    return twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
}

tw_status twi_acquire_counted(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct twi_thread *self = twi_thread_here();
    if (self != NULL) self->must_count = true;
    tw_status status = tw_acquire(family, key, n, limit, verdict);
    if (self != NULL) self->must_count = false;
    return status;
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

/* A thread waits until Redis has decided. */
static tw_status start_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                            tw_verdict *verdict) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    tw_status status = family->kind.limit->start(&call, family, key, n_max, limit, true);
    *taken = call.taken;
    *verdict = call.verdict;
    return status;
}

tw_status tw_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                          tw_verdict *verdict) {
    tw_verdict unasked;
    int64_t took = 0;
    TWI_NEED(family);
    if (verdict == NULL) verdict = &unasked;
    tw_status status;
    if (n_max == 0 || !twi_limit_is_in_range(n_max, limit))
        status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n_max, limit, verdict);
    else if (family->kind.limit->start != NULL && !twi_load_relaxed(&family->policy.shadow))
        status = start_some(family, key, n_max, limit, &took, verdict);
    else
        status = take_some(family, key, n_max, limit, &took, verdict);
    if (taken != NULL) *taken = took;
    return status;
}

/* ---- the same calls, with a result that comes later if the limit waits for Redis ---- */

tw_status tw_acquire_async(tw_request *request, tw_family *family, tw_key key, int64_t n, int64_t limit) {
    TWI_NEED(request);
    TWI_NEED(family);
    if (twi_unlikely(family->kind.limit->start != NULL))
        return family->kind.limit->start(request, family, key, n, limit, false);
    return request->status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, &request->verdict);
}

tw_status tw_acquire_some_async(tw_request *request, tw_family *family, tw_key key, int64_t n_max, int64_t limit) {
    TWI_NEED(request);
    TWI_NEED(family);
    if (family->kind.limit->start == NULL)
        return request->status = tw_acquire_some(family, key, n_max, limit, &request->taken, &request->verdict);
    return family->kind.limit->start(request, family, key, n_max, limit, n_max > 0);
}

/* ---- acquire all ----
 * tw_acquire_all(): takes all of several claims, or no claim. Claims are taken in a fixed order, by
 * family and key. So if two callers request the same keys, the same caller comes first at every key (trap L13).
 * The call first looks at every claim. If one claim cannot be admitted, the call takes no units, and no other caller is
 * denied because of this call. Then the call takes the claims one by one, as tw_acquire() does. If a claim is then
 * denied, the call puts the earlier claims back. Other callers may have been denied while this call had those units.
 * Statistics count a claim only when all claims are admitted, because a statistic never falls.
 * A few claims on plain counters that all have room are taken in the same order in one section (fast/all_fast.h).
 * Always true: unless the result is TW_OK, no unit stays taken. The exception is a window that ended during the
 * call. */

struct order {
    const tw_claim *claims;
    size_t count;
    uint16_t at[TW_CLAIMS_MAX]; /* indexes of the claims, sorted by family, key and limit */
    int64_t start_ms[TW_CLAIMS_MAX];
    /* indexed by the position in `at` */
    bool counted[TW_CLAIMS_MAX];   /* units were taken from the count */
    bool uncounted[TW_CLAIMS_MAX]; /* a full table admitted it */
    bool near[TW_CLAIMS_MAX];
    bool shadowed[TW_CLAIMS_MAX]; /* the claim was denied, and shadow mode admitted it */
};

static int compare_keys(tw_key a, tw_key b) {
    twi_check(a.data != NULL && b.data != NULL);
    size_t size = a.size < b.size ? a.size : b.size;
    int order = memcmp(a.data, b.data, size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

bool twi_claim_comes_before_in_family(const tw_claim *a, const tw_claim *b) {
    if (twi_unlikely(a->key.data == NULL || b->key.data == NULL)) return false;
    int keys = compare_keys(a->key, b->key);
    return keys != 0 ? keys < 0 : a->limit < b->limit;
}

static void put_in_order(struct order *order) {
    twi_check(order->count <= TW_CLAIMS_MAX);
    for (size_t i = 0; i < order->count; i++) {
        size_t at = i;
        for (; at > 0 && twi_claim_comes_before(&order->claims[i], &order->claims[order->at[at - 1]]); at--)
            order->at[at] = order->at[at - 1];
        order->at[at] = (uint16_t)i;
    }
}

/* TW_OK, or the reason why the claim is invalid. */
static tw_status check_claim(const tw_claim *claim) {
    twi_check(claim->family != NULL);
    if (claim->family->kind.limit->start != NULL)
        return twi_refuse(TW_ERR_MODE, "limit_mode: tw_acquire_all() is not for families whose limit Redis decides");
    if (claim->key.size - 1 >= TW_KEY_SIZE_MAX || claim->key.data == NULL) return twi_key_refuse(claim->key);
    return twi_limit_is_in_range(claim->n, claim->limit) ? TW_OK : twi_units_refuse(claim->n);
}

/* Decides a claim without counting it as admitted in the statistics. */
static tw_status acquire_uncounted(const tw_claim *claim, struct twi_thread *self, tw_verdict *verdict) {
    twi_check(claim->family->kind.limit->start == NULL);
    uint32_t shard = self->shard;
    twi_thread_use_shard(self, TWI_SHARD_ASIDE);
    tw_status status = claim->family->kind.limit->acquire(claim->family, claim->key, claim->n, claim->limit, verdict);
    twi_thread_use_shard(self, shard);
    return status;
}

/* Does the same as acquire.c, but the admissions are counted later, by count_all(). */
static tw_status take_claim(struct order *order, size_t i, struct twi_thread *self, tw_verdict *verdict) {
    twi_check(i < order->count && order->at[i] < order->count);
    const tw_claim *claim = &order->claims[order->at[i]];
    struct twi_why before = twi_why_now();
    tw_status status = acquire_uncounted(claim, self, verdict);
    verdict->claim = order->at[i];
    order->start_ms[i] = verdict->window_start_ms;
    order->counted[i] = status == TW_OK && claim->n != 0 && verdict->decided_by != TW_BY_FULL;
    order->uncounted[i] = status == TW_OK && claim->n != 0 && verdict->decided_by == TW_BY_FULL;
    order->near[i] = order->counted[i] && twi_limit_is_near(verdict->used, verdict->used + verdict->remaining);
    order->shadowed[i] = claim->n != 0 && twi_shadow_admits(claim->family, status);
    if (order->shadowed[i] && status < 0) twi_why_restore(before); /* no claim was refused */
    if ((status == TW_DENIED || status == TW_ERR_FULL) && claim->n != 0)
        twi_limit_stats_count_denied(claim->family, self, verdict->cause);
    return order->shadowed[i] ? TW_OK : status;
}

static void count_all(const struct order *order, struct twi_thread *self) {
    twi_check(order->count <= TW_CLAIMS_MAX);
    for (size_t i = 0; i < order->count; i++) {
        tw_family *family = order->claims[order->at[i]].family;
        if (order->counted[i]) twi_limit_stats_count(family, self, admitted);
        if (order->uncounted[i]) twi_limit_stats_count_uncounted(family, self);
        if (order->near[i]) twi_limit_stats_count(family, self, near);
        if (order->shadowed[i]) twi_limit_stats_count(family, self, shadow_denied);
    }
}

/* The last claim is put back first. */
static void put_back(const struct order *order, size_t count) {
    twi_check(count <= order->count);
    for (size_t i = count; i > 0; i--) {
        const tw_claim *claim = &order->claims[order->at[i - 1]];
        if (!order->counted[i - 1]) continue;
        (void)claim->family->kind.limit->undo(claim->family, claim->key, claim->n, claim->limit,
                                              order->start_ms[i - 1]);
    }
}

/* Returns true if a look shows that the claim can be had, together with the earlier claims on the same key. */
static bool may_have(const struct order *order, size_t i, int64_t *before, tw_verdict *verdict) {
    twi_check(i < order->count);
    const tw_claim *claim = &order->claims[order->at[i]];
    const tw_claim *last = &order->claims[order->at[i > 0 ? i - 1 : 0]];
    bool same = i > 0 && last->family == claim->family && compare_keys(last->key, claim->key) == 0;
    *before = same ? *before + last->n : 0;
    tw_status status = claim->family->kind.limit->acquire(claim->family, claim->key, 0, claim->limit, verdict);
    if (twi_load_relaxed(&claim->family->policy.shadow)) return true; /* shadow mode never denies */
    return status == TW_OK && verdict->remaining - *before >= claim->n;
}

/* If claims on one key together need more than the limit gives, they are denied like one call for their sum. */
static tw_status deny_for_good(const struct order *order, size_t i, struct twi_thread *self, tw_verdict *verdict) {
    twi_check(i < order->count);
    twi_limit_stats_count_denied(order->claims[order->at[i]].family, self, TW_CAUSE_NEVER);
    verdict->claim = order->at[i];
    twi_verdict_deny(verdict, TW_CAUSE_NEVER, -1);
    return TW_DENIED;
}

/* The first claim that cannot be had is really acquired. Its denial has an exact retry time and takes no units. */
static tw_status look_at_all(struct order *order, struct twi_thread *self, tw_verdict *verdict) {
    int64_t before = 0;
    for (size_t i = 0; i < order->count; i++) {
        if (may_have(order, i, &before, verdict)) continue;
        const tw_claim *claim = &order->claims[order->at[i]];
        if (before != 0) { /* an earlier claim on the same key takes some of the units, so take_all() decides */
            if (before > twi_limit_most_at_once(claim->family, claim->limit) - claim->n)
                return deny_for_good(order, i, self, verdict);
            continue;
        }
        tw_status status = take_claim(order, i, self, verdict);
        if (status != TW_OK) return status;
        /* it was admitted, because units were returned after the look */
        if (order->counted[i])
            (void)claim->family->kind.limit->undo(claim->family, claim->key, claim->n, claim->limit,
                                                  order->start_ms[i]);
    }
    return TW_OK;
}

/* The verdict is that of the claim with the fewest units left. If shadow mode admitted a claim that the limit would
 * deny, the verdict is that of this claim. */
static tw_status take_all(struct order *order, struct twi_thread *self, tw_verdict *verdict) {
    tw_verdict least = {.remaining = INT64_MAX, .allowed = 1};
    for (size_t i = 0; i < order->count; i++) {
        tw_status status = take_claim(order, i, self, verdict);
        if (status != TW_OK) {
            put_back(order, i);
            return status;
        }
        if (verdict->allowed < least.allowed ||
            (verdict->allowed == least.allowed && verdict->remaining < least.remaining))
            least = *verdict;
    }
    *verdict = least;
    return TW_OK;
}

/* ---- the call ---- */

static TWI_COLD tw_status acquire_all_anyhow(const tw_claim *claims, size_t count, tw_verdict *verdict) {
    tw_verdict unasked;
    struct order order = {.claims = claims, .count = count};
    twi_check(claims != NULL || count == 0);
    if (verdict == NULL) verdict = &unasked;
    *verdict = (tw_verdict){.error_bound = TW_UNBOUNDED};
    if (count == 0 || count > TW_CLAIMS_MAX) return twi_refuse(TW_ERR_RANGE, "count: not within 1..TW_CLAIMS_MAX");
    for (size_t i = 0; i < count; i++) {
        tw_status status = check_claim(&claims[i]);
        verdict->claim = (uint16_t)i;
        verdict->limit = claims[i].limit;
        if (status != TW_OK) return status;
    }
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) {
        tw_status refused = twi_refuse_for(twi_thread_why());
        twi_verdict_refuse(verdict, claims->family->engine, refused);
        return refused;
    }
    put_in_order(&order);
    tw_status status = look_at_all(&order, self, verdict);
    if (status == TW_OK) status = take_all(&order, self, verdict);
    if (status == TW_OK) count_all(&order, self);
    return status;
}

/* The usual case is a few claims on plain counters of this process, which all have room. */
tw_status tw_acquire_all(const tw_claim *claims, size_t count, tw_verdict *verdict) {
    if (count != 0) TWI_NEED(claims);
    if (twi_likely(count - 1 < TWI_HOT_ALL_MAX)) {
        twi_hot_all *all = claims[0].family->kind.limit->all;
        if (twi_likely(all != NULL) && twi_likely(all(claims, count, verdict))) return TW_OK;
    }
    return acquire_all_anyhow(claims, count, verdict);
}

/* ---- acquire wait ----
 * tw_acquire_wait() and its form that answers later repeat tw_acquire() until it is admitted or the
 * time is up. A caller that waits sleeps until `retry_after_ms`, until a local refund, or 100 ms, whichever is first.
 * The sleep is at most 100 ms, because processes with engines of their own return units, too, and because the clock
 * may be set. A `final` denial ends the wait, because all units are sold, and only a refund could return some before
 * `retry_after_ms`. A `final` that is older than a second does not end the wait, because another process may have
 * refunded since. A reply that comes between the verdict and this look does not make the verdict younger: the reply
 * itself has to say `final`.
 * Always true: the caller is in no section and in no hook while it sleeps. No units are taken in advance. */

#define LOOK_MS 100

static uint32_t nap_ms(int64_t wish_ms, int64_t left_ms) {
    twi_check(left_ms > 0);
    int64_t ms = wish_ms < left_ms ? wish_ms : left_ms;
    return ms < 1 ? 1 : ms > LOOK_MS ? LOOK_MS : (uint32_t)ms;
}

/* Returns true if units, or the end of the window, may come within the time that is left. */
static bool may_come(tw_family *family, tw_key key, const tw_verdict *verdict, int64_t left_ms) {
    twi_check(left_ms > 0);
    if (verdict->retry_after_ms < 0) return false;
    if (!verdict->final || verdict->retry_after_ms <= left_ms) return true;
    return family->kind.limit->is_final != NULL && !family->kind.limit->is_final(family, key, verdict->limit);
}

/* Returns true if the result may change within the time that is left. */
static bool waits(tw_family *family, tw_key key, tw_status status, const tw_verdict *verdict, int64_t left_ms) {
    return (status == TW_DENIED || status == TW_PENDING) && left_ms > 0 && may_come(family, key, verdict, left_ms);
}

/* A try of a caller that waits. `denied_ms` is when its last one was denied, or 0. A rate is kept although callers wake
 * up late (gcra.h). */
static tw_status try_again(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t denied_ms,
                           tw_verdict *verdict) {
    int64_t late_ms = denied_ms != 0 ? twi_clock_mono_ms(&family->engine->clock) - denied_ms : 0;
    if (late_ms <= 0 || family->kind.limit->acquire != twi_gcra_acquire)
        return twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
    struct twi_why before = twi_why_now();
    tw_status status = twi_gcra_acquire_late(family, key, n, limit, late_ms, verdict);
    return twi_shadow_answered(family, n, status, before, verdict);
}

static void fill_unasked(tw_family *family, tw_status status, int64_t n, int64_t limit, tw_verdict *verdict) {
    twi_check(verdict != NULL);
    struct twi_decision nothing = {0};
    twi_verdict_fill(verdict, family->kind.synced, status, n, limit, &nothing);
}

tw_status tw_acquire_wait(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t timeout_ms,
                          tw_verdict *verdict) {
    tw_verdict unasked;
    TWI_NEED(family);
    tw_engine *engine = family->engine;
    if (verdict == NULL) verdict = &unasked;
    tw_status status = twi_guard_may_wait(engine);
    if (status == TW_OK) status = twi_guard_engine(engine);
    if (status != TW_OK) {
        fill_unasked(family, status, n, limit, verdict);
        return status;
    }
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms, denied_ms = 0;
    for (;;) {
        uint32_t given = twi_event_count_value(&engine->given_back),
                 turned = twi_event_count_value(&engine->turn.ended);
        status = try_again(family, key, n, limit, denied_ms, verdict);
        denied_ms = twi_clock_mono_ms(&engine->clock);
        int64_t left_ms = deadline_ms - denied_ms;
        if (!waits(family, key, status, verdict, left_ms)) return status;
        uint32_t ms = nap_ms(verdict->retry_after_ms, left_ms);
        if (status == TW_PENDING)
            twi_event_count_wait(&engine->turn.ended, turned,
                                 ms); /* a turn of the engine brings the units that were requested */
        else
            twi_event_count_wait(&engine->given_back, given, ms);
    }
}

/* ---- the form that answers later ---- */

/* A waiter (calls.h). Each try is a tw_acquire(). If tw_acquire() waits for Redis, each try is a separate request. */
struct waiting {
    struct twi_operation operation;
    int64_t n, limit;
    tw_status status; /* the status of the last try */
    tw_verdict verdict;
    int64_t denied_ms; /* when it was denied */
    tw_request *tries; /* the request of the tries; NULL: tries answer at once */
};
static_assert(sizeof(struct waiting) <= TWI_OPERATION_BYTES, "operation.h");

/* Decides what to do after a try that has its result. */
static enum twi_look plan(struct waiting *waiting) {
    twi_check(waiting->operation.family != NULL);
    struct twi_operation *operation = &waiting->operation;
    int64_t now_ms = twi_clock_mono_ms(&operation->engine->clock), left_ms = operation->deadline_ms - now_ms;
    waiting->denied_ms = now_ms;
    if (waiting->status == TW_ERR_BUSY && left_ms > 0) { /* it may also wait until fewer calls are under way */
        operation->wait.look_ms = now_ms + TWI_TICK_MS;
        return TWI_LOOK_WAITS;
    }
    if (!waits(operation->family, operation->key, waiting->status, &waiting->verdict, left_ms)) return TWI_LOOK_OVER;
    operation->wait.look_ms = now_ms + nap_ms(waiting->verdict.retry_after_ms, left_ms);
    operation->wait.wakes = waiting->status == TW_DENIED;
    operation->wait.each_turn = waiting->status == TW_PENDING; /* a turn brings the units that were requested */
    return TWI_LOOK_WAITS;
}

static enum twi_look look(struct twi_operation *operation) {
    twi_check(operation->family != NULL && operation->list == NULL);
    struct waiting *waiting = (struct waiting *)operation;
    tw_family *family = operation->family;
    if (waiting->tries != NULL) {
        int64_t left_ms = operation->deadline_ms - twi_clock_mono_ms(&operation->engine->clock);
        bool is_short = left_ms < twi_port_timeout_ms(operation->engine);
        waiting->tries->timeout_ms = !is_short ? 0 : left_ms > 1 ? (uint32_t)left_ms : 1;
        tw_status status = tw_acquire_async(waiting->tries, family, operation->key, waiting->n, waiting->limit);
        if (status == TW_STARTED) return TWI_LOOK_ASKED;
        waiting->status = status;
        waiting->verdict = waiting->tries->verdict;
    } else {
        waiting->status =
            try_again(family, operation->key, waiting->n, waiting->limit, waiting->denied_ms, &waiting->verdict);
    }
    return plan(waiting);
}

/* `done` of a try that waited for Redis. */
static void try_done(tw_request *try) {
    twi_check(try->status != TW_STARTED);
    struct waiting *waiting = try->ctx; /* its first field */
    waiting->status = try->status;
    waiting->verdict = try->verdict;
    if (plan(waiting) == TWI_LOOK_WAITS)
        twi_waiter_add(&waiting->operation, look);
    else
        twi_queue_push(&waiting->operation);
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    twi_check(((const struct waiting *)operation)->status != TW_STARTED);
    const struct waiting *waiting = (const struct waiting *)operation;
    call->verdict = waiting->verdict;
    bool was_waiting = waiting->status == TW_DENIED || waiting->status == TW_PENDING;
    if (was_waiting && twi_load_acquire(&operation->engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    return waiting->status < 0 ? twi_refuse(waiting->status, NULL) : waiting->status;
}

/* Called when the caller no longer waits. Units that were admitted here meanwhile are returned. */
static void undo(struct twi_operation *operation) {
    const struct waiting *waiting = (const struct waiting *)operation;
    bool took = waiting->status == TW_OK && waiting->n != 0 && waiting->verdict.allowed != 0 &&
                waiting->verdict.decided_by != TW_BY_FULL;
    if (!took) return;
    (void)operation->family->kind.limit->undo(operation->family, operation->key, waiting->n, waiting->limit,
                                              waiting->verdict.window_start_ms);
}

static void drop(struct twi_operation *operation) {
    free(((struct waiting *)operation)->tries);
}

static const struct twi_operation_kind kind = {.finish = finish, .undo = undo, .drop = drop};
static const struct twi_operation_kind strict_kind = {.finish = finish, .undo = undo, .drop = drop, .gives_way = true};

/* Returns NULL if there is none; *status is then the reason. */
static struct waiting *make(tw_request *call, tw_family *family, tw_key key, uint32_t timeout_ms, tw_status *status) {
    twi_check(timeout_ms != 0);
    tw_engine *engine = family->engine;
    bool is_strict = family->kind.limit->start != NULL;
    struct waiting *waiting =
        (struct waiting *)twi_operation_make(engine, is_strict ? &strict_kind : &kind, family, call, status);
    if (waiting == NULL) return NULL;
    waiting->tries = NULL;
    waiting->operation.wait.shares_units = !is_strict;
    waiting->operation.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    bool is_kept = twi_operation_keep(&waiting->operation, key, &waiting->operation.key);
    if (is_kept && is_strict) {
        waiting->tries = malloc(sizeof *waiting->tries);
        is_kept = waiting->tries != NULL;
    }
    if (is_kept) return waiting;
    *status = twi_call_end_now(&waiting->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
    return NULL;
}

/* A strict family decides without Redis when calls_max calls are under way. A waiter would be one more. */
static bool decides_when_busy(const tw_family *family) {
    return family->kind.limit->start != NULL && twi_load_relaxed(&family->policy.busy_is_outage);
}

tw_status tw_acquire_wait_async(tw_request *request, tw_family *family, tw_key key, int64_t n, int64_t limit) {
    TWI_NEED(request);
    TWI_NEED(family);
    uint32_t timeout_ms = request->timeout_ms != 0 ? request->timeout_ms : twi_port_timeout_ms(family->engine);
    tw_status status = twi_calls_may_start(family->engine);
    if (status == TW_OK && !twi_limit_is_in_range(n, limit)) status = twi_units_refuse(n);
    if (status == TW_OK) status = twi_call_check_key(family, key);
    fill_unasked(family, status, n, limit, &request->verdict);
    if (status != TW_OK) return twi_call_answer(request, status);
    if (family->kind.limit->start == NULL) {
        status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, &request->verdict);
        if (!waits(family, key, status, &request->verdict, timeout_ms)) return twi_call_answer(request, status);
    }
    struct waiting *waiting = make(request, family, key, timeout_ms, &status);
    if (status == TW_ERR_BUSY && decides_when_busy(family)) return tw_acquire_async(request, family, key, n, limit);
    if (waiting == NULL)
        return twi_call_answer(request, twi_limit_stats_answered(family, n, status, &request->verdict));
    waiting->n = n;
    waiting->limit = limit;
    waiting->status = TW_DENIED;
    waiting->denied_ms = twi_clock_mono_ms(&family->engine->clock);
    waiting->verdict = request->verdict;
    waiting->verdict.allowed = 0; /* of a strict limit: no try has been made */
    waiting->operation.wait.look_ms = INT64_MIN;
    if (waiting->tries != NULL) twi_operation_own_request(waiting->tries, try_done, &waiting->operation);
    twi_waiter_add(&waiting->operation, look);
    return TW_STARTED;
}
