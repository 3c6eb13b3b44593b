/* sync_support.h -- an engine with a real Redis, for short tests of this folder.
 * Always true: engines made here sync every 20 ms, and record what on_lost reports. */
#ifndef TEST_SYNC_SUPPORT_H
#define TEST_SYNC_SUPPORT_H

#include "engine/port/driver.h"
#include "engine/port/services.h"
#include "tests/support/redis_server.h"
#include "tests/support/support.h"

/* A window whose end no test meets. A day ends in the middle of a test that runs at midnight. */
#define LONG_WINDOW_MS (3650 * TW_DAY)

struct lost {
    int64_t by_reason[8]; /* deltas */
    int64_t calls;
    char key[64]; /* the last counter */
};

/* Written by the engine's thread: read it when the engine is closed. */
struct log_lines {
    char text[8192];
    _Atomic int count; /* lines so far: so many can be read at any time */
};

/* The tuning of the engines that test_open() opens from now on. doubt_ms: for how long a store that does not know an
 * engine is not trusted (sync/message/state.h). */
static struct twi_tuning test_tuning = TWI_TUNING;
static bool test_keeps_doubt; /* true: engines keep the normal doubt */
static uint32_t test_shape;   /* redis_shape of the families that family_of() opens */

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

static inline tw_status test_open(const tw_options *options, tw_engine **engine) {
    return twi_open_with(options, &(struct twi_replacements){.tuning = &test_tuning}, engine);
}

static inline void quick_options(tw_options *options, const char *url) {
    tw_options_init(options);
    options->redis_url = url;
    options->sync_interval_ms = 20;
    options->redis_timeout_ms = 1000;
    options->memory_bytes_max = 64 << 20;
    if (!test_keeps_doubt) test_tuning.doubt_ms = 100; /* a server that comes back empty is trusted soon */
}

/* For test_wait(): nothing is left to send. A key that Redis has refused makes a flush return TW_ERR_REDIS until the
 * engine has the reply that accepts it, which is later than its value is in Redis. */
static inline bool is_flushed(void *engine) {
    return tw_flush(engine, 1000) == TW_OK;
}

static inline tw_engine *quick_engine(const char *url, struct lost *lost) {
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, url);
    options.on_lost = lost ? on_lost : NULL;
    options.lost_ctx = lost;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

static inline tw_family_options plain_family_options(const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window_ms;
    return options;
}

/* Opens it, or fails and prints what the library says. */
static inline tw_family *opened_family(tw_engine *engine, tw_family_options options) {
    tw_family *family = NULL;
    char error[256] = "";
    options.error_text = error;
    options.error_size = sizeof error;
    tw_status status = tw_family_open(engine, &options, &family);
    if (status != TW_OK) print_error("%s\n", error);
    assert_status(status, TW_OK);
    return family;
}

static inline tw_family *family_of(tw_engine *engine, const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options = plain_family_options(name, window, window_ms);
    options.redis_shape = test_shape;
    return opened_family(engine, options);
}

/* An endless family of that kind. */
static inline tw_family *kind_of(tw_engine *engine, const char *name, uint32_t kind) {
    tw_family_options options = plain_family_options(name, TW_WINDOW_FOREVER, 0);
    options.kind = kind;
    return opened_family(engine, options);
}

static inline tw_family *gauge_of(tw_engine *engine) {
    return kind_of(engine, "online", TW_KIND_GAUGE);
}

/* Writes a file of totals into the server's folder, and its path to `path`. */
static inline void put_file(const struct redis_server *server, const char *content, char path[200]) {
    snprintf(path, 200, "%s/totals", server->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fputs(content, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

/* A test for each shape begins with play_shape(). */
#define EACH_SHAPE(test) TEST_EACH(test, TW_REDIS_STRING, TW_REDIS_HASH, TW_REDIS_ZSET)
static inline void play_shape(void **state) {
    test_shape = (uint32_t)(uintptr_t)*state;
}

/* The sum of the counters in Redis whose names match the pattern: of strings, hashes and sorted sets. */
static inline int64_t sum_of(struct redis_server *server, const char *pattern) {
    return atoll(redis_server_ask(server, "EVAL",
                                  "local s = 0 for _, k in ipairs(redis.call('KEYS', ARGV[1])) do "
                                  "local t, all = redis.call('TYPE', k).ok "
                                  "if t == 'hash' then all = redis.call('HVALS', k) "
                                  "elseif t == 'zset' then all = redis.call('ZRANGE', k, 0, -1, 'WITHSCORES') "
                                  "else all = {redis.call('GET', k)} end "
                                  "for i = t == 'zset' and 2 or 1, #all, t == 'zset' and 2 or 1 do s = s + all[i] end "
                                  "end return s",
                                  "0", pattern, NULL));
}

#endif
