/* sync_support.h -- an engine with a real Redis, in a few words, for the tests of this folder.
 * Always true: engines made here are quick (20 ms interval) and collect what on_lost says. */
#ifndef TEST_SYNC_SUPPORT_H
#define TEST_SYNC_SUPPORT_H

#include "tests/support/redis_server.h"
#include "tests/support/support.h"

struct lost {
    int64_t by_reason[8]; /* deltas */
    int64_t calls;
    char key[64]; /* the last one */
};

/* Written by the engine's thread: look at it when the engine is closed. */
struct log_lines {
    char text[8192];
    _Atomic int count; /* lines so far; whoever has read it may read as many */
};

/* How long a store that does not know an engine is not believed (sync/message/state.h). */
extern _Atomic int64_t twi_doubt_ms;
static bool test_keeps_doubt; /* set: as long as it is */

static inline void on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    struct lost *lost = ctx;
    (void)family, (void)start_ms;
    lost->by_reason[reason] += delta;
    lost->calls++;
    snprintf(lost->key, sizeof lost->key, "%.*s", (int)key.size, (const char *)key.data);
}

static inline void on_log(void *ctx, int level, int event, const char *text) {
    struct log_lines *lines = ctx;
    size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%d/%d %s\n", level, event, text);
    atomic_fetch_add(&lines->count, 1);
}

static inline void quick_options(tw_options *options, const char *url) {
    tw_options_init(options);
    options->redis_url = url;
    options->sync_interval_ms = 20;
    options->redis_timeout_ms = 1000;
    options->memory_bytes_max = 64 << 20;
    if (!test_keeps_doubt) atomic_store(&twi_doubt_ms, 100); /* a server that comes back empty is believed soon */
}

static inline tw_engine *quick_engine(const char *url, struct lost *lost) {
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, url);
    options.on_lost = lost ? on_lost : NULL;
    options.lost_ctx = lost;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static inline tw_family *family_of(tw_engine *engine, const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options;
    tw_family *family = NULL;
    char error[256] = "";
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window_ms;
    options.error_text = error;
    options.error_size = sizeof error;
    tw_status status = tw_family_open(engine, &options, &family);
    if (status != TW_OK) print_error("%s\n", error);
    assert_status(status, TW_OK);
    return family;
}

/* What the counters hold whose keys in Redis match the pattern. */
static inline int64_t sum_of(struct redis_server *server, const char *pattern) {
    return atoll(redis_server_ask(server, "EVAL",
                                  "local s = 0 for _, k in ipairs(redis.call('KEYS', ARGV[1])) do "
                                  "s = s + redis.call('GET', k) end return s",
                                  "0", pattern, NULL));
}

#endif
