/* gcra.h -- TW_SHAPE_GCRA: the word of a key that holds times in place of counts. */
#ifndef TWI_LIMIT_GCRA_H
#define TWI_LIMIT_GCRA_H

#include "engine/limit/decision.h"

extern const struct twi_limit_kind twi_limit_gcra;

/* The key's bucket is not empty for so long from now, at least. Where there is no room for it, nothing is done. */
void twi_gcra_raise(tw_family *family, tw_key key, int64_t ahead_ms);

#endif
