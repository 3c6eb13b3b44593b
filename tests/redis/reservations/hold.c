/* hold.c -- at most so many holds in flight over several processes: never one too many, whatever is lost. The holds of
 * a killed process are free when their life ends; a stopped process sends its holds again. Method: a hold lives for 1.5
 * s here in place of 15 s.
 * Covers: engine/reserve/hold.c, sync/script/hold.lua, sync/message/presence.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include "engine/port/messages.h"
#include "engine/reserve/hold_book.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIFE_MS 1500

static struct redis_server server;

/* The holds whose life is not over. */
static int64_t in_flight(void) {
    return atoll(redis_server_ask(&server, "EVAL",
                                  "local t = redis.call('TIME') return redis.call('ZCOUNT', 'tw:hold:jobs:a', "
                                  "t[1] * 1000 + math.floor(t[2] / 1000), '+inf')",
                                  "0", NULL));
}

static bool are_in_flight(void *ctx) {
    return in_flight() == *(int64_t *)ctx;
}

static void await_in_flight(int64_t count) {
    if (!test_wait(are_in_flight, &count, 4 * LIFE_MS))
        fail_msg("%lld in flight, not %lld", (long long)in_flight(), (long long)count);
}

static bool is_gone(void *ctx) {
    return strcmp(redis_server_ask(&server, "EXISTS", "tw:hold:jobs:a", NULL), "0") == 0;
}

struct reconnect {
    tw_engine *engine;
    int64_t connects;
};
static bool has_connected(void *ctx) {
    struct reconnect *reconnect = ctx;
    return test_stat_of(reconnect->engine, connects) > reconnect->connects;
}

static bool may_hold(void *ctx) {
    return tw_hold(ctx, tw_str("a"), 3, NULL) == TW_OK;
}

