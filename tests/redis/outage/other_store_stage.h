/* other_store_stage.h -- two servers, and two engines that count while their address shows one server or the other. For
 * other_store.c and other_stores.c, each of which includes it once.
 * Always true: when the stage is closed the first server's sum is the sum of all increments, no count is lost or
 * uncertain, and no log line says so. */
#ifndef TEST_OTHER_STORE_STAGE_H
#define TEST_OTHER_STORE_STAGE_H

#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include <pthread.h>
#include <unistd.h>

#define KEYS 200
#define ENGINES 2

struct node {
    tw_engine *engine;
    tw_family *forever, *hours;
    char alarm[200]; /* the first log line that a briefly seen store must not cause */
    int64_t added;
    _Atomic bool stop;
};

struct stage {
    struct redis_server first, other;
    struct proxy *proxies[ENGINES]; /* one each: the engines need not see the same server */
    struct node nodes[ENGINES];
    pthread_t threads[ENGINES];
    struct test_prng prng;
};

/* Set where a replica was promoted: a line that the store went back is true then. */
static bool stage_goes_back;

static void on_stage_line(void *ctx, int level, int event, const char *text) {
    static const char *const alarms[] = {"two engines",          "a new instance", "wiped",
                                         "this engine's ledger", "never sent",     "has forgotten"};
    struct node *node = ctx;
    (void)level, (void)event;
    for (size_t i = 0; i < sizeof alarms / sizeof *alarms - stage_goes_back; i++)
        if (strstr(text, alarms[i]) && node->alarm[0] == '\0') snprintf(node->alarm, sizeof node->alarm, "%s", text);
}

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
        usleep(5000);
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
        options.log_write = on_stage_line;
        options.log_ctx = node;
        assert_status(test_open(&options, &node->engine), TW_OK);
        node->forever = family_of(node->engine, "e", TW_WINDOW_FOREVER, 0);
        node->hours = family_of(node->engine, "h", TW_WINDOW_ALIGNED, TW_HOUR);
        add_round(node);
        assert_status(tw_flush(node->engine, TEST_PATIENCE_MS), TW_OK);
        assert_int_equal(pthread_create(&stage->threads[n], NULL, add_until_stopped, node), 0);
    }
}

static void show(struct stage *stage, int node, const struct redis_server *server) {
    proxy_lead_to(stage->proxies[node], server);
    proxy_cut_all(stage->proxies[node]);
}

/* Shows another store for some milliseconds, to one engine or to all. */
static inline void flicker(struct stage *stage, int64_t low_ms, int64_t high_ms) {
    uint64_t who = test_prng_below(&stage->prng, ENGINES + 1);
    for (int n = 0; n < ENGINES; n++)
        if ((int)who == n || who == ENGINES) show(stage, n, &stage->other);
    test_sleep_ms(test_prng_between(&stage->prng, low_ms, high_ms));
    for (int n = 0; n < ENGINES; n++)
        if ((int)who == n || who == ENGINES) show(stage, n, &stage->first);
    test_sleep_ms(test_prng_between(&stage->prng, 0, 100));
}

/* Waits until everything is sent, and checks it. Returns the added units. */
static int64_t stage_close(struct stage *stage) {
    int64_t added = 0;
    for (int n = 0; n < ENGINES; n++) {
        struct node *node = &stage->nodes[n];
        atomic_store(&node->stop, true);
        pthread_join(stage->threads[n], NULL);
        assert_status(tw_flush(node->engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(test_stat_of(node->engine, lost), 0);
        assert_i64_equal(test_stat_of(node->engine, uncertain), 0);
        added += node->added;
        assert_status(tw_close(node->engine, TEST_PATIENCE_MS), TW_OK);
        assert_string_equal(node->alarm, "");
    }
    assert_i64_equal(sum_of(&stage->first, "[eh]:*"), added);
    for (int n = 0; n < ENGINES; n++) proxy_stop(stage->proxies[n]);
    redis_server_destroy(&stage->first);
    redis_server_destroy(&stage->other);
    return added;
}

static bool is_synced(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

/* Makes the other server a replica of the first, and waits until it has all data. */
static void stage_copy(struct stage *stage) {
    char port[16];
    snprintf(port, sizeof port, "%d", stage->first.port);
    redis_server_ask(&stage->first, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    redis_server_ask(&stage->other, "REPLICAOF", "127.0.0.1", port, NULL);
    assert_true(test_wait(is_synced, &stage->other, TEST_PATIENCE_MS));
}

#endif
