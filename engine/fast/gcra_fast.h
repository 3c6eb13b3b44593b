/* gcra_fast.h -- tw_acquire() of a GCRA limit without Redis, for a known key whose word was computed under this
 * limit. It is a part of the same template, and all_fast.h is included before it.
 * Always true: this path does only what twi_gcra_acquire() and acquire.c also do, by the same arithmetic
 * (limit/gcra.h). A word changes by one compare-and-swap, and a denied call does not write. A word that is not set
 * yet, that is closed or frozen, that another limit has set, or that changes meanwhile, is for the complete
 * decision. The clock is read after the window was loaded (W1), the exact one at most once. */
#include "engine/limit/gcra.h"
#include "engine/limit/acquire.h"

#ifndef TWI_HOT_GCRA
#error "gcra_fast.h is a template: define TWI_HOT_GCRA first"
#endif

#ifndef TWI_HOT_GCRA_ONCE
#define TWI_HOT_GCRA_ONCE

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

#endif

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
