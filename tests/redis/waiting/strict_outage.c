/* strict_outage.c -- strict limits and locks while Redis is away, silent, hostile or another server: a result within
 * the deadline, as on_outage says, and nothing charged twice. */
#include "tests/redis/waiting/strict_support.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLACK_MS 1000 /* for a busy machine */

static const uint32_t policies[] = {TW_OUTAGE_LOCAL, TW_OUTAGE_FAIL_OPEN, TW_OUTAGE_FAIL_CLOSED};

/* A moment of this thread, by a clock that stands while the thread wants to run and gets no processor. */
static int64_t own_ms(void) {
    return test_mono_ms() - test_starved_ms();
}

/* Goal: with Redis dead the policy decides, at once when the breaker is open. When Redis is back it decides again, and
 * what was admitted meanwhile is counted there once. */
TEST(a_dead_redis_is_an_outage) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        tw_options options;
        tw_engine *engine;
        char key[16], name[24];
        redis_server_start(&server, durable);
        quick_options(&options, server.url);
        options.redis_timeout_ms = 300;
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family_options family_options = strict_options("s");
        family_options.on_outage = policies[i];
        tw_family *family = strict_family(engine, &family_options);
        strict_begin_key(family, 4, 10, key);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK); /* brings the total to this engine, too */
        redis_server_kill(&server);
        int64_t began_ms = own_ms(), admitted = 0;
        for (int calls = 0; calls < 40; calls++) {
            tw_verdict verdict;
            tw_status status = tw_acquire(family, tw_str(key), 1, 10, &verdict);
            assert_true(status == TW_OK || status == TW_DENIED);
            assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
            assert_int_equal(verdict.allowed, status == TW_OK);
            admitted += status == TW_OK;
        }
        assert_true(own_ms() - began_ms < 2000 + SLACK_MS);
        assert_i64_equal(admitted, policies[i] == TW_OUTAGE_LOCAL ? 6 : policies[i] == TW_OUTAGE_FAIL_OPEN ? 40 : 0);
        assert_true(test_stat_of(engine, ask_away) > 0);
        redis_server_restart(&server);
        strict_await_redis(family, "other");
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        snprintf(name, sizeof name, "s:%s", key);
        assert_i64_equal(redis_server_get(&server, name), 4 + admitted);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

