/* shapes_fast.h -- tw_acquire() of GCRA and sliding limits without Redis, for a known key. It is a part of the same
 * template, and all_fast.h is included before it.
 * Always true: these paths do only what twi_gcra_acquire(), twi_sliding_acquire() and acquire.c also do, by the same
 * arithmetic (limit/gcra.h, limit/sliding.h). A word changes by one compare-and-swap, and a denied call does not
 * write. What does not fit is for the complete decision. The clock is read after the window was loaded (W1), the exact
 * one at most once. */
#include "engine/core/window_map.h"
#include "engine/limit/acquire.h"
#include "engine/limit/gcra.h"
#include "engine/limit/sliding.h"

#if !defined(TWI_HOT_GCRA) || !defined(TWI_HOT_SLIDING)
#error "shapes_fast.h is a template: define TWI_HOT_GCRA and TWI_HOT_SLIDING first"
#endif

#ifndef TWI_HOT_SHAPES_ONCE
#define TWI_HOT_SHAPES_ONCE

/* ---- GCRA: what both templates have ---- */

/* Returns the moment of the word, with its two flags as the highest bits. So whatever this path may not decide makes it
 * too large: a flag, and the number that another limit of the window has. */
TWI_INLINE uint64_t hot_moment_of(uint64_t word) {
    static_assert(TWI_COUNT_SHIFT == 2 && (TWI_FROZEN | TWI_GCRA_PACE_CLOSED) == 3,
                  "the flags are the lowest two bits");
    return word >> TWI_COUNT_SHIFT | word << (64 - TWI_COUNT_SHIFT);
}
TWI_INLINE bool hot_is_moment(uint64_t moment) {
    return !twi_hardly((moment - 1) >> TWI_GCRA_PACE_MOMENT_BITS != 0); /* 0 is above all if 1 is subtracted */
}

/* Decides by the time of the word, if that is known and serves (twi_gcra_pace_is_final()), otherwise by the exact one.
 * Most buckets are empty, or nearly so, which shows without a division. Returns false if the window has ended. */
TWI_INLINE bool hot_pace_decide(tw_engine *engine, struct twi_gcra_pace *pace, int64_t at, bool is_known,
                                int64_t now_ms, tw_status *status) {
    if (is_known) {
        int64_t since_us = (now_ms - pace->start_ms) * 1000;
        if (twi_share_down(at, pace->window_us, TWI_GCRA_PACE_WINDOW) >= since_us + TWI_CLOCK_NEAR_MS * 1000) {
            twi_gcra_pace_set_since(pace, since_us, false);
            *status = twi_gcra_pace_decide(pace, at);
            if (twi_gcra_pace_is_final(pace, *status, at)) return true;
        }
    }
    int64_t since_us = twi_clock_exact_us(&engine->clock) - pace->start_ms * 1000;
    if (twi_hardly((uint64_t)since_us >= (uint64_t)pace->window_us)) return false;
    twi_gcra_pace_set_since(pace, since_us, true);
    *status = twi_gcra_pace_decide(pace, at);
    return true;
}

/* Writes the verdict as gcra.c does. */
TWI_INLINE void hot_pace_fill(const struct twi_gcra_pace *pace, tw_status status, int64_t left, int64_t grain_ms,
                              tw_verdict *verdict) {
    int64_t reset_ms = twi_gcra_pace_ahead(pace) > 0 ? twi_gcra_pace_until_ms(pace, pace->empty) : 0, retry_ms = 0;
    if (status == TW_DENIED) {
        retry_ms = twi_gcra_pace_until_ms(pace, pace->empty + pace->charge - pace->most) + grain_ms;
        if (retry_ms < 1) retry_ms = 1; /* twi_verdict_deny() */
    }
    twi_verdict_put(verdict, pace->limit, pace->burst - left, left, reset_ms, retry_ms, 0, pace->start_ms);
    twi_verdict_fill_tail(verdict, TW_BY_LOCAL, status == TW_OK);
}

/* ---- sliding: what both templates have ---- */

/* Returns the count of a key in the window before, wherever it is. */
static __attribute__((noinline)) int64_t hot_view_before(struct twi_generation *before, tw_key key, uint64_t hash) {
    tw_family *family = before->family;
    struct twi_call call = {
        .family = family, .engine = family->engine, .self = twi_thread_self, .lookup = twi_lookup_key(hash, key)};
    return twi_view_in(&call, before);
}

/* Writes the verdict as sliding.c does. `view` is the count after the call, `part` the weight of the window before. */
TWI_INLINE void hot_slide_fill(const struct twi_slide *slide, const int64_t *counts, tw_status status, int64_t limit,
                               int64_t view, int64_t part, int64_t retry_ms, int64_t start_ms, tw_verdict *verdict) {
    int64_t used = view + part;
    twi_verdict_put(verdict, limit, used, used < limit ? limit - used : 0, twi_slide_reset_ms(slide, counts), retry_ms,
                    twi_slide_bound(counts[1], part), start_ms);
    twi_verdict_fill_tail(verdict, TW_BY_LOCAL, status == TW_OK);
}

