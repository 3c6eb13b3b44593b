/* closing_peer.c -- one engine of closed_beside.py: `closing_peer URL FAMILY REDIS_KEY HOOK`. It counts by event time
 * in a family whose windows one engine closes (TW_CLOSED_BY_ONE), and prints what its hook gets. HOOK is 1 if it has
 * one.
 * Each line of standard input is a command:
 *     count START FIRST KEYS DELTA   adds DELTA to so many keys of that window, key-FIRST and those after it, and waits
 *                                    until Redis has the counts; prints "counted" or "late"
 *     keep START FIRST KEYS DELTA    the same, but the counts are not sent at once
 *     close                          closes the engine, prints "closed STATUS", and ends
 * The hook prints "window START FLAGS KEYS SUM ...", with the sum of each thousand of keys, key-0 to key-999 first.
 * The program is compiled once for each library, with that library's header. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tallywheel.h>

#define LATE_MS 2000
#define LONG_MS 600000

#define GROUPS 5

struct seen {
    int64_t sums[GROUPS];
    int keys;
};

static bool see(void *ctx, const tw_count *count) {
    struct seen *seen = ctx;
    char name[32] = "";
    if (count->key.size == 0 || count->key.size >= sizeof name) return true;
    memcpy(name, count->key.data, count->key.size);
    int group = atoi(name + sizeof "key-" - 1) / 1000;
    if (group < GROUPS) seen->sums[group] += count->view;
    seen->keys++;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct seen seen = {0};
    (void)ctx, (void)end_ms;
    if (tw_each(family, start_ms, see, &seen) != TW_OK) seen.keys = -1;
    const int64_t *sums = seen.sums;
    (void)printf("window %" PRId64 " %u %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", start_ms,
                 flags, seen.keys, sums[0], sums[1], sums[2], sums[3], sums[4]);
    return true;
}

static tw_status count_keys(tw_family *family, int64_t start_ms, int first, int keys, int64_t delta) {
    tw_status status = TW_OK;
    for (int i = 0; i < keys && status == TW_OK; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "key-%d", first + i);
        status = tw_add_at(family, tw_bytes(name, (size_t)size), delta, start_ms, NULL);
    }
    return status;
}

int main(int argc, char **argv) {
    char line[128], verb[8];
    tw_engine *engine;
    tw_family *family;
    tw_options options;
    tw_family_options windows;
    if (argc != 5) return 2;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    tw_options_init(&options);
    options.redis_url = argv[1];
    options.sync_interval_ms = 1000;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    tw_family_options_init(&windows);
    windows.name = argv[2];
    windows.redis_key = argv[3];
    windows.window_ms = 1000;
    windows.lateness_ms = LATE_MS;
    windows.earliness_ms = windows.history_ms = LONG_MS;
    windows.closed_by = TW_CLOSED_BY_ONE;
    if (argv[4][0] == '1') windows.on_window_closed = on_closed;
    if (tw_family_open(engine, &windows, &family) != TW_OK) return 1;
    (void)printf("open\n");
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "close\n") != 0) {
        long long start_ms, delta;
        int first, keys;
        if (sscanf(line, "%7s %lld %d %d %lld", verb, &start_ms, &first, &keys, &delta) != 5) return 2;
        tw_status status = count_keys(family, start_ms, first, keys, delta);
        if (status == TW_OK && strcmp(verb, "count") == 0) status = tw_flush(engine, LONG_MS);
        (void)printf("%s\n", status == TW_OK ? "counted" : "late");
    }
    (void)printf("closed %d\n", (int)tw_close(engine, 20000));
    return 0;
}
