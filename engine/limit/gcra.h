/* gcra.h -- limits with TW_SHAPE_GCRA. The word of a key is a time instead of a count. */
#ifndef TWI_LIMIT_GCRA_H
#define TWI_LIMIT_GCRA_H

#include "engine/limit/decision.h"

extern const struct twi_limit_kind twi_limit_gcra;

/* Makes the bucket of the key non-empty for at least `ahead_ms` from now, under that limit. Does nothing if there is no
 * room for the key. */
void twi_gcra_raise(tw_family *family, tw_key key, int64_t limit, int64_t ahead_ms);

#endif
