/* counted.c -- limits of one window from which only this engine spends (counted.h): TW_LIMIT_SOFT without Redis, and
 * without Redis also the other modes. */
#include "engine/limit/counted.h"

#include "engine/base/why.h"
#include "engine/count/api.h"
#include "engine/count/call.h"
#include "engine/count/dirty.h"
#include "engine/count/lookup.h"
#include "engine/limit/decision.h"
#include "engine/table/stripe.h"

/* ---- slice ----
 * tw_acquire() on a contended key. Each thread spends a slice of the units that were left of the limit.
 *
 * A slice is a stripe with a ceiling (stripe.h). Ceilings are fixed when the slices are cut. Their sum is the number of
 * units that were left of the limit. So a unit is in one slice, and never on its way from one slice to another. A
 * thread that has spent its own slice takes units directly from another slice (trap E35). If no single slice can give n
 * units, the call is decided exactly. The slices collapse and are never cut again, and a compare-and-swap on the shared
 * stripe admits the units for which the total leaves room. From then on a denied call does not write. Slices may be
 * used if three conditions are true: the call's limit is not below the limit of the slices, the shared stripe (adds,
 * refunds) is not above 0, and Redis has not reported more than it had when the slices were cut. Otherwise they
 * collapse. A call that has checked the shared stripe may still spend a slice after another thread's add to the shared
 * stripe. This is correct, because the call is ordered before the add. A call that begins after the add has returned
 * sees a shared stripe above 0. It collapses the slices, and counts the units that they gave.
 * Always true: the admitted units never exceed the limit of the call. A call is denied only if the exact sum of all
 * admissions leaves no room (traps E35, E36). */

/* A thread sums all slices when it begins a slice, and each time that the slice passes a multiple of this number. So
 * `used` is nearly up to date, at a small cost. */
#define LOOK_UNITS_LOG2 6

/* Takes n units of one slice. Returns false if fewer than n are left, or the slice is frozen. *spent becomes the number
 * of units that the slice has given so far. */
static bool take_of(struct twi_stripe *slice, uint64_t dirty, int64_t n, int64_t *spent, bool *unlisted) {
    twi_check_dear(n > 0);
    uint64_t word = twi_load_relaxed(&slice->word), after;
    do {
        if ((word & TWI_FROZEN) != 0 || twi_word_value(word) > slice->ceiling - n) return false;
        after = (uint64_t)(twi_word_value(word) + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY) | dirty;
    } while (!twi_cas_weak_acqrel(&slice->word, &word, after)); /* D1 */
    *spent = twi_word_value(after);
    *unlisted = (word & TWI_DIRTY) != dirty;
    return true;
}

/* Takes units from the thread's own slice, or otherwise from another slice. The step is odd, so it visits all
 * slices, and neighbouring threads separate at once. */
static bool take_of_any(struct twi_stripes *stripes, uint32_t own, uint64_t dirty, int64_t n, int64_t *spent,
                        bool *unlisted) {
    twi_check_dear(own <= stripes->mask && (stripes->mask & (stripes->mask + 1)) == 0);
    uint32_t step = (stripes->mask + 1) / 2 + 1, at = own;
    for (uint32_t left = stripes->mask + 1; left != 0; left--, at = (at + step) & stripes->mask)
        if (take_of(&stripes->each[at], dirty, n, spent, unlisted)) return true;
    return false;
}

/* Computes `used` as far as it is known. The result is at least `least`, and at most the limit of the slices. */
static void show(struct twi_stripes *stripes, int64_t least, int64_t spent, int64_t n, int64_t before_slices,
                 struct twi_taken *taken) {
    twi_check_dear(spent >= n && n > 0);
    int64_t shown = twi_load_relaxed(&stripes->shown);
    if (spent == n || (spent >> LOOK_UNITS_LOG2) != ((spent - n) >> LOOK_UNITS_LOG2)) {
        shown = before_slices + twi_stripes_sum(stripes);
        twi_store_relaxed(&stripes->shown, shown);
    }
    if (shown < least) shown = least;
    if (shown > stripes->limit) shown = stripes->limit; /* a refund came between the loads that make the sum */
    taken->used = shown;
    taken->bound = stripes->limit - shown > shown - least ? stripes->limit - shown : shown - least;
}