/* The system's clocks, moved ahead. */
static int64_t clock_ahead(void *ctx, int kind) {
    struct timespec now;
    (void)clock_gettime(kind == TW_CLOCK_WALL ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + atomic_load((_Atomic int64_t *)ctx);
}

static bool is_seen_away(void *ctx) {
    return test_stat_of(ctx, breaker_state) != 0 && test_stat_of(ctx, outage_ms) > 0;
}

static bool is_seen_back(void *ctx) {
    return test_stat_of(ctx, breaker_state) == 0 && test_stat_of(ctx, outage_ms) == 0;
}

/* Checks what fail-closed families with that grace return in an outage, for all three calls that on_outage decides.
 * Within the grace, what is known here decides in place of Redis. */
static void assert_grace(tw_engine *engine, tw_family *family, const char *key, bool over) {
    bool first = false;
    for (int64_t units = 3; units > 0; units--)
        assert_int_equal(strict_take(family, key, 1, 3, over ? TW_DENIED : TW_OK).decided_by, TW_BY_OUTAGE);
    assert_int_equal(strict_take(family, key, 1, 3, TW_DENIED).decided_by, TW_BY_OUTAGE);
    char once[32];
    snprintf(once, sizeof once, "once-%s", key);
    tw_status status = tw_once(family, tw_str(once), &first);
    assert_true(over ? status == TW_ERR_REDIS || status == TW_ERR_TIMEOUT : status == TW_OK && first);
    tw_verdict verdict;
    assert_status(tw_hold(family, tw_str(key), 1, &verdict), over ? TW_DENIED : TW_OK);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    if (!over) assert_status(tw_hold_release(family, tw_str(key)), TW_OK);
    assert_true(test_stat_of(engine, strict_fallbacks) > 0);
}

/* Goal: for the grace after Redis's last reply, what is known here decides; afterwards on_outage does. One clock serves
 * a whole outage, also for a family without calls in it, and starts anew with the next outage. An error of one key is
 * no outage. */
TEST(within_the_grace_what_is_known_here_decides) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    _Atomic int64_t ahead_ns = 0;
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, durable);
    quick_options(&options, server.url);
    options.clock_now_ns = clock_ahead;
    options.clock_ctx = &ahead_ns;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family_options family_options = strict_options("s"), late_options = strict_options("late");
    family_options.on_outage = late_options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    family_options.outage_grace_ms = late_options.outage_grace_ms = TW_HOUR;
    tw_family *family = strict_family(engine, &family_options), *late = strict_family(engine, &late_options);
    strict_await_redis(family, "other");
    redis_server_ask(&server, "RPUSH", "s:list", "x", NULL);
    assert_int_equal(strict_take(family, "list", 1, 3, TW_DENIED).decided_by, TW_BY_OUTAGE);
    for (int outage = 0; outage < 2; outage++) {
        redis_server_kill(&server);
        assert_true(test_wait(is_seen_away, engine, TEST_PATIENCE_MS));
        assert_grace(engine, family, outage == 0 ? "a" : "b", false);
        atomic_fetch_add(&ahead_ns, (TW_HOUR + TW_MINUTE) * 1000000);
        assert_grace(engine, family, "c", true);
        if (outage == 0) assert_grace(engine, late, "c", true);
        redis_server_restart(&server);
        strict_await_redis(family, "other");
        assert_true(test_wait(is_seen_back, engine, TEST_PATIENCE_MS));
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

struct caller {
    tw_engine *engine; /* of a flush */
    tw_family *family;
    int64_t slowest_ms;
    tw_status status;
};

static void *call_once(void *argument) {
    struct caller *caller = argument;
    int64_t began_ms = own_ms();
    caller->status = tw_acquire(caller->family, tw_str("k"), 1, 1000, NULL);
    caller->slowest_ms = own_ms() - began_ms;
    return NULL;
}

static void *flush_once(void *argument) {
    struct caller *caller = argument;
    int64_t began_ms = own_ms();
    caller->status = tw_flush(caller->engine, 30000);
    caller->slowest_ms = own_ms() - began_ms;
    return NULL;
}

static void *fetch_once(void *argument) {
    struct caller *caller = argument;
    int64_t total, began_ms = own_ms();
    tw_key key = tw_str("k");
    caller->status = tw_fetch(caller->family, &key, 1, 30000, &total);
    caller->slowest_ms = own_ms() - began_ms;
    return NULL;
}

#define CALLERS 24

/* Each is denied within the deadline. Returns false if one was busy: its link has answered others meanwhile. */
static bool callers_are_denied(tw_family *family) {
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    int busy = 0;
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.family = family};
        assert_int_equal(pthread_create(&threads[i], NULL, call_once, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        if (callers[i].status == TW_ERR_BUSY)
            busy++;
        else
            assert_status(callers[i].status, TW_DENIED);
        assert_true(callers[i].slowest_ms < 250 + SLACK_MS);
    }
    return busy == 0;
}

static void fall_silent(struct strict *strict, int round) {
    if (round == 0) {
        redis_server_pause(&strict->server);
    } else {
        proxy_manner(strict->proxy, PROXY_SILENT);
        proxy_cut_all(strict->proxy);
    }
}

static void speak_again(struct strict *strict) {
    redis_server_resume(&strict->server);
    proxy_manner(strict->proxy, PROXY_OPEN);
    proxy_cut_all(strict->proxy);
}

/* Goal: Redis hangs, and later accepts connections but sends nothing: every caller has a result within the deadline,
 * also callers beyond the number of connections. On a busy machine the engine may read answers during these calls that
 * Redis sent before the silence. The calls are busy then, and the silence begins again. */
TEST(a_black_hole_is_answered_in_time) {
    struct strict strict;
    strict_begin(&strict, 250, TW_OUTAGE_FAIL_CLOSED);
    strict_await_redis(strict.family, "k");
    for (int round = 0; round < 2; round++) {
        int tries = 0;
        for (fall_silent(&strict, round); !callers_are_denied(strict.family); fall_silent(&strict, round)) {
            assert_true(++tries < 5);
            speak_again(&strict);
            strict_await_redis(strict.family, "k");
        }
        test_sleep_ms(20);
    }
    speak_again(&strict);
    strict_await_redis(strict.family, "other");
    strict_end(&strict);
}

struct trier {
    tw_family *family;
    _Atomic int64_t calls; /* that have ended */
    _Atomic bool stop;
};

static void *call_again(void *argument) {
    struct trier *trier = argument;
    while (!atomic_load(&trier->stop)) {
        (void)tw_acquire(trier->family, tw_str("k"), 1, 1000, NULL);
        atomic_fetch_add(&trier->calls, 1);
        test_sleep_ms(1);
    }
    return NULL;
}

struct trying {
    struct strict *strict;
    struct trier *trier;
    int64_t calls;
};

/* Nobody else calls: the trier's call number `calls` waits for Redis. */
static bool is_trying(void *ctx) {
    struct trying *trying = ctx;
    trying->calls = atomic_load(&trying->trier->calls);
    return test_stat_of(trying->strict->engine, ask_active) == 1 && atomic_load(&trying->trier->calls) == trying->calls;
}

/* Goal: when the breaker is half-open one caller tries; all others get a result at once. Method: one thread calls again
 * and again. While one of its calls waits for Redis, seven others call, and have their results before that call ends.
 * On a busy machine the seven may come too late for it: then they come to a later one. */
TEST(one_caller_tries_for_all) {
    struct strict strict;
    struct caller callers[7];
    pthread_t threads[7], thread;
    bool tried_alone = false;
    strict_begin(&strict, STRICT_IN_VAIN_MS, TW_OUTAGE_FAIL_CLOSED);
    strict_await_redis(strict.family, "k");
    redis_server_pause(&strict.server);
    (void)strict_take(strict.family, "k", 1, 1000, TW_DENIED); /* opens the breaker, for 60 ms at most */
    struct trier trier = {.family = strict.family};
    struct trying trying = {&strict, &trier, 0};
    assert_int_equal(pthread_create(&thread, NULL, call_again, &trier), 0);
    for (int round = 0; round < 5 && !tried_alone; round++) {
        assert_true(test_wait(is_trying, &trying, TEST_PATIENCE_MS));
        for (int i = 0; i < 7; i++) {
            callers[i] = (struct caller){.family = strict.family};
            assert_int_equal(pthread_create(&threads[i], NULL, call_once, &callers[i]), 0);
        }
        for (int i = 0; i < 7; i++) {
            pthread_join(threads[i], NULL);
            assert_status(callers[i].status, TW_DENIED);
        }
        tried_alone = atomic_load(&trier.calls) == trying.calls;
    }
    assert_true(tried_alone);
    atomic_store(&trier.stop, true);
    pthread_join(thread, NULL);
    redis_server_resume(&strict.server);
    strict_await_redis(strict.family, "other");
    strict_end(&strict);
}

/* Goal: a reply of an unknown form counts as none, costs the connection, and admits no call. */
TEST(a_hostile_answer_admits_nobody) {
    static const char *const texts[] = {
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*1\r\n" PROXY_SERIAL,
        "*2\r\n" PROXY_SERIAL "$4\r\nFINE\r\n",
        "*2\r\n" PROXY_SERIAL "*2\r\n:1\r\n:2\r\n",
        "*2\r\n*1\r\n" PROXY_SERIAL "$2\r\nOK\r\n",
        "*3\r\n" PROXY_SERIAL "-ERR within\r\n:1\r\n",
        "*12\r\n" PROXY_SERIAL "$2\r\nOK\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "*2\r\n$6\r\n999999\r\n$2\r\nOK\r\n",
        "-ERR what nobody has heard of\r\n",
        "-NOSCRIPT again and again\r\n",
        "-WRONGTYPE Operation against a key\r\n",
        "-OOM command not allowed\r\n",
        "-LOADING Redis is loading\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-READONLY You can't write\r\n",
        "*1000000\r\n",
        "$999999999\r\n",
        "hello\r\n",
    };
    struct strict strict;
    strict_begin(&strict, 40, TW_OUTAGE_FAIL_CLOSED);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct proxy_order order = {.fault = PROXY_ANSWER, .times = 1000, .text = texts[i]};
        int64_t began_ms = own_ms();
        proxy_order(strict.proxy, &order);
        tw_verdict verdict;
        tw_status status = tw_acquire(strict.family, tw_str("k"), 1, 1000, &verdict);
        /* while a connection is made, and within 300 ms after a byte, it is no outage yet (twi_link_serves()) */
        assert_true(status == TW_DENIED || status == TW_ERR_BUSY || status == TW_ERR_TIMEOUT);
        assert_false(verdict.allowed);
        assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
        assert_true(own_ms() - began_ms < 40 + SLACK_MS);
    }
    struct proxy_order pass = {.fault = PROXY_PASS, .times = 1};
    proxy_order(strict.proxy, &pass);
    strict_await_redis(strict.family, "other");
    assert_i64_equal(redis_server_get(&strict.server, "s:k"), 0);
    strict_end(&strict);
}

