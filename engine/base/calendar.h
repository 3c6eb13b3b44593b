/* calendar.h -- from a moment to the window that holds it, and to its civil date. Pure functions; any thread.
 *
 * Always true: start_ms <= moment < end_ms; the next window starts where one ends; all arithmetic floors, before 1970
 * too. Moments lie within [TWI_CALENDAR_MIN_MS, TWI_CALENDAR_MAX_MS]; those outside are taken as the nearest one
 * inside, so callers ask twi_calendar_holds() first (too old: TW_ERR_LATE, too far ahead: TW_ERR_EARLY). Years then
 * have four digits, and no sum of a moment, a window and a lateness can overflow; TW_UNBOUNDED goes through
 * twi_time_add(). */
#ifndef TWI_BASE_CALENDAR_H
#define TWI_BASE_CALENDAR_H

#include "tallywheel.h"

#include <stdbool.h>
#include <stdint.h>

#define TWI_CALENDAR_MIN_MS INT64_C(-30610224000000) /* 1000-01-01T00:00:00Z */
#define TWI_CALENDAR_MAX_MS INT64_C(253370764799999) /* 9998-12-31T23:59:59.999Z: room for an offset and for the end */

/* What decides a family's windows: the fields of tw_family_options of the same names, defaults filled. */
struct twi_window_rule {
    uint32_t window; /* TW_WINDOW_ALIGNED ... TW_WINDOW_MONTH */
    int64_t window_ms;
    int64_t utc_offset_ms;
    uint32_t week_start;
};

/* The engine's own: windows that are counted, not timed. The moment n is in window n (idle_eviction.c). */
#define TWI_WINDOW_EVICTION 64u

struct twi_span {
    int64_t start_ms;
    int64_t end_ms; /* the first moment that is outside */
};

/* The window that holds the moment. TW_WINDOW_FOREVER: {0, INT64_MAX}. TW_WINDOW_FROM_FIRST: the generation in which a
 * key that begins then is born: [g * window_ms, (g + 1) * window_ms), without the offset. */
struct twi_span twi_calendar_span(const struct twi_window_rule *rule, int64_t unix_ms);
/* The start of the window before the one that holds the moment; in an endless family 0. */
int64_t twi_calendar_previous_start(const struct twi_window_rule *rule, int64_t unix_ms);
/* The longest that one of these windows can be (a month: 31 days). TW_WINDOW_FOREVER: INT64_MAX. */
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

/* A window with a beginning that a stamp or a hook can name. */
static inline bool twi_calendar_has_starts(const struct twi_window_rule *rule) {
    return rule->window != TW_WINDOW_FROM_FIRST && rule->window != TW_WINDOW_FOREVER &&
           rule->window != TWI_WINDOW_EVICTION;
}

/* a + b for times, where INT64_MAX (TW_UNBOUNDED) stays what it is and nothing wraps. */
static inline int64_t twi_time_add(int64_t a, int64_t b) {
    int64_t sum;
    if (a == INT64_MAX || b == INT64_MAX) return INT64_MAX;
    return __builtin_add_overflow(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}
/* What lies `ms` before a moment: INT64_MIN where that is TW_UNBOUNDED. */
static inline int64_t twi_time_before(int64_t moment_ms, int64_t ms) {
    return ms == INT64_MAX ? INT64_MIN : twi_time_add(moment_ms, -ms);
}

#endif
