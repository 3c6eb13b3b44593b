/* acquire_fast.h -- tw_acquire() of an existing key in an open window. The whole path is one function, in the same way
 * as add_fast.h for tw_add(). It is a part of the same template, and add_fast.h is included before it.
 *
 * There are three levels:
 *   - acquire_short and acquire_long are for n > 0, threads outside of any section, and plain counters that are found
 *     by the first look at the tags or at the index. They call no function on these paths. With Redis they admit if
 *     this engine is alone with a known total, and the limit is not near.
 *   - acquire_further continues in the section of its caller. It handles keys in other places, and striped counters
 *     (counted.c). acquire_anyhow begins again, and also handles contention, n = 0, open sections, and what several
 *     engines share.
 *   - twi_acquire_slow() begins again and handles all other cases.
 * Always true: this path does only what twi_acquire_slow() also does, and it never denies a call that a more exact
 * clock might admit. A count rises by one compare-and-swap, from a value that leaves room. A denied call does not
 * write (trap E36). */
#include "engine/count/dirty.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/acquire.h"
#include "engine/limit/share.h"
#include "engine/limit/counted.h"

#ifndef TWI_HOT_ACQUIRE
#error "acquire_fast.h is a template: define TWI_HOT_ACQUIRE first"
#endif

#ifndef TWI_HOT_ACQUIRE_ONCE
#define TWI_HOT_ACQUIRE_ONCE

/* Finds a cell that the first look at its line did not find. */
__attribute__((noinline)) static struct twi_cell *
hot_find_slow(const tw_engine *engine, struct twi_generation *generation, uint64_t hash, tw_key key) {
    struct hot_end end;
    return hot_find_by_index(&engine->arena, generation, hash, key, &end);
}

/* The cold part of a short key is in the line before or after its cell. */
TWI_INLINE void hot_ask_cold(const struct twi_cell *cell) {
    __builtin_prefetch((const char *)cell - TWI_LINE_BYTES);
    __builtin_prefetch((const char *)cell + TWI_LINE_BYTES);
}

/* Returns the cell of the key, plain or striped, or NULL. */
TWI_INLINE struct twi_cell *hot_find(const tw_engine *engine, struct twi_generation *generation, uint64_t hash,
                                     bool synced, tw_key key) {
    bool is_long = key.size > TWI_KEY_INLINE;
    twi_area_ask(generation, hash, is_long, synced);
    struct hot_line line = hot_line_of(&engine->arena, generation, hash);
    struct twi_cell *cell = hot_cell_at(&engine->arena, hot_line_first(line, hash), is_long);
    if (synced && !is_long) hot_ask_cold(cell);
    if (twi_likely(hot_is_it(cell, key, false, HOT_MAYBE_STRIPED))) return cell;
    return hot_find_slow(engine, generation, hash, key);
}

/* Takes units from the stripes of a cell whose `local` was found frozen. Returns TWI_AGAIN if the cell has no
 * stripes, because then its window was sealed. */
__attribute__((noinline)) static tw_status hot_take_striped(tw_engine *engine, struct twi_generation *generation,
                                                            struct twi_cell *cell, int64_t n, int64_t limit,
                                                            struct twi_thread *self, struct twi_decision *decision) {
    struct twi_taken taken;
    uint64_t meta = twi_load_acquire(&cell->meta); /* S2 */
    twi_dirty_begin(self, engine, generation, cell);
    tw_status status = twi_slices_take(cell, meta, n, limit, self, &taken);
    decision->view = taken.used;
    decision->bound = taken.bound;
    if (taken.unlisted) twi_dirty_list(engine, generation, cell, meta);
    twi_dirty_end(self);
    return status;
}

/* Returns true if a call may be denied, and the time for that. A word that no thread keeps must not deny a call: so the
 * clock is read, unless the word is young. False means that the window may be over by the exact clock, or that engine
 * time pauses, so the denial is not decided here (acquire.c). */
