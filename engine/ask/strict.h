/* strict.h -- limits that ask Redis for every call (TW_LIMIT_STRICT, with Redis).
 * Always true: a call is charged at most once, by Redis or by what decided in its place. */
#ifndef TWI_ASK_STRICT_H
#define TWI_ASK_STRICT_H

#include "engine/limit/decision.h"

extern const struct twi_limit_kind twi_limit_strict, twi_limit_strict_gcra; /* strict_gcra.c has that one */

/* As tw_acquire(). */
twi_hot_acquire twi_strict_acquire;

#endif
