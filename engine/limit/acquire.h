/* acquire.h -- tw_acquire(), of one claim or all, at once or waiting, by the counts of this process. */
#ifndef TWI_LIMIT_ACQUIRE_H
#define TWI_LIMIT_ACQUIRE_H

#include "engine/limit/decision.h"
#include "engine/base/check.h"
#include "tallywheel.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- shadow ----
 * shadow mode, and the statistics of limits that do not count their own statistics. */

/* Returns true if the limit denied the call or had no room, and shadow mode still admits the call. */
bool twi_shadow_admits(const tw_family *family, tw_status status);
/* Counts the statistics of a decided call, and applies shadow mode to the result. `before` is the last refusal
 * before that call. */
tw_status twi_shadow_answered(tw_family *family, int64_t n, tw_status status, struct twi_why before,
                              const tw_verdict *verdict);
/* Does the same for tw_acquire_some(), which has no shadow mode. */
tw_status twi_shadow_some_answered(tw_family *family, tw_status status, const tw_verdict *verdict);
/* Calls `acquire` of a kind of limit without `start`, counts its statistics, and applies shadow mode. */
twi_hot_acquire twi_shadow_acquire;

/* tw_acquire() of a call whose units return later: a full table never admits it, whatever on_full_limit is. */
tw_status twi_acquire_counted(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

/* The complete decision for a kind of limit that a counter of this process decides (`by_counter`). */
twi_hot_acquire twi_acquire_slow;

/* ---- acquire all ----
 * the order in which tw_acquire_all() takes its claims (acquire.c, fast/all_fast.h). */

/* Of two claims on one key, the smaller limit comes first, because it must be kept before the units of the other claim
 * are counted. The order of a key without data
 * does not matter, because such a call is refused. */
bool twi_claim_comes_before_in_family(const tw_claim *a, const tw_claim *b);

TWI_INLINE bool twi_claim_comes_before(const tw_claim *a, const tw_claim *b) {
    if (twi_likely(a->family != b->family)) return (uintptr_t)a->family < (uintptr_t)b->family;
    return twi_claim_comes_before_in_family(a, b);
}

#endif
