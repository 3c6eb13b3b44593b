/* share.c -- see share.h. */
#include "engine/limit/share.h"

#include "engine/core/store_map.h"
#include "engine/limit/counted.h"
#include "engine/limit/limit_stats.h"

#define SETTLED 3u     /* how many intervals must be seen before the pace of the other engines is trusted */
#define SMOOTH 4       /* the pace is smoothed over this many intervals */
#define NEW_QUARTERS 6 /* a key is new for this many quarters of an interval; counts are sent within five quarters */
#define ALONE_PART 256 /* if others hardly count a new key, each total admits at least this part of the limit more */
#define ALONE_UNITS 8
#define USED_UP_RETRY_MS 1000 /* after this time "used up" is requested again: others may have refunded */

/* Returns true if the key's store has failed to reply for longer than the family's grace, so that on_outage decides. */
static bool is_outage(const tw_family *family, int64_t since_ms) {
    if (since_ms == 0) return false;
    return twi_clock_mono_ms(&family->engine->clock) - since_ms >= twi_load_relaxed(&family->policy.outage_grace_ms);
}

/* Returns a - b for counts and limits. If the difference does not fit into 64 bits, it is unbounded. */
static int64_t less(int64_t a, int64_t b) {
    return twi_saturated_sum(a, -twi_larger(b, -INT64_MAX));
}
static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? TW_UNBOUNDED : product;
}

/* ---- the pace of the other engines, which the turn updates with each total ---- */

/* If two intervals bring no new counts from other engines, all earlier counts have arrived: they are idle. */
static uint32_t pace_after(uint32_t pace, uint32_t seen, int64_t others, int64_t passed_ms, int64_t interval_ms) {
    twi_check_dear(interval_ms > 0 && passed_ms > 0);
    if (others <= 0 && passed_ms >= 2 * interval_ms) return 0;
    double now = others > 0 ? (double)others * TWI_PACE_ONE / (double)passed_ms : 0;
    double before = (double)(seen < SETTLED ? seen : SMOOTH) * (double)interval_ms;
    double smooth = pace + (now - pace) * (double)passed_ms / ((double)passed_ms + before);
    /* The other engines have begun to count, or count faster. The greatest pace applies for some intervals. */
    if (seen < SETTLED && pace > smooth) smooth = pace;
    if (passed_ms >= interval_ms / 2 && (seen < SETTLED ? now > smooth : now > 2 * smooth)) smooth = now;
    if (smooth >= TWI_PACE_MAX) return TWI_PACE_MAX;
    return others > 0 && smooth < 1 ? 1 : (uint32_t)smooth;
}

/* Returns when the first total of a new key came (share.h). -1 means that the key is not or no longer new. */
static int64_t new_since_ms(const tw_engine *engine, int64_t total_state, int64_t now_ms) {
    twi_check_dear(total_state != 0);
    int64_t reported_ms = twi_total_state_ms(total_state),
            most_ms = NEW_QUARTERS * (int64_t)engine->options.sync_interval_ms / 4;
    if (twi_total_state_seen(total_state) != 0 || twi_total_state_middle(total_state) == 0) return -1;
    int64_t first_ms =
        reported_ms - ((reported_ms - twi_total_state_middle(total_state)) & TWI_PACE_MAX); /* no later than the last */
    return now_ms - first_ms < most_ms ? first_ms : -1;
}

int64_t twi_share_take_total(const tw_engine *engine, int64_t total_state, int64_t others) {
    int64_t now_ms = engine->turn.mono_ms, interval_ms = engine->options.sync_interval_ms;
    if (total_state == 0)
        return twi_live_engines(engine) != 1 ? twi_total_state_begun(now_ms, now_ms) : twi_total_state(now_ms, 0, 0);
    int64_t first_ms = new_since_ms(engine, total_state, now_ms);
    if (first_ms >= 0) return twi_total_state_begun(now_ms, first_ms);
    int64_t passed_ms = twi_larger(now_ms - twi_total_state_ms(total_state), 1);
    uint32_t seen = twi_total_state_seen(total_state), pace = twi_total_state_pace(total_state);
    bool begins = pace == 0 && others > 0; /* one total is not enough to know a pace that has just begun */
    pace = pace_after(pace, seen, others, passed_ms, interval_ms);
    if (begins)
        seen = 1;
    else if (passed_ms > 10 * interval_ms)
        seen = 1; /* the earlier total is too old to show the present pace */
    else if (passed_ms >= interval_ms * 3 / 4 && seen < SETTLED)
        seen++;
    return twi_total_state(now_ms, pace, seen);
}

