/* causes.c -- why a limit over Redis does not admit, and when it is worth asking again: while Redis replies, is silent
 * (SIGSTOP) or gone (SIGKILL), if it has a key of another type, and when calls_max calls are under way.
 * limit_results.c has the causes of each mode, shape and policy.
 * Always true: windows are ten years, so that a time after which asking is worth it is never the window's end. */
#include "tests/redis/limits/hard_support.h"
#include "tests/redis/waiting/async_support.h"
#include "tests/support/cause.h"
#include "tests/support/side_by_side.h"

#define ENDED_MS 300 /* of a call that gets no reply */

static tw_verdict verdict;

static tw_family *limited(const char *name, uint32_t mode, uint32_t shape, uint32_t on_outage, uint32_t on_busy) {
    tw_family_options options = plain_family_options(name, TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    options.limit_mode = mode;
    options.limit_shape = shape;
    options.on_outage = on_outage;
    options.on_busy = on_busy;
    return opened_family(engine, options);
}

static void open_with(uint32_t threads, uint32_t timeout_ms, uint32_t calls_max) {
    tw_options options;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.threads = threads;
    options.redis_timeout_ms = timeout_ms;
    options.calls_max = calls_max;
    assert_status(test_open(&options, &engine), TW_OK);
}

static tw_status take(tw_family *family, const char *key, int64_t n, int64_t limit) {
    memset(&verdict, 0x55, sizeof verdict);
    return tw_acquire(family, tw_str(key), n, limit, &verdict);
}

/* Of a call to a Redis that is silent. The time in which this process did not run is no silence, and after a new
 * connection a call is busy at first: then another one is made. */
static tw_status take_in_silence(tw_family *family, const char *key, int64_t n, int64_t limit) {
    int64_t until_ms = test_mono_ms() + TEST_PATIENCE_MS;
    tw_status status;
    do status = take(family, key, n, limit);
    while (verdict.cause == TW_CAUSE_BUSY && test_mono_ms() < until_ms);
    return status;
}

/* What the page of metrics counts for that family and cause. */
struct line {
    char head[160];
    int64_t value;
};
static bool find_line(void *ctx, const char *text, size_t size) {
    struct line *line = ctx;
    char piece[4096];
    snprintf(piece, sizeof piece, "%.*s", (int)size, text);
    const char *found = strstr(piece, line->head);
    if (found != NULL) line->value = strtoll(found + strlen(line->head), NULL, 10);
    return true;
}
static int64_t denied(const char *family, const char *cause) {
    struct line line = {.value = -1};
    snprintf(line.head, sizeof line.head, "tallywheel_family_limit_denied_total{family=\"%s\",cause=\"%s\"} ", family,
             cause);
    assert_status(tw_metrics_write(engine, TW_METRICS_PROMETHEUS, find_line, &line), TW_OK);
    return line.value;
}

/* ---- strict ------------------------------------------------------------------------------------------------------ */

static const uint32_t shapes[] = {TW_SHAPE_FIXED, TW_SHAPE_SLIDING, TW_SHAPE_GCRA};
static const char *const names[] = {"fixed", "sliding", "rate"};

/* Checks what a fail-closed family says of a key that was never used. No part of it is known. */
static void assert_silent(tw_family *family, const char *key) {
    int64_t taken = -1;
    assert_status(take(family, key, 1, 10), TW_DENIED);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire_some(family, tw_str(key), 20, 10, &taken, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_i64_equal(taken, 0);
    assert_status(take(family, key, 11, 10), TW_DENIED); /* no reply would change that */
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire_wait(family, tw_str(key), 1, 10, 1, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
}

/* Goal: Redis says whether units are spent; without it a fail-closed limit says that nobody knows. Whoever asks again
 * by retry_after_ms is admitted soon after Redis is back, and not at the window's end. */
TEST(a_strict_limit_tells_spent_units_from_a_silent_redis) {
    tw_family *families[3];
    open_with(TW_OWN_THREAD, STRICT_LONG_MS, 0);
    for (int i = 0; i < 3; i++) {
        families[i] = limited(names[i], TW_LIMIT_STRICT, shapes[i], TW_OUTAGE_FAIL_CLOSED, TW_BUSY_REFUSE);
        strict_await_redis(families[i], "other");
        assert_status(take(families[i], "k", 10, 10), TW_OK);
        test_assert_no_cause(&verdict);
        assert_status(take(families[i], "k", 1, 10), TW_DENIED);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        test_assert_cause(&verdict, TW_CAUSE_LIMIT);
        assert_true(verdict.retry_after_ms > TW_DAY);
        assert_status(take(families[i], "k", 11, 10), TW_DENIED);
        test_assert_cause(&verdict, TW_CAUSE_NEVER);
        memset(&verdict, 0x55, sizeof verdict);
        assert_status(tw_acquire_some(families[i], tw_str("k"), 20, 10, NULL, &verdict), TW_DENIED);
        test_assert_cause(&verdict, TW_CAUSE_LIMIT);
        memset(&verdict, 0x55, sizeof verdict);
        assert_status(tw_acquire_some(families[i], tw_str("k"), 20, 0, NULL, &verdict), TW_DENIED);
        test_assert_cause(&verdict, TW_CAUSE_NEVER);
    }
    redis_server_kill(&server);
    for (int i = 0; i < 3; i++) {
        assert_i64_equal(denied(names[i], "limit"), 2);
        assert_i64_equal(denied(names[i], "never"), 2);
        int64_t outages = denied(names[i], "outage"); /* before Redis was reached */
        assert_silent(families[i], "unused");
        assert_true(denied(names[i], "outage") >= outages + 3); /* the wait may have tried more than once */
        assert_i64_equal(denied(names[i], "never"), 3);
    }
    redis_server_restart(&server);
    for (int i = 0; i < 3; i++) {
        int64_t until_ms = test_mono_ms() + TEST_PATIENCE_MS;
        while (take(families[i], "unused", 1, 10) != TW_OK && test_mono_ms() < until_ms)
            test_sleep_ms(verdict.retry_after_ms);
        test_assert_no_cause(&verdict);
    }
    close_async();
}

/* Goal: the same while the server's process is stopped: each call waits for its time, then says that nobody knows. */
TEST(a_stopped_redis_is_an_outage) {
    open_with(TW_OWN_THREAD, ENDED_MS, 0);
    tw_family *family = limited("s", TW_LIMIT_STRICT, TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED, TW_BUSY_REFUSE);
    tw_family *local = limited("l", TW_LIMIT_STRICT, TW_SHAPE_FIXED, TW_OUTAGE_LOCAL, TW_BUSY_REFUSE);
    strict_await_redis(family, "other");
    redis_server_pause(&server);
    assert_silent(family, "unused");
    assert_status(take_in_silence(local, "k", 10, 10), TW_OK);
    test_assert_no_cause(&verdict);
    assert_status(take_in_silence(local, "k", 1, 10), TW_DENIED); /* the units are spent here, whoever replies */
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_true(verdict.retry_after_ms > TW_DAY);
    redis_server_resume(&server);
    close_async();
}

/* Goal: a key that has another type in Redis tells nobody what is spent. */
TEST(a_key_of_another_type_is_unknown) {
    open_with(TW_OWN_THREAD, STRICT_LONG_MS, 0);
    tw_family_options options = strict_options("s");
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *family = strict_family(engine, &options);
    strict_await_redis(family, "other");
    redis_server_ask(&server, "RPUSH", "s:list", "x", NULL);
    assert_status(take(family, "list", 1, 10), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_status(take(family, "k", 10, 10), TW_OK);
    assert_status(take(family, "k", 1, 10), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_i64_equal(verdict.retry_after_ms, TW_UNBOUNDED);
    close_async();
}

/* ---- the way is full --------------------------------------------------------------------------------------------- */

#define CALLS_MAX 16 /* the least that an engine may have */

static struct told first, second, others[CALLS_MAX];

/* Each place is taken by a call that Redis does not answer. */
static void fill_the_house(tw_family *family) {
    for (int i = 0; i < CALLS_MAX; i++) {
        prepare(&others[i]);
        others[i].request.timeout_ms = TEST_PATIENCE_MS;
        assert_status(tw_acquire_async(&others[i].request, family, tw_str("others"), 1, 10), TW_STARTED);
    }
}

static void assert_busy(tw_status status, tw_status want) {
    assert_status(status, want);
    test_assert_cause(&second.request.verdict, TW_CAUSE_BUSY);
}

static tw_request *next(void) {
    prepare(&second);
    memset(&second.request.verdict, 0x55, sizeof second.request.verdict);
    return &second.request;
}

/* Goal: calls beyond calls_max are refused as busy, by every call that has a verdict. Where on_outage decides, its
 * denial says the same, and what it decides by counts has the cause of those counts. */
TEST(a_full_way_is_busy) {
    open_with(TW_HOST_DRIVEN, STRICT_LONG_MS, CALLS_MAX);
    tw_family *refuses = limited("refuses", TW_LIMIT_STRICT, TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED, TW_BUSY_REFUSE);
    tw_family *rate = limited("rate", TW_LIMIT_STRICT, TW_SHAPE_GCRA, TW_OUTAGE_FAIL_CLOSED, TW_BUSY_REFUSE);
    tw_family *closed = limited("closed", TW_LIMIT_STRICT, TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED, TW_BUSY_AS_OUTAGE);
    tw_family *paced = limited("paced", TW_LIMIT_STRICT, TW_SHAPE_GCRA, TW_OUTAGE_FAIL_CLOSED, TW_BUSY_AS_OUTAGE);
    tw_family *local = limited("local", TW_LIMIT_STRICT, TW_SHAPE_FIXED, TW_OUTAGE_LOCAL, TW_BUSY_AS_OUTAGE);
    tw_family_options options = plain_family_options("slots", TW_WINDOW_FOREVER, 0);
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *slots = opened_family(engine, options);
    options.name = "slots-closed";
    options.on_busy = TW_BUSY_AS_OUTAGE;
    tw_family *slots_closed = opened_family(engine, options);
    prepare(&first);
    assert_status(answer_of(&first, tw_acquire_async(&first.request, refuses, tw_str("k"), 1, 10)), TW_OK);
    test_assert_no_cause(&first.request.verdict);
    redis_server_pause(&server);
    fill_the_house(refuses);
    assert_busy(tw_acquire_async(next(), refuses, tw_str("k"), 1, 10), TW_ERR_BUSY);
    assert_busy(tw_acquire_some_async(next(), refuses, tw_str("k"), 20, 10), TW_ERR_BUSY);
    assert_busy(tw_acquire_wait_async(next(), refuses, tw_str("k"), 1, 10), TW_ERR_BUSY);
    assert_busy(tw_acquire_async(next(), rate, tw_str("k"), 1, 10), TW_ERR_BUSY);
    assert_busy(tw_reserve_async(next(), refuses, tw_str("k"), 1, 10, 1000, tw_str("ann")), TW_ERR_BUSY);
    assert_busy(tw_hold_async(next(), slots, tw_str("k"), 1), TW_ERR_BUSY);
    assert_busy(tw_acquire_async(next(), closed, tw_str("k"), 1, 10), TW_DENIED);
    assert_busy(tw_acquire_wait_async(next(), closed, tw_str("k"), 1, 10), TW_DENIED);
    assert_busy(tw_acquire_async(next(), paced, tw_str("k"), 1, 10), TW_DENIED);
    assert_busy(tw_hold_async(next(), slots_closed, tw_str("k"), 1), TW_DENIED);
    assert_status(tw_acquire_async(next(), closed, tw_str("k"), 11, 10), TW_DENIED);
    test_assert_cause(&second.request.verdict, TW_CAUSE_NEVER);
    assert_status(tw_acquire_async(next(), local, tw_str("k"), 10, 10), TW_OK);
    test_assert_no_cause(&second.request.verdict);
    assert_status(tw_acquire_async(next(), local, tw_str("k"), 1, 10), TW_DENIED);
    test_assert_cause(&second.request.verdict, TW_CAUSE_LIMIT);
    assert_i64_equal(denied("refuses", "busy"), 4);
    assert_i64_equal(denied("rate", "busy"), 1);
    assert_i64_equal(denied("slots", "busy"), 1);
    assert_i64_equal(denied("closed", "busy"), 2);
    assert_i64_equal(denied("closed", "never"), 1);
    assert_i64_equal(denied("paced", "busy"), 1);
    assert_i64_equal(denied("slots-closed", "busy"), 1);
    assert_i64_equal(denied("local", "limit"), 1);
    for (int i = 0; i < CALLS_MAX; i++) assert_status(tw_request_cancel(&others[i].request), TW_OK);
    redis_server_resume(&server);
    close_async();
}

/* As take_in_silence(), of a call that is answered later. */
static tw_status answer_in_silence(tw_family *family, bool reserves) {
    int64_t until_ms = test_mono_ms() + TEST_PATIENCE_MS;
    tw_status status;
    do {
        (void)next();
        second.request.timeout_ms = ENDED_MS;
        status = reserves ? tw_reserve_async(&second.request, family, tw_str("k"), 1, 10, 1000, tw_str("ann"))
                          : tw_acquire_async(&second.request, family, tw_str("unused"), 1, 10);
        status = answer_of(&second, status);
    } while (second.request.verdict.cause == TW_CAUSE_BUSY && test_mono_ms() < until_ms);
    return status;
}

/* Goal: a call that is answered later has the cause of its outage, too, with its own time. */
TEST(an_answer_that_never_comes_is_an_outage) {
    open_with(TW_HOST_DRIVEN, STRICT_LONG_MS, 0);
    tw_family *family = limited("s", TW_LIMIT_STRICT, TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED, TW_BUSY_REFUSE);
    prepare(&first);
    assert_status(answer_of(&first, tw_acquire_async(&first.request, family, tw_str("k"), 1, 10)), TW_OK);
    redis_server_pause(&server);
    assert_status(answer_in_silence(family, false), TW_DENIED);
    test_assert_cause(&second.request.verdict, TW_CAUSE_OUTAGE);
    tw_status status = answer_in_silence(family, true);
    assert_true(status == TW_ERR_TIMEOUT || status == TW_ERR_REDIS);
    test_assert_cause(&second.request.verdict, TW_CAUSE_OUTAGE);
    redis_server_resume(&server);
    close_async();
}

/* ---- hard -------------------------------------------------------------------------------------------------------- */

#define SALE tw_str("tv")

/* Goal: a lease that is spent tells units of others from units that are sold, and both from a silent Redis. */
TEST(a_hard_limit_tells_who_has_the_units) {
    static const char dead[] = "00112233445566778899aabbccddeeff";
    open_with(TW_OWN_THREAD, 1000, 0);
    tw_family *family = hard_family(engine, "sale"),
              *closed = hard_family_of(engine, "closed", TW_WINDOW_FOREVER, 0, TW_OUTAGE_FAIL_CLOSED);
    redis_server_ask(&server, "HSET", "tw:lease:sale:dead", dead, "1 40 0 10 0", "t", "40", "s", "10", "e", "x", "l",
                     "100", NULL);
    assert_status(take(family, "tv", 1, 100), TW_PENDING); /* Redis has not granted any unit yet */
    assert_int_equal(verdict.decided_by, TW_BY_LEASE);
    test_assert_cause(&verdict, TW_CAUSE_SHARE);
    assert_status(take(family, "tv", 101, 100), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    assert_i64_equal(sell(family, SALE, 1, 100, TEST_PATIENCE_MS, &verdict), 100);
    assert_int_equal(verdict.final, 1);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_i64_equal(verdict.retry_after_ms, TW_UNBOUNDED);
    assert_i64_equal(verdict.remaining, 0);
    assert_i64_equal(sell_some(family, tw_str("dead"), 60, 100, TEST_PATIENCE_MS), 60);
    assert_i64_equal(sell(family, tw_str("dead"), 1, 100, 2500, &verdict), 0);
    assert_status(take(family, "dead", 1, 100), TW_DENIED); /* 30 units are in the lease of an engine that died */
    assert_int_equal(verdict.final, 0);
    test_assert_cause(&verdict, TW_CAUSE_SHARE);
    assert_status(take(family, "dead", 31, 100), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_i64_equal(verdict.remaining, 30);
    redis_server_pause(&server);
    int64_t until_ms = test_mono_ms() + TEST_PATIENCE_MS;
    while (take(family, "unused", 1, 100) == TW_PENDING && test_mono_ms() < until_ms) test_sleep_ms(5);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_i64_equal(verdict.error_bound, 100);
    assert_status(take(closed, "unused", 1, 100), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_i64_equal(denied("closed", "outage"), 1);
    assert_status(take(family, "tv", 1, 100), TW_DENIED); /* Redis said so before */
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    redis_server_resume(&server);
    close_async();
}

/* Goal: tw_acquire_some() takes the part that the lease has while Redis is away, though nobody knows what remains. */
TEST(a_part_of_the_lease_is_taken_in_an_outage) {
    open_with(TW_HOST_DRIVEN, 1000, 0);
    tw_family *family = hard_family(engine, "sale");
    int64_t until_ms = test_mono_ms() + TEST_PATIENCE_MS, taken = 0;
    while (take(family, "tv", 3, 100) != TW_OK && test_mono_ms() < until_ms) turn();
    assert_status(take(family, "tv", 0, 100), TW_OK);
    assert_status(tw_refund(family, SALE, 3, verdict.window_start_ms), TW_OK);
    redis_server_kill(&server);
    while (take(family, "unused", 1, 100) == TW_PENDING && test_mono_ms() < until_ms) turn();
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_status(tw_acquire_some(family, SALE, 80, 100, &taken, &verdict), TW_OK);
    assert_true(taken >= 2);
    (void)tw_close(engine, 0);
    redis_server_destroy(&server);
}

/* ---- reservations, and slots in use ------------------------------------------------------------------------------ */

static tw_status reserve(tw_family *family, int64_t n, int64_t limit, const char *buyer, char *token) {
    memset(&verdict, 0x55, sizeof verdict);
    return tw_reserve(family, tw_str("k"), n, limit, 5 * TW_MINUTE, tw_str(buyer), token, &verdict);
}

TEST(a_reservation_says_why) {
    char token[TW_TOKEN_SIZE], none[TW_TOKEN_SIZE];
    open_with(TW_OWN_THREAD, STRICT_LONG_MS, 0);
    tw_family *family = family_of(engine, "sale", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    assert_status(reserve(family, 11, 10, "ann", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    assert_status(reserve(family, 8, 10, "ann", token), TW_OK);
    test_assert_no_cause(&verdict);
    assert_status(reserve(family, 1, 10, "ann", none), TW_DENIED);
    assert_int_equal(verdict.decided_by, TW_BY_BUYER);
    test_assert_cause(&verdict, TW_CAUSE_BUYER);
    assert_i64_equal(verdict.retry_after_ms, TW_MINUTE); /* no longer, though the reservation lasts for five */
    assert_status(reserve(family, 3, 10, "bob", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_true(verdict.retry_after_ms > TW_MINUTE && verdict.retry_after_ms <= 5 * TW_MINUTE);
    assert_i64_equal(verdict.remaining, 2);
    assert_status(tw_reserve_confirm(engine, token), TW_OK);
    assert_status(reserve(family, 1, 10, "ann", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_BUYER);
    assert_i64_equal(verdict.retry_after_ms, -1);
    assert_status(reserve(family, 3, 10, "bob", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_true(verdict.retry_after_ms > TW_DAY); /* at the window's end: no unit is reserved */
    assert_i64_equal(denied("sale", "buyer"), 2);
    assert_i64_equal(denied("sale", "limit"), 2);
    assert_i64_equal(denied("sale", "never"), 1);
    assert_i64_equal(denied("sale", "outage"), 0);
    assert_i64_equal(test_stat_of(engine, limit_admitted), 1);
    redis_server_kill(&server);
    tw_status status = reserve(family, 1, 10, "bob", none);
    assert_true(status == TW_ERR_REDIS || status == TW_ERR_TIMEOUT);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_i64_equal(denied("sale", "outage"), 1);
    (void)tw_close(engine, 0);
    redis_server_destroy(&server);
}

static tw_status hold(tw_family *family, int64_t limit) {
    memset(&verdict, 0x55, sizeof verdict);
    return tw_hold(family, tw_str("k"), limit, &verdict);
}

TEST(a_slot_says_why) {
    tw_family *families[4];
    open_with(TW_OWN_THREAD, STRICT_LONG_MS, 0);
    for (uint32_t policy = TW_OUTAGE_LOCAL; policy <= TW_OUTAGE_SHARE; policy++) {
        char name[] = {(char)('a' + policy), '\0'};
        tw_family_options options = plain_family_options(name, TW_WINDOW_FOREVER, 0);
        options.on_outage = policy;
        families[policy] = opened_family(engine, options);
        assert_status(hold(families[policy], 0), TW_DENIED);
        test_assert_cause(&verdict, TW_CAUSE_NEVER);
        assert_status(hold(families[policy], 1), TW_OK);
        test_assert_no_cause(&verdict);
        assert_status(hold(families[policy], 1), TW_DENIED);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    }
    redis_server_kill(&server);
    for (uint32_t policy = TW_OUTAGE_LOCAL; policy <= TW_OUTAGE_SHARE; policy++) {
        bool is_open = policy == TW_OUTAGE_FAIL_OPEN, is_closed = policy == TW_OUTAGE_FAIL_CLOSED;
        assert_status(hold(families[policy], 0), is_open ? TW_OK : TW_DENIED);
        if (!is_open) test_assert_cause(&verdict, TW_CAUSE_NEVER);
        assert_status(hold(families[policy], 1), is_open ? TW_OK : TW_DENIED);
        assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
        if (!is_open) test_assert_cause(&verdict, is_closed ? TW_CAUSE_OUTAGE : TW_CAUSE_LIMIT);
    }
    (void)tw_close(engine, 0);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
