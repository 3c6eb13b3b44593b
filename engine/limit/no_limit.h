/* no_limit.h -- the kind of limit of families without a limit. */
#ifndef TWI_LIMIT_NO_LIMIT_H
#define TWI_LIMIT_NO_LIMIT_H

#include "engine/limit/decision.h"

/* For TW_KIND_DISTINCT every call of chapter 9 is refused. */
extern const struct twi_limit_kind twi_limit_none;

#endif
