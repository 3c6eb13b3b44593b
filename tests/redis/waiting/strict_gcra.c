/* strict_gcra.c -- a rate and a burst over Redis (TW_LIMIT_STRICT, TW_SHAPE_GCRA): exact over all engines by Redis's
 * clock, each call charged once, and what is decided while Redis does not answer. gcra_script.c tests the script's
 * arithmetic. Method: where counts are compared, the window is a year, so that the bucket loses nothing worth a unit
 * during a test.
 * Covers: engine/ask/strict_gcra.c, sync/script/gcra.lua. */
#include "tests/redis/waiting/strict_support.h"
#include "tests/support/cause.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define YEAR (365 * TW_DAY)

__extension__ typedef __int128 wide;

static tw_family_options gcra_options(const char *name, int64_t window_ms, uint32_t on_outage) {
    tw_family_options options = strict_options(name);
    options.window = TW_WINDOW_ALIGNED;
    options.window_ms = window_ms;
    options.limit_shape = TW_SHAPE_GCRA;
    options.on_outage = on_outage;
    return options;
}

static tw_family *gcra_family(tw_engine *engine, int64_t window_ms, int64_t burst, uint32_t on_outage) {
    tw_family_options options = gcra_options("p", window_ms, on_outage);
    options.burst = burst;
    options.redis_key = "p:%k:%Y%m%d%H%M%S";
    return strict_family(engine, &options);
}

#define BUCKET "tw:bucket:p:k:19700101000000"
#define CALLS "tw:calls:p:k:19700101000000"

static int64_t redis_us(struct redis_server *server) {
    char text[64];
    snprintf(text, sizeof text, "%s", redis_server_ask(server, "TIME", NULL));
    char *micro = strchr(text, '\n');
    return strtoll(text, NULL, 10) * 1000000 + strtoll(micro + 1, NULL, 10);
}

/* The time until the bucket is empty, in 1/limit us; 0: it is empty. */
static wide moment_of(struct redis_server *server, int64_t limit) {
    long long us = 0, part = 0, parts = limit;
    const char *word = redis_server_ask(server, "GET", BUCKET, NULL);
    if (*word == '\0') return 0;
    int read = sscanf(word, "%lld+%lld/%lld", &us, &part, &parts);
    assert_true(read == 1 || read == 3);
    assert_i64_equal(parts, limit);
    return (wide)us * limit + part;
}

/* ---- Redis decides ---- */

TEST(a_rate_and_a_burst_are_decided_by_redis) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 10, TW_OUTAGE_LOCAL);
    tw_verdict verdict = strict_take(family, "k", 7, 73, TW_OK);
    assert_i64_equal(verdict.used, 7);
    assert_i64_equal(verdict.remaining, 3);
    assert_i64_equal(verdict.limit, 73);
    assert_i64_equal(verdict.retry_after_ms, 0);
    assert_i64_equal(verdict.reset_after_ms, 35 * TW_DAY); /* five days a unit */
    assert_i64_equal(verdict.error_bound, 0);
    assert_int_equal(verdict.decided_by, TW_BY_REDIS);
    assert_int_equal(verdict.final, 0);
    assert_i64_equal(verdict.window_start_ms % YEAR, 0);
    verdict = strict_take(family, "k", 4, 73, TW_DENIED);
    assert_i64_equal(verdict.used, 7);
    assert_true(verdict.retry_after_ms > 5 * TW_DAY - TW_MINUTE && verdict.retry_after_ms <= 5 * TW_DAY);
    (void)strict_take(family, "k", 3, 73, TW_OK);
    assert_i64_equal(strict_take(family, "k", 0, 73, TW_OK).remaining, 0); /* n = 0: only reads */
    int64_t left_ms = atoll(redis_server_ask(&strict.server, "PTTL", BUCKET, NULL));
    assert_true(left_ms > 50 * TW_DAY - TW_MINUTE && left_ms <= 50 * TW_DAY + 1); /* both ends in whole ms */
    assert_true(atoll(redis_server_ask(&strict.server, "PTTL", CALLS, NULL)) > 500000);
    assert_i64_equal(test_stat_of(strict.engine, limit_admitted), 2);
    assert_i64_equal(test_stat_of(strict.engine, limit_denied), 1);
    strict_end(&strict);
}

