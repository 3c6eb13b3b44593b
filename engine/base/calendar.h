/* calendar.h -- finds the window and the civil date of a moment, and adds without overflow. These are pure functions.
 * Any thread may call them.
 *
 * Always true: start_ms <= moment < end_ms. A window starts where the previous one ends. All arithmetic rounds down,
 * also before 1970. Every function works on moments within [TWI_CALENDAR_MIN_MS, TWI_CALENDAR_MAX_MS]. It replaces any
 * other moment by the nearest bound. So callers call twi_calendar_holds() first (too old: TW_ERR_LATE; too far ahead:
 * TW_ERR_EARLY). Within these bounds a year has four digits, and no sum of a moment, a window and a lateness
 * overflows. Add TW_UNBOUNDED with twi_time_add(). */
#ifndef TWI_BASE_CALENDAR_H
#define TWI_BASE_CALENDAR_H

#include "engine/base/check.h"
#include "tallywheel.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- amount ----
 * small arithmetic on counts, limits and times.
 * Always true: no function overflows. A sum that does not fit in 64 bits becomes the nearest number that fits. */

TWI_INLINE int64_t twi_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
TWI_INLINE int64_t twi_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

TWI_INLINE int64_t twi_saturated_sum(int64_t a, int64_t b) {
    int64_t sum;
    if (twi_unlikely(__builtin_add_overflow(a, b, &sum))) return a < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

#define TWI_CALENDAR_MIN_MS INT64_C(-30610224000000) /* 1000-01-01T00:00:00Z */
/* 9998-12-31T23:59:59.999Z; later there is no room for an offset and for the end of the window */
#define TWI_CALENDAR_MAX_MS INT64_C(253370764799999)

/* The options that decide a family's windows. The fields have the same names as in tw_family_options, with defaults
 * filled in. */
struct twi_window_rule {
    uint32_t window; /* TW_WINDOW_ALIGNED ... TW_WINDOW_MONTH */
    int64_t window_ms;
    int64_t utc_offset_ms;
    uint32_t week_start;
};

/* For the engine itself: windows that are counted and not timed. The moment n is in window n (idle_eviction.c). */
#define TWI_WINDOW_EVICTION 64u

struct twi_span {
    int64_t start_ms;
    int64_t end_ms; /* the first moment after the window */
};

/* Returns the window that contains the moment. For TW_WINDOW_FOREVER it is {0, INT64_MAX}. For TW_WINDOW_FROM_FIRST it
 * is the generation of the keys whose window begins at that moment: [g * window_ms, (g + 1) * window_ms). */
struct twi_span twi_calendar_span(const struct twi_window_rule *rule, int64_t unix_ms);
/* Returns the start of the window before that of the moment. For TW_WINDOW_FOREVER it returns 0. */
int64_t twi_calendar_previous_start(const struct twi_window_rule *rule, int64_t unix_ms);
/* Returns the longest possible length of a window (31 days for a month). INT64_MAX for TW_WINDOW_FOREVER. */
int64_t twi_calendar_longest_ms(const struct twi_window_rule *rule);

struct twi_civil {
    int32_t year;
    uint8_t month, day; /* from 1 */
    uint8_t hour, minute, second;
};

struct twi_civil twi_calendar_civil(int64_t unix_ms, int64_t utc_offset_ms);

static inline bool twi_calendar_holds(int64_t unix_ms) {
    return unix_ms >= TWI_CALENDAR_MIN_MS && unix_ms <= TWI_CALENDAR_MAX_MS;
}

/* Returns true if the windows have starts that a time stamp or a hook can name. */
static inline bool twi_calendar_has_starts(const struct twi_window_rule *rule) {
    return rule->window != TW_WINDOW_FROM_FIRST && rule->window != TW_WINDOW_FOREVER &&
           rule->window != TWI_WINDOW_EVICTION;
}

/* Returns a + b for times. INT64_MAX (TW_UNBOUNDED) stays the same, and no sum wraps around. */
static inline int64_t twi_time_add(int64_t a, int64_t b) {
    int64_t sum;
    if (a == INT64_MAX || b == INT64_MAX) return INT64_MAX;
    return __builtin_add_overflow(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}
/* Returns the moment that is `ms` before another moment. Returns INT64_MIN if `ms` is TW_UNBOUNDED. */
static inline int64_t twi_time_before(int64_t moment_ms, int64_t ms) {
    return ms == INT64_MAX ? INT64_MIN : twi_time_add(moment_ms, -ms);
}

#endif
