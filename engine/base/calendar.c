/* calendar.c -- see calendar.h. It has dates of the proleptic Gregorian calendar. As in Unix time, there are no leap
 * seconds. */
#include "engine/base/calendar.h"

#include "engine/base/check.h"

/* In this file a year starts in March. Then the leap day is the last day of its year, and the first day of a month
 * depends on the month alone. 400 years have 97 leap days: 146097 days. Day 0 is 1970-01-01. It is within the 400
 * years that started on 1600-03-01. */
#define DAYS_400_YEARS 146097
#define DAYS_100_YEARS 36524
#define DAYS_4_YEARS 1461
#define DAY_OF_1600_03_01 (-135080)

/* The days before each month, in a year that starts in March. */
static const uint16_t month_begin[12] = {0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337};

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static int64_t clamp(int64_t unix_ms) {
    if (unix_ms < TWI_CALENDAR_MIN_MS) return TWI_CALENDAR_MIN_MS;
    return unix_ms > TWI_CALENDAR_MAX_MS ? TWI_CALENDAR_MAX_MS : unix_ms;
}

struct date {
    int64_t year;
    uint32_t month, day; /* from 1 */
};

static struct date date_of_day(int64_t day) {
    int64_t era = floor_div(day - DAY_OF_1600_03_01, DAYS_400_YEARS);
    uint32_t left = (uint32_t)(day - DAY_OF_1600_03_01 - era * DAYS_400_YEARS);
    /* The last day of 400 years, and of 4 years, is a leap day. The division would count one too many. */
    uint32_t centuries = left / DAYS_100_YEARS - (left == DAYS_400_YEARS - 1);
    left -= centuries * DAYS_100_YEARS;
    uint32_t fours = left / DAYS_4_YEARS;
    left -= fours * DAYS_4_YEARS;
    uint32_t ones = left / 365 - (left == DAYS_4_YEARS - 1);
    left -= ones * 365;
    uint32_t month = 11;
    while (month_begin[month] > left) month--;
    int64_t year = 1600 + era * 400 + centuries * 100 + fours * 4 + ones;
    return (struct date){.year = year + (month >= 10), /* January and February belong to the next civil year */
                         .month = month < 10 ? month + 3 : month - 9,
                         .day = left - month_begin[month] + 1};
}

static int64_t day_of_month_begin(int64_t year, uint32_t month) {
    int64_t from_march = month >= 3 ? year : year - 1;
    int64_t era = floor_div(from_march - 1600, 400), in_era = from_march - 1600 - era * 400;
    int64_t days = in_era * 365 + in_era / 4 - in_era / 100;
    return DAY_OF_1600_03_01 + era * DAYS_400_YEARS + days + month_begin[month >= 3 ? month - 3 : month + 9];
}

struct twi_civil twi_calendar_civil(int64_t unix_ms, int64_t utc_offset_ms) {
    int64_t local_ms = clamp(unix_ms) + utc_offset_ms;
    int64_t day = floor_div(local_ms, TW_DAY);
    uint32_t second = (uint32_t)((local_ms - day * TW_DAY) / 1000);
    struct date date = date_of_day(day);
    return (struct twi_civil){.year = (int32_t)date.year,
                              .month = (uint8_t)date.month,
                              .day = (uint8_t)date.day,
                              .hour = (uint8_t)(second / 3600),
                              .minute = (uint8_t)(second / 60 % 60),
                              .second = (uint8_t)(second % 60)};
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static struct twi_span days_span(int64_t begin_day, int64_t end_day, int64_t utc_offset_ms) {
    return (struct twi_span){begin_day * TW_DAY - utc_offset_ms, end_day * TW_DAY - utc_offset_ms};
}

static struct twi_span aligned_span(int64_t unix_ms, int64_t window_ms, int64_t utc_offset_ms) {
    int64_t start_ms = floor_div(unix_ms + utc_offset_ms, window_ms) * window_ms - utc_offset_ms;
    return (struct twi_span){start_ms, start_ms + window_ms};
}

/* Day 0 was a Thursday, which is weekday 3 if Monday is 0. */
static struct twi_span week_span(int64_t day, const struct twi_window_rule *rule) {
    int64_t since_start = day + 3 - (int64_t)rule->week_start;
    int64_t begin = floor_div(since_start, 7) * 7 - 3 + (int64_t)rule->week_start;
    return days_span(begin, begin + 7, rule->utc_offset_ms);
}

static struct twi_span month_span(int64_t day, const struct twi_window_rule *rule) {
    struct date date = date_of_day(day);
    int64_t begin = day - (int64_t)date.day + 1;
    int64_t end = date.month < 12 ? day_of_month_begin(date.year, date.month + 1) : begin + 31;
    return days_span(begin, end, rule->utc_offset_ms);
}

struct twi_span twi_calendar_span(const struct twi_window_rule *rule, int64_t unix_ms) {
    if (rule->window == TWI_WINDOW_EVICTION) return (struct twi_span){unix_ms, unix_ms + 1};
    unix_ms = clamp(unix_ms);
    int64_t day = floor_div(unix_ms + rule->utc_offset_ms, TW_DAY);
    switch (rule->window) {
    case TW_WINDOW_ALIGNED: return aligned_span(unix_ms, rule->window_ms, rule->utc_offset_ms);
    case TW_WINDOW_FROM_FIRST: return aligned_span(unix_ms, rule->window_ms, 0);
    case TW_WINDOW_DAY: return days_span(day, day + 1, rule->utc_offset_ms);
    case TW_WINDOW_WEEK: return week_span(day, rule);
    case TW_WINDOW_MONTH: return month_span(day, rule);
    default: twi_check(rule->window == TW_WINDOW_FOREVER); return (struct twi_span){0, INT64_MAX};
    }
}

int64_t twi_calendar_previous_start(const struct twi_window_rule *rule, int64_t unix_ms) {
    if (rule->window == TW_WINDOW_FOREVER) return 0;
    return twi_calendar_span(rule, twi_calendar_span(rule, unix_ms).start_ms - 1).start_ms;
}

int64_t twi_calendar_longest_ms(const struct twi_window_rule *rule) {
    switch (rule->window) {
    case TW_WINDOW_FOREVER: return INT64_MAX;
    case TW_WINDOW_DAY: return TW_DAY;
    case TW_WINDOW_WEEK: return 7 * TW_DAY;
    case TW_WINDOW_MONTH: return 31 * TW_DAY;
    default: return rule->window_ms;
    }
}