/* Goal: calls that can never be admitted, calls of nothing, and calls of the largest amount have the right results. */
TEST(odd_calls_have_an_answer) {
    struct strict strict;
    tw_verdict verdict;
    int64_t taken = -1;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 0, TW_OUTAGE_LOCAL);
    assert_i64_equal(strict_take(family, "k", 11, 10, TW_DENIED).retry_after_ms, -1);
    assert_i64_equal(strict_take(family, "k", 1, 0, TW_DENIED).retry_after_ms, -1);
    assert_i64_equal(strict_take(family, "k", 0, 0, TW_OK).remaining, 0);
    assert_status(tw_acquire(family, tw_str("k"), -1, 10, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(family, tw_str("k"), 1, -1, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(family, tw_str("k"), TW_DELTA_MAX + 1, TW_DELTA_MAX, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(family, tw_str(""), 1, 10, &verdict), TW_ERR_KEY);
    assert_status(tw_acquire_some(family, tw_str("k"), 5, 0, &taken, &verdict), TW_DENIED);
    assert_i64_equal(taken, 0);
    assert_string_equal(redis_server_ask(&strict.server, "GET", BUCKET, NULL), ""); /* nothing was written */
    verdict = strict_take(family, "k", TW_DELTA_MAX, TW_DELTA_MAX, TW_OK);
    assert_i64_equal(verdict.reset_after_ms, YEAR);
    verdict = strict_take(family, "k", TW_DELTA_MAX, TW_DELTA_MAX, TW_DENIED);
    assert_true(verdict.retry_after_ms > YEAR - TW_MINUTE && verdict.retry_after_ms <= YEAR);
    tw_claim claim = {family, tw_str("k"), 1, 10};
    assert_status(tw_acquire_all(&claim, 1, &verdict), TW_ERR_MODE);
    assert_status(tw_refund(family, tw_str("k"), 1, verdict.window_start_ms), TW_ERR_MODE);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_ERR_MODE);
    assert_status(tw_get(family, tw_str("k"), NULL), TW_ERR_MODE);
    assert_status(tw_once(family, tw_str("k"), NULL), TW_ERR_MODE);
    assert_status(tw_fetch(family, &claim.key, 1, 1000, NULL), TW_ERR_MODE);
    assert_status(tw_flush(strict.engine, TEST_PATIENCE_MS), TW_OK);
    strict_end(&strict);
}

/* Goal: the units in the bucket stay the same when a call names another limit, and drain at its rate. */
TEST(another_limit_finds_the_same_units) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 0, TW_OUTAGE_LOCAL);
    (void)strict_take(family, "k", 5, 10, TW_OK);
    assert_i64_equal(strict_take(family, "k", 0, 20, TW_OK).used, 5);
    assert_i64_equal(strict_take(family, "k", 1, 20, TW_OK).used, 6);
    assert_i64_equal(strict_take(family, "k", 0, 4, TW_OK).used, 4); /* it is full */
    tw_verdict verdict = strict_take(family, "k", 1, 12, TW_OK);
    assert_i64_equal(verdict.used, 7);
    assert_true(verdict.reset_after_ms > YEAR / 12 * 7 - TW_MINUTE && verdict.reset_after_ms <= YEAR / 12 * 7);
    tw_family_options options = gcra_options("p", YEAR, TW_OUTAGE_LOCAL);
    options.redis_key = "p:%k:%Y%m%d%H%M%S";
    options.burst = 12;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_i64_equal(strict_take(family, "k", 0, 20, TW_OK).remaining, 5);
    assert_i64_equal(strict_take(family, "other", 5, 4, TW_DENIED).retry_after_ms, -1); /* the limit bounds the burst */
    (void)strict_take(family, "k", 6, 20, TW_DENIED);
    (void)strict_take(family, "k", 5, 20, TW_OK);
    strict_end(&strict);
}