/* ---- the data of a decision ---- */

struct share {
    uint32_t live;
    uint32_t policy; /* the value of on_outage, if on_outage decides */
    bool is_away;
    int64_t away_ms;            /* for how long the key's store has not replied; 0 means that it replies */
    bool is_reported, is_known; /* Redis has reported the total; for a sliding limit also the previous one */
    bool is_new;                /* other engines may have spent units that no total shows yet */
    /* the engine is in its first seconds (share.h): it may spend a share of the limit, or if is_early a small part */
    bool is_young, is_early;
    int64_t total_state, total, left, base;
};

static void note_age(const tw_engine *engine, struct share *share) {
    twi_check_dear(share->live != 0);
    int64_t since_ms = twi_load_relaxed(&engine->peers.live_since_ms);
    if (since_ms < 0) return; /* a store that has never replied never reports the number of engines */
    int64_t age_ms = twi_clock_mono_ms(&engine->clock) - since_ms;
    if (share->is_away || share->away_ms >= TWI_BRIEF_MS) { /* the last known state of the other engines is used */
        bool decides = !share->is_away || share->policy == TW_OUTAGE_LOCAL;
        share->is_young = decides && share->live > 1 && age_ms < TWI_YOUNG_MAX_MS;
        return;
    }
    bool is_reported = twi_load_relaxed(&engine->peers.live_reported) != 0;
    if (!is_reported && age_ms >= TWI_OPENED_MS) return;
    share->is_young = true;
    share->is_early =
        !is_reported || (!twi_peers_have_met(&engine->peers, age_ms) && engine->options.engines_expected == 0);
}

/* Returns true if a reply is missing or late. It does not allow this engine to spend the units of others. */
static bool is_brief(const tw_engine *engine, int64_t away_ms) {
    if (away_ms >= TWI_BRIEF_MS) return false;
    bool begins =
        twi_load_relaxed(&engine->peers.live_engines) == 0 && twi_load_relaxed(&engine->peers.live_since_ms) >= 0;
    return begins || twi_live_engines(engine) > 1;
}

/* `since_ms` is the clock of the key's store (store_map.h). A strict limit comes here only if Redis did not reply
 * and this process has to decide (strict.c). */
static struct share share_in(const struct tw_family *family, int64_t since_ms) {
    twi_check_dear(since_ms >= 0);
    struct share share = {.live = twi_live_engines(family->engine),
                          .is_away = family->kind.is_strict || is_outage(family, since_ms),
                          .away_ms = twi_peers_away_ms(family->engine, since_ms)};
    share.policy = twi_load_relaxed(&family->policy.on_outage);
    if (share.is_away && !family->kind.is_strict && share.policy == TW_OUTAGE_LOCAL)
        share.is_away = !is_brief(family->engine, share.away_ms);
    if (!family->kind.is_strict && twi_load_relaxed(&family->engine->peers.live_engines) == 0)
        note_age(family->engine, &share);
    if (family->kind.is_strict && share.policy != TW_OUTAGE_SHARE) share.policy = TW_OUTAGE_LOCAL;
    return share;
}

