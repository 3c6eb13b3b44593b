/* gcra.h -- limits with TW_SHAPE_GCRA. The word of a key is a time instead of a count. */
#ifndef TWI_LIMIT_GCRA_H
#define TWI_LIMIT_GCRA_H

#include "engine/limit/decision.h"

/* ---- gcra pace ----
 * the arithmetic of a GCRA decision (gcra.c): from units and a limit to units of time, and back.
 * Always true: it is the same for the complete decision and the fast one (engine/fast/shapes_fast.h). All functions are
 * pure. */

#define TWI_GCRA_PACE_WINDOW (INT64_C(1) << 57) /* the units of time of one window */
#define TWI_GCRA_PACE_MOMENT_BITS 58            /* a moment is at most two windows after the start of its window */
#define TWI_GCRA_PACE_CLOSED TWI_DIRTY          /* no GCRA word is ever sent to Redis, so the bit is free */

struct twi_gcra_pace {
    int64_t n, limit;
    int64_t charge, most; /* in units of time, for n units and for the burst */
    int64_t burst;
    int64_t window_us;
    int64_t start_ms, since_us, now; /* `now` counts from the start of the window, in the unit of the word */
    bool is_exact;                   /* `now` was read from the exact clock */
    int64_t late;                    /* so long before `now` the caller waited for the units already */
    bool is_guest;                   /* the key has no counter, and earlier units of it may be forgotten (guests.h) */
    int64_t empty;                   /* the moment that the word will contain after the call */
};

TWI_INLINE void twi_gcra_pace_begin(struct twi_gcra_pace *pace, const struct tw_family *family, int64_t n,
                                    int64_t limit) {
    twi_check_dear(n >= 0 && limit >= 0 && limit <= TW_DELTA_MAX);
    *pace = (struct twi_gcra_pace){.n = n, .limit = limit, .window_us = family->rule.window_ms * 1000};
    pace->burst = twi_limit_burst(family, limit);
    if (limit == 0) return;
    pace->charge = n <= limit ? twi_share_down(n, TWI_GCRA_PACE_WINDOW, limit) : 0;
    pace->most = pace->burst == limit ? TWI_GCRA_PACE_WINDOW : twi_share_up(pace->burst, TWI_GCRA_PACE_WINDOW, limit);
}

TWI_INLINE void twi_gcra_pace_set_since(struct twi_gcra_pace *pace, int64_t since_us, bool is_exact) {
    twi_check_dear(pace->window_us > 0);
    pace->since_us = since_us;
    pace->now = twi_share_down(since_us, TWI_GCRA_PACE_WINDOW, pace->window_us);
    pace->is_exact = is_exact;
}

/* Returns TW_OK or TW_DENIED for a bucket that is empty at the moment `at`. Units for which the caller waited leave it
 * as if they had been taken when they were free. Otherwise each late wake-up would make the rate of waiting callers
 * lower, and the last one of a queue would wait for all of them. */
TWI_INLINE tw_status twi_gcra_pace_decide(struct twi_gcra_pace *pace, int64_t at) {
    twi_check_dear(pace->charge >= 0 && pace->most >= 0 && pace->late >= 0);
    twi_check_dear(pace->burst <= pace->limit);
    int64_t since = pace->now - pace->late, from = at > since ? at : since;
    pace->empty = at;
    if (pace->n > pace->burst) return TW_DENIED;
    if (pace->n == 0) return TW_OK;
    if (from + pace->charge - pace->now > pace->most) return TW_DENIED;
    pace->empty = from + pace->charge;
    return TW_OK;
}

/* Returns true if the exact clock cannot change that decision (gcra.c). */
TWI_INLINE bool twi_gcra_pace_is_final(const struct twi_gcra_pace *pace, tw_status status, int64_t at) {
    if (pace->is_exact || pace->n > pace->burst) return true;
    int64_t near = (TWI_GCRA_PACE_WINDOW / pace->window_us + 1) * (TWI_CLOCK_NEAR_MS * 1000); /* rounded up */
    return status == TW_OK && at >= pace->now + near;
}

/* After the decision: how far the bucket is ahead of now, and how many units of the burst are left. */
TWI_INLINE int64_t twi_gcra_pace_ahead(const struct twi_gcra_pace *pace) {
    return pace->empty > pace->now ? pace->empty - pace->now : 0;
}
TWI_INLINE int64_t twi_gcra_pace_left(const struct twi_gcra_pace *pace) {
    int64_t room = pace->most - twi_gcra_pace_ahead(pace);
    if (pace->limit <= 0 || room < 0) return 0;
    /* the share of room + 1, rounded up, less 1 */
    twi_wide_bits product = (twi_wide_bits)((uint64_t)room + 1) * (uint64_t)pace->limit - 1;
    int64_t left = twi_wide_divided(product, TWI_GCRA_PACE_WINDOW);
    return left > pace->burst ? pace->burst : left;
}

/* Returns the time from now until a later moment of the word. */
TWI_INLINE int64_t twi_gcra_pace_until_ms(const struct twi_gcra_pace *pace, int64_t moment) {
    twi_check_dear(pace->window_us > 0);
    int64_t until_us = twi_share_up(moment, pace->window_us, TWI_GCRA_PACE_WINDOW) - pace->since_us;
    twi_check_dear(until_us >= 0); /* unsigned numbers are divided in fewer instructions */
    return (int64_t)(((uint64_t)until_us + 999) / 1000);
}

/* The complete decision. Its statistics, except `admitted`, are counted by acquire.c. The fast one for known keys is
 * engine/fast/shapes_fast.h. */
twi_hot_acquire twi_gcra_acquire;
/* The same for a caller that waits since it was denied, `late_ms` ago. */
tw_status twi_gcra_acquire_late(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t late_ms,
                                tw_verdict *verdict);
tw_status twi_gcra_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms); /* it refuses */
tw_status twi_gcra_undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

/* Makes the bucket of the key non-empty for at least `ahead_ms` from now, under that limit. Does nothing if there is no
 * room for the key. */
void twi_gcra_raise(tw_family *family, tw_key key, int64_t limit, int64_t ahead_ms);

#endif
