/* slice.c -- tw_acquire() on a contended key. Each thread spends a slice of the units that were left of the limit.
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
#include "engine/limit/slice.h"

#include "engine/count/call.h"
#include "engine/table/stripe.h"
#include "engine/base/why.h"

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
