/* catch_up.c -- after an outage, the backlog is sent at a bounded rate, in the right order, and not by all nodes at
 * once.
 *
 * The real engine with the real sync code, host-driven on the world's clock. The network has no faults; Redis was
 * unreachable for half a minute. The test sees from outside which keys Redis has after each step. */
#include "tests/sim/engine_world.h"

#include <time.h>

#define BACKLOG 60 /* keys of each window: with three windows the model holds them */

struct node {
    tw_engine *engine;
    tw_family *seconds;
};

static struct world world;

static void node_open_with(struct node *node, int index, uint64_t seed, uint32_t keys_per_s, uint32_t retry_max_ms) {
    tw_options options;
    tw_family_options family;
    engine_world_options(&world, &options);
    options.sync_interval_ms = 20;
    options.redis_timeout_ms = 1000;
    options.flush_keys_per_s = keys_per_s;
    options.retry_max_ms = retry_max_ms;
    node->engine = engine_world_open(&world, index, &options, seed + 1);
    tw_family_options_init(&family);
    family.name = "s";
    family.window_ms = TW_MINUTE;
    assert_status(tw_family_open(node->engine, &family, &node->seconds), TW_OK);
}

static void node_open(struct node *node, int index, uint64_t seed, uint32_t keys_per_s) {
    node_open_with(node, index, seed, keys_per_s, 0);
}

static void step(struct node *nodes, int count) {
    world_step(&world);
    for (int n = 0; n < count; n++) test_turn(nodes[n].engine, TEST_TURNS_MAX);
}

static void steps_until(struct node *nodes, int count, int64_t until_ms) {
    while (world.now_ms < until_ms) step(nodes, count);
}

static void add_backlog(struct node *node) {
    char key[16];
    for (int i = 0; i < BACKLOG; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add(node->seconds, tw_str(key), 1, NULL), TW_OK);
    }
}

/* How many keys of that window Redis has. */
static int keys_there(int64_t start_ms) {
    char suffix[32];
    time_t start = (time_t)(start_ms / 1000);
    struct tm at;
    gmtime_r(&start, &at);
    strftime(suffix, sizeof suffix, ":%Y%m%d%H%M", &at);
    int count = 0;
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *key = &world.redis.store.keys[i];
        size_t size = strlen(key->name);
        if (key->type == MODEL_INTEGER && size > strlen(suffix) &&
            strcmp(key->name + size - strlen(suffix), suffix) == 0)
            count++;
    }
    return count;
}

/* Redis goes away while nothing is in flight, and returns after this time. */
static void go_away(int64_t for_ms) {
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++)
        if (world.connections[i].used) world.connections[i].broken_at_ms = world.now_ms;
    world.down_until_ms = world.now_ms + for_ms;
}

static int64_t minute_of(int64_t unix_ms) {
    return unix_ms - unix_ms % TW_MINUTE;
}

/* Goal: flush_keys_per_s holds on return. The window that expires first is sent first, while the open one has its
 * quarter. Method: a backlog of three windows of 60 keys; 40 keys a second; counted after every step. */
