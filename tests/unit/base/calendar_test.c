/* calendar_test.c -- windows and civil dates, compared with the C library (gmtime_r, timegm) and with their own
 * definition. */
#include "tests/support/support.h"

#include "engine/base/calendar.h"

#include <time.h>

static const int64_t offsets_ms[] = {0, 8 * TW_HOUR, -5 * TW_HOUR, 14 * TW_HOUR, -14 * TW_HOUR, 345 * TW_MINUTE};
enum { OFFSETS = sizeof offsets_ms / sizeof *offsets_ms };

static int64_t floor_seconds(int64_t ms) {
    return ms / 1000 - (ms % 1000 < 0);
}

static struct tm twin_civil(int64_t unix_ms, int64_t offset_ms) {
    time_t seconds = (time_t)floor_seconds(unix_ms + offset_ms);
    struct tm civil;
    gmtime_r(&seconds, &civil);
    return civil;
}

static void assert_civil_agrees(int64_t unix_ms, int64_t offset_ms) {
    struct twi_civil got = twi_calendar_civil(unix_ms, offset_ms);
    struct tm want = twin_civil(unix_ms, offset_ms);
    if (got.year == want.tm_year + 1900 && got.month == want.tm_mon + 1 && got.day == want.tm_mday &&
        got.hour == want.tm_hour && got.minute == want.tm_min && got.second == want.tm_sec) {
        return;
    }
    fail_msg("at %lld%+lld: %d-%d-%d %d:%d:%d", (long long)unix_ms, (long long)offset_ms, got.year, got.month, got.day,
             got.hour, got.minute, got.second);
}

TEST(every_day_of_nine_thousand_years_has_the_date_the_c_library_gives_it) {
    for (int64_t ms = TWI_CALENDAR_MIN_MS; ms < TWI_CALENDAR_MAX_MS; ms += TW_DAY) assert_civil_agrees(ms, 0);
}

TEST(random_moments_have_the_time_the_c_library_gives_them) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t step = 0; step < test_scale(500000); step++) {
        int64_t ms = test_prng_between(&prng, TWI_CALENDAR_MIN_MS, TWI_CALENDAR_MAX_MS);
        assert_civil_agrees(ms, offsets_ms[test_prng_below(&prng, OFFSETS)]);
    }
    const int64_t edges_ms[] = {0,
                                -1,
                                1,
                                -1000,
                                TWI_CALENDAR_MIN_MS,
                                TWI_CALENDAR_MAX_MS,
                                INT64_C(951782399999),
                                INT64_C(951782400000),
                                INT64_C(951868800000),
                                INT64_C(-2203891200000),
                                INT64_C(4107542400000)};
    for (size_t index = 0; index < sizeof edges_ms / sizeof *edges_ms; index++)
        for (size_t offset = 0; offset < OFFSETS; offset++) assert_civil_agrees(edges_ms[index], offsets_ms[offset]);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static int64_t twin_day_start(int64_t unix_ms, int64_t offset_ms, int days, int month_day) {
    struct tm civil = twin_civil(unix_ms, offset_ms);
    civil.tm_hour = civil.tm_min = civil.tm_sec = 0;
    civil.tm_mday = month_day != 0 ? month_day : civil.tm_mday + days;
    return (int64_t)timegm(&civil) * 1000 - offset_ms;
}

static struct twi_span twin_span(const struct twi_window_rule *rule, int64_t unix_ms) {
    struct tm civil = twin_civil(unix_ms, rule->utc_offset_ms);
    int64_t offset = rule->utc_offset_ms, start;
    switch (rule->window) {
    case TW_WINDOW_DAY:
        return (struct twi_span){twin_day_start(unix_ms, offset, 0, 0), twin_day_start(unix_ms, offset, 1, 0)};
    case TW_WINDOW_WEEK: {
        int since = (civil.tm_wday + 6 - (int)rule->week_start + 7) % 7; /* tm_wday: 0 is Sunday */
        return (struct twi_span){twin_day_start(unix_ms, offset, -since, 0),
                                 twin_day_start(unix_ms, offset, 7 - since, 0)};
    }
    case TW_WINDOW_MONTH:
        start = twin_day_start(unix_ms, offset, 0, 1);
        civil.tm_mon++, civil.tm_mday = 1, civil.tm_hour = civil.tm_min = civil.tm_sec = 0;
        return (struct twi_span){start, (int64_t)timegm(&civil) * 1000 - offset};
    default:
        offset = rule->window == TW_WINDOW_FROM_FIRST ? 0 : offset;
        start = unix_ms - ((unix_ms + offset) % rule->window_ms + rule->window_ms) % rule->window_ms;
        return (struct twi_span){start, start + rule->window_ms};
    }
}

static struct twi_window_rule rule_draw(struct test_prng *prng) {
    const int64_t windows_ms[] = {1000,        7000,   TW_MINUTE,   90000,        TW_HOUR,
                                  6 * TW_HOUR, TW_DAY, 30 * TW_DAY, 3660 * TW_DAY};
    struct twi_window_rule rule = {.window = (uint32_t)test_prng_below(prng, 6)};
    rule.window = rule.window == TW_WINDOW_FOREVER ? TW_WINDOW_ALIGNED : rule.window;
    rule.window_ms = windows_ms[test_prng_below(prng, sizeof windows_ms / sizeof *windows_ms)];
    rule.utc_offset_ms = offsets_ms[test_prng_below(prng, OFFSETS)];
    rule.week_start = (uint32_t)test_prng_below(prng, 7);
    return rule;
}

