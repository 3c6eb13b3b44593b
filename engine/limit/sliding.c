/* sliding.c -- limits with TW_SHAPE_SLIDING. They estimate from the counts of windows how much was counted in the last
 * stretch of one length. A family has N windows in that length (N is sub_windows, 1 by default):
 *
 *   windows      N │ N-1 │ ... │ 1 │ 0 = this      the stretch covers a part of window N, and all others:
 *   stretch        └── length ──────── now          used = counts[0] + ... + counts[N-1] + a part of counts[N]
 *
 * If N does not divide the length, the windows are up to a millisecond longer than length / N, and together longer than
 * the stretch. Fewer of them may be enough, and window N has left the stretch before this window ends: by the excess.
 * Then the stretch covers a part of window N - 1.
 * The estimate assumes that the counts of the oldest window came evenly. So its part is its count * (the time that the
 * stretch covers) / (its length), rounded up to whole units. If all its counts came at its end, the true part is
 * greater, by up to its count. So with N = 1 up to `limit` more units are admitted in a stretch. With a greater N the
 * part is at least the count less limit / N. Then at most limit / N more units are admitted, whenever they came, and an
 * even flow can still use the whole limit. (A part that the stretch covers leaves out less than length / N.)
 * The part only falls while a window lasts. So the rest of the limit for this window only rises, and slices that were
 * cut stay valid.
 * Without Redis the previous windows have ended. They are sealed, perhaps packed, and are read without a lock, in the
 * same way as by tw_get_at(). With Redis (N = 1) the previous window stays open for one more window (rollover.c). So
 * its total can be requested until the total is surely final, also for keys that only other engines counted.
 * Always true: without Redis a call is denied only if used + n is above the limit. The exception is a call that is
 * running when the window ends. A call that began before the end counts in the previous window, and a later call may
 * not see that count yet. */
#include "engine/limit/sliding.h"

#include "engine/core/window_map.h"
#include "engine/limit/counted.h"
#include "engine/limit/share.h"

#include <string.h>

/* Requests the total of the previous window until it is settled. The total is settled if Redis reported it after all
 * engines had sent their counts of that window. */
static void request_until_settled(const struct twi_call *call, const struct twi_place *place,
                                  struct twi_decision *decision) {
    twi_check_dear(call->family->kind.synced);
    int64_t total_state = twi_load_relaxed(&twi_cell_cold(place->cell, place->meta)->total_state);
    int64_t over_ms = call->now_ms - place->generation->end_ms; /* the time since the end of the window */
    int64_t end_mono_ms = twi_clock_mono_ms(&call->engine->clock) - over_ms;
    bool settled =
        total_state != 0 && twi_total_state_ms(total_state) >= twi_peers_sent_by_ms(call->engine, end_mono_ms);
    decision->before_unknown = total_state == 0;
    decision->carried_bound = settled ? 0 : TW_UNBOUNDED;
    if (!settled) twi_place_request_total(call, place);
    if (total_state == 0) twi_share_request_sync(call, place);
}

static int64_t count_before(const struct twi_call *call, int64_t start_ms, bool looks, struct twi_decision *decision) {
    twi_check_dear(start_ms < call->now_ms);
    if (call->family->kind.synced) {
        struct twi_call past = *call;
        struct twi_place place;
        past.at = true;
        past.unix_ms = start_ms;
        if (twi_place_find(&past, &place) || (!looks && twi_place_make(&past, &place) == TW_OK)) {
            request_until_settled(&past, &place, decision);
            return twi_cell_view(place.cell, place.meta);
        }
        decision->before_unknown = true;
        decision->carried_bound = TW_UNBOUNDED;
    }
    struct twi_generation *before = twi_window_find(call->family, start_ms);
    return before != NULL ? twi_view_in(call, before) : 0;
}

/* Returns the part of the oldest count for which an even flow is assumed. */
static int64_t most_of_even_flow(const struct tw_family *family, int64_t limit) {
    twi_check_dear(limit >= 0);
    uint32_t parts = family->options.sub_windows;
    return parts <= 1 ? INT64_MAX : limit / parts;
}

/* Returns by how much the windows together are longer than the stretch. It is less than the length of one. */
static int64_t excess_ms(const struct tw_family *family) {
    if (family->options.sub_windows <= 1) return 0;
    return family->kind.sub_windows * family->rule.window_ms - family->options.window_ms;
}

/* Writes into `decision` the counts of the previous windows, and their weight at call->now_ms. If `looks` is true,
 * the call only looks, and the function makes no counter. */