/* Goal: a counter that is no number is refused alone: the policy decides it, other keys go on, and the breaker stays
 * closed. */
TEST(a_key_of_another_kind_is_refused_alone) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    redis_server_ask(&strict.server, "RPUSH", "s:list", "x", NULL);
    redis_server_ask(&strict.server, "SET", "s:text", "many", NULL);
    redis_server_ask(&strict.server, "SET", "s:full", "9223372036854775800", NULL);
    assert_int_equal(strict_take(strict.family, "list", 1, 10, TW_DENIED).decided_by, TW_BY_OUTAGE);
    assert_int_equal(strict_take(strict.family, "text", 1, 10, TW_DENIED).decided_by, TW_BY_OUTAGE);
    assert_int_equal(strict_take(strict.family, "full", 1, 10, TW_DENIED).decided_by, TW_BY_REDIS);
    assert_int_equal(strict_take(strict.family, "k", 1, 10, TW_OK).decided_by, TW_BY_REDIS);
    assert_i64_equal(test_stat_of(strict.engine, asks_unknown), 0);
    strict_end(&strict);
}

/* Goal: a server that forgets its scripts costs one more round trip. */
TEST(forgotten_scripts_are_sent_again) {
    struct strict strict;
    char token[TW_TOKEN_SIZE];
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    for (int i = 0; i < 3; i++) {
        redis_server_ask(&strict.server, "SCRIPT", "FLUSH", NULL);
        assert_i64_equal(strict_take(strict.family, "k", 1, 10, TW_OK).used, i + 1);
        redis_server_ask(&strict.server, "SCRIPT", "FLUSH", NULL);
        assert_status(tw_lock(strict.family, tw_str("k"), 1000, token, NULL), TW_OK);
        assert_status(tw_lock_release(strict.family, tw_str("k"), token), TW_OK);
    }
    assert_i64_equal(test_stat_of(strict.engine, asked_again), 0);
    strict_end(&strict);
}

