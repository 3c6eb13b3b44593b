/* many_calls.c -- many calls over one link that is cut, left behind unread and answered with nonsense, while their
 * callers give up at random: what Redis has charged is the admitted units, to the unit (sync/ask/).
 * Method: an engine whose host drives, behind a proxy that makes faults. The test is the host, and asks through the
 * driver's table (engine/port/driver.h), as the engine does. Other threads ask and forget meanwhile. In the end nothing
 * is under way or unsent, and the counters in Redis are compared with the answers.
 * Always true: a call is answered once, or forgotten once.
 * Covers: sync/ask/way.c. */
#include "engine/core/state.h"
#include "tests/redis/redis_rig.h"
#include "tests/support/proxy.h"

#include <poll.h>
#include <pthread.h>

#define KEYS 5
#define CALLS_MAX 128
#define THREADS 3

struct stage {
    struct redis_server server;
    struct proxy *proxy;
    struct rig rig;
    int64_t limit;
    _Atomic int64_t begun, answered, forgotten, admitted, unknown, denied, refused;
    _Atomic bool stops;
};

struct call {
    struct stage *stage;
    _Atomic uint64_t number; /* 0: the call is over */
    _Atomic int answers;     /* of the present use */
    bool is_used;
};

static const struct twi_driver *driver_of(const struct stage *stage) {
    return stage->rig.engine->here->remote.driver;
}

static void stage_open(struct stage *stage, uint32_t timeout_ms, int64_t limit) {
    tw_options options;
    *stage = (struct stage){.limit = limit};
    redis_server_start(&stage->server, NULL);
    stage->proxy = proxy_start(&stage->server, test_seed());
    proxy_only(stage->proxy, "tw:calls:");
    rig_options(&stage->rig, &options, proxy_url(stage->proxy));
    options.threads = TW_HOST_DRIVEN;
    options.redis_timeout_ms = timeout_ms;
    assert_status(test_open(&options, &stage->rig.engine), TW_OK);
}

