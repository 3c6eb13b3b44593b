/* fast_aes.c -- the fast paths for processors with AES rounds (add_fast.h). Families use them if the engine's hash is
 * the AES hash.
 * Always true: the file is empty if the processor family has no AES rounds. */
#include "engine/base/hash_aes.h"
#include "engine/fast/fast.h"

#if TWI_WITH_AES
#define TWI_HOT_CODE TWI_AES_CODE
#define TWI_HOT_HASH(engine, key) twi_hash_aes_inline(&(engine)->hashing.secret, (key).data, (key).size)

#define TWI_HOT_LONG_HASH(engine, key) twi_hash_aes_long(&(engine)->hashing.secret, (key).data, (key).size)
#define TWI_HOT_LONG_IS(key, bytes) twi_long_key_is((key).data, (bytes), (key).size)
#define TWI_HOT_SHORT_KEY struct twi_short_key
#define TWI_HOT_SHORT_OF(key) twi_short_key((key).data, (key).size)
#define TWI_HOT_SHORT_HASH(engine, short_key, key) \
    twi_hash_aes_short(&(engine)->hashing.secret, (short_key), (key).size)
#define TWI_HOT_SHORT_IS(short_key, bytes, size) twi_short_key_is((short_key), (bytes), (size))

#define TWI_HOT_NAME twi_hot_add_aes
#define TWI_HOT_GROUP twi_hot_group_aes
#define TWI_HOT_ACQUIRE twi_hot_acquire_aes
#define TWI_HOT_ALL twi_hot_all_aes
#define TWI_HOT_GCRA twi_hot_gcra_aes
#define TWI_HOT_SLIDING twi_hot_sliding_aes
#define TWI_HOT_CELL twi_hot_cell_aes
#define TWI_HOT_OWN(name) hot_local_##name
#define TWI_HOT_SYNCED 0
#include "engine/fast/add_fast.h"
#define TWI_HOT_DISTINCT twi_hot_distinct_aes
#define TWI_HOT_DISTINCT_SYNCED false
#include "engine/fast/distinct_fast.h"

#define TWI_HOT_NAME twi_hot_add_aes_synced
#define TWI_HOT_GROUP twi_hot_group_aes_synced
#define TWI_HOT_ACQUIRE twi_hot_acquire_aes_synced
#define TWI_HOT_OWN(name) hot_synced_##name
#define TWI_HOT_SYNCED 1
#include "engine/fast/add_fast.h"
#define TWI_HOT_DISTINCT twi_hot_distinct_aes_synced
#define TWI_HOT_DISTINCT_SYNCED true
#include "engine/fast/distinct_fast.h"
#else
typedef int twi_hot_aes_is_empty;
#endif