/* Goal: a refused login is an outage with slow retries, and the password appears nowhere. */
TEST(a_refused_login_is_an_outage) {
    struct redis_server server;
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    tw_stats stats;
    char url[200], token[TW_TOKEN_SIZE];
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "CONFIG", "SET", "requirepass", "right", NULL);
    snprintf(url, sizeof url, "unix://:wrong-secret@%s", server.socket);
    quick_options(&options, url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family_options family_options = strict_options("s");
    tw_family *family = strict_family(engine, &family_options);
    for (int i = 0; i < 20; i++)
        assert_int_equal(strict_take(family, "k", 1, 20, TW_OK).decided_by, TW_BY_OUTAGE); /* decided here */
    assert_int_equal(strict_take(family, "k", 1, 20, TW_DENIED).decided_by, TW_BY_OUTAGE);
    assert_status(tw_lock(family, tw_str("k"), 1000, token, NULL), TW_ERR_REDIS);
    assert_i64_equal(test_stat_of(engine, ask_refused), 1);
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    assert_null(strstr(stats.last_error, "wrong-secret"));
    (void)tw_close(engine, 100);
    assert_null(strstr(lines.text, "wrong-secret"));
    redis_server_destroy(&server);
}

/* Goal: a user with the permissions in docs/KEYS.md can make all of these calls; without them a call has the result of
 * an outage. */