static int64_t moment_draw(struct test_prng *prng) {
    switch (test_prng_below(prng, 4)) {
    case 0: /* about a day's turn */
        return test_prng_between(prng, -40000, 60000) * TW_DAY + test_prng_between(prng, -2, 2);
    case 1: return test_prng_between(prng, -10000, 10000);
    default: return test_prng_between(prng, TWI_CALENDAR_MIN_MS, TWI_CALENDAR_MAX_MS);
    }
}

TEST(random_windows_are_those_of_the_twin) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t step = 0; step < test_scale(500000); step++) {
        struct twi_window_rule rule = rule_draw(&prng);
        int64_t moment = moment_draw(&prng);
        struct twi_span got = twi_calendar_span(&rule, moment), want = twin_span(&rule, moment);
        assert_i64_equal(got.start_ms, want.start_ms);
        assert_i64_equal(got.end_ms, want.end_ms);
    }
}

/* Goal: windows tile time. Each window begins where the previous one ends, and is the window of its first and of its
 * last moment. */
TEST(windows_follow_each_other_without_a_gap) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t step = 0; step < test_scale(100000); step++) {
        struct twi_window_rule rule = rule_draw(&prng);
        int64_t moment = test_prng_between(&prng, -100000 * TW_DAY, 100000 * TW_DAY);
        struct twi_span span = twi_calendar_span(&rule, moment);
        assert_true(span.start_ms <= moment && moment < span.end_ms);
        assert_true(span.end_ms - span.start_ms <= twi_calendar_longest_ms(&rule));
        assert_i64_equal(twi_calendar_span(&rule, span.start_ms).start_ms, span.start_ms);
        assert_i64_equal(twi_calendar_span(&rule, span.end_ms - 1).start_ms, span.start_ms);
        assert_i64_equal(twi_calendar_span(&rule, span.end_ms).start_ms, span.end_ms);
        assert_i64_equal(twi_calendar_span(&rule, span.start_ms - 1).end_ms, span.start_ms);
        assert_i64_equal(twi_calendar_previous_start(&rule, span.end_ms), span.start_ms);
    }
}

TEST(known_windows) {
    struct twi_window_rule day = {.window = TW_WINDOW_DAY, .utc_offset_ms = 8 * TW_HOUR};
    int64_t midnight = INT64_C(1690992000000); /* 2023-08-03 00:00 in Shanghai */
    assert_i64_equal(twi_calendar_span(&day, midnight).start_ms, midnight);
    assert_i64_equal(twi_calendar_span(&day, midnight - 1).end_ms, midnight);
    struct twi_window_rule month = {.window = TW_WINDOW_MONTH};
    struct twi_span february = twi_calendar_span(&month, INT64_C(1709164800000)); /* 2024-02-29 */
    assert_i64_equal(february.start_ms, INT64_C(1706745600000));
    assert_i64_equal(february.end_ms, INT64_C(1709251200000));
    struct twi_window_rule week = {.window = TW_WINDOW_WEEK};
    assert_i64_equal(twi_calendar_span(&week, 0).start_ms, -3 * TW_DAY); /* Monday, 1969-12-29 */
    week.week_start = 6;
    assert_i64_equal(twi_calendar_span(&week, 0).start_ms, -4 * TW_DAY); /* Sunday */
    struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    assert_i64_equal(twi_calendar_span(&forever, 5).start_ms, 0);
    assert_i64_equal(twi_calendar_span(&forever, -5).end_ms, INT64_MAX);
    assert_i64_equal(twi_calendar_previous_start(&forever, 5), 0);
}

TEST(moments_beyond_the_calendar_do_no_harm) {
    const int64_t moments[] = {INT64_MIN, INT64_MIN + 1, TWI_CALENDAR_MIN_MS - 1, TWI_CALENDAR_MAX_MS + 1, INT64_MAX};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int step = 0; step < 1000; step++) {
        struct twi_window_rule rule = rule_draw(&prng);
        int64_t moment = moments[step % 5];
        assert_false(twi_calendar_holds(moment));
        struct twi_span span = twi_calendar_span(&rule, moment);
        int64_t nearest = moment < 0 ? TWI_CALENDAR_MIN_MS : TWI_CALENDAR_MAX_MS;
        assert_true(span.start_ms <= nearest && nearest < span.end_ms);
        int32_t year = twi_calendar_civil(moment, rule.utc_offset_ms).year;
        assert_true(year >= 999 && year <= 9999);
    }
    assert_true(twi_calendar_holds(TWI_CALENDAR_MIN_MS) && twi_calendar_holds(TWI_CALENDAR_MAX_MS));
}

TEST(sums_of_times_saturate) {
    assert_i64_equal(twi_time_add(1, 2), 3);
    assert_i64_equal(twi_time_add(1, TW_UNBOUNDED), TW_UNBOUNDED);
    assert_i64_equal(twi_time_add(TW_UNBOUNDED, -1), TW_UNBOUNDED);
    assert_i64_equal(twi_time_add(INT64_MAX - 1, 5), TW_UNBOUNDED);
    assert_i64_equal(twi_time_add(INT64_MIN, -5), INT64_MIN);
}