static void carry(const struct twi_call *call, bool looks, int64_t limit, struct twi_decision *decision) {
    twi_check_dear(call->family->kind.slides && decision->counts != NULL);
    twi_check_dear(call->family->kind.sub_windows < TWI_SLIDING_COUNTS);
    const struct twi_window_rule *rule = &call->family->rule;
    struct twi_span span = twi_calendar_span(rule, call->now_ms);
    uint32_t parts = call->family->kind.sub_windows;
    int64_t start_ms = span.start_ms, sum = 0, oldest = 0, length_ms = span.end_ms - span.start_ms;
    int64_t covered_ms = span.end_ms - call->now_ms - excess_ms(call->family); /* of window `parts` */
    decision->counts[parts] = 0;
    if (covered_ms <= 0) { /* it has left the stretch */
        covered_ms += length_ms;
        parts--;
    }
    for (uint32_t i = 1; i <= parts; i++) {
        start_ms = twi_calendar_previous_start(rule, start_ms);
        sum = twi_saturated_sum(sum, oldest);
        oldest = count_before(call, start_ms, looks, decision);
        if (oldest < 0) oldest = 0;
        decision->counts[i] = oldest;
    }
    int64_t part = twi_slide_part(oldest, covered_ms, length_ms, most_of_even_flow(call->family, limit));
    decision->carried = twi_saturated_sum(sum, part);
    decision->carried_bound = twi_saturated_sum(decision->carried_bound, twi_slide_bound(oldest, part));
}

void twi_sliding_request_total(tw_family *family, tw_key key) {
    twi_check_dear(family->kind.slides && family->kind.synced);
    struct twi_call call;
    int64_t counts[TWI_SLIDING_COUNTS];
    struct twi_decision unused = {.counts = counts};
    if (twi_call_begin(&call, family, key) != TW_OK) return;
    if (twi_call_now(&call) == TW_OK) carry(&call, false, 0, &unused);
    twi_call_end(&call);
}

static struct twi_slide slide_of(const struct tw_family *family, int64_t limit, const struct twi_decision *decision) {
    struct twi_span next = twi_calendar_span(&family->rule, decision->end_ms);
    return (struct twi_slide){.left_ms = decision->end_ms - decision->now_ms - excess_ms(family),
                              .length_ms = decision->end_ms - decision->start_ms,
                              .next_ms = next.end_ms - next.start_ms,
                              .even = most_of_even_flow(family, limit),
                              .parts = family->kind.sub_windows};
}

/* Returns how long it takes until n units are free, if no other thread calls; -1 means for ever. */
static int64_t retry_ms(const struct tw_family *family, int64_t n, int64_t limit, const struct twi_decision *decision) {
    twi_check_dear(decision->counts != NULL && n >= 0);
    if (n > limit) return -1;
    if (decision->retry_ms != 0) return decision->retry_ms; /* the caller waits for other engines or for Redis */
    decision->counts[0] = decision->view > 0 ? decision->view : 0;
    struct twi_slide slide = slide_of(family, limit, decision);
    return twi_slide_retry_ms(&slide, decision->counts, n, limit);
}

/* Returns how long it takes until the stretch contains no counts. */
static int64_t reset_after_ms(const struct tw_family *family, int64_t limit, const struct twi_decision *decision) {
    twi_check_dear(decision->counts != NULL);
    decision->counts[0] = decision->view > 0 ? decision->view : 0;
    struct twi_slide slide = slide_of(family, limit, decision);
    return twi_slide_reset_ms(&slide, decision->counts);
}

static void fill_verdict(const struct tw_family *family, tw_status status, int64_t n, int64_t limit,
                         const struct twi_decision *decision, tw_verdict *verdict) {
    twi_check_dear(family->kind.slides);
    verdict->used = twi_saturated_sum(decision->view, decision->carried);
    verdict->remaining = verdict->used < limit ? limit - verdict->used : 0;
    verdict->reset_after_ms = reset_after_ms(family, limit, decision);
    verdict->error_bound = twi_saturated_sum(verdict->error_bound, decision->carried_bound);
    if (status == TW_DENIED)
        twi_verdict_deny(verdict, twi_decision_cause(decision, n, limit), retry_ms(family, n, limit, decision));
}

/* ---- the complete decision ---- */

tw_status twi_sliding_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    static const struct twi_counting here = {carry, twi_counted_unknown, twi_counted_take_known, retry_ms};
    static const struct twi_counting shared = {carry, twi_share_unknown, twi_share_take, retry_ms};
    int64_t counts[TWI_SLIDING_COUNTS]; /* carry() fills them before they are read */
#ifdef __clang_analyzer__               /* the analyzer does not follow the pointer to carry() */
    memset(counts, 0, sizeof counts);
#endif
    struct twi_decision decision = {.counts = counts};
    tw_status status = family->kind.shares ? twi_counting_acquire(&shared, family, key, n, limit, &decision, verdict)
                                           : twi_counting_acquire(&here, family, key, n, limit, &decision, verdict);
    if (verdict != NULL && status >= 0) fill_verdict(family, status, n, limit, &decision, verdict);
    twi_verdict_add_grain(family, verdict);
    return status;
}
