/* registry.c -- the registry of live engines: it counts the engines that live and not those that died. An engine that
 * may not write it counts all the same.
 * Covers: sync/message/presence.c, sync/script/registry.lua. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct wanted {
    tw_engine *engine;
    int64_t live;
};

static bool knows(void *ctx) {
    struct wanted *wanted = ctx;
    return test_stat_of(wanted->engine, live_engines) == wanted->live;
}

static bool learns_of(tw_engine *engine, int64_t live, uint32_t ms) {
    struct wanted wanted = {engine, live};
    return test_wait(knows, &wanted, ms);
}

/* Goal: each engine learns of the others with its next heartbeat; scripts that Redis forgot are sent again. */
TEST(engines_learn_how_many_they_are) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL);
    assert_true(learns_of(a, 1, 3000));
    redis_server_ask(&server, "SCRIPT", "FLUSH", NULL);
    tw_engine *b = quick_engine(server.url, NULL), *c = quick_engine(server.url, NULL);
    assert_true(learns_of(c, 3, 4000));
    assert_true(learns_of(a, 3, 4000));
    assert_true(learns_of(b, 3, 4000));
    assert_string_equal(redis_server_ask(&server, "ZCARD", "tw:live", NULL), "3");
    assert_true(atoll(redis_server_ask(&server, "PTTL", "tw:live", NULL)) > 30000);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_true(learns_of(b, 2, 4000)); /* long before its heartbeat is too old: it has left */
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(c, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a killed process is no longer counted once its heartbeat is too old. Method: kill -9 of a child. */
TEST(a_killed_engine_is_counted_no_more) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    pid_t child = test_fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)quick_engine(server.url, NULL);
        for (;;) pause();
    }
    tw_engine *engine = quick_engine(server.url, NULL);
    assert_true(learns_of(engine, 2, 4000));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(learns_of(engine, 1, 8000));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a registry that cannot be written is reported once, and nothing else suffers. Method: its key holds another
 * type. */
TEST(a_registry_that_cannot_be_written_harms_nothing) {
    struct redis_server server;
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "SET", "tw:live", "mine", NULL);
    quick_options(&options, server.url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "r", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    assert_status(tw_add(family, tw_str("k"), 5, NULL), TW_OK);
    for (int i = 0; i < 5; i++) {
        assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
        assert_status(tw_flush(engine, 5000),
                      TW_OK); /* the heartbeat goes out behind a batch, and has its reply before the next batch */
    }
    assert_i64_equal(test_stat_of(engine, live_engines), 0);
    assert_i64_equal(test_stat_of(engine, disconnects), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    const char *line = strstr(lines.text, "registry of live engines");
    assert_non_null(line);
    assert_null(strstr(line + 1, "registry of live engines"));
    assert_string_equal(redis_server_ask(&server, "GET", "tw:live", NULL), "mine");
    redis_server_destroy(&server);
}

static int64_t clock_reads;

static int64_t read_counted(void *ctx, int kind) {
    struct timespec now;
    clock_reads++;
    (void)clock_gettime(kind == TW_CLOCK_WALL ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Goal: an engine that closes has left the registry, which then requests no more turns: tw_close() sleeps while it
 * waits for Redis. Method: a key of a wrong type is refused until the time is over; each turn reads the clock. */
TEST(an_engine_that_has_left_makes_few_turns) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "RPUSH", "f:k", "no number", NULL);
    quick_options(&options, server.url);
    options.threads = TW_HOST_DRIVEN;
    options.clock_now_ns = read_counted;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    clock_reads = 0;
    assert_status(tw_close(engine, 3000), TW_ERR_TIMEOUT);
    if (clock_reads > 300000) fail_msg("the clock was read %lld times in 3 s", (long long)clock_reads);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
