/* decision.h -- the values on which a decision of tw_acquire() is based, the verdict that is made from them, and the
 * table of a kind of limit.
 * Always true: every field of a verdict is written, whatever the result. */
#ifndef TWI_LIMIT_DECISION_H
#define TWI_LIMIT_DECISION_H

#include "engine/core/family.h"
#include "engine/count/lookup.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* ---- cause ----
 * why a call was not admitted (enum tw_cause), and when it is worth asking again.
 * Always true: only cause.c and decision.h write `cause`. It is 0 in the verdict of an admitted call. In an outage, and
 * if the way is full, nobody knows what is left, and `remaining` is 0. What is not exact is 1 ms to a minute. */

static_assert(TW_CAUSE_NEVER == TWI_CAUSES - 1, "the last one");
/* The words of the causes, as metrics have them. */
extern const char *const twi_cause_words[TWI_CAUSES];

#define TWI_AGAIN_MAX_MS 60000 /* no caller waits longer for what nobody can know */

/* The call is not admitted. `retry_ms` is exact for TW_CAUSE_LIMIT, and does not matter for TW_CAUSE_NEVER. A buyer who
 * has bought has -1; otherwise it is a time after which asking is worth it. */
void twi_verdict_deny(tw_verdict *verdict, uint32_t cause, int64_t retry_ms);
/* The same for TW_CAUSE_OUTAGE, TW_CAUSE_BUSY or TW_CAUSE_FULL: nobody knows when the call would be admitted. */
void twi_verdict_deny_unknown(tw_verdict *verdict, const tw_engine *engine, uint32_t cause);
/* The call ended with that error. If the error has a cause, the verdict gets it; a wrong call has none. A call whose
 * outcome is unknown keeps TW_CAUSE_BUSY, if its caller has noted that. */
void twi_verdict_refuse(tw_verdict *verdict, const tw_engine *engine, tw_status status);
/* The call is admitted, whatever the limit says. */
void twi_verdict_admit(tw_verdict *verdict);
/* A decision of this process that is not TW_OK. `cause` and `retry_ms` are those of a denial. */
TWI_COLD void twi_verdict_not_admitted(tw_verdict *verdict, tw_status status, uint32_t cause, int64_t retry_ms);

/* The time after which Redis may reply again. */
int64_t twi_again_when_away_ms(const tw_engine *engine);

struct twi_decision {
    int64_t view; /* the count after the call, as this process knows it */
    /* the error of `view`; it covers the possible counts of other engines only if has_bound is set */
    int64_t bound;
    int64_t start_ms, end_ms;
    int64_t now_ms;
    /* in sliding limits, the counts of this window and the previous ones (sliding.h); otherwise unused */
    int64_t *counts;
    int64_t carried;       /* in sliding limits, the weight of the previous windows */
    int64_t carried_bound; /* the error of `carried` */
    bool before_unknown;   /* Redis has not reported the count of the previous window */
    bool full;
    uint32_t cause;   /* of a denial of units that the limit can give */
    int64_t retry_ms; /* if denied, after how long the result may have changed; 0 means at the window's end */
    bool has_bound;   /* `bound` also covers the counts of other engines */
    bool unknown;     /* idle eviction: the key is new or has returned, and Redis has not reported its total */
};

/* Writes the last four fields before `cause`, with one store if the layout of the word is known. Each store to a
 * verdict delays the next call's atomic operation, which waits for the store queue. */
TWI_INLINE void twi_verdict_fill_tail(tw_verdict *verdict, uint32_t decided_by, bool allowed) {
    const size_t at = offsetof(tw_verdict, decided_by);
    static_assert(offsetof(tw_verdict, allowed) == offsetof(tw_verdict, decided_by) + 6, "the shift below");
    static_assert(offsetof(tw_verdict, cause) == offsetof(tw_verdict, decided_by) + 8, "the whole word");
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word = decided_by | (uint64_t)allowed << 48;
    memcpy((unsigned char *)verdict + at, &word, sizeof word);
#else
    memset((unsigned char *)verdict + at, 0, 8);
    verdict->decided_by = decided_by;
    verdict->allowed = allowed;
#endif
}

