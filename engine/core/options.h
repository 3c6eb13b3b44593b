/* options.h -- the options of callers. They are checked once at the beginning, and completed with defaults.
 *
 * Always true for a checked struct: its size is that of this library, every field is in its range, and no field that
 * has a default is 0. A refusal changes only error_text. error_text gets "<field>: what is wrong", terminated, and
 * never contains a password. On success error_text becomes empty. Strings are not copied. The checked struct has
 * pointers to the strings of the caller. Any thread.
 * Elsewhere: the URL is checked in sync/, the redis_key template in key_template.c, used names in family_open.c. */
#ifndef TWI_CORE_OPTIONS_H
#define TWI_CORE_OPTIONS_H

#include "engine/base/calendar.h"
#include "engine/base/why.h"
#include "tallywheel.h"

#include <stdbool.h>

#define TWI_WINDOW_MS_MAX (3660 * TW_DAY)    /* ten years */
#define TWI_DURATION_MS_MAX (36600 * TW_DAY) /* a hundred years, for lateness, earliness, history and retention */
#define TWI_MEMORY_BYTES_MIN (UINT64_C(1) << 20)
#define TWI_MEMORY_BYTES_MAX (UINT64_C(1) << 38) /* 256 GiB: 2^32 lines of 64 bytes (arena.h) */
#define TWI_PREFIX_BYTES_MAX 256
#define TWI_FAMILY_NAME_BYTES_MAX 64

tw_status twi_options_check(const tw_options *in, tw_options *out);

struct twi_options_context {
    bool has_redis;
    uint64_t memory_bytes_max; /* the memory_bytes_max of the engine */
    uint32_t merge;            /* the TW_MERGE_ value of the engine */
    bool is_shared;            /* processes share it */
};

/* In `out`, earliness_ms, lateness_ms and history_ms may be TW_UNBOUNDED. history_ms is 0 if no history is kept
 * (TW_NONE). In endless families and in those of TW_WINDOW_FROM_FIRST, lateness, earliness, history and retention are
 * 0. In endless families window_ms is 0. In calendar families window_ms is 0 (see twi_calendar_longest_ms()). */
tw_status twi_family_options_check(const tw_family_options *in, tw_family_options *out,
                                   const struct twi_options_context *context);

#define TWI_OPTIONS_TAGS_DEFAULT 128
#define TWI_OPTIONS_SEPARATOR_DEFAULT '|' /* of TW_REDIS_HASH */
#define TWI_OPTIONS_TAGS_REFUSED "redis_tags: not a power of two from 1 to 1024"

/* Returns the window rule of checked options. */
/* If there are sub_windows, it is the rule of the sub-windows, because these are the windows of the family. */
struct twi_window_rule twi_options_rule(const tw_family_options *checked);

#endif
