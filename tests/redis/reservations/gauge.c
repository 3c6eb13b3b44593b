/* gauge.c -- gauges over several processes and a real Redis: the sum is that of the living processes. A killed process
 * is gone when the life of its part ends; a stopped one sends its whole part again; nothing is left over. Method: parts
 * live for 900 ms here in place of 15 s.
 * Covers: sync/script/gauge.lua. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include "engine/port/messages.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIFE_MS 900
/* The part of a killed process leaves the sum with the next statement of another engine after the part's end. Engines
 * state their parts three times in a life. */
#define GONE_MS (LIFE_MS + LIFE_MS / 3)

static struct redis_server server;

struct want {
    tw_family *family;
    const char *key;
    int64_t view;
};

static bool shows(void *ctx) {
    struct want *want = ctx;
    int64_t view = INT64_MIN;
    return tw_get(want->family, tw_str(want->key), &view) == TW_OK && view == want->view;
}

static void await_view(tw_family *family, const char *key, int64_t view, int64_t within_ms) {
    struct want want = {family, key, view};
    if (test_wait(shows, &want, within_ms)) return;
    int64_t now = INT64_MIN;
    (void)tw_get(family, tw_str(key), &now);
    fail_msg("the view of %s is %lld after %lld ms, not %lld", key, (long long)now, (long long)within_ms,
             (long long)view);
}

struct value {
    const char *key;
    int64_t is;
};

static bool has_value(void *ctx) {
    const struct value *value = ctx;
    return redis_server_get(&server, value->key) == value->is;
}

/* A part is sent again three times in its life. On a busy machine it may have run out, and be back a moment later. */
static void await_value(const char *key, int64_t is) {
    if (!test_wait(has_value, &(struct value){key, is}, 20000))
        fail_msg("%s is %lld, not %lld", key, (long long)redis_server_get(&server, key), (long long)is);
}

/* Goal: what was set once, and neither read nor changed since, stays as long as its engine lives. */
TEST(a_gauge_that_is_set_once_stays) {
    tw_engine *engine = quick_engine(server.url, NULL);
    assert_status(tw_add(gauge_of(engine), tw_str("workers"), 4, NULL), TW_OK);
    await_value("online:workers", 4);
    for (int i = 0; i < 3 * LIFE_MS; i += LIFE_MS / 3) {
        test_sleep_ms(LIFE_MS / 3);       /* the gauge must not end in three lives */
        await_value("online:workers", 4); /* waits only on a busy machine */
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    await_value("online:workers", 0);
}

/* Goal: both engines see both parts; a decrement shows at once, and the last one leaves no key. */
TEST(the_sum_is_that_of_all_engines) {
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = gauge_of(a), *of_b = gauge_of(b);
    assert_status(tw_add(of_a, tw_str("room"), 5, NULL), TW_OK);
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "online:room"), 5);
    assert_status(tw_add(of_b, tw_str("room"), 7, NULL), TW_OK);
    assert_status(tw_add(of_b, tw_str("other"), 1, NULL), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "online:room"), 12);
    await_view(of_a, "room", 12, 2000);
    await_view(of_b, "room", 12, 2000);
    int64_t total;
    tw_key room = tw_str("room");
    assert_status(tw_fetch(of_a, &room, 1, 5000, &total), TW_OK);
    assert_i64_equal(total, 12);
    assert_status(tw_add(of_a, tw_str("room"), -4, NULL), TW_OK);
    await_view(of_b, "room", 8, 2000);
    test_sleep_ms(2 * LIFE_MS); /* its part is sent again all the time */
    await_value("online:room", 8);
    await_view(of_a, "room", 8, 2000);
    await_view(of_b, "room", 8, 2000);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "online:room"), 7);
    assert_status(tw_add(of_b, tw_str("room"), -7, NULL), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:room", "tw:gauge:online:room", NULL), "0");
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:other", "tw:gauge:online:other", NULL), "0");
}

/* Goal: a decrement alone creates no sum, and it leaves with its engine. */
TEST(a_decrement_alone_leaves_nothing) {
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = gauge_of(engine);
    assert_status(tw_add(family, tw_str("nobody"), -3, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:nobody", NULL), "0");
    assert_in_range(atoll(redis_server_ask(&server, "PTTL", "tw:gauge:online:nobody", NULL)), 1, 15000);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:nobody", "tw:gauge:online:nobody", NULL), "0");
}

/* Goal: the order in which engines state their parts changes no sum. After a wipe the part below 0 may come first. */
TEST(a_decrement_that_comes_first_counts) {
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = gauge_of(a), *of_b = gauge_of(b);
    assert_status(tw_add(of_b, tw_str("early"), -3, NULL), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_add(of_a, tw_str("early"), 5, NULL), TW_OK);
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "online:early"), 2);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "online:early"), 5);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:early", "tw:gauge:online:early", NULL), "0");
}

/* Goal: a decrement at an engine that did not count the increment is subtracted from the others' sum, at first unseen.
 * It counts as long as the others are above 0, and again when they are. No more can be refunded than is known to be
 * there. */
