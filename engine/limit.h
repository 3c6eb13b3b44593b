/* limit.h -- what a decision of tw_acquire() rests on, and how it becomes a verdict: for limit.c and the hot path.
 * Always true: every field of a verdict is written, whatever the answer. */
#ifndef TWI_LIMIT_H
#define TWI_LIMIT_H

#include "engine/family.h"

struct twi_decision {
    int64_t view;  /* after the call */
    int64_t bound; /* how far off that may be, what Redis knows apart */
    int64_t start_ms, end_ms;
    int64_t now_ms;
    bool full;
    bool unknown; /* a key that has come (back), in a family that ages: Redis has not told its total */
};

TWI_INLINE void twi_limit_tell(tw_verdict *verdict, bool synced, tw_status status, int64_t n, int64_t limit,
                               const struct twi_decision *decision) {
    int64_t left_ms = decision->end_ms == TW_UNBOUNDED ? TW_UNBOUNDED : decision->end_ms - decision->now_ms;
    if (left_ms < 0) left_ms = 0;
    /* Field by field: a compiler clears a struct of that size by a string instruction, which takes longer than all the rest. */
    verdict->limit = limit;
    verdict->used = decision->view;
    verdict->remaining = decision->view < limit ? limit - decision->view : 0;
    verdict->reset_after_ms = left_ms;
    verdict->retry_after_ms = status != TW_DENIED ? 0 : n > limit ? -1 : left_ms;
    verdict->error_bound = synced || decision->full ? TW_UNBOUNDED : decision->bound;
    verdict->window_start_ms = decision->start_ms;
    verdict->decided_by = decision->full      ? TW_BY_FULL
                          : decision->unknown ? TW_BY_OUTAGE
                          : synced            ? TW_BY_VIEW
                                              : TW_BY_LOCAL;
    verdict->claim = 0;
    verdict->allowed = status == TW_OK;
    verdict->final = 0;
    uint64_t *rest = verdict->reserved;
    rest[0] = rest[1] = rest[2] = rest[3] = rest[4] = rest[5] = rest[6] = rest[7] = 0;
}

/* limit.c: the decision where nothing is known yet. */
tw_status twi_acquire_slow(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

#endif