/* Goal: a limit that is raised lets its callers in by the new rate, also if the bucket was full under the old one. */
TEST(a_raised_limit_locks_nobody_out) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, TW_HOUR, 2, TW_OUTAGE_LOCAL);
    (void)strict_take(family, "k", 2, 3, TW_OK);
    assert_true(strict_take(family, "k", 1, 3, TW_DENIED).retry_after_ms > 19 * TW_MINUTE);
    tw_verdict verdict = strict_take(family, "k", 1, 360000, TW_DENIED); /* a hundred units a second */
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 10);
    struct timespec nap = {0, 11 * 1000000};
    (void)nanosleep(&nap, NULL);
    (void)strict_take(family, "k", 1, 360000, TW_OK);
    strict_end(&strict);
}

/* Goal: tw_acquire_some() takes as many as there are, also if the reply is lost. A bucket that is empty again leaves
 * nothing in Redis. */
TEST(some_are_taken_and_the_rest_comes_back) {
    struct strict strict;
    tw_verdict verdict;
    int64_t taken = -1;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 10, TW_OUTAGE_LOCAL);
    assert_status(tw_acquire_some(family, tw_str("k"), 7, 50, &taken, &verdict), TW_OK);
    assert_i64_equal(taken, 7);
    strict_order(&strict, PROXY_DROP_REPLY, 1);
    assert_status(tw_acquire_some(family, tw_str("k"), 7, 50, &taken, &verdict), TW_OK);
    assert_i64_equal(taken, 3);
    assert_i64_equal(verdict.used, 10);
    assert_status(tw_acquire_some(family, tw_str("k"), 20, 50, &taken, &verdict), TW_DENIED);
    assert_i64_equal(taken, 0);
    assert_true(verdict.retry_after_ms > YEAR / 50 - TW_MINUTE && verdict.retry_after_ms <= YEAR / 50);
    tw_family_options options = gcra_options("quick", TW_SECOND, TW_OUTAGE_FAIL_CLOSED);
    options.burst = 1;
    tw_family *quick = strict_family(strict.engine, &options);
    (void)strict_take(quick, "k", 1, 10, TW_OK);
    assert_status(tw_acquire_wait(quick, tw_str("k"), 1, 10, 60000, &verdict), TW_OK);
    assert_int_equal(verdict.decided_by, TW_BY_REDIS);
    for (int64_t end_ms = test_mono_ms() + 15000;;) {
        if (strcmp(redis_server_ask(&strict.server, "KEYS", "tw:bucket:quick:*", NULL), "") == 0) break;
        assert_true(test_mono_ms() < end_ms);
        test_sleep_ms(5);
    }
    strict_end(&strict);
}

/* Goal: in shadow mode it decides, and denies no call. */
TEST(shadow_mode_admits_every_call) {
    struct strict strict;
    tw_verdict verdict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family_options options = gcra_options("p", YEAR, TW_OUTAGE_LOCAL);
    options.shadow = true;
    tw_family *family = strict_family(strict.engine, &options);
    (void)strict_take(family, "k", 10, 10, TW_OK);
    assert_status(tw_acquire(family, tw_str("k"), 1, 10, &verdict), TW_OK);
    assert_int_equal(verdict.allowed, 0);
    assert_i64_equal(test_stat_of(strict.engine, limit_shadow_denied), 1);
    strict_end(&strict);
}

/* ---- several engines ---- */

#define PROCESSES 3
#define THREADS 2

struct taker {
    tw_family *family;
    uint64_t seed;
    int64_t limit, got;
};

