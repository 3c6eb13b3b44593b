/* presence.h -- how often presence statements (gauges, holds) are re-sent to Redis. Redis drops a statement at the end
 * of its life (struct twi_tuning).
 * Always true: three statements are sent in one life, so two in a row may be lost. */
#ifndef TWI_CORE_PRESENCE_H
#define TWI_CORE_PRESENCE_H

#include "engine/core/state.h"

/* Any thread. */
TWI_INLINE int64_t twi_presence_resend_ms(const tw_engine *engine) {
    return engine->here->remote.tuning.presence_life_ms / 3;
}

#endif
