/* watch_engine.c -- a program with an engine that is watched: `watch_engine SOCKET [KEYS [write]]`. For watch.sh, and
 * for looking at `tallywheel top` with many keys. Each line of standard input is a command, answered by "done" on
 * standard output: `open` opens families and counts, `add` counts one round more. It ends with standard input. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tallywheel.h>

static tw_engine *engine;
static tw_family *views, *logins, *visitors;

static tw_family *open_family(const char *name, uint32_t kind, uint32_t window) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.kind = kind;
    options.window = window;
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

static bool open_all(void) {
    views = open_family("views", TW_KIND_COUNTER, TW_WINDOW_FOREVER);
    logins = open_family("logins", TW_KIND_COUNTER, TW_WINDOW_DAY);
    visitors = open_family("visitors", TW_KIND_DISTINCT, TW_WINDOW_FOREVER);
    return views != NULL && logins != NULL && visitors != NULL;
}

/* Key number i gets i. The heaviest is known. One key is no text. */
static void count_views(int64_t keys) {
    char name[32];
    for (int64_t i = 1; i <= keys; i++) {
        int size = snprintf(name, sizeof name, "/page/%" PRId64, i);
        (void)tw_add(views, tw_bytes(name, (size_t)size), i, NULL);
    }
    (void)tw_add(views, tw_bytes("\xff\t\"\\", 4), keys + 1, NULL);
}

static void count_all(int64_t keys) {
    char name[32];
    count_views(keys);
    for (int i = 0; i < 12; i++) (void)tw_acquire(logins, tw_str("user"), 1, 10, NULL);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof name, "visitor %d", i);
        (void)tw_distinct_add(visitors, tw_str("/"), tw_str(name), NULL);
    }
}

int main(int argc, char **argv) {
    char line[64], error[300] = "";
    tw_options options;
    tw_options_init(&options);
    options.watch_path = argc > 1 ? argv[1] : "";
    options.watch_writes = argc > 3;
    options.error_text = error;
    options.error_size = sizeof error;
    options.memory_bytes_max = UINT64_C(4) << 30;
    int64_t keys = argc > 2 ? strtoll(argv[2], NULL, 10) : 30;
    if (tw_open(&options, &engine) != TW_OK) return fprintf(stderr, "%s\n", error), 1;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)puts("ready");
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "open\n") == 0 && !open_all()) return 1;
        if (views != NULL) count_all(keys);
        (void)puts("done");
    }
    return tw_close(engine, 1000) == TW_OK ? 0 : 1;
}
