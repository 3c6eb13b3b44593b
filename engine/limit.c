/* limit.c -- tw_acquire (soft mode, fixed windows) and tw_once.
 * Always true: a count rises by one compare-and-swap from a value that leaves room for n (never by add and undo, trap
 * E36), so without Redis exactly the limit is admitted; a call that is denied on a known key has only loaded. */
#include "engine/count.h"

/* What a decision rested on. */
struct decision {
    int64_t view; /* after the call */
    int64_t end_ms;
    int64_t start_ms;
    bool full;
};

static tw_status take(struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit, int64_t *view) {
    uint64_t word = twi_load_relaxed(&place->cell->local);
    int64_t base = call->family->synced ? twi_load_relaxed(&place->cell->base) : 0;
    for (;;) {
        if ((word & TWI_FROZEN) != 0) return TW_PENDING;
        int64_t value = twi_word_value(word);
        *view = twi_saturated_sum(value, base);
        if (twi_saturated_sum(*view, n) > limit) return TW_DENIED;
        if (n == 0) return TW_OK;
        if (value > TW_COUNT_MAX - n) return TW_ERR_RANGE;
        uint64_t after = (uint64_t)(value + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
        if (twi_cas_weak_acqrel(&place->cell->local, &word, after)) break;
    }
    *view += n;
    twi_place_mark(call, place, word);
    if (twi_saturated_sum(*view, 0) >= TWI_VALUE_EDGE) (void)twi_or_relaxed(&place->cell->meta, TWI_META_EDGE);
    return TW_OK;
}

static tw_status acquire_once(struct twi_call *call, int64_t n, int64_t limit, struct decision *decision) {
    struct twi_place place;
    if (!twi_place_find(call, &place)) {
        struct twi_span span = twi_calendar_span(&call->family->rule, call->unix_ms);
        decision->view = 0;
        decision->start_ms = span.start_ms;
        decision->end_ms =
            call->family->from_first ? twi_time_add(call->now_ms, call->family->rule.window_ms) : span.end_ms;
        if (n == 0 || n > limit) return n > limit ? TW_DENIED : TW_OK; /* nothing to take: nothing is made */
        tw_status status = twi_place_make(call, &place);
        decision->full = status == TW_ERR_FULL;
        if (status != TW_OK) return status;
    }
    decision->start_ms = place.generation->start_ms;
    decision->end_ms = call->family->from_first ? twi_load_relaxed(&place.cell->end_ms) : place.generation->end_ms;
    return take(call, &place, n, limit, &decision->view);
}

/* Table full: the family's policy decides; strangers never share a limit (trap E40). */
static tw_status decide_full(struct tw_family *family) {
    return twi_load_relaxed(&family->on_full_limit) == TW_ADMIT ? TW_OK : TW_ERR_FULL;
}

static tw_status acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, struct decision *decision,
                         int64_t *now_ms) {
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = acquire_once(&call, n, limit, decision);
    } while (status == TW_PENDING);
    *now_ms = call.now_ms;
    if (decision->full && status == TW_ERR_FULL) status = decide_full(family);
    if (status == TW_OK && n != 0 && !decision->full) twi_count_increments(call.engine, call.self, 1);
    twi_call_end(&call);
    return status;
}

static void fill_verdict(tw_verdict *verdict, const tw_family *family, tw_status status, int64_t n, int64_t limit,
                         const struct decision *decision, int64_t now_ms) {
    memset(verdict, 0, sizeof *verdict);
    verdict->limit = limit;
    verdict->used = decision->view;
    verdict->remaining = decision->view < limit ? limit - decision->view : 0;
    verdict->reset_after_ms = decision->end_ms == TW_UNBOUNDED ? TW_UNBOUNDED : decision->end_ms - now_ms;
    if (verdict->reset_after_ms < 0) verdict->reset_after_ms = 0;
    if (status == TW_DENIED) verdict->retry_after_ms = n > limit ? -1 : verdict->reset_after_ms;
    verdict->window_start_ms = decision->start_ms;
    verdict->error_bound = family->synced || decision->full ? TW_UNBOUNDED : 0;
    verdict->decided_by = decision->full ? TW_BY_FULL : family->synced ? TW_BY_VIEW : TW_BY_LOCAL;
    verdict->allowed = status == TW_OK;
}

tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct decision decision = {0};
    int64_t now_ms = 0;
    tw_status status = n < 0 || limit < 0 || n > TW_DELTA_MAX || limit > TW_DELTA_MAX
                           ? TW_ERR_RANGE
                           : acquire(family, key, n, limit, &decision, &now_ms);
    if (verdict != NULL) fill_verdict(verdict, family, status, n, limit, &decision, now_ms);
    return status;
}

tw_status tw_once(tw_family *family, tw_key key, bool *first) {
    struct decision decision = {0};
    int64_t now_ms;
    twi_check(family != NULL);
    if (family->synced) return TW_ERR_MODE;
    tw_status status = acquire(family, key, 1, 1, &decision, &now_ms);
    if (status < 0) return status;
    if (first != NULL) *first = status == TW_OK;
    return TW_OK;
}