static struct share share_of(const struct twi_call *call, const struct twi_place *place, int64_t limit,
                             const struct twi_decision *decision) {
    twi_check_dear(place->cell != NULL && place->generation != NULL);
    const struct tw_family *family = call->family;
    struct twi_cold *cold = twi_cell_cold(place->cell, place->meta);
    struct share share = share_in(family, twi_store_away_since(call->engine, place->generation, place->cell));
    share.total_state = twi_load_relaxed(&cold->total_state);
    share.is_reported = family->kind.evicts_idle ? twi_cell_is_known(place->cell, place->meta) : share.total_state != 0;
    share.is_known = share.is_reported && !decision->before_unknown;
    /* The turn stores `acked` before `base`. These loads are in reverse order, so the sum is a total that was true
     * at some time, or less. */
    int64_t base = twi_load_relaxed(&place->cell->base);
    if (share.is_reported) share.total = twi_saturated_sum(base, twi_load_relaxed(&cold->acked));
    if (share.is_reported) share.base = base;
    share.is_new = share.is_reported && share.live > 1 &&
                   new_since_ms(family->engine, share.total_state, twi_clock_mono_ms(&family->engine->clock)) >= 0;
    share.is_early = share.is_early || (share.is_young && !share.is_known && share.away_ms < TWI_BRIEF_MS);
    share.left = twi_larger(less(limit, share.total), 0);
    return share;
}

/* Returns how many units this engine may spend in all in its first seconds. INT64_MAX means no bound. */
static int64_t own_most_of(const struct share *share, int64_t n, int64_t limit) {
    twi_check_dear(share->live != 0);
    if (!share->is_young) return INT64_MAX;
    int64_t fair = twi_larger(twi_larger(limit / share->live, n), 1);
    if (!share->is_early) return share->live == 1 ? INT64_MAX : fair;
    return twi_smaller(twi_larger(twi_larger(limit / TWI_LITTLE_PART, TWI_LITTLE_UNITS), n),
                       share->live == 1 ? limit : fair);
}

/* Returns how much of the remainder this engine may spend before the next total. Until some intervals have shown the
 * pace of the other engines, a large part is halved. A total on its way may lack the parts of all others. */
static int64_t part_of(const struct share *share, int64_t n, int64_t limit) {
    twi_check_dear(share->live != 0);
    if (share->live <= 1) return limit;
    if (!share->is_known) return twi_larger(limit / share->live, 1);
    int64_t part = share->left / share->live;
    if (twi_total_state_seen(share->total_state) < SETTLED)
        part = twi_larger(part / 2, twi_smaller(part, TWI_LITTLE_UNITS));
    return twi_larger(twi_larger(part, n), 1);
}

/* Returns the greatest view of a new key. This is a share of the whole limit, whatever the total leaves. If the
 * other engines have hardly begun, the result grows a little with each total: when engines begin together, only the
 * first engine to get a reply sees this. */
static int64_t new_most_of(const struct share *share, int64_t n, int64_t limit) {
    twi_check_dear(share->is_new);
    int64_t fair = twi_larger(twi_larger(limit / share->live, n), 1), most = twi_saturated_sum(share->base, fair);
    if (share->base > fair / 4) return most;
    return twi_larger(most,
                      twi_saturated_sum(share->total, twi_larger(twi_larger(limit / ALONE_PART, ALONE_UNITS), n)));
}

/* ---- the bound ---- */

/* Returns by how much the batches of the other engines may exceed their pace for a moment. The batches of several
 * engines even each other out. */
static double unevenness(int64_t others) {
    twi_check_dear(others >= 0);
    return others > 2 ? 0.3 : others == 2 ? 0.4 : 0.55;
}

/* Returns B1 of share.h. 0 means that no counts of other engines are expected. */
static int64_t pace_bound(const tw_engine *engine, int64_t total_state, int64_t others) {
    int64_t age_ms = twi_clock_mono_ms(&engine->clock) - twi_total_state_ms(total_state);
    int64_t interval_ms = engine->options.sync_interval_ms, pace = twi_total_state_pace(total_state);
    if (pace == 0) return 0;
    double unheard_ms = (double)twi_larger(age_ms, 0) + 1.25 * (double)interval_ms;
    return (int64_t)((double)pace * (1 + unevenness(others)) / TWI_PACE_ONE * unheard_ms) + 1;
}