/* Writes each field separately. A compiler would clear a struct of this size with a string instruction, which costs
 * more than all the rest. */
TWI_INLINE void twi_verdict_put(tw_verdict *verdict, int64_t limit, int64_t used, int64_t remaining, int64_t left_ms,
                                int64_t retry_ms, int64_t bound, int64_t start_ms) {
    verdict->limit = limit;
    verdict->used = used;
    verdict->remaining = remaining;
    verdict->reset_after_ms = left_ms;
    verdict->retry_after_ms = retry_ms;
    verdict->error_bound = bound;
    verdict->window_start_ms = start_ms;
    const size_t at = offsetof(tw_verdict, cause); /* the cause and all that is reserved: four stores */
    memset((unsigned char *)verdict + at, 0, sizeof *verdict - at);
}

TWI_INLINE int64_t twi_decision_left_ms(const struct twi_decision *decision) {
    twi_check_dear(decision->end_ms >= decision->start_ms);
    if (decision->end_ms == TW_UNBOUNDED) return TW_UNBOUNDED;
    return decision->end_ms > decision->now_ms ? decision->end_ms - decision->now_ms : 0;
}

/* Why a denied call was denied. */
TWI_INLINE uint32_t twi_decision_cause(const struct twi_decision *decision, int64_t n, int64_t limit) {
    return n > limit ? TW_CAUSE_NEVER : decision->cause;
}

/* After how long a denied call is admitted if no other thread calls; -1 means that n can never be admitted. */
TWI_INLINE int64_t twi_decision_retry_ms(const struct twi_decision *decision, int64_t n, int64_t limit) {
    if (n > limit) return -1;
    if (decision->retry_ms != 0) return decision->retry_ms;
    return twi_decision_left_ms(decision);
}

TWI_INLINE void twi_verdict_fill(tw_verdict *verdict, bool synced, tw_status status, int64_t n, int64_t limit,
                                 const struct twi_decision *decision) {
    int64_t left_ms = twi_decision_left_ms(decision);
    twi_verdict_put(verdict, limit, decision->view, decision->view < limit ? limit - decision->view : 0,
                    decision->view <= 0 ? 0 : left_ms, 0,
                    (synced && !decision->has_bound) || decision->full ? TW_UNBOUNDED : decision->bound,
                    decision->start_ms);
    twi_verdict_fill_tail(verdict,
                          decision->full      ? TW_BY_FULL
                          : decision->unknown ? TW_BY_OUTAGE
                          : synced            ? TW_BY_VIEW
                                              : TW_BY_LOCAL,
                          status == TW_OK);
    if (twi_unlikely(status != TW_OK))
        twi_verdict_not_admitted(verdict, status, twi_decision_cause(decision, n, limit),
                                 twi_decision_retry_ms(decision, n, limit));
}

/* Fills the verdict in the same way, for a count of this process alone, in a window that contains now_ms, and for a
 * call that is admitted. */
TWI_INLINE void twi_verdict_fill_plain(tw_verdict *verdict, int64_t limit, int64_t used, int64_t start_ms,
                                       int64_t end_ms, int64_t now_ms) {
    int64_t left_ms = end_ms - now_ms;
    if (twi_unlikely(end_ms == TW_UNBOUNDED)) left_ms = TW_UNBOUNDED;
    if (twi_unlikely(used <= 0)) left_ms = 0;
    twi_verdict_put(verdict, limit, used, limit - used, left_ms, 0, 0, start_ms);
    twi_verdict_fill_tail(verdict, TW_BY_LOCAL, true);
}

