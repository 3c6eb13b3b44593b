/* flicker.c -- the address shows another store for a moment, then the one of before: a balancer with two pods behind it, a name
 * with two addresses, a failover that is taken back. The engine's sums are those of the store that stays.
 * Always true: at the end Redis's sum is the sum of all increments, nothing is lost or uncertain, and no line says that it is. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include <pthread.h>
#include <unistd.h>

#define KEYS 200
#define ENGINES 2

struct node {
    tw_engine *engine;
    tw_family *forever, *hours;
    struct log_lines lines;
    int64_t added;
    _Atomic bool stop;
};

struct stage {
    struct redis_server first, other;
    struct proxy *proxies[ENGINES]; /* one each: they need not see the same */
    struct node nodes[ENGINES];
    pthread_t threads[ENGINES];
    struct test_prng prng;
};

static void add_round(struct node *node) {
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add(i % 2 == 0 ? node->forever : node->hours, tw_str(key), 1 + i % 3, NULL), TW_OK);
        node->added += 1 + i % 3;
    }
}

static void *add_until_stopped(void *argument) {
    struct node *node = argument;
    while (!atomic_load(&node->stop)) {
        add_round(node);
        usleep(3000);
    }
    return NULL;
}

static void stage_open(struct stage *stage, const char *const *of_other) {
    memset(stage, 0, sizeof *stage);
    test_prng_seed(&stage->prng, test_seed());
    redis_server_start_tcp(&stage->first, NULL);
    redis_server_start_tcp(&stage->other, of_other);
    for (int n = 0; n < ENGINES; n++) {
        struct node *node = &stage->nodes[n];
        tw_options options;
        stage->proxies[n] = proxy_start(&stage->first, test_seed());
        quick_options(&options, proxy_url(stage->proxies[n]));
        options.log_write = on_log;
        options.log_ctx = &node->lines;
        assert_status(tw_open(&options, &node->engine), TW_OK);
        node->forever = family_of(node->engine, "e", TW_FOREVER, 0);
        node->hours = family_of(node->engine, "h", TW_ALIGNED, TW_HOUR);
        add_round(node);
        assert_status(tw_flush(node->engine, 20000), TW_OK);
        assert_int_equal(pthread_create(&stage->threads[n], NULL, add_until_stopped, node), 0);
    }
}

static void show(struct stage *stage, int node, const struct redis_server *server) {
    proxy_lead_to(stage->proxies[node], server);
    proxy_cut_all(stage->proxies[node]);
}

/* Another store for some milliseconds, as one engine sees it, or as all do. */
static void flicker(struct stage *stage, int64_t low_ms, int64_t high_ms) {
    uint64_t who = test_prng_below(&stage->prng, ENGINES + 1);
    for (int n = 0; n < ENGINES; n++)
        if ((int)who == n || who == ENGINES) show(stage, n, &stage->other);
    test_sleep_ms(test_prng_between(&stage->prng, low_ms, high_ms));
    for (int n = 0; n < ENGINES; n++)
        if ((int)who == n || who == ENGINES) show(stage, n, &stage->first);
    test_sleep_ms(test_prng_between(&stage->prng, 0, 100));
}

static int64_t sum_of(struct redis_server *server) {
    return atoll(redis_server_ask(server, "EVAL",
                                  "local s = 0 for _, p in ipairs({'e:*', 'h:*'}) do "
                                  "for _, k in ipairs(redis.call('KEYS', p)) do s = s + redis.call('GET', k) end end "
                                  "return s",
                                  "0", NULL));
}

static void stage_close(struct stage *stage) {
    int64_t added = 0;
    for (int n = 0; n < ENGINES; n++) {
        struct node *node = &stage->nodes[n];
        atomic_store(&node->stop, true);
        pthread_join(stage->threads[n], NULL);
        assert_status(tw_flush(node->engine, 20000), TW_OK);
        assert_i64_equal(test_stat_of(node->engine, lost), 0);
        assert_i64_equal(test_stat_of(node->engine, uncertain), 0);
        added += node->added;
        assert_status(tw_close(node->engine, 5000), TW_OK);
        assert_null(strstr(node->lines.text, "two engines"));
        assert_null(strstr(node->lines.text, "a new instance"));
        assert_null(strstr(node->lines.text, "wiped"));
    }
    assert_i64_equal(sum_of(&stage->first), added);
    for (int n = 0; n < ENGINES; n++) proxy_stop(stage->proxies[n]);
    redis_server_destroy(&stage->first);
    redis_server_destroy(&stage->other);
}

