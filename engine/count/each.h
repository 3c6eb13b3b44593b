/* each.h -- tw_each() for some of a window's counters, and after tw_stop(). */
#ifndef TWI_COUNT_EACH_H
#define TWI_COUNT_EACH_H

#include "tallywheel.h"

/* Does the same as tw_each(), but shows only keys that `wants` accepts. `wants` is called inside a section, and
 * never waits. */
tw_status twi_each_wanted(tw_family *family, int64_t unix_ms, bool (*wants)(void *ctx, tw_key key),
                          bool (*visit)(void *ctx, const tw_count *count), void *ctx);
/* Shows the same as tw_each(), also after tw_stop(). */
tw_status twi_each_at_end(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count),
                          void *ctx);

#endif