TEST(a_decrement_is_subtracted_from_what_others_count) {
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = gauge_of(a), *of_b = gauge_of(b);
    tw_key door = tw_str("door");
    int64_t view = 0;
    assert_status(tw_add(of_a, door, 5, NULL), TW_OK);
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_refund(of_b, door, 1, 0), TW_OK); /* of a key that it does not know */
    assert_status(tw_get(of_b, door, &view), TW_OK);
    assert_true(view == -1 || view == 4);
    await_view(of_b, "door", 4, 5000);
    await_view(of_a, "door", 4, 5000);
    assert_i64_equal(redis_server_get(&server, "online:door"), 4);
    assert_status(tw_refund(of_b, door, 5, 0), TW_ERR_RANGE);
    assert_status(tw_refund(of_b, door, 1, 0), TW_OK);
    assert_status(tw_add(of_b, door, -3, NULL), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    await_view(of_a, "door", 0, 5000);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:door", NULL), "0");
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    await_view(of_b, "door", 0, 5000); /* alone the sum is 0 */
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:door", NULL), "0");
    assert_in_range(atoll(redis_server_ask(&server, "PTTL", "tw:gauge:online:door", NULL)), 1, 15000);
    a = quick_engine(server.url, NULL);
    of_a = gauge_of(a);
    assert_status(tw_add(of_a, door, 7, NULL), TW_OK);
    await_view(of_a, "door", 2, 5000);
    await_view(of_b, "door", 2, 5000);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
}

struct page {
    _Atomic int64_t present[8]; /* of each process */
    _Atomic bool ready[8], stop;
};

static int be_present(struct page *page, int index, const char *url) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed() ^ (uint64_t)index);
    tw_engine *engine = quick_engine(url, NULL);
    tw_family *family = gauge_of(engine);
    while (!atomic_load(&page->stop)) {
        int64_t delta = test_prng_between(&prng, -2, 3);
        if (atomic_load(&page->present[index]) + delta < 0) continue;
        atomic_fetch_add(&page->present[index], delta);
        if (tw_add(family, tw_str("hall"), delta, NULL) != TW_OK) return 2;
        if (tw_flush(engine, 5000) != TW_OK) return 3;
        atomic_store(&page->ready[index], true);
        test_sleep_ms(1);
        if (atomic_load(&page->present[index]) > 50) break;
    }
    while (!atomic_load(&page->stop)) test_sleep_ms(5);
    return tw_close(engine, 5000) == TW_OK ? 0 : 4;
}

/* Goal: killed processes are gone when the lives of their parts have ended; a process that was stopped for longer
 * comes back with all that it counts. */
TEST(killed_processes_are_gone_and_stopped_ones_return) {
    enum { PROCESSES = 4 };
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[PROCESSES];
    (void)test_seed();
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = test_fork();
        if (pids[i] != 0) continue;
        _exit(be_present(page, i, server.url));
    }
    for (int i = 0; i < PROCESSES; i++)
        for (int wait = 0; wait < 5000 && atomic_load(&page->present[i]) <= 50; wait++) test_sleep_ms(1);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = gauge_of(engine);
    int64_t all = 0;
    for (int i = 0; i < PROCESSES; i++) all += atomic_load(&page->present[i]);
    await_view(family, "hall", all, 5000);
    for (int i = 0; i < 2; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        all -= atomic_load(&page->present[i]);
    }
    await_view(family, "hall", all, GONE_MS + 1000);
    kill(pids[2], SIGSTOP);
    await_view(family, "hall", all - atomic_load(&page->present[2]), GONE_MS + 1000);
    kill(pids[2], SIGCONT);
    await_view(family, "hall", all, 2000);
    atomic_store(&page->stop, true);
    for (int i = 2; i < PROCESSES; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    await_view(family, "hall", 0, 2000);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    munmap(page, sizeof *page);
}

static int state_and_wait(const char *url) {
    tw_engine *engine = quick_engine(url, NULL);
    if (tw_add(gauge_of(engine), tw_str("bound"), 7, NULL) != TW_OK || tw_flush(engine, TEST_PATIENCE_MS) != TW_OK)
        return 1;
    for (;;) (void)pause();
}

/* Goal: the sum in Redis loses the part of a killed engine within GONE_MS, though nobody reads or changes the gauge
 * (docs/OPTIONS.md). Method: the engine that is left has set its part once. */