TWI_INLINE bool hot_may_deny(tw_engine *engine, const struct twi_generation *generation, int64_t *now_ms) {
    if (!twi_clock_is_young(&engine->clock, now_ms)) *now_ms = twi_clock_renew_ms(&engine->clock);
    /* a young word lags by a little more than a refresh; endless windows end at INT64_MAX; -1 is a moment in 1969 */
    int64_t soon_ms = *now_ms + 2 * TWI_CLOCK_NEAR_MS + engine->clock.grain_ms;
    return twi_likely((uint64_t)soon_ms < (uint64_t)generation->end_ms) &&
           twi_likely(!twi_clock_pauses(&engine->clock));
}

/* Called for a soft limit with Redis, if the call may need more than to count its units (share.h). */
__attribute__((noinline)) static void hot_share_decided(tw_family *family, struct twi_generation *generation,
                                                        struct twi_cell *cell, int64_t n, int64_t limit,
                                                        tw_status status, struct twi_decision *decision) {
    struct twi_call call = {.family = family, .engine = family->engine};
    struct twi_place place = {.generation = generation, .cell = cell, .meta = twi_load_relaxed(&cell->meta)};
    twi_share_decided(&call, &place, n, limit, status, decision);
    twi_overshoot_check(family, generation, cell, n, decision->view, limit);
}

#endif

/* Takes units from the cell, or from its stripes if it is striped, in the same way as hot_take_striped().
 * TW_ERR_RANGE is also the result in cases that the slow path must handle. */
