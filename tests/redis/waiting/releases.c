/* releases.c -- what gives back (tw_lock_release(), tw_hold_release(), tw_reserve_cancel()) is repeated until Redis
 * answers, also after its caller was told that the outcome is unknown. What is not repeated, and why.
 * Method: Redis refuses, or cannot be reached, while a lock, a slot and a reservation that would last for an hour are
 * released. Redis is read apart from the engine.
 * Always true: nothing here ends by its own time, unless the test says so. */
#include "tests/redis/waiting/strict_support.h"

#define HOUR_MS 3600000
#define TIMEOUT_MS 300

enum fault { REFUSED, CUT, LOST, FAULTS };

struct stage {
    struct redis_server server;
    struct proxy *proxy;
    tw_engine *engine;
    tw_family *family;
    struct log_lines lines;
    char lock[TW_TOKEN_SIZE], reserved[TW_TOKEN_SIZE];
};

static void set_right(struct stage *stage, const char *right) {
    redis_server_ask(&stage->server, "ACL", "SETUSER", "default", right, NULL);
}

static void begin_with(struct stage *stage, uint32_t timeout_ms, uint32_t calls_max) {
    tw_options options;
    memset(stage, 0, sizeof *stage);
    redis_server_start(&stage->server, NULL);
    stage->proxy = proxy_start(&stage->server, test_seed());
    proxy_only(stage->proxy, "tw:");
    quick_options(&options, proxy_url(stage->proxy));
    options.redis_timeout_ms = timeout_ms;
    options.calls_max = calls_max;
    options.log_write = on_log;
    options.log_ctx = &stage->lines;
    assert_status(test_open(&options, &stage->engine), TW_OK);
    tw_family_options family = strict_options("s");
    family.on_outage = TW_OUTAGE_FAIL_CLOSED;
    stage->family = strict_family(stage->engine, &family);
    strict_await_redis(stage->family, "other");
}

static void begin(struct stage *stage, uint32_t calls_max) {
    begin_with(stage, TIMEOUT_MS, calls_max);
}

static void end(struct stage *stage, uint32_t timeout_ms) {
    assert_status(tw_close(stage->engine, timeout_ms), TW_OK);
    proxy_stop(stage->proxy);
    redis_server_destroy(&stage->server);
}

static bool is_settled(void *ctx) {
    return test_stat_of(ctx, ask_unsettled) == 0;
}

/* Repeats a call until Redis has answered it. On a busy machine a call may take longer than its time. Then Redis is
 * left alone for a while, and the next calls end at once. What such a call has taken is taken back, before more is
 * done. */
#define UNTIL_OK(engine, call) \
    do { \
        for (int64_t end_ms = test_mono_ms() + TEST_PATIENCE_MS; (call) != TW_OK; test_sleep_ms(10)) \
            assert_true(test_mono_ms() < end_ms); \
        assert_true(test_wait(is_settled, engine, TEST_PATIENCE_MS)); \
    } while (0)

static void lock(struct stage *stage) {
    UNTIL_OK(stage->engine, tw_lock(stage->family, tw_str("l"), HOUR_MS, stage->lock, NULL));
}

/* A slot that is not stated again does not end in this test. */
static void hold(struct stage *stage, const char *key) {
    char name[64];
    snprintf(name, sizeof name, "tw:hold:s:%s", key);
    UNTIL_OK(stage->engine, tw_hold(stage->family, tw_str(key), 10, NULL));
    const char *member = redis_server_ask(&stage->server, "ZRANGEBYSCORE", name, "0", "+inf", NULL);
    char copy[80];
    snprintf(copy, sizeof copy, "%s", member);
    redis_server_ask(&stage->server, "ZADD", name, "9000000000000", copy, NULL);
    redis_server_ask(&stage->server, "PERSIST", name, NULL);
}

static void take_all(struct stage *stage) {
    lock(stage);
    UNTIL_OK(stage->engine, tw_reserve(stage->family, tw_str("r"), 3, 10, HOUR_MS, tw_str(""), stage->reserved, NULL));
    hold(stage, "h");
    assert_i64_equal(redis_server_get(&stage->server, "s:r"), 3);
}

static bool is_free(void *ctx) {
    struct redis_server *server = ctx;
    return *redis_server_ask(server, "GET", "tw:lock:s:l", NULL) == '\0' && redis_server_get(server, "s:r") == 0 &&
           atoi(redis_server_ask(server, "ZCOUNT", "tw:hold:s:h", "0", "+inf", NULL)) == 0;
}

static void begin_fault(struct stage *stage, enum fault fault) {
    struct proxy_order lose = {.fault = PROXY_LOSE_REQUEST, .times = 1000};
    if (fault == REFUSED) set_right(stage, "-del"), set_right(stage, "-zrem"), set_right(stage, "-decrby");
    if (fault == CUT) proxy_manner(stage->proxy, PROXY_REFUSE), proxy_cut_all(stage->proxy);
    if (fault == LOST) proxy_order(stage->proxy, &lose);
}

