/* late_turns.c -- turns that come too late. Time without a turn is no evidence that Redis does not reply; yet the
 * engine leaves a silent Redis.
 * Always true: one engine, driven by hand on the world's clock; what it sends arrives only when the world makes a
 * step. */
#include "tests/sim/engine_world.h"

#define TIMEOUT_MS 100

static struct {
    struct world world;
    tw_engine *engine;
    tw_family *family;
} scene;

static void step(int64_t ms) {
    for (int64_t i = 0; i < ms; i++) {
        world_step(&scene.world);
        assert_status(tw_turn(scene.engine), TW_OK);
    }
}

/* Connects, with nothing in flight; then sends a batch. */
static void begin(void) {
    tw_options options;
    tw_family_options family;
    memset(&scene, 0, sizeof scene);
    world_init(&scene.world, 1);
    scene.world.step_ms = 1;
    engine_world_options(&scene.world, &options);
    options.redis_timeout_ms = TIMEOUT_MS;
    options.memory_bytes_max = 4 << 20;
    scene.engine = engine_world_open(&scene.world, 0, &options, 1);
    tw_family_options_init(&family);
    family.name = "f";
    family.window_ms = TW_DAY;
    assert_status(tw_family_open(scene.engine, &family, &scene.family), TW_OK);
    step(3000);
    assert_status(tw_add(scene.family, tw_str("k"), 1, NULL), TW_OK);
    for (int64_t sent = test_stat_of(scene.engine, batches_sent); test_stat_of(scene.engine, batches_sent) == sent;)
        step(1);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
}

static void end(void) {
    (void)tw_close(scene.engine, 0);
    world_free(&scene.world);
}

static int64_t unsent(void) {
    tw_reading reading;
    assert_status(tw_read(scene.family, tw_str("k"), &reading), TW_OK);
    return reading.unsent;
}

/* Nothing travels; `turns` turns come, one each `every_ms`. */
static void stand_still(int turns, int64_t every_ms) {
    for (int i = 0; i < turns; i++) {
        scene.world.now_ms += every_ms;
        assert_status(tw_turn(scene.engine), TW_OK);
    }
}

/* Goal: a machine that is too busy for the engine's thread and for Redis is no outage (R13). Method: the reply is not
 * there when a turn comes half a second late; it comes within a quarter of redis_timeout_ms from then on. */
TEST(time_without_turns_is_no_outage) {
    begin();
    stand_still(1, 500);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
    stand_still(TIMEOUT_MS / 5, 1);
    step(20);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
    assert_i64_equal(unsent(), 0);
    end();
}

/* Goal: a Redis that is silent in spite of regular turns is left as early as ever. */
TEST(a_silent_redis_is_left_in_time) {
    begin();
    stand_still(TIMEOUT_MS - 10, 1);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
    stand_still(20, 1);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 1);
    end();
}

/* Goal: an engine whose turns are always late finds an outage, too. Method: every turn comes a second after the
 * previous one. */
TEST(an_engine_that_is_always_late_leaves_a_silent_redis) {
    begin();
    stand_still(20 * TIMEOUT_MS / 1000, 1000);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 1);
    end();
}

/* Goal: turns that are all a bit late, as on a busy machine, do not push the deadline away. Method: a turn each 40 ms,
 * which is later than asked for; the silent Redis is left within four times redis_timeout_ms, not after ten. */
TEST(many_slightly_late_turns_do_not_push_the_deadline_away) {
    begin();
    stand_still(2, 40);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
    stand_still(8, 40);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 1);
    end();
}
