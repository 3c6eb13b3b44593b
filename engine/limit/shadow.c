/* shadow.c -- shadow mode, and the statistics of limits that do not count their own statistics. In shadow mode every
 * call is admitted. The verdict contains the decision that the limit would have made.
 * Always true: in shadow mode a call returns TW_OK unless there is an error, and a full table is not an error. Units
 * that the limit would have denied are not counted as used, as with an active limit. */
#include "engine/limit/shadow.h"

#include "engine/limit/limit_stats.h"

/* Returns true for decisions by a lease, by Redis or by GCRA, whose statistics are counted here. Others do so
 * earlier. */
static bool counts_here(const tw_family *family, const tw_verdict *verdict) {
    twi_check_dear(verdict != NULL);
    if (verdict->decided_by == TW_BY_FULL) return false;
    return family->kind.is_gcra || verdict->decided_by == TW_BY_LEASE || verdict->decided_by == TW_BY_REDIS;
}

static void count(tw_family *family, struct twi_thread *self, tw_status status, const tw_verdict *verdict) {
    /* where a counter of this process decides, counted.h counts a full table, too */
    if (status == TW_ERR_FULL && family->kind.limit->by_counter == NULL)
        twi_limit_stats_count_denied(family, self, TW_CAUSE_FULL);
    if (status < 0 || !counts_here(family, verdict)) return;
    if (status == TW_DENIED) twi_limit_stats_count_denied(family, self, verdict->cause);
    if (status != TW_OK) return;
    if (verdict->decided_by == TW_BY_REDIS) twi_limit_stats_count(family, self, admitted_there);
    int64_t all = verdict->used + verdict->remaining; /* for GCRA this sum is the burst */
    if (twi_limit_is_near(verdict->used, all)) twi_limit_stats_count(family, self, near);
}

bool twi_shadow_admits(const tw_family *family, tw_status status) {
    return (status == TW_DENIED || status == TW_PENDING || status == TW_ERR_FULL) &&
           twi_load_relaxed(&family->policy.shadow);
}

tw_status twi_shadow_answered(tw_family *family, int64_t n, tw_status status, struct twi_why before,
                              const tw_verdict *verdict) {
    twi_check_dear(verdict != NULL);
    struct twi_thread *self = twi_thread_here();
    if (self == NULL || n == 0) return status;
    count(family, self, status, verdict);
    if (!twi_shadow_admits(family, status)) return status;
    if (status < 0) twi_why_restore(before); /* the call was not refused */
    twi_limit_stats_count(family, self, shadow_denied);
    return TW_OK;
}

tw_status twi_shadow_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    twi_check_dear(family->kind.limit->acquire != NULL && family->kind.limit->acquire != twi_shadow_acquire);
    tw_verdict unasked;
    if (verdict == NULL) verdict = &unasked;
    struct twi_why before = twi_why_now();
    tw_status status = family->kind.limit->acquire(family, key, n, limit, verdict);
    return twi_shadow_answered(family, n, status, before, verdict);
}

tw_status twi_shadow_some_answered(tw_family *family, tw_status status, const tw_verdict *verdict) {
    twi_check_dear(verdict != NULL);
    struct twi_thread *self = twi_thread_here();
    if (self != NULL) count(family, self, status, verdict);
    return status;
}

tw_status twi_shadow_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                                  tw_verdict *verdict) {
    twi_check_dear(family->kind.limit->some != NULL && n_max > 0);
    tw_status status = family->kind.limit->some(family, key, n_max, limit, taken, verdict);
    return twi_shadow_some_answered(family, status, verdict);
}