static bool are_true(const struct twi_stripes *stripes, uint64_t shared_stripe, int64_t limit, int64_t base) {
    return stripes->limit != TWI_NO_LIMIT && limit >= stripes->limit && base <= stripes->base &&
           twi_word_value(shared_stripe) <= 0;
}

/* Decides exactly. The sum of the slices is fixed, and the shared stripe changes only by compare-and-swap. */
static tw_status take_exactly(struct twi_stripes *stripes, int64_t beside, int64_t base, uint64_t dirty, int64_t n,
                              int64_t limit, struct twi_taken *taken) {
    twi_check_dear(n > 0);
    uint64_t word = twi_load_acquire(&stripes->shared_stripe), after;
    int64_t fixed = beside + twi_stripes_collapse(stripes);
    do {
        if ((word & TWI_FROZEN) != 0) return TWI_AGAIN;
        int64_t shared_stripe = twi_word_value(word), value = fixed + shared_stripe;
        taken->used = twi_saturated_sum(value, base);
        if (twi_saturated_sum(taken->used, n) > limit) return TW_DENIED;
        if (value > TW_COUNT_MAX - n || shared_stripe > TW_COUNT_MAX - n) return twi_refuse_for(TWI_WHY_SUM);
        after = (uint64_t)(shared_stripe + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY) | dirty;
    } while (!twi_cas_weak_acqrel(&stripes->shared_stripe, &word, after)); /* D1 */
    taken->used += n;
    taken->unlisted = (word & TWI_DIRTY) != dirty;
    return TW_OK;
}

static tw_status look(struct twi_stripes *stripes, uint64_t shared_stripe, int64_t beside, int64_t limit,
                      struct twi_taken *taken) {
    if ((shared_stripe & TWI_FROZEN) != 0) return TWI_AGAIN;
    taken->used = twi_saturated_sum(beside, twi_word_value(shared_stripe) + twi_stripes_sum(stripes));
    return taken->used > limit ? TW_DENIED : TW_OK;
}

tw_status twi_slices_take(struct twi_cell *cell, uint64_t meta, int64_t n, int64_t limit, const struct twi_thread *self,
                          struct twi_taken *taken) {
    twi_check_dear(n >= 0);
    struct twi_stripes *stripes = twi_stripes_of(cell, meta);
    *taken = (struct twi_taken){0};
    if (stripes == NULL) return TWI_AGAIN;
    bool synced = (meta & TWI_META_COLD) != 0;
    int64_t base = synced ? twi_load_relaxed(&cell->base) : 0;
    int64_t final = twi_load_relaxed(twi_cell_final(cell, meta));
    uint64_t shared_stripe = twi_load_acquire(&stripes->shared_stripe), dirty = synced ? TWI_DIRTY : 0;
    if (n == 0) return look(stripes, shared_stripe, twi_saturated_sum(final, base), limit, taken);
    int64_t spent;
    TWI_RACE_POINT(shared_seen_slice_not_spent);
    if (are_true(stripes, shared_stripe, limit, base) && !twi_load_relaxed(&stripes->is_collapsed) &&
        take_of_any(stripes, twi_stripe_own(stripes, self), dirty, n, &spent, &taken->unlisted)) {
        int64_t before_slices = final + base + twi_word_value(shared_stripe);
        show(stripes, before_slices + spent, spent, n, before_slices, taken);
        return TW_OK;
    }
    return take_exactly(stripes, final, base, dirty, n, limit, taken);
}

/* Slices only grow until they collapse, so the units of the sum that was read still exist. If that sum is not enough,
 * it first fixes the sum. Stripes without a limit may shrink, because another thread may add a negative number. */