static void end_fault(struct stage *stage, enum fault fault) {
    struct proxy_order none = {.fault = PROXY_PASS};
    if (fault == REFUSED) set_right(stage, "+@all");
    if (fault == CUT) proxy_manner(stage->proxy, PROXY_OPEN);
    if (fault == LOST) proxy_order(stage->proxy, &none), proxy_cut_all(stage->proxy);
}

static void release_all(struct stage *stage, bool alone) {
    if (alone) {
        assert_status(tw_lock_release_async(NULL, stage->family, tw_str("l"), stage->lock), TW_STARTED);
        assert_status(tw_reserve_cancel_async(NULL, stage->engine, stage->reserved), TW_STARTED);
        assert_status(tw_hold_release_async(NULL, stage->family, tw_str("h")), TW_STARTED);
        return;
    }
    assert_status(tw_lock_release(stage->family, tw_str("l"), stage->lock), TW_ERR_TIMEOUT);
    assert_status(tw_reserve_cancel(stage->engine, stage->reserved), TW_ERR_TIMEOUT);
    assert_status(tw_hold_release(stage->family, tw_str("h")), TW_OK);
}

/* Goal: whatever keeps a release from Redis, it is done when that is over, though its caller was answered long ago, or
 * waits for nothing. */
TEST(a_release_goes_on_until_it_is_answered) {
    for (int i = 0; i < 2 * FAULTS; i++) {
        struct stage stage;
        enum fault fault = (enum fault)(i / 2);
        begin(&stage, 0);
        take_all(&stage);
        int64_t settled = test_stat_of(stage.engine, asks_settled); /* of calls that took longer than their time */
        begin_fault(&stage, fault);
        release_all(&stage, i % 2 != 0);
        test_sleep_ms(2 * TIMEOUT_MS); /* also those without a caller are over their time */
        assert_false(is_free(&stage.server));
        end_fault(&stage, fault);
        assert_true(test_wait(is_free, &stage.server, TEST_PATIENCE_MS));
        assert_true(test_wait(is_settled, stage.engine, TEST_PATIENCE_MS));
        assert_i64_equal(test_stat_of(stage.engine, asks_forgotten), 0);
        assert_i64_equal(test_stat_of(stage.engine, ask_units_kept), 0);
        if (i % 2 == 0) assert_i64_equal(test_stat_of(stage.engine, asks_settled) - settled, 3);
        end(&stage, TEST_PATIENCE_MS);
    }
}

static bool is_unsettled(void *ctx) {
    return test_stat_of(ctx, ask_unsettled) != 0;
}

static bool has_ended(void *ctx) {
    return *redis_server_ask(ctx, "GET", "tw:lock:s:l", NULL) == '\0';
}

/* Goal: a release that comes late leaves the lock to the one who has taken it meanwhile. */
TEST(a_late_release_leaves_the_next_owner_alone) {
    struct stage stage;
    char next[80];
    begin_with(&stage, STRICT_LONG_MS, 0); /* every lock is answered */
    assert_status(tw_lock(stage.family, tw_str("l"), 1000, stage.lock, NULL), TW_OK);
    set_right(&stage, "-hset"); /* what a release notes, and a lock does not */
    assert_status(tw_lock_release_async(NULL, stage.family, tw_str("l"), stage.lock), TW_STARTED);
    assert_true(test_wait(has_ended, &stage.server, TEST_PATIENCE_MS));
    assert_status(tw_lock(stage.family, tw_str("l"), HOUR_MS, stage.lock, NULL), TW_OK);
    snprintf(next, sizeof next, "%s", redis_server_ask(&stage.server, "GET", "tw:lock:s:l", NULL));
    assert_true(*next != '\0');
    assert_true(test_wait(is_unsettled, stage.engine, TEST_PATIENCE_MS));
    end_fault(&stage, REFUSED);
    assert_true(test_wait(is_settled, stage.engine, TEST_PATIENCE_MS));
    assert_string_equal(redis_server_ask(&stage.server, "GET", "tw:lock:s:l", NULL), next);
    end(&stage, TEST_PATIENCE_MS);
}

/* Goal: what Redis cannot give back at all is counted. Method: the set of the slots becomes something else. */
TEST(what_cannot_be_given_back_is_counted) {
    struct stage stage;
    begin(&stage, 0);
    hold(&stage, "h");
    begin_fault(&stage, REFUSED);
    assert_status(tw_hold_release(stage.family, tw_str("h")), TW_OK);
    assert_true(test_stat_of(stage.engine, ask_unsettled) == 1);
    redis_server_ask(&stage.server, "SET", "tw:hold:s:h", "x", NULL);
    end_fault(&stage, REFUSED);
    assert_true(test_wait(is_settled, stage.engine, TEST_PATIENCE_MS));
    assert_i64_equal(test_stat_of(stage.engine, asks_forgotten), 1);
    assert_i64_equal(test_stat_of(stage.engine, ask_units_kept), 1);
    end(&stage, TEST_PATIENCE_MS);
}