#endif

/* ---- GCRA ----
 * A word that is not set yet, that is closed or frozen, that another limit has set, or that changes meanwhile, is not
 * decided here. */

TWI_HOT_CODE tw_status TWI_HOT_GCRA(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    bool outermost;
    if (twi_hardly((((uint64_t)n - 1) | ((uint64_t)limit - 1)) >> 53 != 0) ||
        !hot_may_begin_short(self, engine, &outermost))
        return twi_shadow_acquire(family, key, n, limit, verdict);
    if (twi_likely(outermost)) twi_section_enter_first(self);
    if (n <= 0 || limit <= 0) __builtin_unreachable(); /* so no decision looks again */
    struct twi_limit_shard *counts = twi_limit_stats_line(family, self);
    if (twi_hardly(counts == NULL)) goto complete;
    struct twi_gcra_pace pace;
    twi_gcra_pace_begin(&pace, family, n, limit);
    if (twi_hardly(n > pace.burst)) goto complete;
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* after W1, as the exact clock */
    bool is_known = hot_holds(generation, now_ms);
    if (!is_known && twi_hardly(generation->family != family)) goto complete; /* the window that holds no time */
    struct hot_any_key any;
    if (twi_hardly(!TWI_HOT_OWN(read_key)(engine, key, &any))) goto complete;
    struct twi_cell *cell = TWI_HOT_OWN(plain_cell)(engine, generation, &any);
    if (twi_hardly(cell == NULL)) goto complete;
    TWI_RACE_POINT(limit_cell_found_not_read);
    uint64_t word = twi_load_acquire(&cell->local); /* N4 */
    uint64_t at = hot_moment_of(word);
    pace.start_ms = generation->start_ms;
    if (!hot_is_moment(at) || twi_hardly(twi_load_relaxed(&cell->limit) != limit)) goto complete;
    tw_status status;
    if (twi_hardly(!hot_pace_decide(engine, &pace, (int64_t)at, is_known, now_ms, &status))) goto complete;
    /* n is from 1 to the burst: an admitted call leaves no empty bucket, and an empty one denies nothing */
    twi_check_dear(pace.empty > pace.now);
    if (pace.empty <= pace.now) __builtin_unreachable();
    int64_t left = twi_gcra_pace_left(&pace), calls;
    if (status == TW_OK) {
        uint64_t after = (uint64_t)pace.empty << TWI_COUNT_SHIFT;
        if (twi_hardly(!twi_cas_weak_acqrel(&cell->local, &word, after))) goto complete; /* N4 */
        calls = twi_limit_stats_raise(&counts->admitted);
        if (twi_hardly(twi_limit_is_near_below(pace.burst - left, pace.burst)))
            (void)twi_limit_stats_raise(&counts->near);
    } else {
        if (twi_hardly(twi_clock_pauses(&engine->clock))) goto complete; /* which knows for how long */
        calls = twi_limit_stats_raise(&counts->denied);
    }
    if (twi_likely(verdict != NULL)) hot_pace_fill(&pace, status, left, engine->clock.grain_ms, verdict);
    twi_section_leave_short(self, self->depth == 0);
    (void)twi_call_over(engine, calls);
    return status;
complete:
    twi_section_leave_short(self, self->depth == 0);
    return twi_shadow_acquire(family, key, n, limit, verdict);
}

/* ---- sliding ----
 * without sub-windows, for windows of one length, and for a key whose counter is plain. The count of the window before
 * is read in each call: calls that are running when a window ends may still raise it. A count rises from a value that
 * leaves room. A denial that a more exact clock might change is not decided here. */