TWI_INLINE tw_status TWI_HOT_OWN(take)(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                       int64_t n, int64_t limit, struct twi_thread *self,
                                       struct twi_decision *decision) {
    int64_t base = TWI_HOT_SYNCED ? twi_load_relaxed(&cell->base) : 0;
    uint64_t word = twi_load_acquire(&cell->local), after; /* C2 */
    for (;;) {
        int64_t value = twi_word_value(word);
        if (twi_unlikely((word & TWI_FROZEN) != 0)) {
            /* a copy: if the address of a decision is passed to no function, the decision stays in registers */
            struct twi_decision decided = {0};
            tw_status status = hot_take_striped(engine, generation, cell, n, limit, self, &decided);
            decision->view = decided.view;
            decision->bound = decided.bound;
            return status;
        }
        decision->view = TWI_HOT_SYNCED ? twi_saturated_sum(value, base) : value;
        if (twi_saturated_sum(decision->view, n) > limit) return TW_DENIED;
        if (twi_unlikely(n == 0)) return TW_OK;
        /* only Redis's total leaves room */
        if (TWI_HOT_SYNCED && twi_unlikely(value > TW_DELTA_MAX)) return TW_ERR_RANGE;
        after = (uint64_t)(value + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
        if (twi_likely(twi_cas_weak_acqrel(&cell->local, &word, after))) break;
        twi_contention_detect_acquire(engine, generation, cell, limit, self);
    }
    decision->view += n;
    if (TWI_HOT_SYNCED && twi_unlikely((word & TWI_DIRTY) == 0))
        twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
    return TW_OK;
}

/* Decides with the counter of a key, in the section of the caller. It leaves that section. Returns false if it did
 * not decide, so that the slow path is needed. */
TWI_INLINE bool TWI_HOT_OWN(decide)(tw_family *family, struct twi_thread *self, struct twi_generation *generation,
                                    struct twi_cell *cell, int64_t n, int64_t limit, int64_t now_ms,
                                    tw_verdict *verdict, tw_status *answer) {
    tw_engine *engine = family->engine;
    struct twi_decision decision = {.start_ms = generation->start_ms, .end_ms = generation->end_ms, .now_ms = now_ms};
    struct twi_share_estimate share = {.most = limit};
    bool shares = TWI_HOT_SYNCED && twi_likely(family->kind.shares);
    if (shares && twi_unlikely(!twi_share_estimate(family, cell, n, limit, &share))) return false;
    tw_status status = TWI_HOT_OWN(take)(engine, generation, cell, n, share.most, self, &decision);
    if (twi_unlikely(status == TWI_AGAIN) || twi_unlikely(status < 0)) return false;
    if (status == TW_DENIED && !hot_may_deny(engine, generation, &decision.now_ms)) return false;
    if (shares && (twi_unlikely(status != TW_OK) || twi_unlikely(decision.view >= share.no_check_below))) {
        struct twi_decision decided = decision; /* a copy, for the same reason as in `take` */
        hot_share_decided(family, generation, cell, n, limit, status, &decided);
        decision = decided;
    } else if (shares) {
        decision.bound = twi_saturated_sum(decision.bound, share.bound);
        decision.has_bound = true;
    }
    if (n != 0) {
        if (status == TW_OK)
            twi_limit_stats_count_admitted(family, self, decision.view, limit);
        else
            twi_limit_stats_count_denied(family, self, twi_decision_cause(&decision, n, limit));
    }
    twi_section_leave(self);
    twi_call_looks(engine, self);
    if (verdict != NULL) twi_verdict_fill(verdict, TWI_HOT_SYNCED, status, n, limit, &decision);
    if (twi_unlikely(status == TW_DENIED)) twi_verdict_add_grain(family, verdict);
    *answer = status;
    return true;
}

/* Handles every key of a window, wherever it is. The caller is inside a section, and this function leaves it. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(acquire_further)(struct twi_generation *generation,
                                                                                     tw_key key, int64_t n,
                                                                                     int64_t limit, tw_verdict *verdict,
                                                                                     uint64_t hash) {
    tw_family *family = generation->family;
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    tw_status status;
    if (twi_likely(twi_generation_holds(generation, now_ms))) {
        struct twi_cell *cell = hot_find(engine, generation, hash, TWI_HOT_SYNCED, key);
        if (twi_likely(cell != NULL)) {
            if (twi_likely(TWI_HOT_OWN(decide)(family, self, generation, cell, n, limit, now_ms, verdict, &status)))
                return status;
        }
    }
    twi_section_leave(self);
    return twi_acquire_slow(family, key, n, limit, verdict);
}

/* Handles every thread, key and n that the functions below do not handle. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status
TWI_HOT_OWN(acquire_anyhow)(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!hot_may_begin_apart(self, engine)) || twi_unlikely(key.size - 1 >= TW_KEY_SIZE_MAX) ||
        twi_unlikely(key.data == NULL) || twi_unlikely((uint64_t)n > (uint64_t)TW_DELTA_MAX) ||
        twi_unlikely((uint64_t)limit > (uint64_t)TW_DELTA_MAX))
        return twi_acquire_slow(family, key, n, limit, verdict);
    uint64_t hash = TWI_HOT_HASH(engine, key);
    twi_section_enter(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    tw_status status;
    if (twi_likely(twi_generation_holds(generation, now_ms))) {
        struct twi_cell *cell = hot_find(engine, generation, hash, TWI_HOT_SYNCED, key);
        if (twi_likely(cell != NULL) &&
            twi_likely(TWI_HOT_OWN(decide)(family, self, generation, cell, n, limit, now_ms, verdict, &status)))
            return status;
    }
    twi_section_leave(self);
    return twi_acquire_slow(family, key, n, limit, verdict);
}

/* ---- plain counters ---- */

/* Returns true if all conditions of this level are true, except for the key. acquire_anyhow handles a limit of 0. */
TWI_INLINE bool TWI_HOT_OWN(acquire_is_plain)(const struct twi_thread *self, const tw_engine *engine, int64_t n,
                                              int64_t limit) {
    static_assert(TW_DELTA_MAX == INT64_C(1) << 53, "1 to 2^53, less 1, are 53 bits");
    return hot_may_go_on(self, engine, HOT_OUTSIDE) &&
           twi_likely((((uint64_t)n - 1) | ((uint64_t)limit - 1)) >> 53 == 0);
}

/* Called after a lost compare-and-swap. The caller is inside a section, and this function leaves it. */
TWI_HOT_CODE static TWI_COLD tw_status TWI_HOT_OWN(acquire_contended)(struct twi_generation *generation,
                                                                      struct twi_cell *cell, tw_key key, int64_t n,
                                                                      int64_t limit, tw_verdict *verdict) {
    tw_family *family = generation->family;
    struct twi_thread *self = twi_thread_self;
    twi_contention_detect_acquire(family->engine, generation, cell, limit, self);
    twi_section_leave(self);
    return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
}

/* Decides with a plain counter. The limit is at most TW_DELTA_MAX, so no sum overflows. A call without a verdict
 * does not pay for a verdict. The caller is inside a short section, and this function leaves it. */
TWI_HOT_CODE TWI_INLINE tw_status TWI_HOT_OWN(acquire_plain)(struct twi_thread *self, struct twi_generation *generation,
                                                             struct twi_cell *cell, tw_key key, int64_t n,
                                                             int64_t limit, int64_t now_ms, tw_verdict *verdict) {
    tw_family *family = generation->family;
    tw_engine *engine = family->engine;
    struct twi_limit_shard *counts = twi_limit_stats_line(family, self);
    if (twi_hardly(counts == NULL)) goto not_plain;
    TWI_RACE_POINT(limit_cell_found_not_read);
    if (TWI_HOT_SYNCED && (!family->kind.shares || !twi_share_is_alone(family, cell))) goto not_plain;
    int64_t base = TWI_HOT_SYNCED ? twi_load_relaxed(&cell->base) : 0;
    uint64_t word = twi_load_acquire(&cell->local); /* C2 */
    if (twi_unlikely((word & TWI_FROZEN) != 0)) goto not_plain;
    int64_t used = twi_word_value(word);
    if (TWI_HOT_SYNCED) { /* denials, and what is near the limit, need more than the count (share.h) */
        if (twi_unlikely(used > TW_DELTA_MAX)) goto not_plain; /* only Redis's total leaves room */
        used = twi_saturated_sum(used, base);
        if (twi_unlikely(twi_saturated_sum(used, n) >= twi_limit_near(limit))) goto not_plain;
    } else if (used + n > limit) {
        if (twi_unlikely(n > limit) || !hot_may_deny(engine, generation, &now_ms)) goto not_plain;
        int64_t denied = twi_limit_stats_raise(&counts->denied);
        if (twi_likely(verdict != NULL))
            twi_verdict_fill_denied(verdict, n, limit, used, engine->clock.grain_ms, generation->start_ms,
                                    generation->end_ms, now_ms);
        twi_section_leave_first(self);
        (void)twi_call_over(engine, denied);
        return TW_DENIED;
    }
    if (twi_unlikely(!twi_cas_weak_acqrel(&cell->local, &word, word + ((uint64_t)n << TWI_COUNT_SHIFT)))) {
        self->depth++; /* the callee leaves by twi_section_leave() */
        return TWI_HOT_OWN(acquire_contended)(generation, cell, key, n, limit, verdict);
    }
    used += n;
    int64_t calls = twi_limit_stats_raise(&counts->admitted);
    if (TWI_HOT_SYNCED) {
        if (twi_unlikely((word & TWI_DIRTY) == 0))
            twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
    } else if (twi_unlikely(twi_limit_is_near_below(used, limit))) {
        (void)twi_limit_stats_raise(&counts->near);
    }
    if (twi_likely(verdict != NULL)) {
        twi_verdict_fill_plain(verdict, limit, used, generation->start_ms, generation->end_ms, now_ms);
        if (TWI_HOT_SYNCED) twi_verdict_fill_tail(verdict, TW_BY_VIEW, true);
    }
    twi_section_leave_first(self);
    return twi_call_over(engine, calls);
not_plain:
    twi_section_leave_first(self);
    return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
}

/* For a key that is found in the line where its walk begins. It leaves the short section of the caller. */
TWI_HOT_CODE TWI_INLINE tw_status TWI_HOT_OWN(acquire_by_line)(struct twi_thread *self,
                                                               struct twi_generation *generation, tw_key key,
                                                               TWI_HOT_SHORT_KEY *short_key, int64_t n, int64_t limit,
                                                               int64_t now_ms, tw_verdict *verdict, uint64_t hash) {
    const struct twi_arena *arena = &generation->family->engine->arena;
    struct twi_cell *cell =
        hot_cell_at(arena, hot_line_first(hot_line_of(arena, generation, hash), hash), short_key == NULL);
    if (TWI_HOT_SYNCED && short_key != NULL) hot_ask_cold(cell);
    if (hot_may_be(cell, key.size, HOT_NOT_STRIPED) &&
        twi_likely(short_key == NULL ? TWI_HOT_LONG_IS(key, cell->key)
                                     : TWI_HOT_SHORT_IS(*short_key, cell->key, key.size)))
        return TWI_HOT_OWN(acquire_plain)(self, generation, cell, key, n, limit, now_ms, verdict);
    self->depth++; /* the callee leaves by twi_section_leave() */
    return TWI_HOT_OWN(acquire_further)(generation, key, n, limit, verdict, hash);
}

/* For a call to which the word gives no time. It reads the clock in the short section and with the window of its
 * caller, and leaves that section. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(acquire_timed)(struct twi_generation *generation,
                                                                                   tw_key key, int64_t n, int64_t limit,
                                                                                   tw_verdict *verdict) {
    tw_family *family = generation->family;
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    int64_t now_ms = twi_clock_renew_ms(&engine->clock); /* after W1 */
    if (twi_unlikely(!twi_generation_holds(generation, now_ms))) {
        twi_section_leave_first(self);
        return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
    }
    if (twi_likely(hot_key_is_short(key))) {
        TWI_HOT_SHORT_KEY short_key = TWI_HOT_SHORT_OF(key);
        uint64_t hash = TWI_HOT_SHORT_HASH(engine, short_key, key);
        twi_area_ask(generation, hash, false, TWI_HOT_SYNCED);
        return TWI_HOT_OWN(acquire_by_line)(self, generation, key, &short_key, n, limit, now_ms, verdict, hash);
    }
    uint64_t hash = TWI_HOT_LONG_HASH(engine, key);
    twi_area_ask(generation, hash, true, TWI_HOT_SYNCED);
    return TWI_HOT_OWN(acquire_by_line)(self, generation, key, NULL, n, limit, now_ms, verdict, hash);
}

