/* gcra.h -- limits with TW_SHAPE_GCRA. The word of a key is a time instead of a count. */
#ifndef TWI_LIMIT_GCRA_H
#define TWI_LIMIT_GCRA_H

#include "engine/limit/decision.h"

/* The complete decision. Its statistics, except `admitted`, are counted by shadow.c. The fast one for known keys is
 * engine/fast/gcra_fast.h. */
twi_hot_acquire twi_gcra_acquire;
tw_status twi_gcra_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms); /* it refuses */
tw_status twi_gcra_undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

/* Makes the bucket of the key non-empty for at least `ahead_ms` from now, under that limit. Does nothing if there is no
 * room for the key. */
void twi_gcra_raise(tw_family *family, tw_key key, int64_t limit, int64_t ahead_ms);

#endif