static void stage_close(struct stage *stage) {
    assert_status(tw_close(stage->rig.engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(stage->proxy);
    redis_server_destroy(&stage->server);
}

/* One iteration of the host's loop. */
static void turn(struct stage *stage, int most_ms) {
    struct pollfd fd = {.fd = tw_fd(stage->rig.engine), .events = POLLIN};
    uint32_t wait_ms = tw_timeout_ms(stage->rig.engine);
    (void)poll(&fd, 1, wait_ms < (uint32_t)most_ms ? (int)wait_ms : most_ms);
    assert_status(tw_turn(stage->rig.engine), TW_OK);
}

static void answered(void *ctx, struct twi_answer *answer) {
    struct call *call = ctx;
    struct stage *stage = call->stage;
    bool is_ok = answer->outcome == TWI_REQUEST_DONE && strcmp(answer->values[0].text, "OK") == 0;
    assert_int_equal(atomic_fetch_add(&call->answers, 1), 0);
    if (is_ok) atomic_fetch_add(&stage->admitted, answer->values[1].number);
    if (answer->outcome == TWI_REQUEST_DONE && !is_ok) atomic_fetch_add(&stage->denied, 1);
    if (answer->outcome == TWI_REQUEST_UNKNOWN) atomic_fetch_add(&stage->unknown, 1);
    atomic_fetch_add(&stage->answered, 1);
    atomic_store(&call->number, 0);
}

/* Begins a call for one unit of a key. */
static void begin(struct stage *stage, struct call *call, struct test_prng *prng) {
    char calls[32], key[32], limit[24];
    uint32_t k = (uint32_t)(test_prng_below(prng, KEYS));
    snprintf(calls, sizeof calls, "tw:calls:k%u", k);
    snprintf(key, sizeof key, "k%u", k);
    snprintf(limit, sizeof limit, "%lld", (long long)stage->limit);
    tw_key keys[] = {tw_str(calls), tw_str(key)};
    tw_key args[] = {tw_str("1"), tw_str(limit), tw_str("0"), tw_str("0"), tw_str("0"), tw_str("0"), tw_str("0")};
    struct twi_request request = {.script = TWI_SCRIPT_STRICT,
                                  .keys = keys,
                                  .key_count = 2,
                                  .args = args,
                                  .arg_count = sizeof args / sizeof *args,
                                  .deadline_ms = test_mono_ms() + 5 + (int64_t)(test_prng_below(prng, 300)),
                                  .numbered = true,
                                  .answered = answered,
                                  .ctx = call,
                                  .number = &call->number};
    enum twi_request_outcome why;
    call->stage = stage;
    atomic_store(&call->answers, 0);
    atomic_store(&call->number, UINT64_MAX);
    if (driver_of(stage)->ask(stage->rig.engine->here->remote.sync, &request, &why) != 0) {
        atomic_fetch_add(&stage->begun, 1);
        return;
    }
    assert_true(why == TWI_REQUEST_UNSENT || why == TWI_REQUEST_BUSY);
    atomic_fetch_add(&stage->refused, 1);
    atomic_store(&call->number, 0);
}

/* Forgets the call, if it is not answered at the same time. */
static void forget(struct stage *stage, struct call *call) {
    uint64_t number = atomic_load(&call->number);
    if (number == 0 || !driver_of(stage)->ask_forget(stage->rig.engine->here->remote.sync, number)) return;
    assert_int_equal(atomic_load(&call->answers), 0);
    atomic_fetch_add(&stage->forgotten, 1);
    atomic_store(&call->number, 0);
}

static void ask_and_forget(struct stage *stage, struct call *calls, uint32_t count, struct test_prng *prng) {
    for (uint32_t i = 0; i < count; i++) {
        if (atomic_load(&calls[i].number) == 0)
            begin(stage, &calls[i], prng);
        else if (test_prng_below(prng, 200) == 0)
            forget(stage, &calls[i]);
    }
}

static void *ask_in_thread(void *arg) {
    struct stage *stage = arg;
    struct call *calls = calloc(CALLS_MAX / 8, sizeof *calls);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed() ^ (uint64_t)(uintptr_t)calls);
    while (!atomic_load(&stage->stops)) {
        ask_and_forget(stage, calls, CALLS_MAX / 8, &prng);
        test_sleep_ms(1);
    }
    for (uint32_t i = 0; i < CALLS_MAX / 8; i++)
        while (atomic_load(&calls[i].number) != 0) test_sleep_ms(1);
    free(calls);
    return NULL;
}

static void set_faults(struct stage *stage, uint32_t of_10000) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REQUEST, PROXY_DROP_REPLY, PROXY_CUT_REQUEST, PROXY_CUT_REPLY,
                                              PROXY_HOLD,         PROXY_RESET,      PROXY_LOSE_REPLY};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) proxy_chance(stage->proxy, faults[i], of_10000);
}

static bool is_owed(const struct stage *stage) {
    return driver_of(stage)->ask_owed(stage->rig.engine->here->remote.sync) != 0;
}

static int64_t charged(struct stage *stage) {
    int64_t sum = 0;
    for (int k = 0; k < KEYS; k++) {
        char key[32];
        snprintf(key, sizeof key, "k%d", k);
        int64_t value = redis_server_get(&stage->server, key);
        if (value > 0) sum += value;
    }
    return sum;
}

/* Asks for `ms`, with faults; then without, until nothing is unsent. */
static void run(struct stage *stage, int64_t ms, uint32_t threads) {
    static struct call calls[CALLS_MAX];
    pthread_t others[THREADS];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    memset(calls, 0, sizeof calls);
    set_faults(stage, 3);
    for (uint32_t i = 0; i < threads; i++) assert_int_equal(pthread_create(&others[i], NULL, ask_in_thread, stage), 0);
    int64_t began_ms = test_mono_ms(), end_ms = began_ms + ms;
    /* On a crowded machine no call may be answered in its time for that long. */
    while (test_mono_ms() < end_ms || (stage->admitted == 0 && test_mono_ms() < began_ms + TEST_PATIENCE_MS)) {
        ask_and_forget(stage, calls, CALLS_MAX, &prng);
        if (test_prng_below(&prng, 200) == 0) proxy_cut_all(stage->proxy);
        turn(stage, 5);
    }
    atomic_store(&stage->stops, true);
    set_faults(stage, 0);
    for (end_ms = test_mono_ms() + TEST_PATIENCE_MS; is_owed(stage) && test_mono_ms() < end_ms;) turn(stage, 5);
    for (uint32_t i = 0; i < threads; i++) pthread_join(others[i], NULL);
    assert_false(is_owed(stage));
    for (int i = 0; i < 40; i++) turn(stage, 5); /* copies that the proxy holds back are executed late */
    print_message("# %lld begun, %lld admitted, %lld denied, %lld unknown, %lld forgotten, %lld refused; %lld again\n",
                  (long long)stage->begun, (long long)stage->admitted, (long long)stage->denied,
                  (long long)stage->unknown, (long long)stage->forgotten, (long long)stage->refused,
                  (long long)test_stat_of(stage->rig.engine, asked_again));
    assert_i64_equal(stage->answered + stage->forgotten, stage->begun);
    assert_true(stage->admitted > 0);
    assert_i64_equal(charged(stage), stage->admitted);
    assert_i64_equal(test_stat_of(stage->rig.engine, ask_active), 0);
    assert_i64_equal(test_stat_of(stage->rig.engine, ask_unsettled), 0);
}

