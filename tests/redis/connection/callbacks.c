/* callbacks.c -- functions of the host that the engine calls and that stand still: its turns wait for them, no
 * call does (fault 67), and no engine time.
 * Always true: a function stands until the test lets it go, so what continued meanwhile went on next to it. */
#include "tests/redis/sync_support.h"

#include <pthread.h>
#include <time.h>

#define PATIENCE_MS 20000 /* time that a busy machine may need */
#define ADDERS 2
#define CALLS 100000
#define NEW_KEYS 5000

/* What the engine calls is here. */
static struct {
    _Atomic int standing; /* a call is in here */
    _Atomic bool is_open; /* they may go */
} gate;

static void stand(void) {
    atomic_fetch_add(&gate.standing, 1);
    while (!atomic_load(&gate.is_open)) test_sleep_ms(1);
    atomic_fetch_sub(&gate.standing, 1);
}

static void stand_at_log(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level, (void)text;
    if (event == TW_EVENT_LOST_CONNECTION) stand();
}

static void stand_at_loss(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    (void)ctx, (void)family, (void)key, (void)start_ms, (void)delta, (void)reason;
    stand();
}

static bool is_standing(void *ctx) {
    return atomic_load(&gate.standing) > 0;
}

struct adder {
    tw_family *family;
    uint32_t number;
    tw_status worst;
};

static void *use_calls(void *argument) {
    struct adder *adder = argument;
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t key[2] = {adder->number, i % NEW_KEYS};
        int64_t view;
        tw_status statuses[] = {tw_add(adder->family, tw_str("k"), 1, &view),
                                tw_add(adder->family, tw_bytes(key, sizeof key), 1, NULL),
                                tw_get(adder->family, tw_str("k"), &view)};
        for (int call = 0; call < 3; call++)
            if (statuses[call] != TW_OK) adder->worst = statuses[call];
    }
    return NULL;
}

/* Over the end of a window a limit admits its units in each, and never more, although the engine's own thread stands.
 * No call sees a time that is more than 20 ms behind that at which it began. */
static void time_goes_on(tw_engine *engine) {
    tw_family *family = family_of(engine, "limit", TW_WINDOW_ALIGNED, TW_SECOND);
    int64_t start_ms = 0, admitted = 0, windows = 0;
    for (int64_t end_ms = test_mono_ms() + TW_SECOND + 100; test_mono_ms() < end_ms;) {
        struct timespec from;
        tw_verdict verdict;
        clock_gettime(CLOCK_REALTIME_COARSE, &from); /* whose tick a busy machine may make late */
        tw_status status = tw_acquire(family, tw_str("user"), 1, 10, &verdict);
        if (verdict.window_start_ms != start_ms) admitted = 0, windows++;
        start_ms = verdict.window_start_ms;
        admitted += status == TW_OK;
        assert_true(admitted <= 10);
        int64_t from_ms = from.tv_sec * INT64_C(1000) + from.tv_nsec / 1000000;
        assert_true(start_ms + TW_SECOND - verdict.reset_after_ms >= from_ms - 20);
    }
    assert_true(windows >= 2);
}

/* The calls of some threads come to their end although the engine's own thread stands. */
static void calls_go_on(tw_family *family) {
    struct adder adders[ADDERS];
    pthread_t threads[ADDERS];
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3 * PATIENCE_MS / 1000;
    for (uint32_t i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){.family = family, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, use_calls, &adders[i]), 0);
    }
    for (uint32_t i = 0; i < ADDERS; i++) {
        assert_int_equal(pthread_timedjoin_np(threads[i], NULL, &until), 0);
        assert_status(adders[i].worst, TW_OK);
    }
    assert_int_equal(atomic_load(&gate.standing), 1);
}

static void let_go(void) {
    atomic_store(&gate.is_open, true);
}

/* Goal: log_write that does not return delays no call, and no count is lost by it. */
TEST(a_log_function_that_stands_holds_up_no_call) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    memset(&gate, 0, sizeof gate);
    redis_server_start(&server, (const char *const[]){"--appendonly", "yes", "--appendfsync", "always", NULL});
    quick_options(&options, server.url);
    options.log_write = stand_at_log;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, PATIENCE_MS), TW_OK);
    redis_server_kill(&server);
    assert_true(test_wait(is_standing, NULL, PATIENCE_MS));
    calls_go_on(family);
    time_goes_on(engine);
    redis_server_restart(&server);
    let_go();
    assert_status(tw_flush(engine, PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "f:k"), 1 + ADDERS * CALLS);
    assert_i64_equal(sum_of(&server, "f:*"), 1 + 2 * ADDERS * CALLS);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: the same of on_lost. Method: Redis comes back when a window with counts is over. */
TEST(a_loss_function_that_stands_holds_up_no_call) {
    struct redis_server server;
    tw_options options;
    tw_family_options short_lived;
    tw_engine *engine;
    tw_family *family;
    memset(&gate, 0, sizeof gate);
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.on_lost = stand_at_loss;
    assert_status(test_open(&options, &engine), TW_OK);
    redis_server_kill(&server);
    tw_family_options_init(&short_lived);
    short_lived.name = "short";
    short_lived.window = TW_WINDOW_ALIGNED;
    short_lived.window_ms = TW_SECOND;
    short_lived.retention_ms = TW_SECOND;
    assert_status(tw_family_open(engine, &short_lived, &family), TW_OK);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    test_sleep_ms(3 * TW_SECOND);
    redis_server_restart(&server);
    assert_true(test_wait(is_standing, NULL, PATIENCE_MS));
    family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    calls_go_on(family);
    time_goes_on(engine);
    let_go();
    tw_status status = tw_flush(engine, PATIENCE_MS);
    assert_true(status == TW_OK || status == TW_ERR_REDIS); /* the flush that comes first speaks of what is lost */
    assert_status(tw_flush(engine, PATIENCE_MS), TW_OK);
    assert_i64_equal(sum_of(&server, "f:*"), 2 * ADDERS * CALLS);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