TEST(the_permissions_of_the_manual_suffice) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    char url[200], token[TW_TOKEN_SIZE];
    bool first = false;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "reset", "on", ">pw", "~acl:*", redis_server_no_channels(),
                     "-@all", "+evalsha", "+eval", "+ping", "+info", "+time", "+get", "+hmget", "+hset", "+hscan",
                     "+hdel", "+incrby", "+pttl", "+pexpire", "+pexpireat", "+zadd", "+zremrangebyscore", "+zcard",
                     "+hget", "+zscore", "+zrem", "+zrangebyscore", "+zrevrange", "+set", "+del", NULL);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    options.redis_timeout_ms = 5000; /* Redis decides each call, on a busy machine, too; a refused one takes it all */
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family_options family_options = strict_options("s"), log_options = strict_options("log");
    family_options.on_outage = log_options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    log_options.window = TW_WINDOW_ALIGNED;
    log_options.window_ms = TW_SECOND;
    log_options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *family = strict_family(engine, &family_options), *log = strict_family(engine, &log_options);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(strict_take(family, "k", 1, 2, TW_OK).decided_by, TW_BY_REDIS);
        assert_int_equal(strict_take(log, "k", 1, 2, TW_OK).decided_by, TW_BY_REDIS);
        if (i == 0) test_sleep_ms(1010); /* until it slides out of the window */
    }
    assert_int_equal(strict_take(family, "k", 1, 2, TW_DENIED).decided_by, TW_BY_REDIS);
    assert_status(tw_once(family, tw_str("once"), &first), TW_OK);
    assert_true(first);
    assert_status(tw_once_cancel(family, tw_str("once")), TW_OK);
    assert_status(tw_lock(family, tw_str("l"), 1000, token, NULL), TW_OK);
    assert_status(tw_lock_extend(family, tw_str("l"), token, 2000), TW_OK);
    assert_status(tw_lock_release(family, tw_str("l"), token), TW_OK);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "-hget", NULL);
    assert_int_equal(strict_take(family, "k", 1, 9, TW_DENIED).decided_by, TW_BY_OUTAGE);
    assert_i64_equal(redis_server_get(&server, "acl:s:k"), 2);
    /* tw_close() waits until that call is settled */
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "+hget", NULL);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: tw_stop() ends calls that wait, at once. */
TEST(stopping_ends_calls_that_wait) {
    struct strict strict;
    struct caller callers[12];
    pthread_t threads[12];
    strict_begin(&strict, 30000, TW_OUTAGE_FAIL_CLOSED);
    tw_family *soft = family_of(strict.engine, "soft", TW_WINDOW_FOREVER, 0);
    (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
    redis_server_pause(&strict.server);
    assert_status(tw_add(soft, tw_str("k"), 1, NULL), TW_OK);
    for (int i = 0; i < 12; i++) {
        callers[i] = (struct caller){.engine = strict.engine, .family = i == 1 ? soft : strict.family};
        void *(*call)(void *) = i == 0 ? flush_once : i == 1 ? fetch_once : call_once;
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    test_sleep_ms(50);
    assert_status(tw_stop(strict.engine), TW_OK);
    for (int i = 0; i < 12; i++) {
        pthread_join(threads[i], NULL);
        /* Redis may have executed what was sent */
        assert_true(callers[i].status == TW_ERR_TIMEOUT || callers[i].status == TW_ERR_CLOSED);
        assert_true(callers[i].slowest_ms < 50 + SLACK_MS);
    }
    redis_server_resume(&strict.server);
    strict_end(&strict);
}

static bool hook_was_refused;
static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    char token[TW_TOKEN_SIZE];
    (void)ctx, (void)start_ms, (void)end_ms, (void)flags;
    hook_was_refused = tw_acquire(family, tw_str("k"), 1, 10, NULL) == TW_ERR_MODE &&
                       tw_lock(family, tw_str("k"), 10, token, NULL) == TW_ERR_MODE;
    return true;
}

/* Goal: no call waits in a host-driven engine, in a hook, or inside tw_enter(). */
TEST(nobody_waits_where_one_may_not) {
    struct strict strict;
    tw_options options;
    tw_engine *driven;
    tw_verdict verdict;
    bool first;
    char token[TW_TOKEN_SIZE];
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_enter(strict.engine);
    assert_status(tw_acquire(strict.family, tw_str("k"), 1, 10, &verdict), TW_ERR_MODE);
    assert_int_equal(verdict.allowed, 0);
    assert_i64_equal(verdict.limit, 10);
    assert_status(tw_once(strict.family, tw_str("k"), &first), TW_ERR_MODE);
    tw_leave(strict.engine);
    quick_options(&options, strict.server.url);
    options.threads = TW_HOST_DRIVEN;
    assert_status(test_open(&options, &driven), TW_OK);
    tw_family_options family_options = strict_options("s");
    tw_family *family = strict_family(driven, &family_options);
    assert_status(tw_acquire(family, tw_str("k"), 1, 10, NULL), TW_ERR_MODE);
    assert_status(tw_lock(family, tw_str("k"), 10, token, NULL), TW_ERR_MODE);
    (void)tw_close(driven, 100);
    family_options.name = "hooked";
    family_options.window = TW_WINDOW_ALIGNED;
    family_options.window_ms = TW_HOUR;
    family_options.on_window_closed = on_closed;
    family = strict_family(strict.engine, &family_options);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    strict_end(&strict); /* closes the window */
    assert_true(hook_was_refused);
}

/* Goal: a forked child uses connections of its own; the parent's stay open. */
TEST(a_forked_child_asks_for_itself) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    (void)strict_take(strict.family, "k", 1, 10, TW_OK);
    fflush(NULL);
    pid_t child = test_fork();
    if (child == 0) {
        tw_verdict verdict;
        bool right = tw_acquire(strict.family, tw_str("k"), 1, 10, &verdict) == TW_OK && verdict.used == 2 &&
                     verdict.decided_by == TW_BY_REDIS;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_i64_equal(strict_take(strict.family, "k", 1, 10, TW_OK).used, 3);
    assert_i64_equal(test_stat_of(strict.engine, asked_again), 0); /* no connection was closed */
    strict_end(&strict);
}

/* The engine has closed every connection to that port that the other side has closed. Method: the system's list of
 * sockets: "number: own-address:port other-address:port state ...", all hexadecimal. */
static bool is_none_half_closed(void *port) {
    enum { CLOSE_WAIT = 8 };
    char line[256];
    bool is_none = true;
    FILE *sockets = fopen("/proc/self/net/tcp", "r");
    assert_non_null(sockets);
    while (fgets(line, sizeof line, sockets) != NULL) {
        unsigned to, state;
        if (sscanf(line, " %*u: %*x:%*x %*x:%x %x", &to, &state) != 2) continue;
        is_none = is_none && (to != *(unsigned *)port || state != CLOSE_WAIT);
    }
    fclose(sockets);
    return is_none;
}

/* Goal: connections that Redis closes because they are idle are noticed before they are used. */
TEST(an_idle_connection_may_be_closed) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    unsigned port = (unsigned)strtoul(strrchr(proxy_url(strict.proxy), ':') + 1, NULL, 10);
    for (int i = 0; i < 3; i++) {
        assert_i64_equal(strict_take(strict.family, "k", 1, 10, TW_OK).used, i + 1);
        proxy_cut_all(strict.proxy);
        assert_true(test_wait(is_none_half_closed, &port, TEST_PATIENCE_MS));
    }
    assert_i64_equal(test_stat_of(strict.engine, asked_again), 0);
    assert_i64_equal(test_stat_of(strict.engine, ask_connects), 3);
    strict_end(&strict);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