static void *take_until_denied(void *ctx) {
    struct taker *taker = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, taker->seed);
    for (int denied = 0; denied < 10;) {
        int64_t n = test_prng_between(&prng, 1, 5), taken = 0;
        tw_status status = TW_OK;
        if (test_prng_chance(&prng, 1, 2))
            status = tw_acquire_some(taker->family, tw_str("k"), n, taker->limit, &taken, NULL);
        else if ((status = tw_acquire(taker->family, tw_str("k"), n, taker->limit, NULL)) == TW_OK)
            taken = n;
        if (status < 0) return NULL;
        taker->got += taken;
        denied += status == TW_DENIED;
    }
    return NULL;
}

/* Takes all that it can get, in a process of its own. Negative: something failed. */
static int64_t take_in_a_process(const char *url, uint64_t seed, int64_t limit, int64_t burst) {
    struct taker takers[THREADS];
    pthread_t threads[THREADS];
    tw_options options;
    tw_engine *engine;
    int64_t got = 0;
    quick_options(&options, url);
    options.redis_timeout_ms = 60000;
    if (test_open(&options, &engine) != TW_OK) return INT64_MIN;
    tw_family_options wanted = gcra_options("p", TW_HOUR, TW_OUTAGE_FAIL_CLOSED);
    wanted.redis_key = "p:%k:%Y%m%d%H%M%S";
    wanted.burst = burst;
    tw_family *family = NULL; /* no assertion in a child: it would continue with the parent's tests */
    if (tw_family_open(engine, &wanted, &family) != TW_OK) return INT64_MIN;
    for (int i = 0; i < THREADS; i++) {
        takers[i] = (struct taker){family, seed + (uint64_t)i, limit, 0};
        if (pthread_create(&threads[i], NULL, take_until_denied, &takers[i]) != 0) return INT64_MIN;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        got += takers[i].got;
    }
    if (test_stat_of(engine, strict_fallbacks) != 0) got = INT64_MIN;
    (void)tw_close(engine, 1000);
    return got;
}

/* Goal: several processes get exactly the burst and what the rate gives by Redis's clock. The moment has moved by
 * exactly what they got, and is never more than a burst ahead. */
TEST(processes_together_get_the_burst_and_the_rate) {
    const int64_t limit = 18007, burst = 1500, first = 500, window_us = TW_HOUR * 1000; /* five a second */
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    int pipes[2];
    redis_server_start(&server, NULL);
    fflush(NULL);
    assert_int_equal(pipe(pipes), 0);
    pid_t children[PROCESSES];
    int go[2];
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = test_fork();
        if (children[i] != 0) continue;
        char word;
        bool told = read(go[0], &word, 1) == 1;
        int64_t got = told ? take_in_a_process(server.url, test_seed() + 100 * (uint64_t)i, limit, burst) : INT64_MIN;
        _exit(write(pipes[1], &got, sizeof got) == sizeof got ? 0 : 1);
    }
    quick_options(&options, server.url);
    options.redis_timeout_ms = 60000;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = gcra_family(engine, TW_HOUR, burst, TW_OUTAGE_FAIL_CLOSED);
    int64_t begin_us = redis_us(&server), total = first;
    (void)strict_take(family, "k", first, limit,
                      TW_OK); /* so that the bucket is not empty meanwhile, for a hundred seconds */
    int64_t filled_us = redis_us(&server);
    assert_int_equal(write(go[1], "123", PROCESSES), PROCESSES);
    close(pipes[1]); /* so that the read ends if a child dies */
    for (int i = 0; i < PROCESSES; i++) {
        int64_t got;
        assert_int_equal(read(pipes[0], &got, sizeof got), sizeof got);
        assert_true(got >= 0);
        total += got;
    }
    int64_t end_us = redis_us(&server);
    wide moment = moment_of(&server, limit), from = moment - (wide)total * window_us;
    assert_i64_equal(from % limit, 0);
    assert_true(from / limit >= begin_us && from / limit <= filled_us);
    assert_true(moment - (wide)end_us * limit <= (wide)burst * window_us);
    assert_true(total >= burst); /* no call was denied units that were there: each process stopped at a denial */
    assert_true((wide)total * window_us <= (wide)burst * window_us + (wide)(end_us - begin_us) * limit);
    print_message("# %lld admitted in %lld ms\n", (long long)total, (long long)(end_us - begin_us) / 1000);
    for (int i = 0; i < PROCESSES; i++) assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
    close(pipes[0]), close(go[0]), close(go[1]);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- lost replies ------------------------------------------------------------------------------------------------ */

