/* strict_gcra.h -- TW_LIMIT_STRICT with TW_SHAPE_GCRA (strict_gcra.c). */
#ifndef TWI_ASK_STRICT_GCRA_H
#define TWI_ASK_STRICT_GCRA_H

#include "engine/limit/decision.h"

extern const struct twi_limit_kind twi_limit_strict_gcra;

#endif
