/* presence.c -- see presence.h. */
#include "engine/core/presence.h"

#include "engine/base/atomic.h"
#include "engine/port/messages.h"

_Atomic int64_t twi_part_life_ms = 15000;

int64_t twi_part_again_ms(void) {
    return twi_load_relaxed(&twi_part_life_ms) / 3;
}
