/* unique_visitors.c -- how many different visitors each page has, by the hour and by the day.
 * A visitor who comes back is counted once in each window. The engine keeps a sketch of 16 KiB at most for each page,
 * not the visitors. So the numbers are estimates with a standard error of 0.81 %. */
#include <stdio.h>
#include <tallywheel.h>
#include <time.h>

/* One family for each window. The sum of the hours is not the day, because a visitor of two hours is in both. */
static tw_family *family_of(tw_engine *engine, const char *name, uint32_t window) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.kind = TW_KIND_DISTINCT;
    options.window = window;
    options.lateness_ms = 3 * TW_DAY; /* yesterday's log is still counted */
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

/* Visitors with these numbers, each of whom comes five times. */
static void read_log(tw_family *by_hour, tw_family *by_day, int64_t unix_ms, const char *page, int from, int to) {
    for (int visit = 0; visit < 5 * (to - from); visit++) {
        char visitor[32];
        tw_key who = tw_bytes(visitor, (size_t)snprintf(visitor, sizeof visitor, "visitor %d", from + visit / 5));
        tw_distinct_add_at(by_hour, tw_str(page), who, unix_ms, NULL);
        tw_distinct_add_at(by_day, tw_str(page), who, unix_ms, NULL);
    }
}

static bool print_page(void *ctx, const tw_count *count) {
    (void)ctx;
    printf("  %-10.*s %6lld\n", (int)count->key.size, (const char *)count->key.data, (long long)count->view);
    return true;
}

static bool is_near(tw_family *family, const char *page, int64_t unix_ms, int64_t visitors) {
    int64_t estimate = 0;
    tw_distinct_get_at(family, tw_str(page), unix_ms, &estimate);
    return estimate * 20 > visitors * 19 && estimate * 20 < visitors * 21; /* within 5 %: six standard errors */
}

int main(void) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    tw_family *by_hour = family_of(engine, "visitors-by-hour", TW_WINDOW_ALIGNED); /* an hour is the default */
    tw_family *by_day = family_of(engine, "visitors-by-day", TW_WINDOW_DAY);
    if (by_hour == NULL || by_day == NULL) return 1;

    /* 8,000 of the 20,000 who read the news at nine read them again at ten. */
    int64_t yesterday = ((int64_t)time(NULL) * 1000 / TW_DAY - 1) * TW_DAY;
    int64_t nine = yesterday + 9 * TW_HOUR, ten = yesterday + 10 * TW_HOUR;
    read_log(by_hour, by_day, nine, "/news", 0, 20000);
    read_log(by_hour, by_day, ten, "/news", 12000, 32000);
    read_log(by_hour, by_day, ten, "/about", 12000, 13000);

    printf("visitors at nine:\n");
    tw_each(by_hour, nine, print_page, NULL);
    printf("at ten:\n");
    tw_each(by_hour, ten, print_page, NULL);
    printf("on that day:\n");
    tw_each(by_day, yesterday, print_page, NULL);
    bool good = is_near(by_hour, "/news", nine, 20000) && is_near(by_hour, "/news", ten, 20000) &&
                is_near(by_day, "/news", yesterday, 32000) && is_near(by_day, "/about", yesterday, 1000);
    tw_close(engine, 1000);
    return good ? 0 : 1;
}