TEST(the_backlog_is_sent_at_its_rate_and_in_its_order) {
    struct node node;
    uint64_t seed = test_seed();
    world_init(&world, seed);
    node_open(&node, 0, seed, 40);
    steps_until(&node, 1, world.now_ms + 2000);
    assert_i64_equal(test_stat_of(node.engine, redis_connected), 1);
    go_away(3 * TW_MINUTE);
    int64_t first_ms = minute_of(world_wall_ms(&world));
    for (int window = 0; window < 3; window++) {
        add_backlog(&node);
        if (window < 2) world.now_ms = minute_of(world_wall_ms(&world)) + TW_MINUTE - world.wall_offset_ms;
        step(&node, 1);
    }
    assert_i64_equal(keys_there(first_ms), 0);
    world.down_until_ms = 0;
    int64_t began_ms = 0, done_ms = 0;
    bool first_was_whole_before_second_began = true, open_had_its_share = false;
    while (done_ms == 0) {
        step(&node, 1);
        int one = keys_there(first_ms), two = keys_there(first_ms + TW_MINUTE),
            three = keys_there(first_ms + 2 * TW_MINUTE);
        int all = one + two + three;
        if (all == 0) continue;
        if (began_ms == 0) began_ms = world.now_ms;
        /* two chunks of 8, and what was collected during the last steps */
        assert_true(all <= 16 + (world.now_ms - began_ms + 400) * 40 / 1000);
        if (two > 0 && one < BACKLOG - 8) first_was_whole_before_second_began = false;
        if (three > 0 && two == 0) open_had_its_share = true;
        if (all == 3 * BACKLOG) done_ms = world.now_ms;
        assert_true(world.now_ms - began_ms < 60000);
    }
    assert_true(first_was_whole_before_second_began);
    assert_true(open_had_its_share);
    assert_true(done_ms - began_ms >= (3 * BACKLOG - 16) * 1000 / 40 - 400);
    assert_true(done_ms - began_ms <= 3 * BACKLOG * 1000 / 40 * 2);
    (void)tw_close(node.engine, 0);
    world_free(&world);
}

/* Goal: nodes that return together do not begin together; a flush does not wait for that (fault 60's traffic). Method:
 * three nodes, many seeds; an outage of ten seconds; when does the first key of each node arrive after it is
 * connected? */
TEST(nodes_that_return_together_do_not_begin_together) {
    int64_t soonest_ms = INT64_MAX, latest_ms = 0;
    uint64_t first_seed = test_seed();
    for (uint64_t seed = first_seed; seed < first_seed + 12; seed++) {
        struct node nodes[WORLD_NODES];
        int64_t connected_ms[WORLD_NODES] = {0}, waited_ms[WORLD_NODES] = {0};
        world_init(&world, seed);
        for (int n = 0; n < WORLD_NODES; n++) node_open(&nodes[n], n, seed * 7 + (uint64_t)n, 0);
        steps_until(nodes, WORLD_NODES, world.now_ms + 3000);
        go_away(10000);
        steps_until(nodes, WORLD_NODES, world.now_ms + 1000);
        for (int n = 0; n < WORLD_NODES; n++) {
            char key[16];
            snprintf(key, sizeof key, "n%d", n);
            assert_status(tw_add(nodes[n].seconds, tw_str(key), 1, NULL), TW_OK);
        }
        for (int left = WORLD_NODES; left > 0;) {
            step(nodes, WORLD_NODES);
            for (int n = 0; n < WORLD_NODES; n++) {
                tw_reading reading;
                char key[16];
                snprintf(key, sizeof key, "n%d", n);
                if (!connected_ms[n] && test_stat_of(nodes[n].engine, redis_connected)) connected_ms[n] = world.now_ms;
                if (waited_ms[n] || !connected_ms[n]) continue;
                assert_status(tw_read(nodes[n].seconds, tw_str(key), &reading), TW_OK);
                if (reading.unsent) continue;
                waited_ms[n] = world.now_ms - connected_ms[n] + 1;
                left--;
            }
            assert_true(world.now_ms < 1000000 + 60000);
        }
        for (int n = 0; n < WORLD_NODES; n++) {
            if (waited_ms[n] < soonest_ms) soonest_ms = waited_ms[n];
            if (waited_ms[n] > latest_ms) latest_ms = waited_ms[n];
            assert_true(waited_ms[n] <= 500 + 800); /* plus the round trip */
            (void)tw_close(nodes[n].engine, 0);
        }
        world_free(&world);
    }
    assert_true(latest_ms - soonest_ms > 250);
}

#define RETURNS 12 /* outages, of three nodes each */

struct returns {
    int64_t after_ms[RETURNS * WORLD_NODES]; /* from Redis's return to the first count that it has */
    size_t count;
};

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool has_key(const char *name) {
    for (size_t i = 0; i < MODEL_KEYS; i++)
        if (world.redis.store.keys[i].type == MODEL_INTEGER && strstr(world.redis.store.keys[i].name, name) != NULL)
            return true;
    return false;
}

