/* hard_store.c -- hard limits over a store that changes under the engines. Its data get another history, or another
 * store is seen for a while. No unit is sold twice, and none is at risk (P4). tests/model/leases.c has every order of
 * events.
 * Covers: sync/script/leases.lua. */
#include "tests/redis/limits/hard_support.h"

#include <unistd.h>

#define LIMIT 1000
#define KEY tw_str("tv")

struct shop {
    tw_engine *engine;
    tw_family *family;
    char link[128], url[160]; /* a name that the test makes lead to another server */
};

struct world {
    struct redis_server one, two; /* `two` is a copy of `one` from when it was cut off, and is a master */
    struct shop shops[2];
};

static bool follows(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

static void follow(struct redis_server *server, struct redis_server *leader) {
    char port[16];
    snprintf(port, sizeof port, "%d", leader->port);
    redis_server_ask(server, "REPLICAOF", "127.0.0.1", port, NULL);
    assert_true(test_wait(follows, server, TEST_PATIENCE_MS));
}

static void lead(struct redis_server *server) {
    assert_string_equal(redis_server_ask(server, "REPLICAOF", "NO", "ONE", NULL), "OK");
}

/* NULL: to no server. The caller closes the old connections. */
static void point(struct shop *shop, const struct redis_server *server) {
    (void)unlink(shop->link);
    if (server != NULL) assert_int_equal(symlink(server->socket, shop->link), 0);
}

static void hang_up(struct redis_server *server) {
    redis_server_ask(server, "CLIENT", "KILL", "TYPE", "normal", NULL);
}

static int64_t units_of(struct redis_server *server, const char *key) {
    const char *total = redis_server_ask(server, "HGET", key, "t", NULL);
    return strtoll(total, NULL, 10);
}

#define HELD 200

struct holding {
    struct shop *shop;
    struct redis_server *server;
};

/* Units that are not used for 5 s are returned, so a crowded machine may have to buy again. */
static bool is_held(void *ctx) {
    const struct holding *holding = ctx;
    tw_family *family = holding->shop->family;
    tw_verdict verdict;
    assert_status(buy(family, KEY, HELD, LIMIT, TEST_PATIENCE_MS, &verdict), TW_OK);
    assert_status(tw_refund(family, KEY, HELD, verdict.window_start_ms), TW_OK);
    return units_of(holding->server, "tw:lease:sale:tv") >= HELD;
}

/* Makes the shop hold so many units, none of them sold. */
static void hold(struct shop *shop, struct redis_server *server) {
    assert_true(test_wait(is_held, &(struct holding){shop, server}, TEST_PATIENCE_MS));
}

static bool knows_both(void *ctx) {
    const char *names = redis_server_ask(ctx, "HKEYS", "tw:leases", NULL);
    const char *first = strstr(names, "i:");
    return first != NULL && strstr(first + 2, "i:") != NULL;
}

/* Makes both shops take part, and `two` know it. */
static void open_world(struct world *world) {
    struct redis_server *servers[] = {&world->one, &world->two};
    memset(world, 0, sizeof *world);
    for (int i = 0; i < 2; i++) {
        redis_server_start_tcp(servers[i], NULL);
        redis_server_ask(servers[i], "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    }
    follow(&world->two, &world->one); /* before any engine comes. The first replica changes the history, too */
    for (int i = 0; i < 2; i++) {
        struct shop *shop = &world->shops[i];
        snprintf(shop->link, sizeof shop->link, "%s/shop%d", world->one.folder, i);
        snprintf(shop->url, sizeof shop->url, "unix://%s", shop->link);
        point(shop, &world->one);
        shop->engine = quick_engine(shop->url, NULL);
        shop->family = hard_family(shop->engine, "sale");
    }
    for (int i = 0; i < 2; i++)
        assert_i64_equal(sell_some(world->shops[i].family, tw_str("radio"), 1, 10, TEST_PATIENCE_MS), 1);
    assert_true(test_wait(knows_both, &world->two, TEST_PATIENCE_MS));
    lead(&world->two);
}

static void close_world(struct world *world, int64_t sold) {
    int64_t at_risk = 0;
    for (int i = 0; i < 2; i++) at_risk += test_stat_of(world->shops[i].engine, limit_at_risk);
    assert_i64_equal(sold, LIMIT);
    assert_i64_equal(at_risk, 0);
    for (int i = 0; i < 2; i++) assert_status(tw_close(world->shops[i].engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&world->one);
    redis_server_destroy(&world->two);
}

/* Goal: a server that followed another one, and is a master again, sells no unit that it granted before and has
 * forgotten. It is the same server, and no connection was cut. */
TEST(a_server_that_followed_another_sells_nothing_twice) {
    struct world world;
    tw_verdict verdict;
    open_world(&world);
    struct shop *a = &world.shops[0], *b = &world.shops[1];
    int64_t sold = 0;
    hold(a, &world.one);
    /* Everything is reported within a second. Then it is silent until its units are returned after 5 s, which is the
     * hardest case. On a crowded machine another one may be played, in which no more may be sold either. */
    test_sleep_ms(1200);
    assert_i64_equal(units_of(&world.two, "tw:lease:sale:tv"), 0);
    follow(&world.one, &world.two);
    lead(&world.one);
    int64_t until_ms = test_mono_ms() + 2000; /* the other one is silent until then: nobody may grant its units */
    int64_t by_b = 0;                         /* not the whole limit: only then are the units of others called back */
    while (test_mono_ms() < until_ms) by_b += sell_some(b->family, KEY, LIMIT - HELD / 2 - by_b, LIMIT, 20);
    sold += by_b + sell(a->family, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    sold += sell(b->family, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    close_world(&world, sold);
}

/* Goal: after another store was seen for a while, the earlier store grants nothing until all engines have reported what
 * they were granted there. Method: one shop is back at once; the other one, which had drawn elsewhere, two seconds
 * later. */
TEST(what_another_store_has_granted_is_not_sold_again) {
    struct world world;
    tw_verdict verdict;
    open_world(&world);
    struct shop *a = &world.shops[0], *b = &world.shops[1];
    for (int i = 0; i < 2; i++) point(&world.shops[i], &world.two);
    hang_up(&world.one);
    int64_t sold = 0;
    hold(b, &world.two);
    point(a, &world.one);
    point(b, NULL);
    hang_up(&world.two);
    int64_t until_ms = test_mono_ms() + 2500; /* longer than the store waits for late engines (LATE_MS, leases.lua) */
    while (test_mono_ms() < until_ms) sold += sell_some(a->family, KEY, LIMIT, LIMIT, 20);
    point(b, &world.one);
    sold += sell(b->family, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    sold += sell(a->family, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    close_world(&world, sold);
}

/* Goal: no reply about leases is taken from a replica, not even from one that accepts writes. */
TEST(a_replica_answers_no_lease_message) {
    struct world world;
    open_world(&world);
    int64_t sold = sell_some(world.shops[0].family, KEY, 1, LIMIT, TEST_PATIENCE_MS);
    follow(&world.one, &world.two);
    redis_server_ask(&world.one, "CONFIG", "SET", "replica-read-only", "no", NULL);
    for (int i = 0; i < 2; i++) hang_up(&world.one);
    (void)sell_some(world.shops[1].family, KEY, 1, LIMIT,
                    500); /* three messages, one in 150 ms: none may be answered */
    assert_i64_equal(units_of(&world.one, "tw:lease:sale:tv"), 0);
    lead(&world.one);
    tw_verdict verdict;
    for (int i = 0; i < 2; i++) sold += sell(world.shops[i].family, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    close_world(&world, sold);
}

int main(void) {
    redis_server_require();
    return test_run();
}