/* Goal: a call whose reply is lost is sent again under the same number, and charged once (trap L11). */
TEST(a_lost_reply_is_charged_once) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REPLY, PROXY_CUT_REPLY,    PROXY_RESET, PROXY_GARBAGE,
                                              PROXY_TWICE,      PROXY_DROP_REQUEST, PROXY_HOLD};
    struct strict strict;
    strict_begin(&strict, STRICT_TRIES_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 0, TW_OUTAGE_FAIL_CLOSED);
    (void)strict_take(family, "k", 1, 1000, TW_OK);
    wide first = moment_of(&strict.server, 1000);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct proxy_order order = {.fault = faults[i], .times = 1, .at = 5, .text = "*2\r\n$1\r\n9\r\n+OK\r\n"};
        proxy_order(strict.proxy, &order);
        tw_verdict verdict = strict_take(family, "k", 1, 1000, TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        assert_i64_equal(verdict.used, (int64_t)i + 2);
        assert_true(moment_of(&strict.server, 1000) - first == (wide)(i + 1) * YEAR * 1000);
    }
    (void)strict_take(family, "k", 0, 1000, TW_OK); /* a held copy arrives before this reply */
    assert_true(moment_of(&strict.server, 1000) - first == (wide)(sizeof faults / sizeof *faults) * YEAR * 1000);
    assert_true(test_stat_of(strict.engine, asked_again) >= 4);
    assert_i64_equal(test_stat_of(strict.engine, asks_unknown), 0);
    strict_end(&strict);
}

static bool is_settled(void *ctx) {
    struct strict *strict = ctx;
    (void)tw_acquire(strict->family, tw_str("other"), 0, 1, NULL);
    return test_stat_of(strict->engine, asks_settled) == test_stat_of(strict->engine, asks_unknown);
}

/* Goal: a call of unknown outcome is charged once in the end if it was admitted here, and not at all if it was
 * denied. */