/* The same for a call that is denied. The grain of the clock makes a sleep long enough. */
TWI_INLINE void twi_verdict_fill_denied(tw_verdict *verdict, int64_t n, int64_t limit, int64_t used, int64_t grain_ms,
                                        int64_t start_ms, int64_t end_ms, int64_t now_ms) {
    int64_t left_ms = end_ms - now_ms, retry_ms = left_ms + grain_ms;
    if (twi_unlikely(end_ms == TW_UNBOUNDED)) left_ms = retry_ms = TW_UNBOUNDED;
    if (twi_unlikely(n > limit)) retry_ms = -1;
    if (twi_unlikely(used <= 0)) left_ms = 0;
    twi_verdict_put(verdict, limit, used, twi_unlikely(used < limit) ? limit - used : 0, left_ms, retry_ms, 0,
                    start_ms);
    twi_verdict_fill_tail(verdict, TW_BY_LOCAL, false);
    if (twi_unlikely(n > limit)) verdict->cause = TW_CAUSE_NEVER;
}

/* Adds to an exact retry time by how much the clock of a sleep differs from engine time. Called when the verdict is
 * complete. So a sleep is long enough. */
TWI_INLINE void twi_verdict_add_grain(const tw_family *family, tw_verdict *verdict) {
    if (verdict != NULL && verdict->retry_after_ms > 0 && verdict->cause == TW_CAUSE_LIMIT)
        verdict->retry_after_ms = twi_time_add(verdict->retry_after_ms, twi_clock_longer_ms(&family->engine->clock));
}

/* ---- near a limit ---- */

/* From this count on, an admission leaves a fifth of the limit or less. The function does not multiply, because a
 * count can reach 2^61 while Redis does not reply. */
TWI_INLINE int64_t twi_limit_near(int64_t limit) {
    twi_check_dear(limit >= 0);
    return limit - limit / 5;
}
TWI_INLINE bool twi_limit_is_near(int64_t used, int64_t limit) {
    return used >= twi_limit_near(limit);
}
/* Returns the same for used <= limit and a limit that is not negative. Counts are above -2^61, so the product fits. */
TWI_INLINE bool twi_limit_is_near_below(int64_t used, int64_t limit) {
    return ((uint64_t)limit - (uint64_t)used) * 5 <= (uint64_t)limit;
}

/* ---- kinds of limit ---- */

/* Takes all of the claims (at most TWI_HOT_ALL_MAX). The kind of the first family has this function. Returns false,
 * with nothing taken and nothing counted, if a claim cannot be had at once, or is not that of a known key whose counter
 * is plain. Then the complete call decides. The verdict may be NULL. */
#define TWI_HOT_ALL_MAX 8u
typedef bool twi_hot_all(const tw_claim *claims, size_t count, tw_verdict *verdict);

/* Finds a key that has a cell, in a table without windows (all_fast.h). Returns NULL if the key is new, or in a rare
 * state. If the key was hashed, *hash becomes its hash. Inside a section. */
typedef struct twi_cell *twi_hot_cell(const tw_engine *engine, struct twi_generation *table, tw_key key,
                                      uint64_t *hash);

/* How the calls of a family work. The family's mode and shape choose the kind when the family is opened. Each kind
 * has its own file. */