TEST(the_sum_loses_a_killed_engine_in_time) {
    enum { LONG_LIFE_MS = 2 * LIFE_MS, LONG_GONE_MS = 2 * GONE_MS };
    test_tuning.presence_life_ms = LONG_LIFE_MS;
    tw_engine *engine = quick_engine(server.url, NULL);
    assert_status(tw_add(gauge_of(engine), tw_str("bound"), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    for (int round = 0; round < 2; round++) {
        pid_t pid = test_fork();
        if (pid == 0) _exit(state_and_wait(server.url));
        await_value("online:bound", 12);
        test_sleep_ms(round * LONG_LIFE_MS / 6); /* at another moment between two statements */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (!test_wait(has_value, &(struct value){"online:bound", 5}, LONG_GONE_MS + LONG_LIFE_MS / 3))
            fail_msg("the part of a killed engine is there for longer than %d ms", LONG_GONE_MS);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    test_tuning.presence_life_ms = LIFE_MS;
}

/* Goal: after lost replies, lost requests, cut connections, a flushed script, a wiped and a restarted Redis the sum is
 * soon right again, and a flush never returns TW_OK before it is. */
TEST(no_fault_leaves_a_wrong_sum) {
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_engine *a = quick_engine(proxy_url(proxy), NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = gauge_of(a), *of_b = gauge_of(b);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    int64_t present = 0;
    proxy_chance(proxy, PROXY_DROP_REPLY, 700);
    proxy_chance(proxy, PROXY_DROP_REQUEST, 700);
    proxy_chance(proxy, PROXY_CUT_REPLY, 300);
    proxy_chance(proxy, PROXY_TWICE, 200);
    for (uint64_t step = 0; step < test_scale(60); step++) {
        int64_t delta = test_prng_between(&prng, present > 5 ? -5 : 0, 9);
        present += delta;
        assert_status(tw_add(of_a, tw_str("x"), delta, NULL), TW_OK);
        if (test_prng_chance(&prng, 1, 20)) redis_server_ask(&server, "SCRIPT", "FLUSH", NULL);
        if (tw_flush(a, 10000) == TW_OK) assert_i64_equal(redis_server_get(&server, "online:x"), present);
    }
    for (int i = 0; i < PROXY_FAULTS; i++) proxy_chance(proxy, (enum proxy_fault)i, 0);
    await_view(of_b, "x", present, 3000);
    redis_server_ask(&server, "FLUSHALL", NULL);
    await_view(of_b, "x", present, 3000);
    redis_server_kill(&server);
    assert_status(tw_add(of_a, tw_str("x"), 1, NULL), TW_OK);
    redis_server_restart(&server);
    await_view(of_b, "x", present + 1, 5000);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    await_view(of_b, "x", 0, 3000);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
}

/* Goal: a key that holds another type fails alone, is reported, and is not touched. */
TEST(a_key_of_another_kind_is_reported) {
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = gauge_of(engine);
    redis_server_ask(&server, "LPUSH", "online:list", "a stranger's", NULL);
    assert_status(tw_add(family, tw_str("list"), 2, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("well"), 3, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    /* A turn of its own gets the refusal as well: what was sent before a flush stays refused, and is reported once. */
    for (int i = 0; i < 3; i++) assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    assert_i64_equal(test_stat_of(engine, poison_keys), 1);
    assert_i64_equal(redis_server_get(&server, "online:well"), 3);
    redis_server_ask(&server, "DEL", "online:list", NULL);
    await_view(family, "list", 2, 3000);
    await_value("online:list", 2);
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: many keys, more than one statement holds, are sent in one flush, and all of them again in each life. Method: a
 * life that is long enough for a busy machine to send them all within a third of it. */
TEST(many_gauges_are_sent_in_parts) {
    enum { KEYS = 3000, MANY_LIFE_MS = 5 * LIFE_MS };
    test_tuning.presence_life_ms = MANY_LIFE_MS;
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = gauge_of(engine);
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add(family, tw_str(key), i + 1, NULL), TW_OK);
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    test_sleep_ms(MANY_LIFE_MS + MANY_LIFE_MS / 2); /* gauges that are not renewed end in this time */
    for (int i = 0; i < KEYS; i += 97) {
        snprintf(key, sizeof key, "online:k%d", i);
        await_value(key, i + 1);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:k1", "online:k2999", NULL), "0");
    test_tuning.presence_life_ms = LIFE_MS;
}

static bool is_connected(void *ctx) {
    return test_stat_of(ctx, redis_connected) == 1;
}

static bool is_not_connected(void *ctx) {
    return !is_connected(ctx);
}

/* Goal: an engine leaves a server that answers READONLY to gauges, even if it sends nothing else there, and uses it
 * again when it accepts writes. The engine does not trust what a replica knows of others. */
TEST(gauges_leave_a_replica) {
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = gauge_of(engine);
    for (int units = 1; units >= 0; units--) { /* one present, then none: there is something to write, then nothing */
        assert_status(tw_add(family, tw_str("desk"), units == 1 ? 1 : -1, NULL), TW_OK);
        assert_true(test_wait(is_connected, engine, TEST_PATIENCE_MS));
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_ask(&server, "REPLICAOF", "127.0.0.1", "1", NULL);
        assert_status(tw_add(family, tw_str("desk"), 0, NULL), TW_OK);
        assert_status(tw_add(family, tw_str("seat"), 0, NULL), TW_OK);
        (void)tw_flush(engine, 1);
        if (!test_wait(is_not_connected, engine, 10000)) fail_msg("%d units are said to a replica for ever", units);
        redis_server_ask(&server, "REPLICAOF", "NO", "ONE", NULL);
        for (int i = 0; i < 100 && tw_flush(engine, 100) != TW_OK; i++) continue;
        assert_i64_equal(redis_server_get(&server, "online:desk"), units);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    redis_server_require();
    test_tuning.presence_life_ms = LIFE_MS;
    redis_server_start(&server, durable);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
