/* shadow.h -- limits in the shadow, and those that count no figures themselves. */
#ifndef TWI_LIMIT_SHADOW_H
#define TWI_LIMIT_SHADOW_H

#include "engine/limit/decision.h"

/* family->limit_acquire with its figures, and what `shadow` makes of it. */
twi_hot_acquire twi_shadow_acquire;
/* tw_acquire_some() of a kind that has its own; none of it in the shadow. */
tw_status twi_shadow_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                                  tw_verdict *verdict);

#endif