#define CALLS_MAX 16

static bool is_released(void *ctx) {
    struct stage *stage = ctx;
    return tw_hold_release(stage->family, tw_str("x")) == TW_OK;
}

static bool are_all_free(void *ctx) {
    return *redis_server_ask(ctx, "KEYS", "tw:hold:*", NULL) == '\0';
}

/* Goal: releases that Redis does not answer leave half of calls_max to others. One more is refused, and what it was to
 * release can be released later; without a caller it waits for its turn. */
TEST(releases_without_an_answer_are_bounded) {
    struct stage stage;
    begin(&stage, CALLS_MAX);
    char key[16];
    for (int i = 0; i < CALLS_MAX / 2; i++) snprintf(key, sizeof key, "k%d", i), hold(&stage, key);
    hold(&stage, "x");
    hold(&stage, "y");
    begin_fault(&stage, REFUSED);
    for (int i = 0; i < CALLS_MAX / 2; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_hold_release(stage.family, tw_str(key)), TW_OK);
    }
    assert_status(tw_hold_release(stage.family, tw_str("x")), TW_ERR_BUSY);
    assert_status(tw_hold_release_async(NULL, stage.family, tw_str("y")), TW_STARTED);
    strict_await_redis(stage.family, "k");
    end_fault(&stage, REFUSED);
    assert_true(test_wait(is_released, &stage, TEST_PATIENCE_MS));
    assert_true(test_wait(are_all_free, &stage.server, TEST_PATIENCE_MS));
    assert_status(tw_hold_release(stage.family, tw_str("x")), TW_ERR_RANGE);
    assert_i64_equal(test_stat_of(stage.engine, asks_forgotten), 0);
    end(&stage, TEST_PATIENCE_MS);
}

static bool was_held(void *ctx) {
    return proxy_look(ctx).happened[PROXY_HOLD] == 1;
}

static bool came_late(void *ctx) {
    return proxy_look(ctx).late == 1;
}

static int64_t in_use(struct stage *stage) {
    return atoll(redis_server_ask(&stage->server, "ZCOUNT", "tw:hold:s:h", "0", "+inf", NULL));
}

/* Goal: a statement that comes after the release of its slot does not bring that slot back. Method: the network keeps
 * it, and the connection ends; no new one is had, so no other statement follows. The release goes over another one. */
TEST(a_late_statement_brings_no_slot_back) {
    struct stage stage;
    struct proxy_order keep = {.fault = PROXY_HOLD, .times = 1};
    begin(&stage, 0);
    proxy_only(stage.proxy, "tw:hold:");
    UNTIL_OK(stage.engine, tw_hold(stage.family, tw_str("h"), 10, NULL));
    proxy_order(stage.proxy, &keep);
    proxy_manner(stage.proxy, PROXY_REFUSE);
    assert_true(test_wait(was_held, stage.proxy, TEST_PATIENCE_MS));
    assert_status(tw_hold_release(stage.family, tw_str("h")), TW_OK);
    proxy_manner(stage.proxy, PROXY_OPEN);
    assert_true(test_wait(came_late, stage.proxy, TEST_PATIENCE_MS));
    assert_true(test_wait(is_settled, stage.engine, TEST_PATIENCE_MS));
    assert_i64_equal(in_use(&stage), 0);
    end(&stage, TEST_PATIENCE_MS);
}

/* Goal: nor does a copy of its own request, which may come if that was repeated: the release leaves a mark. */
TEST(a_slot_that_was_asked_twice_is_released_with_a_mark) {
    struct stage stage;
    struct proxy_order drop = {.fault = PROXY_DROP_REPLY, .times = 1};
    begin_with(&stage, STRICT_LONG_MS, 0); /* every call is answered */
    proxy_only(stage.proxy, "tw:hold:");
    assert_status(tw_hold(stage.family, tw_str("h"), 10, NULL), TW_OK);
    assert_status(tw_hold_release(stage.family, tw_str("h")), TW_OK);
    assert_string_equal(redis_server_ask(&stage.server, "EXISTS", "tw:hold:s:h", NULL), "0"); /* no mark */
    proxy_order(stage.proxy, &drop);
    assert_status(tw_hold(stage.family, tw_str("h"), 10, NULL), TW_OK);
    assert_i64_equal(proxy_look(stage.proxy).happened[PROXY_DROP_REPLY], 1);
    assert_status(tw_hold_release(stage.family, tw_str("h")), TW_OK);
    assert_i64_equal(in_use(&stage), 0);
    assert_string_equal(redis_server_ask(&stage.server, "ZCARD", "tw:hold:s:h", NULL), "1");
    end(&stage, TEST_PATIENCE_MS);
}