struct twi_limit_kind {
    /* Decides tw_acquire(). Without Redis it is one inlined function for keys that have a counter (engine/fast). If
     * `start` is NULL, and in shadow mode, tw_acquire_some() repeats it with smaller n. */
    twi_hot_acquire *acquire;
    /* The complete decision by a counter of this process (counted.h). Strict limits use it while Redis does not
     * reply. NULL means that no counter of this process decides. */
    twi_hot_acquire *by_counter;
    /* The short way of tw_acquire_all(). NULL means that it has none. */
    twi_hot_all *all;
    /* The short way to a slot of tw_hold() in an engine that processes share. NULL means that it has none. */
    twi_hot_cell *cell;
    /* True means that `acquire` counts its statistics, false that acquire.c does, unless there is `start`. */
    bool is_counted;
    /* For kinds whose statistics acquire.c counts: decides a call of a known key, and counts it. It passes all other
     * calls on to twi_shadow_acquire(). NULL means that there is no such way. Not used in shadow mode. */
    twi_hot_acquire *quick;
    /* Implements tw_refund(). */
    tw_status (*refund)(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms);
    /* Takes back n units that the engine has taken, in that window and under that limit, for a call that is not
     * admitted in the end (counted.h). */
    tw_status (*undo)(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);
    /* For kinds that wait for Redis: implements tw_acquire_async(), and with `some` tw_acquire_some_async(), which may
     * take fewer units. It counts the statistics, and applies shadow mode, and so does `acquire`. NULL means that
     * `acquire` answers at once. */
    tw_status (*start)(tw_request *request, tw_family *family, tw_key key, int64_t n, int64_t limit, bool some);
    /* Returns true if a reply of Redis that is younger than a second says `final` for this key and limit. The reply may
     * be a newer one than the verdict's. NULL means that `final` is up to date in each verdict. */
    bool (*is_final)(tw_family *family, tw_key key, int64_t limit);
    const struct twi_strict_kind *strict; /* of strict limits (strict.h), otherwise NULL */
};
/* Returns the most units that a GCRA limit can give at once. A limit that is refused later may be below 0. */
TWI_INLINE int64_t twi_limit_burst(const struct tw_family *family, int64_t limit) {
    int64_t burst = twi_load_relaxed(&family->policy.burst);
    return burst == 0 || burst > limit ? limit : burst;
}
/* The same for any limit, if no count is below 0. */
TWI_INLINE int64_t twi_limit_most_at_once(const struct tw_family *family, int64_t limit) {
    return family->kind.is_gcra ? twi_limit_burst(family, limit) : limit;
}
TWI_INLINE bool twi_limit_is_in_range(int64_t n, int64_t limit) {
    return (uint64_t)n <= (uint64_t)TW_DELTA_MAX && (uint64_t)limit <= (uint64_t)TW_DELTA_MAX;
}

/* ---- shape ----
 * arithmetic of limits that use more than one window: sliding limits count a part of the previous window,
 * and GCRA limits store a time instead of a count.
 * Always true: all arithmetic uses integers, of 128 bits if a product needs them. Without Redis the result is exact,
 * up to the rounding that each file describes. */

__extension__ typedef __int128 twi_wide;

__extension__ typedef unsigned __int128 twi_wide_bits;

/* Returns a / c, rounded down. The result fits in 63 bits. */
TWI_INLINE int64_t twi_wide_divided(twi_wide_bits a, int64_t c) {
    twi_check_dear(c > 0 && (uint64_t)(a >> 63) < (uint64_t)c);
#if defined(__x86_64__)
    if (!__builtin_constant_p(c)) { /* a compiler calls a function, because it does not know that the result fits */
        uint64_t quotient, rest;
        __asm__("divq %4" : "=a"(quotient), "=d"(rest) : "a"((uint64_t)a), "d"((uint64_t)(a >> 64)), "r"(c) : "cc");
        return (int64_t)quotient;
    }
#endif
    return (int64_t)(a / (uint64_t)c);
}

/* Returns a * b / c, rounded down or rounded up. No argument is below 0, and the result fits in 63 bits. */
TWI_INLINE int64_t twi_share_down(int64_t a, int64_t b, int64_t c) {
    return twi_wide_divided((twi_wide_bits)(uint64_t)a * (uint64_t)b, c);
}
TWI_INLINE int64_t twi_share_up(int64_t a, int64_t b, int64_t c) {
    return twi_wide_divided((twi_wide_bits)(uint64_t)a * (uint64_t)b + (uint64_t)c - 1, c);
}

#endif
