/* hot_any.c -- the hot path for every processor: see hot.h. The hash is the engine's, by its pointer.
 * Always true: it answers as hot_aes.c does. */
#define TWI_HOT_NAME twi_hot_add_any
#define TWI_HOT_GROUP twi_hot_group_any
#define TWI_HOT_CODE
#define TWI_HOT_HASH(engine, key) (engine)->hash(&(engine)->secret, (key).data, (key).size)
#include "engine/hot.h"
