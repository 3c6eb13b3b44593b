/* refund.c -- see refund.h.
 * Always true: units never return to a later window than the one from which they were taken, so the next window never
 * begins below 0 (trap L7). A refund is refused when its window has ended. An undone call lowers its window until
 * that is sealed. A count falls by one compare-and-swap, for a refund only if it has that many units. So if this engine
 * knows the whole count, a refund does not lower it below 0. For a hard limit the units then go into the lease of that
 * window. */
#include "engine/limit/refund.h"

#include "engine/count/api.h"
#include "engine/count/lookup.h"
#include "engine/count/dirty.h"
#include "engine/limit/decision.h"
#include "engine/limit/slice.h"

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
    if (status == TW_OK && !twi_place_find(call, &place)) status = make_place(call, giving, &place);
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
    twi_check(family != NULL);
    if (!twi_limit_is_in_range(n, 0)) return twi_units_refuse(n);
    tw_status status = twi_call_check_key(family, key);
    if (status != TW_OK || n == 0) return status;
    return family->kind.limit->refund(family, key, n, window_start_ms);
}