static bool is_synced(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

/* Goal: a replica that has not synced yet, seen for a moment, changes nothing, read-only or not (found.md, R1).
 * Method: a replica whose master cannot be reached, which is empty, or holds a copy of a while ago. */
static void a_replica_seen_for_a_moment_changes_nothing(void **state) {
    (void)state;
    static const char *const read_only[] = {"yes", "no"};
    for (int kind = 0; kind < 4; kind++) {
        struct stage stage;
        stage_open(&stage, NULL);
        if (kind >= 2) {
            char port[16];
            snprintf(port, sizeof port, "%d", stage.first.port);
            redis_server_ask(&stage.first, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
            redis_server_ask(&stage.other, "REPLICAOF", "127.0.0.1", port, NULL);
            assert_true(test_wait(is_synced, &stage.other, 20000));
        }
        redis_server_ask(&stage.other, "CONFIG", "SET", "replica-read-only", read_only[kind % 2], NULL);
        redis_server_ask(&stage.other, "REPLICAOF", "127.0.0.1", "1", NULL);
        for (uint64_t i = 0; i < test_scale(3); i++) flicker(&stage, 5, 150);
        stage_close(&stage);
    }
}

/* Goal: another master that is empty, seen for a moment by one engine or by all, gets nothing and changes nothing (R2): nothing is
 * told again, nothing is counted there. Method: now and then it is emptied, as a new pod would be. */
static void an_empty_master_seen_for_a_moment_changes_nothing(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, NULL);
    for (uint64_t i = 0; i < test_scale(6); i++) {
        flicker(&stage, 5, 250);
        if (i % 3 == 0) redis_server_ask(&stage.other, "FLUSHALL", NULL);
    }
    for (int n = 0; n < ENGINES; n++) assert_i64_equal(test_stat_of(stage.nodes[n].engine, restored), 0);
    assert_i64_equal(sum_of(&stage.other), 0);
    stage_close(&stage);
}

/* Goal: a copy of a while ago that takes over, and gives back, gets what it lacks, and so does the one of before: sums are right,
 * and nobody speaks of two engines (R4). Method: a replica is cut off, lags, and is promoted while it is seen. */
static void a_promoted_replica_that_is_taken_back_changes_nothing(void **state) {
    (void)state;
    for (uint64_t i = 0; i < test_scale(2); i++) {
        struct stage stage;
        char port[16];
        stage_open(&stage, NULL);
        snprintf(port, sizeof port, "%d", stage.first.port);
        redis_server_ask(&stage.first, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
        redis_server_ask(&stage.other, "REPLICAOF", "127.0.0.1", port, NULL);
        assert_true(test_wait(is_synced, &stage.other, 20000));
        redis_server_ask(&stage.other, "REPLICAOF", "NO", "ONE", NULL);
        test_sleep_ms(200); /* dozens of batches that it lacks */
        for (int round = 0; round < 4; round++) flicker(&stage, 5, 150);
        stage_close(&stage);
    }
}

/* Goal: two databases that change places, and change them again, are a store that is wiped, and one that comes back.
 * Method: SWAPDB under live connections, for a moment. */
static void swapped_databases_that_are_swapped_back_change_nothing(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, NULL);
    for (uint64_t i = 0; i < test_scale(4); i++) {
        redis_server_ask(&stage.first, "SWAPDB", "0", "1", NULL);
        test_sleep_ms(test_prng_between(&stage.prng, 5, 150));
        redis_server_ask(&stage.first, "SWAPDB", "0", "1", NULL);
        test_sleep_ms(100);
    }
    stage_close(&stage);
}

/* Goal: a copy from before this engine's first batch, that is seen for so long that it is believed, is told everything; and the
 * store of before, when it is back, is not told it again: it has an older ledger of ours. Method: an empty store with the marker
 * of the first; a doubt of 100 ms. */
static void a_store_of_before_is_known_by_its_older_ledger(void **state) {
    (void)state;
    struct stage stage;
    atomic_store(&twi_doubt_ms, 100);
    stage_open(&stage, NULL);
    struct node *node = &stage.nodes[0];
    for (int n = 0; n < ENGINES; n++) atomic_store(&stage.nodes[n].stop, true), pthread_join(stage.threads[n], NULL);
    assert_status(tw_flush(node->engine, 20000), TW_OK);
    char marker[64];
    snprintf(marker, sizeof marker, "%s", redis_server_ask(&stage.first, "HGET", "tw:marker", "m", NULL));
    redis_server_ask(&stage.other, "HSET", "tw:marker", "m", marker, "r", "1", NULL);
    show(&stage, 0, &stage.other);
    add_round(node);
    assert_status(tw_flush(node->engine, 20000), TW_OK);
    assert_i64_equal(sum_of(&stage.other), node->added);
    show(&stage, 0, &stage.first);
    add_round(node);
    (void)tw_flush(node->engine, 20000);
    assert_status(tw_flush(stage.nodes[1].engine, 20000), TW_OK);
    int64_t added = node->added + stage.nodes[1].added;
    assert_true(sum_of(&stage.first) <= added && sum_of(&stage.first) > added / 2);
    for (int n = 0; n < ENGINES; n++) {
        assert_status(tw_close(stage.nodes[n].engine, 5000), TW_OK);
        proxy_stop(stage.proxies[n]);
    }
    redis_server_destroy(&stage.first);
    redis_server_destroy(&stage.other);
    atomic_store(&twi_doubt_ms, 6000);
}

int main(void) {
    redis_server_require();
    test_keeps_doubt = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_seen_for_a_moment_changes_nothing),
        cmocka_unit_test(an_empty_master_seen_for_a_moment_changes_nothing),
        cmocka_unit_test(a_promoted_replica_that_is_taken_back_changes_nothing),
        cmocka_unit_test(swapped_databases_that_are_swapped_back_change_nothing),
        cmocka_unit_test(a_store_of_before_is_known_by_its_older_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
