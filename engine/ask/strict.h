/* strict.h -- limits with Redis for which Redis decides every call (TW_LIMIT_STRICT).
 * Always true: a call is charged at most once: by Redis, or by the policy that decided in its place. */
#ifndef TWI_ASK_STRICT_H
#define TWI_ASK_STRICT_H

#include "engine/limit/decision.h"

extern const struct twi_limit_kind twi_limit_strict;
extern const struct twi_limit_kind twi_limit_strict_gcra; /* with TW_SHAPE_GCRA (strict_gcra.c) */

#endif
