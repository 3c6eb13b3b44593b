/* shadow.h -- shadow mode, and the statistics of limits that do not count their own statistics. */
#ifndef TWI_LIMIT_SHADOW_H
#define TWI_LIMIT_SHADOW_H

#include "engine/limit/decision.h"

/* Returns true if the limit denied the call or had no room, and shadow mode still admits the call. */
bool twi_shadow_admits(const tw_family *family, tw_status status);
/* Counts the statistics of a decided call, and applies shadow mode to the result. `before` is the last refusal
 * before that call. */
tw_status twi_shadow_answered(tw_family *family, int64_t n, tw_status status, struct twi_why before,
                              const tw_verdict *verdict);
/* Does the same for tw_acquire_some(), which has no shadow mode. */
tw_status twi_shadow_some_answered(tw_family *family, tw_status status, const tw_verdict *verdict);
/* Calls `acquire` of the kind of limit, counts its statistics, and applies shadow mode. */
twi_hot_acquire twi_shadow_acquire;
/* Does tw_acquire_some() for a kind that implements it. Shadow mode does not use it. */
tw_status twi_shadow_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                                  tw_verdict *verdict);

#endif
