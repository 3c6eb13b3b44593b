/* decision.h -- what a decision of tw_acquire() rests on, how it becomes a verdict, and what the kinds of limit are.
 * Always true: every field of a verdict is written, whatever the answer. */
#ifndef TWI_LIMIT_DECISION_H
#define TWI_LIMIT_DECISION_H

#include "engine/core/family.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

struct twi_decision {
    int64_t view;  /* after the call */
    int64_t bound; /* how far off that may be, what Redis knows apart */
    int64_t start_ms, end_ms;
    int64_t now_ms;
    int64_t before, carried; /* sliding: what the window before counted, and what of it weighs (shape.h) */
    int64_t carried_bound;   /* how far off that may be */
    bool before_unknown;     /* Redis has not told what the window before counted */
    bool full;
    int64_t retry_ms; /* denied: when something may have changed; 0: at the window's end */
    bool has_bound;   /* with Redis, too, `bound` is true */
    bool unknown;     /* a key that has come (back), in a family that ages: Redis has not told its total */
};

/* The last four fields before the tail, by one store where their places in a word are known: each store of a verdict stands
 * in the queue that the next call's atomic operation waits for. */
TWI_INLINE void twi_verdict_fill_tail(tw_verdict *verdict, uint32_t decided_by, bool allowed) {
    const size_t at = offsetof(tw_verdict, decided_by);
    static_assert(offsetof(tw_verdict, allowed) == offsetof(tw_verdict, decided_by) + 6, "the shift below");
    static_assert(offsetof(tw_verdict, reserved) == offsetof(tw_verdict, decided_by) + 8, "the whole word");
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word = decided_by | (uint64_t)allowed << 48;
    memcpy((unsigned char *)verdict + at, &word, sizeof word);
#else
    memset((unsigned char *)verdict + at, 0, 8);
    verdict->decided_by = decided_by;
    verdict->allowed = allowed;
#endif
}

TWI_INLINE void twi_verdict_fill(tw_verdict *verdict, bool synced, tw_status status, int64_t n, int64_t limit,
                                 const struct twi_decision *decision) {
    int64_t left_ms = decision->end_ms == TW_UNBOUNDED ? TW_UNBOUNDED : decision->end_ms - decision->now_ms;
    if (left_ms < 0) left_ms = 0;
    /* Field by field: a compiler clears a struct of that size by a string instruction, which takes longer than all the rest. */
    verdict->limit = limit;
    verdict->used = decision->view;
    verdict->remaining = decision->view < limit ? limit - decision->view : 0;
    verdict->reset_after_ms = left_ms;
    verdict->retry_after_ms = status != TW_DENIED       ? 0
                              : n > limit               ? -1
                              : decision->retry_ms != 0 ? decision->retry_ms
                                                        : left_ms;
    verdict->error_bound = (synced && !decision->has_bound) || decision->full ? TW_UNBOUNDED : decision->bound;
    verdict->window_start_ms = decision->start_ms;
    twi_verdict_fill_tail(verdict,
                          decision->full      ? TW_BY_FULL
                          : decision->unknown ? TW_BY_OUTAGE
                          : synced            ? TW_BY_VIEW
                                              : TW_BY_LOCAL,
                          status == TW_OK);
    uint64_t *rest = verdict->reserved;
    rest[0] = rest[1] = rest[2] = rest[3] = rest[4] = rest[5] = rest[6] = rest[7] = 0;
}

/* ---- near a limit ---- */

/* Admissions from there on leave a fifth of the limit, or less. No product: what was admitted while Redis was away may be as far as
 * 2^61. */
TWI_INLINE int64_t twi_limit_near(int64_t limit) {
    return limit - limit / 5;
}
TWI_INLINE bool twi_limit_is_near(int64_t used, int64_t limit) {
    return used >= twi_limit_near(limit);
}
/* ---- kinds of limit ---- */

/* What a family's mode and shape make of the calls; chosen once, at its opening. A kind has a file of its own. */
struct twi_limit_kind {
    /* The call of a kind that counts no admissions itself (shadow.c does). tw_acquire(), and tw_acquire() with less and less where `some` is not there. NULL: the hot path (family.c). */
    twi_hot_acquire *acquire;
    /* tw_acquire_some(); n_max and limit are in range. NULL: by trying. */
    tw_status (*some)(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken, tw_verdict *verdict);
    /* tw_refund(), and what tw_acquire_all() undoes; limit: as it was named, -1: not known. */
    tw_status (*put_back)(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);
    bool waits; /* acquire may wait for Redis */
    /* Is `final` in a verdict for this key younger than a second? If not, Redis is being asked. NULL: it is new in each verdict. */
    bool (*is_fresh)(tw_family *family, tw_key key);
};
TWI_INLINE bool twi_limit_is_in_range(int64_t n, int64_t limit) {
    return (uint64_t)n <= (uint64_t)TW_DELTA_MAX && (uint64_t)limit <= (uint64_t)TW_DELTA_MAX;
}

#endif