TEST(a_call_of_unknown_outcome_is_settled) {
    static const uint32_t policies[] = {TW_OUTAGE_LOCAL, TW_OUTAGE_FAIL_OPEN, TW_OUTAGE_FAIL_CLOSED};
    for (size_t i = 0; i < 3; i++) {
        struct strict strict;
        bool closed = policies[i] == TW_OUTAGE_FAIL_CLOSED;
        strict_begin(&strict, STRICT_IN_VAIN_MS, TW_OUTAGE_FAIL_CLOSED);
        tw_family *family = gcra_family(strict.engine, YEAR, 0, policies[i]);
        (void)strict_take(family, "k", 1, 1000, TW_OK);
        strict_order(&strict, PROXY_LOSE_REPLY, 20); /* executed, without a reply until the deadline */
        tw_verdict verdict = strict_take(family, "k", 10, 1000, closed ? TW_DENIED : TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
        strict_order(&strict, PROXY_PASS, 1);
        assert_i64_equal(test_stat_of(strict.engine, asks_unknown), 1);
        assert_true(test_wait(is_settled, &strict, TEST_PATIENCE_MS));
        assert_i64_equal(strict_take(family, "k", 0, 1000, TW_OK).used, closed ? 1 : 11);
        strict_end(&strict);
    }
}

/* Goal: whatever the network does to any number of calls, in the end the bucket has what was admitted, nothing twice.
 * Besides, it has at most the calls of unknown outcome, until time has drained them. */
TEST(what_was_admitted_is_what_is_charged) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REQUEST, PROXY_DROP_REPLY,  PROXY_LOSE_REQUEST,
                                              PROXY_LOSE_REPLY,   PROXY_CUT_REQUEST, PROXY_CUT_REPLY,
                                              PROXY_TWICE,        PROXY_HOLD,        PROXY_RESET};
    struct strict strict;
    pthread_t threads[4];
    struct hammer hammers[4];
    _Atomic int64_t admitted = 0;
    strict_begin(&strict, 40, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 500, TW_OUTAGE_FAIL_CLOSED);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) proxy_chance(strict.proxy, faults[i], 400);
    for (int i = 0; i < 4; i++) {
        hammers[i] = (struct hammer){.family = family,
                                     .seed = test_seed() ^ (uint64_t)i,
                                     .admitted = &admitted,
                                     .calls = (int64_t)test_scale(150),
                                     .limit = 600};
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_on, &hammers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) proxy_chance(strict.proxy, faults[i], 0);
    assert_true(test_wait(is_settled, &strict, TEST_PATIENCE_MS));
    assert_true(admitted <= 500);
    /* a unit is some 14 hours; each one taken back may leave a microsecond */
    int64_t used = 0;
    wide ahead = moment_of(&strict.server, 600) - (wide)redis_us(&strict.server) * 600;
    if (ahead > 0) used = (int64_t)((ahead + (wide)YEAR * 1000 - 1) / (YEAR * 1000));
    assert_true(used >= admitted); /* of several calls lost at once less may be taken back: time drains the rest */
    assert_true(used <= admitted + 5 * test_stat_of(strict.engine, asks_unknown));
    print_message("# %lld admitted, %lld asked again, %lld unknown\n", (long long)admitted,
                  (long long)test_stat_of(strict.engine, asked_again),
                  (long long)test_stat_of(strict.engine, asks_unknown));
    strict_end(&strict);
}

/* ---- without Redis ---- */

/* Makes 40 calls of 1 with Redis dead; returns how many were admitted, and checks the verdicts. */
static int64_t call_without_redis(tw_family *family, const char *key) {
    int64_t admitted = 0;
    for (int calls = 0; calls < 40; calls++) {
        tw_verdict verdict;
        tw_status status = tw_acquire(family, tw_str(key), 1, 10, &verdict);
        assert_true(status == TW_OK || status == TW_DENIED);
        assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
        assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
        assert_int_equal(verdict.allowed, status == TW_OK);
        assert_i64_equal(verdict.used + verdict.remaining, verdict.cause == TW_CAUSE_OUTAGE ? 0 : 10);
        assert_int_equal(verdict.retry_after_ms > 0, status == TW_DENIED);
        admitted += status == TW_OK;
    }
    return admitted;
}

/* Goal: with Redis dead the policy decides, and TW_OUTAGE_LOCAL decides by Redis's last reply. When Redis is back the
 * later moment holds. */