TWI_HOT_CODE __attribute__((noinline)) static tw_status
TWI_HOT_OWN(acquire_long)(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!TWI_HOT_OWN(acquire_is_plain)(self, engine, n, limit)) || twi_unlikely(key.data == NULL))
        return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
    twi_section_enter_first(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* after W1 */
    if (!hot_holds(generation, now_ms) && !hot_holds_young(engine, generation, &now_ms)) {
        if (twi_likely(generation->family == family)) /* otherwise it is the window that holds no time (family.h) */
            return TWI_HOT_OWN(acquire_timed)(generation, key, n, limit, verdict);
        twi_section_leave_first(self);
        return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
    }
    uint64_t hash = TWI_HOT_LONG_HASH(engine, key);
    twi_area_ask(generation, hash, true, TWI_HOT_SYNCED);
    return TWI_HOT_OWN(acquire_by_line)(self, generation, key, NULL, n, limit, now_ms, verdict, hash);
}

TWI_HOT_CODE __attribute__((noinline)) static tw_status
TWI_HOT_OWN(acquire_short)(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!TWI_HOT_OWN(acquire_is_plain)(self, engine, n, limit)) || twi_unlikely(key.data == NULL))
        return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
    twi_section_enter_first(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* after W1 */
    if (!hot_holds(generation, now_ms) && !hot_holds_young(engine, generation, &now_ms)) {
        if (twi_likely(generation->family == family)) /* otherwise it is the window that holds no time (family.h) */
            return TWI_HOT_OWN(acquire_timed)(generation, key, n, limit, verdict);
        twi_section_leave_first(self);
        return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
    }
    TWI_HOT_SHORT_KEY short_key = TWI_HOT_SHORT_OF(key);
    uint64_t hash = TWI_HOT_SHORT_HASH(engine, short_key, key);
    twi_area_ask(generation, hash, false, TWI_HOT_SYNCED);
    return TWI_HOT_OWN(acquire_by_line)(self, generation, key, &short_key, n, limit, now_ms, verdict, hash);
}

/* No register is saved before the code knows which of the functions is needed. */
tw_status TWI_HOT_ACQUIRE(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    if (twi_likely(hot_key_is_short(key))) return TWI_HOT_OWN(acquire_short)(family, key, n, limit, verdict);
    if (twi_likely(key.size - TWI_KEY_INLINE - 1 < TW_KEY_SIZE_MAX - TWI_KEY_INLINE))
        return TWI_HOT_OWN(acquire_long)(family, key, n, limit, verdict);
    return TWI_HOT_OWN(acquire_anyhow)(family, key, n, limit, verdict);
}