/* Decides with the counter of a key. Returns false if it did not decide. The caller is inside a section. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(slide)(tw_family *family, struct twi_thread *self,
                                                struct twi_generation *generation, tw_key key,
                                                TWI_HOT_SHORT_KEY *short_key, uint64_t hash, int64_t n, int64_t limit,
                                                int64_t now_ms, bool is_read, tw_verdict *verdict,
                                                struct twi_limit_shard *counted, tw_status *answer, int64_t *calls) {
    tw_engine *engine = family->engine;
    struct twi_cell *cell = TWI_HOT_OWN(cell_in_line)(engine, generation, key, short_key, hash);
    if (twi_hardly(cell == NULL)) {
        cell = hot_find_slow(engine, generation, hash, key);
        if (cell == NULL || hot_is_striped(cell)) return false;
    }
    int64_t length_ms = generation->end_ms - generation->start_ms, counts[2] = {0};
    struct twi_generation *before = twi_window_find(family, generation->start_ms - length_ms);
    if (before != NULL) {
        struct twi_cell *old = NULL;
        if (!twi_generation_is_packed(before)) old = TWI_HOT_OWN(cell_in_line)(engine, before, key, short_key, hash);
        counts[1] = old != NULL ? twi_cell_view(old, twi_load_relaxed(&old->meta)) : hot_view_before(before, key, hash);
        if (counts[1] < 0) counts[1] = 0;
    }
    TWI_RACE_POINT(limit_cell_found_not_read);
    struct twi_slide slide = {.length_ms = length_ms, .next_ms = length_ms, .even = INT64_MAX, .parts = 1};
    for (;;) {
        slide.left_ms = generation->end_ms - now_ms;
        int64_t part = twi_slide_part(counts[1], slide.left_ms, length_ms, slide.even);
        uint64_t word = twi_load_acquire(&cell->local); /* C2 */
        if (twi_hardly((word & TWI_FROZEN) != 0)) return false;
        int64_t view = twi_word_value(word);
        if (view + n <= limit - part) {
            if (twi_hardly(!twi_cas_weak_acqrel(&cell->local, &word, word + ((uint64_t)n << TWI_COUNT_SHIFT)))) {
                twi_contention_detect_acquire(engine, generation, cell, limit - part, self);
                return false;
            }
            view += n;
            *calls = twi_limit_stats_raise(&counted->admitted);
            if (twi_hardly(twi_limit_is_near_below(view + part, limit))) (void)twi_limit_stats_raise(&counted->near);
            counts[0] = view > 0 ? view : 0;
            if (twi_likely(verdict != NULL))
                hot_slide_fill(&slide, counts, TW_OK, limit, view, part, 0, generation->start_ms, verdict);
            *answer = TW_OK;
            return true;
        }
        if (!is_read) { /* a word that no thread keeps must not deny a call */
            int64_t before_ms = now_ms;
            if (!twi_clock_is_young(&engine->clock, &now_ms)) now_ms = twi_clock_renew_ms(&engine->clock);
            if (!hot_holds(generation, now_ms)) return false;
            is_read = true;
            if (now_ms != before_ms) continue;
        }
        counts[0] = view > 0 ? view : 0;
        int64_t retry_ms = twi_slide_retry_ms(&slide, counts, n, limit);
        if (twi_hardly(retry_ms <= 2 * TWI_CLOCK_NEAR_MS + engine->clock.grain_ms)) return false; /* perhaps now */
        if (twi_hardly(twi_clock_pauses(&engine->clock))) return false;
        *calls = twi_limit_stats_raise(&counted->denied);
        if (twi_likely(verdict != NULL))
            hot_slide_fill(&slide, counts, TW_DENIED, limit, view, part, retry_ms + engine->clock.grain_ms,
                           generation->start_ms, verdict);
        *answer = TW_DENIED;
        return true;
    }
}

TWI_HOT_CODE tw_status TWI_HOT_SLIDING(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    struct twi_limit_shard *counted = twi_limit_stats_line(family, self);
    if (!hot_may_begin_apart(self, engine) || twi_hardly(counted == NULL) ||
        twi_hardly((((uint64_t)n - 1) | ((uint64_t)limit - 1)) >> 53 != 0) || twi_hardly(n > limit) ||
        twi_hardly(key.data == NULL))
        return twi_acquire_slow(family, key, n, limit, verdict);
    twi_section_enter(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock), calls; /* after W1 */
    bool is_read = !hot_holds(generation, now_ms), is_decided = false;
    tw_status answer;
    if (is_read && !hot_holds_young(engine, generation, &now_ms)) {
        if (twi_hardly(generation->family != family)) goto over; /* the window that holds no time */
        now_ms = twi_clock_renew_ms(&engine->clock);
        if (twi_hardly(!hot_holds(generation, now_ms))) goto over;
    }
    if (twi_likely(hot_key_is_short(key))) {
        TWI_HOT_SHORT_KEY short_key = TWI_HOT_SHORT_OF(key);
        uint64_t hash = TWI_HOT_SHORT_HASH(engine, short_key, key);
        is_decided = TWI_HOT_OWN(slide)(family, self, generation, key, &short_key, hash, n, limit, now_ms, is_read,
                                        verdict, counted, &answer, &calls);
    } else if (twi_likely(key.size - TWI_KEY_INLINE - 1 < TW_KEY_SIZE_MAX - TWI_KEY_INLINE)) {
        uint64_t hash = TWI_HOT_LONG_HASH(engine, key);
        is_decided = TWI_HOT_OWN(slide)(family, self, generation, key, NULL, hash, n, limit, now_ms, is_read, verdict,
                                        counted, &answer, &calls);
    }
over:
    twi_section_leave(self);
    if (twi_hardly(!is_decided)) return twi_acquire_slow(family, key, n, limit, verdict);
    (void)twi_call_over(engine, calls);
    return answer;
}