TEST(a_dead_redis_is_an_outage) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    static const uint32_t policies[] = {TW_OUTAGE_LOCAL, TW_OUTAGE_FAIL_OPEN, TW_OUTAGE_FAIL_CLOSED,
                                        TW_OUTAGE_FAIL_CLOSED};
    static const uint32_t graces_ms[] = {0, 0, 0, 86400000}; /* within it: as LOCAL */
    static const int64_t admitted[] = {6, 40, 0, 6}, some[] = {10, 25, 0, 10}, used[] = {10, 10, 4, 10};
    for (size_t i = 0; i < 4; i++) {
        struct redis_server server;
        tw_options options;
        tw_engine *engine;
        int64_t taken = -1;
        char key[16];
        redis_server_start(&server, durable);
        quick_options(&options, server.url);
        /* A call that is not answered in time is admitted here. Then Redis's answers are adopted no more for a year. */
        options.redis_timeout_ms = STRICT_LONG_MS;
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family_options wanted = gcra_options("p", YEAR, policies[i]);
        wanted.redis_key = "p:%k:%Y%m%d%H%M%S";
        wanted.outage_grace_ms = graces_ms[i];
        tw_family *family = strict_family(engine, &wanted);
        strict_begin_key(family, 4, 10, key);
        redis_server_kill(&server);
        assert_i64_equal(call_without_redis(family, key), admitted[i]);
        (void)tw_acquire_some(family, tw_str("new"), 25, 10, &taken, NULL);
        assert_i64_equal(taken, some[i]);
        tw_verdict verdict = strict_take(family, key, 11, 10, policies[i] == TW_OUTAGE_FAIL_OPEN ? TW_OK : TW_DENIED);
        assert_i64_equal(verdict.retry_after_ms, policies[i] == TW_OUTAGE_FAIL_OPEN ? 0 : -1);
        redis_server_restart(&server);
        strict_await_redis(family, "other");
        verdict = strict_take(family, key, 0, 10, TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        assert_i64_equal(verdict.used, used[i]);
        (void)strict_take(family, key, 7, 10, TW_DENIED);
        (void)strict_take(family, "new", 1, 10, some[i] == 0 ? TW_OK : TW_DENIED);
        /* another engine sees it, too */
        tw_engine *other = quick_engine(server.url, NULL);
        tw_family *others = gcra_family(other, YEAR, 0, TW_OUTAGE_LOCAL);
        assert_i64_equal(strict_take(others, key, 0, 10, TW_OK).used, used[i]);
        assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

/* Goal: after an outage each request reports this engine's bucket to Redis. However often that happens, the moment
 * moves once, and by no more than the time on the way. */
TEST(a_bucket_reported_after_an_outage_counts_once) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, TW_HOUR, 0, TW_OUTAGE_LOCAL);
    redis_server_ask(&strict.server, "SET", CALLS, "x", NULL); /* so Redis refuses the request */
    assert_int_equal(strict_take(family, "k", 500, 1000, TW_OK).decided_by, TW_BY_OUTAGE);
    redis_server_ask(&strict.server, "DEL", CALLS, NULL);
    int64_t longest_ms = 0;
    strict_await_redis(family, "other");
    assert_int_equal(strict_take(family, "k", 0, 1000, TW_OK).decided_by, TW_BY_REDIS);
    wide first = moment_of(&strict.server, 1000);
    assert_true(first != 0);
    for (uint64_t looks = test_scale(3000); looks > 0; looks--) {
        int64_t began_ms = test_mono_ms();
        (void)strict_take(family, "k", 0, 1000, TW_OK);
        if (test_mono_ms() - began_ms > longest_ms) longest_ms = test_mono_ms() - began_ms;
    }
    int64_t later_ms = (int64_t)((moment_of(&strict.server, 1000) - first) / 1000000);
    print_message("# %lld ms later\n", (long long)later_ms);
    assert_true(later_ms <= longest_ms + test_stat_of(strict.engine, clock_lag_max_ms) + 10);
    strict_end(&strict);
}

/* Goal: a key that holds another type is decided here and left as it is; Redis decides the other keys. */
TEST(a_key_of_another_kind_is_refused_alone) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = gcra_family(strict.engine, YEAR, 0, TW_OUTAGE_FAIL_CLOSED);
    redis_server_ask(&strict.server, "SET", BUCKET, "often", NULL);
    tw_verdict verdict = strict_take(family, "k", 1, 10, TW_DENIED);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    test_assert_cause(&verdict, TW_CAUSE_OUTAGE);
    assert_i64_equal(verdict.reset_after_ms, YEAR); /* surely empty by then */
    assert_int_equal(strict_take(family, "k2", 1, 10, TW_OK).decided_by, TW_BY_REDIS);
    assert_string_equal(redis_server_ask(&strict.server, "GET", BUCKET, NULL), "often");
    redis_server_ask(&strict.server, "DEL", BUCKET, NULL);
    redis_server_ask(&strict.server, "SADD", BUCKET, "1", NULL);
    assert_int_equal(strict_take(family, "k", 1, 10, TW_DENIED).decided_by, TW_BY_OUTAGE);
    assert_string_equal(redis_server_ask(&strict.server, "TYPE", BUCKET, NULL), "set");
    redis_server_ask(&strict.server, "DEL", BUCKET, NULL);
    assert_int_equal(strict_take(family, "k", 1, 10, TW_OK).decided_by, TW_BY_REDIS);
    redis_server_ask(&strict.server, "DEL", CALLS, NULL);
    redis_server_ask(&strict.server, "SET", CALLS, "x", NULL);
    assert_int_equal(strict_take(family, "k", 1, 10, TW_DENIED).decided_by, TW_BY_OUTAGE);
    assert_i64_equal(test_stat_of(strict.engine, strict_fallbacks), 3);
    strict_end(&strict);
}