tw_status twi_slices_put_back(struct twi_cell *cell, uint64_t meta, int64_t n, int64_t least, bool *unlisted) {
    twi_check_dear(n > 0);
    struct twi_stripes *stripes = twi_stripes_of(cell, meta);
    if (stripes == NULL) return TWI_AGAIN;
    bool synced = (meta & TWI_META_COLD) != 0;
    uint64_t dirty = synced ? TWI_DIRTY : 0, word = twi_load_acquire(&stripes->shared_stripe), after;
    int64_t beside = twi_load_relaxed(twi_cell_final(cell, meta)), base = synced ? twi_load_relaxed(&cell->base) : 0;
    do {
        if ((word & TWI_FROZEN) != 0) return TWI_AGAIN;
        int64_t shared_stripe = twi_word_value(word), floor = twi_saturated_sum(least, n);
        if (twi_saturated_sum(beside + twi_stripes_sum(stripes) + shared_stripe, base) < floor &&
            twi_saturated_sum(beside + twi_stripes_collapse(stripes) + shared_stripe, base) < floor)
            return twi_refuse_for(TWI_WHY_REFUND);
        if (shared_stripe < n - TWI_SHARED_EDGE) return twi_refuse_for(TWI_WHY_REFUND);
        after = (uint64_t)(shared_stripe - n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY) | dirty;
    } while (!twi_cas_weak_acqrel(&stripes->shared_stripe, &word, after)); /* D1 */
    *unlisted = (word & TWI_DIRTY) != dirty;
    return TW_OK;
}

tw_status twi_counted_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    static const struct twi_counting counting = {.unknown = twi_counted_unknown, .take = twi_counted_take_known};
    struct twi_decision decision = {0};
    tw_status status = twi_counting_acquire(&counting, family, key, n, limit, &decision, verdict);
    twi_verdict_add_grain(family, verdict);
    return status;
}

/* ---- guests ---- */

tw_status twi_counted_take_guest(struct twi_call *call, struct twi_place *place, int64_t n, int64_t limit,
                                 struct twi_decision *decision) {
    if (!twi_call_is_current(call)) return TWI_AGAIN;
    decision->now_ms = call->now_ms;
    decision->bound = TW_UNBOUNDED; /* earlier units of the key may have been given up */
    tw_status status = twi_guest_add(call, place, n, limit, &decision->view);
    decision->full = status == TW_ERR_FULL;
    return status;
}

/* ---- refund ----
 * 
 * Always true: units never return to a later window than the one from which they were taken, so the next window never
 * begins below 0 (trap L7). A refund is refused when its window has ended. An undone call lowers its window until
 * that is sealed. A count falls by one compare-and-swap, for a refund only if it has that many units. So if this engine
 * knows the whole count, a refund does not lower it below 0. For a hard limit the units then go into the lease of that
 * window. */

#define INCARNATION_SLACK_MS \
    1000 /* the end of the window in Redis may show that an incarnation began by this much later than assumed here */

struct giving {
    int64_t n, window_start_ms;
    twi_refund_keep *keep;
    bool undoes;
};

/* Returns the lowest view that a refund may leave. This is 0 if every unit is known here: without Redis, and after
 * Redis has reported the total. A strict limit has no bound here, because Redis counts its units first. */
static int64_t least_view(const struct giving *giving, const struct tw_family *family, const struct twi_place *place) {
    if (giving->undoes) return INT64_MIN;
    if (!family->kind.synced) return 0;
    if (family->kind.is_strict) return INT64_MIN;
    return twi_load_relaxed(&twi_cell_cold(place->cell, place->meta)->total_state) != 0 ? 0 : INT64_MIN;
}

static tw_status refuse_late(void) {
    return twi_refuse(TW_ERR_LATE, "window_start_ms: that window is over");
}

static tw_status refuse_early(void) {
    return twi_refuse(TW_ERR_EARLY, "window_start_ms: that window has not begun");
}

