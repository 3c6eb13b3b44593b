/* expiry.c -- the expiry of Redis's keys: set with the first count, never extended, healed when lost; late deltas
 * refused. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <time.h>

#define WALL_MS INT64_C(4102444800000) /* 2100-01-01, midnight: by Redis's clock no window is over yet */

static tw_status turn_for(tw_engine *engine, struct fake_clock *clock, int64_t ms) {
    for (int64_t i = 0; i < ms; i += 5) {
        fake_clock_advance_ms(clock, 5);
        tw_status status = tw_turn(engine);
        if (status != TW_OK) return status;
        test_sleep_ms(1);
    }
    return TW_OK;
}

static int64_t expiry_of(struct redis_server *server, const char *key) {
    return redis_server_expiry(server, key);
}

/* Goal: the first count sets the expiry to the window's end plus retention, later ones leave it, and a key whose expiry
 * an operator took away gets it back (faults 31, 33, 34). Method: host-driven, fake clock; PERSIST in mid-window;
 * healed within a period. */
TEST(the_expiry_is_set_once_and_healed) {
    struct redis_server server;
    struct fake_clock clock;
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    fake_clock_init(&clock, WALL_MS + 1000);
    quick_options(&options, server.url);
    options.threads = TW_HOST_DRIVEN;
    fake_clock_install(&clock, &options);
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "hour", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t want = WALL_MS + TW_HOUR + TW_DAY; /* the end, and the default retention */
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(expiry_of(&server, "hour:k:2100010100"), want);
    assert_status(turn_for(engine, &clock, 100), TW_OK);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(expiry_of(&server, "hour:k:2100010100"), want);
    redis_server_ask(&server, "PERSIST", "hour:k:2100010100", NULL);
    for (int i = 0; i < 40; i++) { /* 40 s of counting: every expiry is checked at least once */
        assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
        fake_clock_advance_ms(&clock, 900);
        assert_status(turn_for(engine, &clock, 100), TW_OK);
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(expiry_of(&server, "hour:k:2100010100"), want);
    /* A key that was deleted meanwhile is made again with its expiry. */
    redis_server_ask(&server, "DEL", "hour:k:2100010100", NULL);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(expiry_of(&server, "hour:k:2100010100"), want);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a delta whose window is over by Redis's clock is reported as late and not written (fault 32). Method: the
 * engine's clock shows 2001, Redis's does not. */
EACH_SHAPE(a_delta_too_late_by_redis_clock_is_reported_not_written) {
    play_shape(state);
    struct redis_server server;
    struct fake_clock clock;
    struct lost lost = {0};
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    fake_clock_init(&clock, INT64_C(1000000000000));
    quick_options(&options, server.url);
    options.threads = TW_HOST_DRIVEN;
    options.on_lost = on_lost;
    options.lost_ctx = &lost;
    fake_clock_install(&clock, &options);
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "late", TW_WINDOW_ALIGNED, TW_MINUTE);
    assert_status(tw_add(family, tw_str("s|x"), 7, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    assert_i64_equal(lost.by_reason[TW_LOST_LATE], 7);
    assert_string_equal(lost.key, "s|x");
    assert_i64_equal(test_stat_of(engine, late_deltas), 7);
    assert_string_equal(redis_server_ask(&server, "KEYS", "late*", NULL), "");
    assert_true(test_stat_of(engine, redis_clock_offset_ms) > INT64_C(600000000000));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* A life of a key: the first engine begins it, the second one counts later in it, and again after it. Returns false if
 * it was over before the second one had counted: the machine is crowded. */
static bool share_a_life(struct redis_server *server, tw_engine *a, tw_family *first, tw_engine *b, tw_family *second,
                         const char *key) {
    char name[32];
    snprintf(name, sizeof name, "life:%s", key);
    assert_status(tw_add(first, tw_str(key), 1, NULL), TW_OK);
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    int64_t end_ms = expiry_of(server, name), view = 0;
    test_sleep_ms(700);
    assert_status(tw_add(second, tw_str(key), 1, NULL), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    int64_t shared_end_ms = expiry_of(server, name);
    assert_status(tw_get(second, tw_str(key), &view), TW_OK);
    if (end_ms <= 0 || shared_end_ms <= 0 || view != 2) return false;
    assert_i64_equal(shared_end_ms, end_ms);
    test_sleep_ms(2600); /* past the first engine's end, before the end that the second one assumed */
    assert_status(tw_get(second, tw_str(key), &view), TW_OK);
    assert_i64_equal(view, 0);
    assert_status(tw_add(second, tw_str(key), 5, &view), TW_OK);
    assert_i64_equal(view, 5);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    return redis_server_get(server, name) == 5;
}

/* Goal: a from-first key has one life for all engines: the second engine adopts the end that the first one set (trap
 * E24). */
TEST(the_second_engine_adopts_the_life_the_first_one_began) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *first = family_of(a, "life", TW_WINDOW_FROM_FIRST, 3000),
              *second = family_of(b, "life", TW_WINDOW_FROM_FIRST, 3000);
    char key[16] = "k";
    for (int tries = 1; !share_a_life(&server, a, first, b, second, key); tries++) {
        assert_true(tries < 10);
        snprintf(key, sizeof key, "k%d", tries);
    }
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static void stamp_of(char out[32], int64_t unix_ms) {
    time_t seconds = (time_t)((unix_ms - unix_ms % TW_MINUTE) / 1000);
    struct tm at;
    gmtime_r(&seconds, &at);
    strftime(out, 32, "%Y%m%d%H%M", &at);
}

struct skewed {
    struct fake_clock clock;
    struct lost lost;
    tw_engine *engine;
    tw_family *minutes, *seconds;
};

static void skewed_open(struct skewed *node, const char *url, int64_t skew_ms) {
    struct timespec now;
    tw_options options;
    tw_family_options family;
    memset(node, 0, sizeof *node);
    clock_gettime(CLOCK_REALTIME, &now);
    fake_clock_init(&node->clock, (int64_t)now.tv_sec * 1000 + skew_ms);
    quick_options(&options, url);
    options.threads = TW_HOST_DRIVEN;
    options.on_lost = on_lost;
    options.lost_ctx = &node->lost;
    fake_clock_install(&node->clock, &options);
    assert_status(test_open(&options, &node->engine), TW_OK);
    node->minutes = family_of(node->engine, "m", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_family_options_init(&family);
    family.name = "s";
    family.window_ms = TW_SECOND;
    family.retention_ms = TW_SECOND;
    assert_status(tw_family_open(node->engine, &family, &node->seconds), TW_OK);
}

/* Goal: nodes whose clocks are 30 s off count into the window of their own clock, never into another. If that window is
 * over by Redis's clock, each unit is reported as late (fault 36; P7, P8). Method: one node ahead, one behind; windows
 * of a minute over four roll-overs, then of a second with a second's retention. */
TEST(skewed_nodes_count_into_their_own_windows_or_are_late) {
    struct redis_server server;
    struct skewed nodes[2];
    int64_t want[16] = {0};
    char stamps[16][32];
    size_t windows = 0;
    redis_server_start(&server, NULL);
    skewed_open(&nodes[0], server.url, 30000);
    skewed_open(&nodes[1], server.url, -30000);
    for (int64_t round = 0; round < 10; round++)
        for (int64_t n = 0; n < 2; n++) {
            char stamp[32];
            size_t i = 0;
            stamp_of(stamp, fake_clock_wall_ms(&nodes[n].clock));
            while (i < windows && strcmp(stamps[i], stamp) != 0) i++;
            if (i == windows) memcpy(stamps[windows++], stamp, sizeof stamp);
            int64_t delta = 1 + round * 100 + n * 7;
            want[i] += delta;
            assert_status(tw_add(nodes[n].minutes, tw_str("k"), delta, NULL), TW_OK);
            if (round % 3 == 0) assert_status(tw_flush(nodes[n].engine, TEST_PATIENCE_MS), TW_OK);
            fake_clock_advance_ms(&nodes[n].clock, 25000);
        }
    for (int n = 0; n < 2; n++) assert_status(tw_flush(nodes[n].engine, TEST_PATIENCE_MS), TW_OK);
    assert_true(windows >= 4);
    for (size_t i = 0; i < windows; i++) {
        char key[48];
        snprintf(key, sizeof key, "m:k:%s", stamps[i]);
        assert_i64_equal(redis_server_get(&server, key), want[i]);
    }
    for (int n = 0; n < 2; n++) assert_status(tw_close(nodes[n].engine, TEST_PATIENCE_MS), TW_OK);
    skewed_open(&nodes[0], server.url, 30000);
    skewed_open(&nodes[1], server.url, -30000);
    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < 5; i++) assert_status(tw_add(nodes[n].seconds, tw_str("k"), 10, NULL), TW_OK);
        assert_status(tw_flush(nodes[n].engine, 5000), n == 0 ? TW_OK : TW_ERR_REDIS);
    }
    assert_i64_equal(test_stat_of(nodes[0].engine, late_deltas), 0);
    assert_i64_equal(test_stat_of(nodes[1].engine, late_deltas), 50);
    assert_i64_equal(nodes[1].lost.by_reason[TW_LOST_LATE], 50);
    assert_i64_equal(sum_of(&server, "s:*"), 50);

    for (int n = 0; n < 2; n++) {
        int64_t offset_ms = test_stat_of(nodes[n].engine, redis_clock_offset_ms);
        assert_true(offset_ms * (n == 0 ? -1 : 1) > 25000);
        (void)tw_close(nodes[n].engine, 1000);
    }
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