/* Goal: the permissions in docs/KEYS.md suffice; without SET the policy decides, and nothing is charged. */
TEST(the_permissions_of_the_manual_suffice) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    char url[200];
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "reset", "on", ">pw", "~acl:*", redis_server_no_channels(),
                     "-@all", "+evalsha", "+eval", "+ping", "+info", "+time", "+get", "+hmget", "+hset", "+hscan",
                     "+hdel", "+incrby", "+pttl", "+pexpire", "+pexpireat", "+zadd", "+zremrangebyscore", "+zcard",
                     "+hget", "+set", NULL);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = gcra_family(engine, YEAR, 0, TW_OUTAGE_FAIL_CLOSED);
    assert_int_equal(strict_take(family, "k", 1, 2, TW_OK).decided_by, TW_BY_REDIS);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "-set", NULL);
    assert_int_equal(strict_take(family, "k", 1, 2, TW_DENIED).decided_by, TW_BY_OUTAGE);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "+set", NULL);
    assert_i64_equal(strict_take(family, "k", 1, 2, TW_OK).used, 2);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: options that GCRA does not support are refused, and the error names the field. */
TEST(options_that_gcra_does_not_support_are_refused) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    for (uint32_t merge = TW_MERGE_SCRIPT; merge <= TW_MERGE_MULTI; merge += TW_MERGE_MULTI - TW_MERGE_SCRIPT) {
        quick_options(&options, server.url);
        options.merge = merge;
        assert_status(test_open(&options, &engine), TW_OK);
        const struct {
            uint32_t mode, window, on_outage;
            const char *field; /* NULL: the options are accepted */
        } cases[] = {
            {TW_LIMIT_STRICT, TW_WINDOW_ALIGNED, TW_OUTAGE_FAIL_OPEN, merge == TW_MERGE_SCRIPT ? NULL : "limit_mode:"},
            {TW_LIMIT_SOFT, TW_WINDOW_ALIGNED, TW_OUTAGE_LOCAL, "limit_shape:"},
            {TW_LIMIT_HARD, TW_WINDOW_ALIGNED, TW_OUTAGE_LOCAL, "limit_shape:"},
            {TW_LIMIT_STRICT, TW_WINDOW_DAY, TW_OUTAGE_LOCAL, "limit_"},
            {TW_LIMIT_STRICT, TW_WINDOW_ALIGNED, TW_OUTAGE_SHARE,
             merge == TW_MERGE_SCRIPT ? "on_outage:" : "limit_mode:"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char error[200] = "";
            tw_family *family;
            tw_family_options wanted = gcra_options("p", 0, cases[i].on_outage);
            wanted.window = cases[i].window;
            wanted.limit_mode = cases[i].mode;
            wanted.error_text = error;
            wanted.error_size = sizeof error;
            tw_status status = tw_family_open(engine, &wanted, &family);
            assert_status(status, cases[i].field != NULL ? TW_ERR_OPTIONS : TW_OK);
            if (cases[i].field != NULL) assert_memory_equal(error, cases[i].field, strlen(cases[i].field));
        }
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    }
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
