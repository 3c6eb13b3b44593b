/* acquire_all.c -- tw_acquire_all(): takes all of several claims, or no claim. Claims are taken in a fixed order, by
 * family and key. So if two callers request the same keys, the same caller comes first at every key (trap L13).
 * The call first looks at every claim. If one claim cannot be admitted, the call takes no units, and no other caller is
 * denied because of this call. Then the call takes the claims one by one, as tw_acquire() does. If a claim is then
 * denied, the call puts the earlier claims back. Other callers may have been denied while this call had those units.
 * Statistics count a claim only when all claims are admitted, because a statistic never falls.
 * A few claims on plain counters that all have room are taken in the same order in one section (fast/all_fast.h).
 * Always true: unless the result is TW_OK, no unit stays taken. The exception is a window that ended during the
 * call. */
#include "engine/limit/acquire_all.h"

#include "engine/limit/decision.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/shadow.h"

struct order {
    const tw_claim *claims;
    size_t count;
    uint16_t at[TW_CLAIMS_MAX]; /* indexes of the claims, sorted by family, key and limit */
    int64_t start_ms[TW_CLAIMS_MAX];
    /* indexed by the position in `at` */
    bool counted[TW_CLAIMS_MAX]; /* units were taken from the count */
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

/* Does the same as shadow.c, but the admissions are counted later, by count_all(). */
static tw_status take_claim(struct order *order, size_t i, struct twi_thread *self, tw_verdict *verdict) {
    twi_check(i < order->count && order->at[i] < order->count);
    const tw_claim *claim = &order->claims[order->at[i]];
    struct twi_why before = twi_why_now();
    tw_status status = acquire_uncounted(claim, self, verdict);
    verdict->claim = order->at[i];
    order->start_ms[i] = verdict->window_start_ms;
    order->counted[i] = status == TW_OK && claim->n != 0 && verdict->decided_by != TW_BY_FULL;
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
    twi_check(claims != NULL || count == 0);
    if (twi_likely(count - 1 < TWI_HOT_ALL_MAX)) {
        twi_hot_all *all = claims[0].family->kind.limit->all;
        if (twi_likely(all != NULL) && twi_likely(all(claims, count, verdict))) return TW_OK;
    }
    return acquire_all_anyhow(claims, count, verdict);
}