static int64_t bound_of(const tw_engine *engine, const struct share *share, int64_t n, int64_t limit, int64_t view) {
    twi_check_dear(share->live != 0);
    bool heard = twi_load_relaxed(&engine->peers.live_engines) != 0 || engine->options.engines_expected != 0;
    if (!heard && (!share->is_young || share->is_early)) return TW_UNBOUNDED; /* the number of engines is unknown */
    if (share->is_away && share->policy != TW_OUTAGE_SHARE) return TW_UNBOUNDED;
    int64_t others = (int64_t)share->live - 1, whole = times(others, twi_larger(n, limit / share->live + 1));
    if (!share->is_known || share->is_young) return twi_saturated_sum(twi_larger(less(limit, view), 0), whole);
    int64_t by_pace = pace_bound(engine, share->total_state, others);
    if (others == 0) return by_pace;
    if (twi_total_state_seen(share->total_state) < SETTLED)
        return twi_saturated_sum(twi_larger(less(limit, view), 0), whole);
    if (by_pace == 0 && share->left == 0) return 0;
    int64_t by_share = times(others, twi_larger(n, twi_saturated_sum(share->left, by_pace) / share->live + 1));
    return by_pace != 0 ? twi_smaller(by_pace, by_share) : by_share;
}

/* ---- near the limit ---- */

void twi_share_request_sync(const struct twi_call *call, const struct twi_place *place) {
    tw_engine *engine = call->engine;
    uint32_t line = twi_arena_line(&engine->arena, place->cell);
    uint64_t own = (uint64_t)twi_arena_line(&engine->arena, place->generation) << 32 | line, none = 0;
    _Atomic uint64_t *slot = &engine->near_ring.slots[line % TWI_NEAR_LIMIT_MAX];
    if (twi_load_relaxed(slot) != 0) return; /* this cell is in the ring; or another has the slot, and this one waits */
    if (!twi_cas_acqrel(slot, &none, own)) return; /* Q1, pairs with Q2 */
    /* Q3, pairs with Q4, so a thread that clears the flag sees the slot. The operation is a swap, because a plain
     * store would hide the slots that other threads published by their swaps. */
    (void)twi_swap_acqrel(&engine->near_ring.any, true);
}

void twi_share_forget(tw_engine *engine, struct twi_generation *generation) {
    twi_check_dear(generation != NULL);
    uint64_t line = twi_arena_line(&engine->arena, generation);
    for (uint32_t i = 0; i < TWI_NEAR_LIMIT_MAX; i++)
        if (twi_load_relaxed(&engine->near_ring.slots[i]) >> 32 == line)
            twi_store_relaxed(&engine->near_ring.slots[i], 0);
}

/* ---- deciding ---- */

/* Returns the greatest count that may be admitted, whatever the other engines do. */
static int64_t most_of(const struct share *share, int64_t limit) {
    if (share->is_away && share->policy == TW_OUTAGE_FAIL_OPEN) return TW_COUNT_MAX;
    if (share->is_away && share->policy == TW_OUTAGE_FAIL_CLOSED) return INT64_MIN;
    return limit;
}

static int64_t ceiling_of(const struct share *share, int64_t n, int64_t limit) {
    twi_check_dear(share->left >= 0);
    /* The view is `base` plus the units that this engine has counted itself. */
    int64_t most = twi_smaller(most_of(share, limit), twi_saturated_sum(own_most_of(share, n, limit), share->base));
    if (share->is_away && share->policy != TW_OUTAGE_SHARE) return most;
    if (share->live == 1) return most;
    if (share->is_new) most = twi_smaller(most, new_most_of(share, n, limit));
    return twi_smaller(most, twi_saturated_sum(share->total, part_of(share, n, limit)));
}

bool twi_share_estimate_among(const struct tw_family *family, struct twi_cell *cell, const struct twi_cold *cold,
                              int64_t n, int64_t limit, struct twi_share_estimate *estimate) {
    twi_check_dear(n >= 0 && limit >= 0);
    const tw_engine *engine = family->engine;
    struct share share = {.live = twi_live_engines(engine), .is_reported = true, .is_known = true};
    share.total_state = twi_load_relaxed(&cold->total_state);
    if (share.live != 1 && twi_total_state_seen(share.total_state) < SETTLED)
        return false;                             /* the bound depends on the view in this case */
    int64_t base = twi_load_relaxed(&cell->base); /* `acked` is loaded second, as in share_of() */
    share.total = twi_saturated_sum(base, twi_load_relaxed(&cold->acked));
    share.left = twi_larger(less(limit, share.total), 0);
    /* The key is not new, and the engine is not in its first seconds. */
    estimate->most = ceiling_of(&share, n, limit);
    estimate->no_check_below = twi_limit_near(limit);
    if (share.live != 1) {
        int64_t part = twi_larger(share.left / share.live, 1);
        estimate->no_check_below = twi_smaller(estimate->no_check_below, twi_saturated_sum(share.total, part / 4));
    }
    estimate->bound = bound_of(engine, &share, n, limit, 0);
    return true;
}

