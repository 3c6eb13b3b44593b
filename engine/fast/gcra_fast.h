/* gcra_fast.h -- tw_acquire() of a GCRA limit without Redis, for a known key whose word was computed under this
 * limit. It is a part of the same template, and all_fast.h is included before it.
 * Always true: this path does only what twi_gcra_acquire() and shadow.c also do, by the same arithmetic
 * (limit/gcra_pace.h). A word changes by one compare-and-swap, and a denied call does not write. A word that is not set
 * yet, that is closed or frozen, that another limit has set, or that changes meanwhile, is for the complete
 * decision. The clock is read after the window was loaded (W1), the exact one at most once. */
#include "engine/limit/gcra_pace.h"
#include "engine/limit/shadow.h"

#ifndef TWI_HOT_GCRA
#error "gcra_fast.h is a template: define TWI_HOT_GCRA first"
#endif

#ifndef TWI_HOT_GCRA_ONCE
#define TWI_HOT_GCRA_ONCE

/* Returns true if the word has a moment of this limit, and may change. Another limit of the window has a number. */
TWI_INLINE bool hot_is_paced(struct twi_cell *cell, uint64_t word, int64_t limit) {
    uint64_t moment = (uint64_t)twi_word_value(word);
    /* 0 is above all moments if 1 is subtracted */
    return !twi_hardly((word & (TWI_FROZEN | TWI_GCRA_PACE_CLOSED)) != 0) &&
           !twi_hardly((moment - 1) >> TWI_GCRA_PACE_MOMENT_BITS != 0) &&
           !twi_hardly(twi_load_relaxed(&cell->limit) != limit);
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
    struct twi_limit_shard *counts = twi_limit_stats_line(family, self);
    if (!hot_may_begin_apart(self, engine) || twi_hardly(counts == NULL) ||
        twi_hardly((((uint64_t)n - 1) | ((uint64_t)limit - 1)) >> 53 != 0))
        return twi_shadow_acquire(family, key, n, limit, verdict);
    struct twi_gcra_pace pace;
    twi_gcra_pace_begin(&pace, family, n, limit);
    if (twi_hardly(n > pace.burst)) return twi_shadow_acquire(family, key, n, limit, verdict);
    bool outermost = twi_section_enter_short(self);
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
    int64_t at = twi_word_value(word);
    pace.start_ms = generation->start_ms;
    if (!hot_is_paced(cell, word, limit)) goto complete;
    tw_status status;
    if (twi_hardly(!hot_pace_decide(engine, &pace, at, is_known, now_ms, &status))) goto complete;
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
    twi_section_leave_short(self, outermost);
    (void)twi_call_over(engine, calls);
    return status;
complete:
    twi_section_leave_short(self, outermost);
    return twi_shadow_acquire(family, key, n, limit, verdict);
}
