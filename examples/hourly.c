/* hourly.c -- a report for each window after its end, as an hourly statistics job needs it.
 * The windows have one second here, so that the example ends. Everything else is the same with TW_HOUR.
 *
 * on_window_closed is called when a window accepts no more counts. tw_each() inside it lists the final figures. A hook
 * that cannot deliver them just now (a full disk, an unreachable database) returns false and is called again later. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <tallywheel.h>

struct report {
    _Atomic int64_t counted, windows; /* the hook runs on the engine's thread */
};

static bool print_row(void *ctx, const tw_count *count) {
    int64_t *sum = ctx;
    printf("    %-12.*s %6lld\n", (int)count->key.size, (const char *)count->key.data, (long long)count->view);
    *sum += count->view;
    return true;
}

static bool on_window_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct report *report = ctx;
    int64_t sum = 0;
    printf("window of %lld ms from %lld%s\n", (long long)(end_ms - start_ms), (long long)start_ms,
           (flags & TW_CLOSED_PARTIAL) != 0 ? ", cut short by tw_close()" : "");
    if (tw_each(family, start_ms, print_row, &sum) != TW_OK) return false; /* call me again */
    report->counted += sum;
    report->windows += 1;
    return true;
}

int main(void) {
    struct report report = {0, 0};
    const char *const devices[] = {"phone", "tablet", "television"};
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *plays;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    tw_family_options_init(&family_options);
    family_options.name = "plays";
    family_options.window_ms = TW_SECOND; /* TW_HOUR, were this not an example */
    family_options.on_window_closed = on_window_closed;
    family_options.closed_ctx = &report;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (tw_family_open(engine, &family_options, &plays) != TW_OK) return 1;

    int64_t counted = 0;
    for (int i = 0; i < 250; i++) {
        if (tw_add(plays, tw_str(devices[i % 3]), 1, NULL) == TW_OK) counted++;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    tw_close(engine, 1000); /* runs the hooks of the windows that are still open */

    printf("%lld plays in %lld windows\n", (long long)report.counted, (long long)report.windows);
    return report.counted == counted && report.windows >= 3 ? 0 : 1; /* each play is in exactly one report */
}