/* Goal: whatever happens to the link and to the callers, Redis has charged the admitted units. */
TEST(what_redis_has_is_what_was_admitted) {
    struct stage stage;
    stage_open(&stage, 100, 1000000);
    run(&stage, test_is_slow() ? 1000 : 3000, 0);
    stage_close(&stage);
}

/* Goal: the same with threads that ask and forget while the host drives: no count is lost, none answered twice. */
TEST(threads_ask_and_forget) {
    struct stage stage;
    stage_open(&stage, 100, 1000000);
    run(&stage, test_is_slow() ? 1000 : 2000, THREADS);
    stage_close(&stage);
}

/* Goal: a limit that is reached is not passed, though calls are given up and taken back all the time. */
TEST(a_limit_is_never_passed) {
    struct stage stage;
    stage_open(&stage, 100, 200);
    run(&stage, test_is_slow() ? 1000 : 2000, 0);
    assert_true(stage.admitted <= 200 * KEYS);
    stage_close(&stage);
}

static void *wait_for_room(void *arg) {
    struct stage *stage = arg;
    static struct call call;
    tw_key keys[] = {tw_str("tw:calls:room"), tw_str("room")};
    tw_key args[] = {tw_str("1"), tw_str("5"), tw_str("0"), tw_str("0"), tw_str("0"), tw_str("0"), tw_str("0")};
    struct twi_request request = {.script = TWI_SCRIPT_STRICT,
                                  .keys = keys,
                                  .key_count = 2,
                                  .args = args,
                                  .arg_count = sizeof args / sizeof *args,
                                  .deadline_ms = test_mono_ms() + 20000,
                                  .numbered = true,
                                  .answered = answered,
                                  .ctx = &call,
                                  .number = &call.number,
                                  .waits_for_room = true};
    enum twi_request_outcome why;
    call = (struct call){.stage = stage};
    assert_int_not_equal(driver_of(stage)->ask(stage->rig.engine->here->remote.sync, &request, &why), 0);
    atomic_fetch_add(&stage->begun, 1);
    return NULL;
}

/* Goal: with calls_max calls under way the next is refused at once, or waits for one of them to end, as it likes. */
TEST(whoever_waits_for_room_gets_it) {
    static struct call calls[1100];
    struct stage stage;
    struct test_prng prng;
    pthread_t waiter;
    stage_open(&stage, 5000, 1000000);
    test_prng_seed(&prng, test_seed());
    memset(calls, 0, sizeof calls);
    for (int i = 0; i < 1100; i++) begin(&stage, &calls[i], &prng);
    assert_i64_equal(stage.refused, 1100 - 1024);
    assert_i64_equal(test_stat_of(stage.rig.engine, ask_busy), 1100 - 1024);
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_room, &stage), 0);
    while (test_stat_of(stage.rig.engine, ask_calls) != 1101) test_sleep_ms(1);
    test_sleep_ms(20);
    assert_i64_equal(stage.begun, 1024);
    for (int64_t end_ms = test_mono_ms() + 20000; stage.begun != 1025 && test_mono_ms() < end_ms;) turn(&stage, 5);
    pthread_join(waiter, NULL);
    for (int64_t end_ms = test_mono_ms() + 20000; is_owed(&stage) && test_mono_ms() < end_ms;) turn(&stage, 5);
    assert_i64_equal(stage.answered, 1025);
    stage_close(&stage);
}