/* Returns TW_OK. Returns TW_ERR_RANGE if the count has fewer units, and TWI_AGAIN if the window was sealed. */
static tw_status lower(const struct twi_call *call, const struct twi_place *place, const struct giving *giving) {
    twi_check(giving->n > 0);
    struct twi_cell *cell = place->cell;
    int64_t base = call->family->kind.synced ? twi_load_relaxed(&cell->base) : 0, n = giving->n,
            least = least_view(giving, call->family, place);
    uint64_t word = twi_load_acquire(&cell->local), after; /* C2 */
    do {
        if ((word & TWI_FROZEN) != 0) {
            uint64_t meta = twi_load_acquire(&cell->meta); /* S2 */
            bool unlisted = false;
            twi_dirty_begin(call->self, call->engine, place->generation, cell);
            tw_status status = twi_slices_put_back(cell, meta, n, least, &unlisted);
            if (unlisted) twi_dirty_list(call->engine, place->generation, cell, meta);
            twi_dirty_end(call->self);
            return status;
        }
        int64_t value = twi_word_value(word);
        if (twi_saturated_sum(value, base) < twi_saturated_sum(least, n) || value < n - TW_COUNT_MAX)
            return twi_refuse_for(TWI_WHY_REFUND);
        after = word - ((uint64_t)n << TWI_COUNT_SHIFT);
    } while (!twi_cas_weak_acqrel(&cell->local, &word, after));
    twi_place_mark(call, place, word);
    return TW_OK;
}

/* Checks whether the window that is open now is the window that the caller means. */
static tw_status check_window(const struct twi_call *call, int64_t window_start_ms) {
    const struct tw_family *family = call->family;
    if (family->kind.evicts_idle || family->rule.window == TW_WINDOW_FOREVER) return TW_OK;
    if (family->kind.from_first) {
        if (window_start_ms > call->now_ms) return refuse_early();
        int64_t open_since_ms = call->now_ms - family->rule.window_ms - INCARNATION_SLACK_MS;
        return window_start_ms <= open_since_ms ? refuse_late() : TW_OK;
    }
    struct twi_span span = twi_calendar_span(&family->rule, call->unix_ms);
    return window_start_ms < span.start_ms ? refuse_late() : window_start_ms >= span.end_ms ? refuse_early() : TW_OK;
}

static bool is_another_incarnation(const struct twi_call *call, const struct twi_place *place,
                                   int64_t window_start_ms) {
    if (!call->family->kind.from_first) return false;
    int64_t began_ms = twi_load_relaxed(&place->cell->end_ms) - call->family->rule.window_ms;
    return began_ms > window_start_ms + (call->family->kind.synced ? INCARNATION_SLACK_MS : 0);
}

/* Returns true for a call that is undone and has counted its units here. If its counter is not found, its window is
 * gone. A strict limit with Redis may have counted them there only, and idle eviction may have removed the counter. */
static bool has_counted(const struct giving *giving, const struct tw_family *family) {
    bool counts_here = !family->kind.synced || (!family->kind.is_strict && !family->kind.evicts_idle);
    return giving->undoes && counts_here;
}

/* The units of an undone call are in the overflow counter, whatever is known of the guest. A refund may be wrong, so it
 * returns only units that are known. */
static tw_status put_back_to_guest(struct twi_call *call, struct twi_place *place, const struct giving *giving) {
    int64_t view;
    if (!giving->undoes) {
        tw_status status = twi_guest_add(call, place, -giving->n, INT64_MAX, &view);
        return status == TW_ERR_RANGE || status == TW_ERR_FULL ? twi_refuse_for(TWI_WHY_REFUND) : status;
    }
    struct twi_generation *generation = place->generation;
    tw_status status = twi_overflow_add(call, place, -giving->n, false, &view);
    if (status != TW_OVERFLOWED) return status == TWI_AGAIN ? refuse_late() : status;
    twi_guest_note(call, generation, -giving->n);
    return TW_OK;
}

static tw_status make_place(struct twi_call *call, const struct giving *giving, struct twi_place *place) {
    if (call->family->kind.from_first || has_counted(giving, call->family)) return refuse_late();
    if (!call->family->kind.synced) return twi_refuse_for(TWI_WHY_REFUND); /* Redis had admitted no units */
    return twi_place_make(call, place);
}

