/* fast_portable.c -- the fast paths for every processor (add_fast.h). They call the engine's hash by its pointer.
 * Always true: results are the same as those of fast_aes.c. */
#include "engine/fast/fast.h"

#define TWI_HOT_CODE
#define TWI_HOT_HASH(engine, key) (engine)->hashing.fn(&(engine)->hashing.secret, (key).data, (key).size)
#define TWI_HOT_LONG_HASH(engine, key) TWI_HOT_HASH(engine, key)
#define TWI_HOT_LONG_IS(key, bytes) twi_key_equal_long((bytes), (key).data, (key).size)
#define TWI_HOT_SHORT_KEY const unsigned char *
#define TWI_HOT_SHORT_OF(key) (key).data
#define TWI_HOT_SHORT_HASH(engine, short_key, key) TWI_HOT_HASH(engine, key)
#define TWI_HOT_SHORT_IS(short_key, bytes, size) twi_key_equal_short((bytes), (short_key), (size))

#define TWI_HOT_NAME twi_hot_add_any
#define TWI_HOT_GROUP twi_hot_group_any
#define TWI_HOT_ACQUIRE twi_hot_acquire_any
#define TWI_HOT_ALL twi_hot_all_any
#define TWI_HOT_GCRA twi_hot_gcra_any
#define TWI_HOT_SLIDING twi_hot_sliding_any
#define TWI_HOT_CELL twi_hot_cell_any
#define TWI_HOT_OWN(name) hot_local_##name
#define TWI_HOT_SYNCED 0
#include "engine/fast/add_fast.h"
#define TWI_HOT_DISTINCT twi_hot_distinct_any
#define TWI_HOT_DISTINCT_SYNCED false
#include "engine/fast/distinct_fast.h"

#define TWI_HOT_NAME twi_hot_add_any_synced
#define TWI_HOT_GROUP twi_hot_group_any_synced
#define TWI_HOT_ACQUIRE twi_hot_acquire_any_synced
#define TWI_HOT_OWN(name) hot_synced_##name
#define TWI_HOT_SYNCED 1
#include "engine/fast/add_fast.h"
#define TWI_HOT_DISTINCT twi_hot_distinct_any_synced
#define TWI_HOT_DISTINCT_SYNCED true
#include "engine/fast/distinct_fast.h"
