/* share.h -- soft limits over Redis: how much of a limit this engine may spend before it has heard of the others again. */
#ifndef TWI_SHARE_H
#define TWI_SHARE_H

#include "engine/engine.h"

/* How many engines decide on the same limits; at least 1. Any thread. */
TWI_INLINE uint32_t twi_live_engines(const tw_engine *engine) {
    uint32_t live = twi_load_relaxed(&((tw_engine *)engine)->live_engines); /* a hint: as old as the last word */
    return live != 0 ? live : 1;
}

#endif
