/* presence.c -- see presence.h. */
#include "engine/core/presence.h"

#include "engine/base/atomic.h"
#include "engine/port/messages.h"

/* Three statements, two of which may be lost in a row. Tests shorten it. */
_Atomic int64_t twi_presence_life_ms = 15000;

int64_t twi_presence_resend_ms(void) {
    return twi_load_relaxed(&twi_presence_life_ms) / 3;
}