/* One outage of `away_ms`, and when each node's count arrives after it. */
static void note_returns(struct returns *returns, uint64_t seed, uint32_t retry_max_ms, int64_t away_ms) {
    struct node nodes[WORLD_NODES];
    char key[16];
    world_init(&world, seed);
    for (int n = 0; n < WORLD_NODES; n++) node_open_with(&nodes[n], n, seed * 7 + (uint64_t)n, 0, retry_max_ms);
    steps_until(nodes, WORLD_NODES, world.now_ms + 3000);
    go_away(away_ms);
    int64_t back_ms = world.now_ms + away_ms;
    for (int n = 0; n < WORLD_NODES; n++) {
        snprintf(key, sizeof key, "back%d", n);
        assert_status(tw_add(nodes[n].seconds, tw_str(key), 1, NULL), TW_OK);
    }
    bool came[WORLD_NODES] = {false};
    for (int left = WORLD_NODES; left > 0;) {
        step(nodes, WORLD_NODES);
        for (int n = 0; n < WORLD_NODES; n++) {
            snprintf(key, sizeof key, "back%d", n);
            if (came[n] || !has_key(key)) continue;
            came[n] = true;
            left--;
            returns->after_ms[returns->count++] = world.now_ms - back_ms;
        }
        assert_true(world.now_ms < back_ms + 60000);
    }
    for (int n = 0; n < WORLD_NODES; n++) (void)tw_close(nodes[n].engine, 0);
    world_free(&world);
}

/* Goal: after Redis is back, it is used again within a second in the median case, whatever the outage's length; by each
 * engine within retry_max_ms plus the time that spreads the first collection; and not by all at one time. Method:
 * outages of 2 to 13 s, three nodes each, on the world's clock; the first count of each that Redis has. */
TEST(a_redis_that_is_back_is_used_again_within_a_second) {
    static const uint32_t mosts_ms[] = {0, 200, 5000};
    for (size_t i = 0; i < 3; i++) {
        struct returns returns = {.count = 0};
        int64_t most_ms = mosts_ms[i] ? mosts_ms[i] : 1000;
        for (int64_t n = 0; n < RETURNS; n++)
            note_returns(&returns, test_seed() + (uint64_t)n, mosts_ms[i], 2000 + n * 997);
        qsort(returns.after_ms, returns.count, sizeof returns.after_ms[0], by_size);
        int64_t middle_ms = returns.after_ms[returns.count / 2], last_ms = returns.after_ms[returns.count - 1];
        assert_true(last_ms <= most_ms + 500 + 800); /* plus several round trips */
        if (most_ms <= 1000) assert_true(middle_ms <= 1000);
        assert_true(last_ms - returns.after_ms[0] >= most_ms / 4);
    }
}

/* Goal: the known state of Redis's clock is forgotten with the connection. The next server may have another clock, and
 * its first reply may be slower than the best one of the server before. Method: many reconnects to a server whose clock
 * differs by 0.7 s, too little to tell from a slow reply; the engine's idea of the difference soon after each. */
TEST(another_connection_has_another_clock) {
    struct node node;
    uint64_t seed = test_seed();
    world_init(&world, seed);
    node_open(&node, 0, seed, 0);
    steps_until(&node, 1, world.now_ms + 20000); /* the quickest of many replies */
    for (int i = 0; i < 20; i++) {
        int64_t skew_ms = i % 2 == 0 ? 700 : 0;
        go_away(0);
        world.redis_skew_ms = skew_ms;
        int64_t connects = test_stat_of(node.engine, connects), until_ms = world.now_ms + 30000;
        while (test_stat_of(node.engine, connects) == connects || !test_stat_of(node.engine, redis_connected)) {
            step(&node, 1);
            assert_true(world.now_ms < until_ms);
        }
        int64_t error_ms = test_stat_of(node.engine, redis_clock_offset_ms) - skew_ms;
        assert_true(error_ms > -340 && error_ms < 340); /* half a round trip of the first reply */
        steps_until(&node, 1, world.now_ms + 5000);
    }
    (void)tw_close(node.engine, 0);
    world_free(&world);
}
