/* fast.h -- the functions that fast_aes.c and fast_portable.c make of their templates. family_open.c chooses.
 * Always true: each function has the result of the slow one (tests/unit/fast/adding_test.c). */
#ifndef TWI_FAST_FAST_H
#define TWI_FAST_FAST_H

#include "engine/core/family.h"
#include "engine/limit/decision.h"

/* Implements tw_add(). */
typedef tw_status twi_hot_add(tw_family *family, tw_key key, int64_t delta, int64_t *view);
/* Adds for a group of at most TWI_HOT_GROUP_MAX keys. Returns false if no key was added (add_fast.h). */
typedef bool twi_hot_group(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count, int64_t *views,
                           tw_status *status, struct twi_why *why);
#define TWI_HOT_GROUP_MAX 32u
twi_hot_add twi_hot_add_aes, twi_hot_add_aes_synced, twi_hot_add_any, twi_hot_add_any_synced;
twi_hot_acquire twi_hot_acquire_aes, twi_hot_acquire_aes_synced, twi_hot_acquire_any, twi_hot_acquire_any_synced;
/* without Redis */
twi_hot_acquire twi_hot_gcra_aes, twi_hot_gcra_any, twi_hot_sliding_aes, twi_hot_sliding_any;
twi_hot_all twi_hot_all_aes, twi_hot_all_any;    /* without Redis; decision.h */
twi_hot_cell twi_hot_cell_aes, twi_hot_cell_any; /* without Redis; decision.h */
twi_hot_distinct twi_hot_distinct_aes, twi_hot_distinct_aes_synced, twi_hot_distinct_any, twi_hot_distinct_any_synced;
twi_hot_group twi_hot_group_aes, twi_hot_group_aes_synced, twi_hot_group_any, twi_hot_group_any_synced;

#endif