/* Goal: when all engines with holds are dead at once, a new hold is admitted. */
TEST(holds_of_dead_engines_make_room) {
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
    redis_server_ask(&server, "ZADD", "tw:hold:jobs:a", "1", "dead:1", "2", "dead:2", NULL);
    assert_status(tw_hold(family, tw_str("a"), 0, NULL), TW_DENIED);
    redis_server_ask(&server, "ZADD", "tw:hold:jobs:a", "1", "dead:1", "2", "dead:2", NULL);
    assert_status(tw_hold(family, tw_str("a"), 2, NULL), TW_OK);
    await_in_flight(1);
    assert_status(tw_hold_release(family, tw_str("a")), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: the limit holds for all engines together; a released place is free at once; a hold that is kept stays held. */
TEST(the_limit_is_of_all_engines) {
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = family_of(a, "jobs", TW_WINDOW_FOREVER, 0), *of_b = family_of(b, "jobs", TW_WINDOW_FOREVER, 0);
    tw_verdict verdict;
    assert_status(tw_hold(of_a, tw_str("a"), 3, &verdict), TW_OK);
    assert_i64_equal(verdict.used, 1);
    assert_i64_equal(verdict.decided_by, TW_BY_REDIS);
    assert_status(tw_hold(of_b, tw_str("a"), 3, NULL), TW_OK);
    assert_status(tw_hold(of_b, tw_str("a"), 3, NULL), TW_OK);
    assert_status(tw_hold(of_a, tw_str("a"), 3, &verdict), TW_DENIED);
    assert_i64_equal(verdict.used, 3);
    assert_i64_equal(verdict.allowed, 0);
    assert_status(tw_hold_release(of_b, tw_str("a")), TW_OK);
    assert_status(tw_hold(of_a, tw_str("a"), 3, NULL), TW_OK);
    test_sleep_ms(2 * LIFE_MS); /* the holds are sent again all the time */
    await_in_flight(3);
    assert_status(tw_hold(of_b, tw_str("a"), 3, NULL), TW_DENIED);
    assert_status(tw_hold_release(of_a, tw_str("a")), TW_OK);
    assert_status(tw_hold_release(of_a, tw_str("a")), TW_OK);
    assert_status(tw_hold_release(of_a, tw_str("a")), TW_ERR_RANGE);
    assert_status(tw_hold_release(of_b, tw_str("a")), TW_OK);
    assert_i64_equal(in_flight(), 0);
    test_sleep_ms(LIFE_MS / 2); /* no message in flight brings it back */
    assert_i64_equal(in_flight(), 0);
    assert_status(tw_hold(of_a, tw_str("a"), 0, NULL), TW_DENIED);
    assert_status(tw_hold(of_a, tw_str("a"), -1, NULL), TW_ERR_RANGE);
    assert_status(tw_hold(family_of(a, "hours", TW_WINDOW_ALIGNED, 0), tw_str("a"), 3, NULL), TW_ERR_MODE);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: the holds of a killed process are free when their life ends; a process that was stopped for longer comes back
 * with its holds; a wiped Redis gets all holds again. */
TEST(holds_of_a_killed_process_are_free_soon) {
    _Atomic int *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = test_fork();
        if (pids[i] != 0) continue;
        tw_engine *engine = quick_engine(server.url, NULL);
        tw_family *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
        if (tw_hold(jobs, tw_str("a"), 3, NULL) == TW_OK) atomic_fetch_add(ready, 1);
        for (;;) test_sleep_ms(1000); /* until it is killed */
    }
    for (int i = 0; i < 5000 && atomic_load(ready) < 2; i++) test_sleep_ms(1);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
    assert_status(tw_hold(jobs, tw_str("a"), 3, NULL), TW_OK);
    assert_status(tw_hold(jobs, tw_str("a"), 3, NULL), TW_DENIED);
    kill(pids[0], SIGKILL);
    waitpid(pids[0], NULL, 0);
    assert_true(test_wait(may_hold, jobs, LIFE_MS + 1000));
    kill(pids[1], SIGSTOP);
    assert_true(test_wait(may_hold, jobs, LIFE_MS + 1000)); /* its life is over */
    await_in_flight(3);
    kill(pids[1], SIGCONT);
    await_in_flight(4); /* it sends its holds: one too many, until one is released */
    assert_status(tw_hold(jobs, tw_str("a"), 4, NULL), TW_DENIED);
    redis_server_ask(&server, "FLUSHALL", NULL);
    await_in_flight(4);
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    munmap((void *)ready, 4096);
    await_in_flight(0); /* the holds of an engine that was closed without releasing them */
    assert_true(test_wait(is_gone, NULL, LIFE_MS));
}

/* Goal: after a reconnect all holds are sent at once, because Redis may have forgotten them meanwhile. Method: a hold
 * lives for ten minutes here, so nothing else sends it again in time. */
TEST(after_a_reconnect_all_holds_are_sent_at_once) {
    const int64_t life_ms = 600000;
    int64_t two = 2;
    test_tuning.presence_life_ms = life_ms;
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 2; i++) assert_status(tw_hold(jobs, tw_str("a"), 3, NULL), TW_OK);
    await_in_flight(2);
    struct reconnect reconnect = {.engine = engine};
    assert_true(test_wait(has_connected, &reconnect, life_ms / 6)); /* tw_hold() uses other connections */
    reconnect.connects = test_stat_of(engine, connects);
    redis_server_ask(&server, "DEL", "tw:hold:jobs:a", NULL);
    redis_server_ask(&server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", NULL);
    assert_true(test_wait(has_connected, &reconnect, life_ms / 6)); /* the statement in flight may be older than that */
    assert_true(test_wait(are_in_flight, &two, life_ms / 6));
    for (int i = 0; i < 2; i++) assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(&server, "DEL", "tw:hold:jobs:a", NULL); /* the release may not have arrived */
    test_tuning.presence_life_ms = LIFE_MS;
}

struct worker {
    tw_family *jobs;
    _Atomic int64_t *inside, *most;
    int64_t held;
    bool failed, naps;
};

static void *hold_and_release(void *arg) {
    struct worker *worker = arg;
    for (uint64_t i = 0; i < test_scale(150); i++) {
        tw_status status = tw_hold(worker->jobs, tw_str("a"), 4, NULL);
        if (status != TW_OK) continue;
        int64_t now = atomic_fetch_add(worker->inside, 1) + 1, most = atomic_load(worker->most);
        while (now > most && !atomic_compare_exchange_weak(worker->most, &most, now)) continue;
        worker->held++;
        if (worker->naps) test_sleep_ms((int64_t)(i % 4) + 1);
        atomic_fetch_sub(worker->inside, 1);
        worker->failed = worker->failed || tw_hold_release(worker->jobs, tw_str("a")) != TW_OK;
    }
    return NULL;
}

/* Goal: threads of two engines, one of them behind a network that loses requests and replies: never one hold too many,
 * and none in flight at the end. */
TEST(lost_answers_admit_nobody_twice) {
    enum { WORKERS = 6 };
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_options options;
    tw_engine *engines[2] = {quick_engine(server.url, NULL), NULL};
    quick_options(&options, proxy_url(proxy));
    options.redis_timeout_ms = 300;
    assert_status(test_open(&options, &engines[1]), TW_OK);
    tw_family_options closed; /* fail-closed: an admission by the policy would not count at the other engine */
    tw_family_options_init(&closed);
    closed.name = "jobs";
    closed.window = TW_WINDOW_FOREVER;
    closed.limit_mode = TW_LIMIT_STRICT;
    closed.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *families[2] = {family_of(engines[0], "jobs", TW_WINDOW_FOREVER, 0), NULL};
    tw_status opened = tw_family_open(engines[1], &closed, &families[1]);
    assert_status(opened, TW_OK);
    proxy_chance(proxy, PROXY_DROP_REPLY, 700);
    proxy_chance(proxy, PROXY_DROP_REQUEST, 500);
    proxy_chance(proxy, PROXY_CUT_REPLY, 300);
    _Atomic int64_t inside = 0, most = 0;
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.jobs = families[i % 2], .inside = &inside, .most = &most};
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_release, &workers[i]), 0);
    }
    int64_t held = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].failed);
        held += workers[i].held;
    }
    for (int i = 0; i < PROXY_FAULTS; i++) proxy_chance(proxy, (enum proxy_fault)i, 0);
    assert_true(most <= 4);
    assert_true(held > 10);
    await_in_flight(0);
    assert_status(tw_close(engines[0], TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(engines[1], TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
}

struct sayer {
    tw_engine *engine;
    _Atomic bool stop;
};

static void *say_again(void *arg) {
    struct sayer *sayer = arg;
    while (!atomic_load(&sayer->stop)) twi_hold_book_resend(sayer->engine);
    return NULL;
}

/* Goal: a statement in flight does not bring back a hold that is released meanwhile. Method: all holds are sent all the
 * time; at the end nothing is in flight, at once and not only when the life is over. */
TEST(a_statement_under_way_brings_nothing_back) {
    enum { WORKERS = 4 };
    struct sayer sayer = {.engine = quick_engine(server.url, NULL)};
    tw_family *jobs = family_of(sayer.engine, "jobs", TW_WINDOW_FOREVER, 0);
    _Atomic int64_t inside = 0, most = 0;
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS], again;
    redis_server_ask(&server, "FLUSHALL", NULL);
    test_tuning.presence_life_ms = 60000;
    assert_int_equal(pthread_create(&again, NULL, say_again, &sayer), 0);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.jobs = jobs, .inside = &inside, .most = &most, .naps = true};
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_release, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    atomic_store(&sayer.stop, true);
    pthread_join(again, NULL);
    test_sleep_ms(20);
    assert_i64_equal(in_flight(), 0);
    test_tuning.presence_life_ms = LIFE_MS;
    assert_status(tw_close(sayer.engine, TEST_PATIENCE_MS), TW_OK);
}