/* Idle eviction has frozen or removed the key's counter since the units were taken, and there is no room for another
 * one. The units then leave the count of the family in the same way as an add of the negative number does: through the
 * overflow counter. Otherwise nobody has them, and they stay counted for ever. */
static tw_status undo_without_room(struct twi_call *call, const struct giving *giving) {
    twi_check(giving->undoes && giving->keep == NULL); /* no kind with leases evicts (options.c) */
    int64_t view;
    tw_status status = twi_add_call(call, -giving->n, &view);
    return status == TW_OVERFLOWED ? TW_OK : status;
}

static tw_status put_back_once(struct twi_call *call, const struct giving *giving) {
    struct twi_place place = {0};
    tw_status status = call->at ? TW_OK : check_window(call, giving->window_start_ms);
    if (status == TW_OK && !twi_place_find(call, &place)) {
        if (twi_guest_may_be(call->family, place.generation)) return put_back_to_guest(call, &place, giving);
        status = make_place(call, giving, &place);
    }
    if (status == TW_ERR_FULL && giving->undoes) return undo_without_room(call, giving);
    if (status != TW_OK) return status;
    if (is_another_incarnation(call, &place, giving->window_start_ms)) return refuse_late();
    status = lower(call, &place, giving);
    bool is_final = !call->family->kind.evicts_idle && twi_load_acquire(&place.generation->phase) >= TWI_SEALING;
    if (status == TWI_AGAIN && giving->undoes && is_final) return refuse_late();
    if (status != TW_OK || giving->keep == NULL || giving->keep(call, &place, giving->n)) return status;
    int64_t local; /* there is no memory for a lease, so the count is restored */
    return twi_place_add(call, &place, giving->n, &local) == TWI_ADDED ? TW_ERR_FULL : refuse_late();
}

static tw_status put_back(tw_family *family, tw_key key, const struct giving *giving) {
    twi_check(giving->n > 0);
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    call.undoes = giving->undoes;
    if (has_counted(giving, family) && family->kind.has_starts) {
        call.at = true;
        call.unix_ms = giving->window_start_ms;
    }
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = put_back_once(&call, giving);
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    if (status == TW_OK) twi_event_count_raise(&family->engine->given_back);
    return status == TW_ERR_FULL ? twi_refuse_for(TWI_WHY_FULL) : status;
}

tw_status twi_refund_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep) {
    return put_back(family, key, &(struct giving){n, window_start_ms, keep, false});
}
tw_status twi_refund_count(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    return twi_refund_to(family, key, n, window_start_ms, NULL);
}

tw_status twi_undo_to(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms, twi_refund_keep *keep) {
    return put_back(family, key, &(struct giving){n, window_start_ms, keep, true});
}
tw_status twi_undo_count(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    (void)limit;
    return twi_undo_to(family, key, n, window_start_ms, NULL);
}

tw_status tw_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    TWI_NEED(family);
    if (!twi_limit_is_in_range(n, 0)) return twi_units_refuse(n);
    tw_status status = twi_call_check_key(family, key);
    if (status != TW_OK || n == 0) return status;
    return family->kind.limit->refund(family, key, n, window_start_ms);
}

/* ---- no limit ----
 * A count of distinct elements is an estimate, so no units can be taken from it.
 * Always true: a refused call has changed no count, and its verdict admits no units. */

static tw_status acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct twi_decision nothing = {0};
    (void)family;
    (void)key;
    if (verdict != NULL) twi_verdict_fill(verdict, false, TW_ERR_MODE, n, limit, &nothing);
    return twi_refuse_for(TWI_WHY_DISTINCT);
}

static tw_status refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    (void)family, (void)key, (void)n, (void)window_start_ms;
    return twi_refuse_for(TWI_WHY_DISTINCT);
}

static tw_status undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    (void)limit;
    return refund(family, key, n, window_start_ms);
}

const struct twi_limit_kind twi_limit_none = {.acquire = acquire, .refund = refund, .undo = undo};