/* A denial because Redis does not reply. */
static void note_away(const tw_engine *engine, struct twi_decision *decision) {
    decision->cause = TW_CAUSE_OUTAGE;
    decision->retry_ms = twi_again_when_away_ms(engine);
}

static bool is_old(const tw_engine *engine, const struct share *share) {
    int64_t age_ms = twi_clock_mono_ms(&engine->clock) - twi_total_state_ms(share->total_state);
    return age_ms >= (share->left == 0 ? USED_UP_RETRY_MS : (int64_t)engine->options.sync_interval_ms);
}

void twi_share_decided(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                       tw_status status, struct twi_decision *decision) {
    twi_check_dear(n >= 0); /* earlier windows of a sliding limit may have more than it: then `limit` is below 0 */
    struct share share = share_of(call, place, limit, decision);
    int64_t bound = bound_of(call->engine, &share, n, limit, decision->view);
    decision->bound = twi_saturated_sum(decision->bound, bound); /* TW_UNBOUNDED plus any number stays TW_UNBOUNDED */
    decision->has_bound = true;
    /* If the counts that are known pass the limit, its units are spent, whoever replies. */
    bool denied = status == TW_DENIED, is_over = twi_saturated_sum(decision->view, n) > limit;
    if (share.is_away) {
        if (denied && (!is_over || share.policy == TW_OUTAGE_FAIL_CLOSED)) note_away(call->engine, decision);
        return;
    }
    int64_t spent = less(decision->view, share.total);
    /* The retry waits for other engines, not for the end of the window. */
    if (denied && !is_over) {
        decision->cause = TW_CAUSE_SHARE;
        decision->retry_ms = call->engine->options.sync_interval_ms / 4 + 1;
    }
    bool shares = share.live > 1 || share.is_young;
    bool asks = !share.is_reported || (shares && denied && !is_over) ||
                (denied && is_over && is_old(call->engine, &share)) ||
                (shares && !denied && spent >= part_of(&share, 0, limit) / 4);
    if (asks) twi_share_request_sync(call, place);
}

/* ---- the complete decision ---- */

int64_t twi_share_unknown(const struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision) {
    twi_check_dear(call->family->kind.shares);
    const struct tw_family *family = call->family;
    struct share share = share_in(family, twi_store_away_since_key(family, call->lookup.key, decision->start_ms));
    share.left = limit;
    decision->bound = bound_of(family->engine, &share, n, limit, decision->view);
    decision->has_bound = true;
    decision->unknown = true;
    if (share.is_away && share.policy == TW_OUTAGE_FAIL_CLOSED) note_away(family->engine, decision);
    return most_of(&share, limit);
}

tw_status twi_share_take(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                         struct twi_decision *decision) {
    twi_check_dear(call->family->kind.shares);
    struct share share = share_of(call, place, limit, decision);
    decision->unknown = !share.is_known || share.is_away;
    tw_status status = twi_counted_take(call, place, n, ceiling_of(&share, n, limit), decision);
    if (status < 0 || status == TWI_AGAIN) return status;
    twi_share_decided(call, place, n, limit, status, decision);
    twi_overshoot_check(call->family, place->generation, place->cell, n, decision->view, limit);
    return status;
}

tw_status twi_share_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    static const struct twi_counting counting = {.unknown = twi_share_unknown, .take = twi_share_take};
    struct twi_decision decision = {0};
    tw_status status = twi_counting_acquire(&counting, family, key, n, limit, &decision, verdict);
    twi_verdict_add_grain(family, verdict);
    return status;
}