struct releaser {
    tw_family *jobs;
    _Atomic pid_t thread;
    tw_status status;
};
static void *release(void *ctx) {
    struct releaser *releaser = ctx;
    atomic_store(&releaser->thread, test_own_thread());
    releaser->status = tw_hold_release(releaser->jobs, tw_str("a"));
    return NULL;
}

/* Goal: tw_stop() ends a release that waits for the answer to a statement, however long redis_timeout_ms is. */
TEST(stopping_ends_a_release_that_waits) {
    tw_options options;
    tw_engine *engine;
    pthread_t thread;
    quick_options(&options, server.url);
    options.redis_timeout_ms = 60000;
    assert_status(test_open(&options, &engine), TW_OK);
    struct releaser releaser = {.jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0), .status = TW_PENDING};
    assert_status(tw_ready(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_hold(releaser.jobs, tw_str("a"), 2, NULL), TW_OK);
    redis_server_pause(&server);
    test_sleep_ms(LIFE_MS); /* the hold is in a statement that is under way */
    assert_int_equal(pthread_create(&thread, NULL, release, &releaser), 0);
    test_await_asleep(&releaser.thread); /* for Redis */
    int64_t stopped_ms = test_mono_ms();
    assert_status(tw_stop(engine), TW_OK);
    pthread_join(thread, NULL);
    assert_true(test_mono_ms() - stopped_ms < 10000);
    assert_status(releaser.status, TW_OK);
    redis_server_resume(&server);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    await_in_flight(0);
}

/* Goal: while Redis is unreachable the family's policy decides; the holds that it admitted are sent when Redis is
 * back. */
TEST(an_outage_is_decided_by_policy) {
    tw_options options;
    tw_engine *engine;
    quick_options(&options, server.url);
    options.redis_timeout_ms = 300;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
    tw_verdict verdict;
    assert_status(tw_hold(jobs, tw_str("a"), 2, NULL), TW_OK);
    redis_server_kill(&server);
    assert_status(tw_hold(jobs, tw_str("a"), 2, &verdict), TW_OK);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
    assert_i64_equal(verdict.used, 2);
    assert_status(tw_hold(jobs, tw_str("a"), 2, &verdict), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
    redis_server_restart(&server);
    await_in_flight(2);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    redis_server_require();
    test_tuning.presence_life_ms = LIFE_MS;
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
