/* twin.c -- see twin.h. */
#include "tests/model/twin.h"

#include <time.h>

void twin_make(struct twin *twin, const tw_family_options *options) {
    memset(twin, 0, sizeof *twin);
    twin->options = *options;
    twin->windows = calloc(TWIN_WINDOWS_MAX, sizeof *twin->windows);
    assert_non_null(twin->windows);
    twin->watermark_ms = INT64_MIN;
}

void twin_free(struct twin *twin) {
    for (size_t index = 0; index < twin->window_count; index++) free(twin->windows[index]);
    free(twin->windows);
    twin->windows = NULL;
}

bool twin_has_starts(const struct twin *twin) {
    return twin->options.window != TW_WINDOW_FROM_FIRST && twin->options.window != TW_WINDOW_FOREVER;
}

static int64_t floor_to(int64_t value, int64_t step) {
    int64_t rest = value % step;
    return value - (rest < 0 ? rest + step : rest);
}

static int64_t window_ms(const struct twin *twin) {
    return twin->options.window_ms != 0 ? twin->options.window_ms : TW_HOUR;
}

static void calendar_span(const struct twin *twin, int64_t unix_ms, int64_t *start_ms, int64_t *end_ms) {
    int64_t offset_ms = twin->options.utc_offset_ms, local_ms = floor_to(unix_ms + offset_ms, TW_DAY);
    time_t seconds = (time_t)(local_ms / 1000);
    struct tm date;
    gmtime_r(&seconds, &date);
    if (twin->options.window == TW_WINDOW_DAY) {
        *start_ms = local_ms - offset_ms;
        *end_ms = *start_ms + TW_DAY;
    } else if (twin->options.window == TW_WINDOW_WEEK) {
        int64_t since_monday = (date.tm_wday + 6) % 7;
        int64_t since_start = (since_monday + 7 - (int64_t)twin->options.week_start) % 7;
        *start_ms = local_ms - since_start * TW_DAY - offset_ms;
        *end_ms = *start_ms + 7 * TW_DAY;
    } else {
        struct tm first = {.tm_year = date.tm_year, .tm_mon = date.tm_mon, .tm_mday = 1};
        struct tm next = {.tm_year = date.tm_year, .tm_mon = date.tm_mon + 1, .tm_mday = 1};
        *start_ms = (int64_t)timegm(&first) * 1000 - offset_ms;
        *end_ms = (int64_t)timegm(&next) * 1000 - offset_ms;
    }
}

void twin_span(const struct twin *twin, int64_t unix_ms, int64_t *start_ms, int64_t *end_ms) {
    if (twin->options.window == TW_WINDOW_FOREVER) {
        *start_ms = 0;
        *end_ms = TW_UNBOUNDED;
    } else if (twin->options.window == TW_WINDOW_ALIGNED || twin->options.window == TW_WINDOW_FROM_FIRST) {
        int64_t offset_ms = twin->options.window == TW_WINDOW_ALIGNED ? twin->options.utc_offset_ms : 0;
        *start_ms = floor_to(unix_ms + offset_ms, window_ms(twin)) - offset_ms;
        *end_ms = *start_ms + window_ms(twin);
    } else {
        calendar_span(twin, unix_ms, start_ms, end_ms);
    }
}

struct twin_window *twin_window_at(struct twin *twin, int64_t start_ms) {
    for (size_t index = 0; index < twin->window_count; index++)
        if (twin->windows[index]->start_ms == start_ms) return twin->windows[index];
    return NULL;
}

struct twin_window *twin_window_make(struct twin *twin, int64_t unix_ms) {
    int64_t start_ms, end_ms;
    twin_span(twin, unix_ms, &start_ms, &end_ms);
    struct twin_window *window = twin_window_at(twin, start_ms);
    if (window != NULL) return window;
    assert_true(twin->window_count < TWIN_WINDOWS_MAX);
    window = twin->windows[twin->window_count++] = calloc(1, sizeof *window);
    assert_non_null(window);
    window->start_ms = start_ms;
    window->end_ms = end_ms;
    return window;
}

struct twin_window *twin_window_of_key(struct twin *twin, uint32_t key, int64_t now_ms) {
    if (twin->options.window != TW_WINDOW_FROM_FIRST) {
        int64_t start_ms, end_ms;
        twin_span(twin, now_ms, &start_ms, &end_ms);
        struct twin_window *window = twin_window_at(twin, start_ms);
        return window != NULL && window->present[key] ? window : NULL;
    }
    for (size_t index = 0; index < twin->window_count; index++) {
        struct twin_window *window = twin->windows[index];
        if (window->present[key] && window->life_end_ms[key] > now_ms) return window;
    }
    return NULL;
}

static int64_t plus(int64_t a, int64_t b) {
    return a == TW_UNBOUNDED || b == TW_UNBOUNDED ? TW_UNBOUNDED : a + b;
}

static int64_t longest_ms(const struct twin *twin) {
    switch (twin->options.window) {
    case TW_WINDOW_DAY: return TW_DAY;
    case TW_WINDOW_WEEK: return 7 * TW_DAY;
    case TW_WINDOW_MONTH: return 31 * TW_DAY;
    default: return window_ms(twin);
    }
}

bool twin_is_over(const struct twin *twin, int64_t end_ms, int64_t now_ms) {
    if (end_ms <= twin->watermark_ms) return end_ms <= now_ms;
    return plus(end_ms, twin->options.lateness_ms) <= now_ms;
}

tw_status twin_may_add_at(const struct twin *twin, int64_t unix_ms, int64_t now_ms) {
    int64_t start_ms, end_ms;
    twin_span(twin, unix_ms, &start_ms, &end_ms);
    if (twin_is_over(twin, end_ms, now_ms)) return TW_ERR_LATE;
    int64_t ahead_ms = twin->options.earliness_ms != 0 ? twin->options.earliness_ms : longest_ms(twin);
    if (start_ms > now_ms && unix_ms > plus(now_ms, ahead_ms)) return TW_ERR_EARLY;
    return TW_OK;
}

static int64_t history_ms(const struct twin *twin) {
    if (twin->options.history_ms == 0) return longest_ms(twin);
    return twin->options.history_ms == TW_NONE ? 0 : twin->options.history_ms;
}

int64_t twin_readable_until(const struct twin *twin, int64_t end_ms) {
    return plus(plus(end_ms, twin->options.lateness_ms), history_ms(twin));
}

int64_t twin_readable_at_least(const struct twin *twin, int64_t end_ms) {
    return end_ms <= twin->watermark_ms ? plus(end_ms, history_ms(twin)) : twin_readable_until(twin, end_ms);
}

bool twin_has_counted(const struct twin_window *window) {
    return window->keys != 0 || window->overflow != 0;
}