/* Goal: a cancel of a first caller that was told to be unknown is not repeated, because it names no caller: it would
 * undo the one who is the first by then. Method: the process is cut off. Another one cancels, and its next call is the
 * first. Then the way is free again. */
TEST(a_cancel_of_the_first_is_not_repeated) {
    struct stage stage;
    bool is_first = false;
    begin(&stage, 0);
    tw_engine *other;
    tw_options options;
    quick_options(&options, stage.server.url);
    options.redis_timeout_ms = STRICT_LONG_MS;
    assert_status(test_open(&options, &other), TW_OK);
    tw_family_options family = strict_options("s");
    tw_family *there = strict_family(other, &family);
    UNTIL_OK(stage.engine, tw_once(stage.family, tw_str("o"), &is_first));
    begin_fault(&stage, LOST);
    assert_status(tw_once_cancel(stage.family, tw_str("o")), TW_ERR_TIMEOUT);
    assert_status(tw_once_cancel(there, tw_str("o")), TW_OK);
    assert_status(tw_once(there, tw_str("o"), &is_first), TW_OK);
    assert_true(is_first);
    end_fault(&stage, LOST);
    strict_await_redis(stage.family, "other");
    assert_true(test_wait(is_settled, stage.engine, TEST_PATIENCE_MS));
    assert_status(tw_once(there, tw_str("o"), &is_first), TW_OK);
    assert_false(is_first);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    end(&stage, TEST_PATIENCE_MS);
}

static bool has_no_units(void *ctx) {
    return redis_server_get(ctx, "s:r") == 0;
}

/* Goal: nor is a confirmation. Its caller may have given up and cancelled, and a sale before that cancel would be
 * nobody's. */
TEST(a_confirmation_is_not_repeated) {
    struct stage stage;
    begin(&stage, 0);
    take_all(&stage);
    begin_fault(&stage, LOST);
    assert_status(tw_reserve_confirm(stage.engine, stage.reserved), TW_ERR_TIMEOUT);
    assert_status(tw_reserve_cancel_async(NULL, stage.engine, stage.reserved), TW_STARTED);
    end_fault(&stage, LOST);
    assert_true(test_wait(has_no_units, &stage.server, TEST_PATIENCE_MS));
    assert_true(test_wait(is_settled, stage.engine, TEST_PATIENCE_MS));
    end(&stage, TEST_PATIENCE_MS);
}

/* Goal: tw_close() waits for it within its time, and says how many calls it leaves. */
TEST(closing_says_what_it_leaves) {
    for (int i = 0; i < 2; i++) {
        struct stage stage;
        begin(&stage, 0);
        lock(&stage);
        begin_fault(&stage, REFUSED);
        assert_status(tw_lock_release(stage.family, tw_str("l"), stage.lock), TW_ERR_TIMEOUT);
        if (i == 0) end_fault(&stage, REFUSED);
        assert_status(tw_close(stage.engine, i == 0 ? TEST_PATIENCE_MS : 100), TW_OK);
        assert_int_equal(has_ended(&stage.server), i == 0);
        assert_int_equal(strstr(stage.lines.text, "1 calls of unknown outcome") != NULL, i == 1);
        proxy_stop(stage.proxy);
        redis_server_destroy(&stage.server);
    }
}

static void is_done(tw_request *request) {
    request->ctx = request;
}

/* Goal: tw_stop() ends releases under way. Their callers are told that Redis has not answered; of a slot that is no
 * error. */
TEST(stopping_ends_releases) {
    struct stage stage;
    tw_request requests[3];
    begin(&stage, 0);
    take_all(&stage);
    begin_fault(&stage, LOST);
    for (int i = 0; i < 3; i++) {
        tw_request_init(&requests[i]);
        requests[i].done = is_done;
        requests[i].timeout_ms = TEST_PATIENCE_MS;
    }
    assert_status(tw_lock_release_async(&requests[0], stage.family, tw_str("l"), stage.lock), TW_STARTED);
    assert_status(tw_reserve_cancel_async(&requests[1], stage.engine, stage.reserved), TW_STARTED);
    assert_status(tw_hold_release_async(&requests[2], stage.family, tw_str("h")), TW_STARTED);
    assert_status(tw_stop(stage.engine), TW_OK);
    end(&stage, 100);
    for (int i = 0; i < 3; i++) {
        assert_true(requests[i].ctx == &requests[i]);
        assert_status(requests[i].status, i == 2 ? TW_OK : TW_ERR_TIMEOUT);
    }
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
