/* sliding.c -- TW_SHAPE_SLIDING: `used` is the count of this window, plus the part of the previous window's count that
 * the sliding window still covers. The previous count is treated as if it had come evenly:
 *
 *   used = this + before * (end - now) / length          a window of one length ago ──┤ before ├──┤ this ... now
 *
 * The second term is rounded up to whole units, so a call is admitted exactly where the fraction would admit it. The
 * term only falls while a window lasts. So the rest of the limit for this window only rises, and slices that were cut
 * stay true.
 * Without Redis the previous window is over: it is sealed, perhaps packed, and read without a lock as tw_get_at() reads
 * it. With Redis it stays open for one window more (rollover.c). So its total can be requested until it is surely
 * final, also for keys that only other engines counted.
 * Always true: without Redis a call is denied only if used + n is above the limit, except for calls under way when the
 * window ends. A call that began before the end counts in the previous window, and a later call may not see that
 * yet. */
#include "engine/limit/sliding.h"

#include "engine/limit/shape.h"

#include "engine/limit/share.h"
#include "engine/core/window_map.h"

/* Requests the total until it is settled: Redis reported it after all engines had sent their counts of that window. */
static void request_until_settled(const struct twi_call *call, const struct twi_place *place,
                                  struct twi_decision *decision) {
    int64_t total_state = twi_load_relaxed(&twi_cell_cold(place->cell, place->meta)->total_state);
    int64_t over_ms = call->now_ms - place->generation->end_ms; /* since the window's end */
    int64_t end_mono_ms = twi_clock_mono_ms(&call->engine->clock) - over_ms;
    bool settled =
        total_state != 0 && twi_total_state_ms(total_state) >= twi_peers_sent_by_ms(call->engine, end_mono_ms);
    decision->before_unknown = total_state == 0;
    decision->carried_bound = settled ? 0 : TW_UNBOUNDED;
    if (!settled) twi_place_request_total(call, place);
    if (total_state == 0) twi_share_request_sync(call, place);
}

static int64_t count_before(const struct twi_call *call, int64_t start_ms, bool looks, struct twi_decision *decision) {
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

void twi_sliding_carry(const struct twi_call *call, bool looks, struct twi_decision *decision) {
    const struct twi_window_rule *rule = &call->family->rule;
    struct twi_span span = twi_calendar_span(rule, call->now_ms);
    int64_t before = count_before(call, twi_calendar_previous_start(rule, call->now_ms), looks, decision);
    decision->before = before > 0 ? before : 0;
    decision->carried = twi_share_up(decision->before, span.end_ms - call->now_ms, span.end_ms - span.start_ms);
}

void twi_sliding_request_total(tw_family *family, tw_key key) {
    struct twi_call call;
    struct twi_decision unused = {0};
    if (twi_call_begin(&call, family, key) != TW_OK) return;
    if (twi_call_now(&call) == TW_OK) twi_sliding_carry(&call, false, &unused);
    twi_call_end(&call);
}

/* How long until n units are free, if nobody else calls. First the count of the previous window fades. In the next
 * window the count of this window fades. */
int64_t twi_sliding_retry_ms(const struct tw_family *family, int64_t n, int64_t limit,
                             const struct twi_decision *decision) {
    int64_t left_ms = decision->end_ms - decision->now_ms, length_ms = decision->end_ms - decision->start_ms;
    int64_t room = limit - n, now = decision->view > 0 ? decision->view : 0;
    if (room < 0) return -1;
    if (decision->retry_ms != 0) return decision->retry_ms; /* the retry waits for other engines, or for Redis */
    if (now <= room && decision->before > 0) {
        int64_t stays_ms = twi_share_down(room - now, length_ms, decision->before);
        return stays_ms < left_ms ? left_ms - stays_ms : 0;
    }
    if (now <= room) return 0; /* the cause of the denial was gone when the verdict was made */
    struct twi_span next = twi_calendar_span(&family->rule, decision->end_ms);
    int64_t next_ms = next.end_ms - next.start_ms, stays_ms = twi_share_down(room, next_ms, now);
    return left_ms + (stays_ms < next_ms ? next_ms - stays_ms : 0);
}

void twi_sliding_fill_verdict(const struct tw_family *family, tw_status status, int64_t n, int64_t limit,
                              const struct twi_decision *decision, tw_verdict *verdict) {
    struct twi_span next = twi_calendar_span(&family->rule, decision->end_ms);
    int64_t left_ms = decision->end_ms - decision->now_ms;
    verdict->used = twi_saturated_sum(decision->view, decision->carried);
    verdict->remaining = verdict->used < limit ? limit - verdict->used : 0;
    verdict->reset_after_ms = decision->view > 0     ? left_ms + (next.end_ms - next.start_ms)
                              : decision->before > 0 ? left_ms
                                                     : 0;
    verdict->error_bound = twi_saturated_sum(verdict->error_bound, decision->carried_bound);
    verdict->retry_after_ms = status == TW_DENIED ? twi_sliding_retry_ms(family, n, limit, decision) : 0;
}
