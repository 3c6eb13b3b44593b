/* quiet_loop.c -- the loop of a host that has nothing to do: how often an engine wakes it, with Redis and without, and
 * that nothing waits longer for that.
 * Method: a host that does what the header says, on a clock that the test moves, so that each wake-up is counted.
 * Always true: the host makes a turn when the time of tw_timeout_ms() is over or bytes have arrived, and at no other
 * moment. */
#include "tests/sim/engine_world.h"

#define INTERVAL_MS 100 /* the default of sync_interval_ms */
#define REPLY_MS 10
#define QUIET_S 60
/* What is due in a quiet second besides the looks for counts: a heartbeat, the clock's second. */
#define DUE_A_SECOND 2

static struct {
    struct world world;
    tw_engine *engine;
    tw_family *family;
    int64_t due_ms, woken;   /* woken because the time was over */
    int64_t closed, late_ms; /* windows that the hook got, and how late the latest call was */
} scene;

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)flags;
    int64_t late_ms = scene.world.now_ms + scene.world.wall_offset_ms - end_ms;
    scene.closed++;
    if (late_ms > scene.late_ms) scene.late_ms = late_ms;
    return true;
}

static bool has_arrived(void) {
    const struct world_connection *connection = scene.world.nodes[0].connection;
    const struct world_pipe *pipe = connection != NULL ? &connection->to_client : NULL;
    return pipe != NULL && pipe->piece_count != 0 && pipe->pieces[pipe->piece_first].at_ms <= scene.world.now_ms;
}

static void host_waits_ms(int64_t ms) {
    for (int64_t i = 0; i < ms; i++) {
        world_step(&scene.world);
        bool is_due = scene.world.now_ms >= scene.due_ms;
        if (!is_due && !has_arrived()) continue;
        scene.woken += is_due;
        assert_status(tw_turn(scene.engine), TW_OK);
        scene.due_ms = scene.world.now_ms + tw_timeout_ms(scene.engine);
    }
}

static void begin(bool has_redis) {
    tw_options options;
    tw_family_options family;
    memset(&scene, 0, sizeof scene);
    world_init(&scene.world, test_seed());
    scene.world.step_ms = 1;
    scene.world.is_near = true;
    engine_world_options(&scene.world, &options);
    if (!has_redis) options.redis_url = NULL;
    scene.engine = engine_world_open(&scene.world, 0, &options, test_seed());
    tw_family_options_init(&family);
    family.name = "f";
    family.window_ms = TW_DAY;
    assert_status(tw_family_open(scene.engine, &family, &scene.family), TW_OK);
    assert_status(tw_add(scene.family, tw_str("k"), 1, NULL), TW_OK);
    for (int i = 0; i < 5000; i++) { /* connects, and sends that count */
        world_step(&scene.world);
        assert_status(tw_turn(scene.engine), TW_OK);
    }
    scene.due_ms = scene.world.now_ms;
    host_waits_ms(5000);
    scene.woken = 0;
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

TEST(a_quiet_engine_wakes_its_loop_once_a_second) {
    begin(false);
    host_waits_ms(QUIET_S * 1000);
    print_message("# %lld times in %d s\n", (long long)scene.woken, QUIET_S);
    assert_true(scene.woken <= QUIET_S + 1);
    end();
}

TEST(a_quiet_engine_with_redis_wakes_its_loop_once_an_interval) {
    begin(true);
    host_waits_ms(QUIET_S * 1000);
    print_message("# %lld times in %d s\n", (long long)scene.woken, QUIET_S);
    assert_true(scene.woken <= QUIET_S * (1000 / INTERVAL_MS + DUE_A_SECOND));
    end();
}

/* Goal: a count that another thread adds, which wakes nobody (P9), is sent within sync_interval_ms all the same. */
TEST(a_count_of_a_quiet_engine_waits_for_no_more_than_an_interval) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    begin(true);
    for (uint64_t round = 0; round < test_scale(40); round++) {
        host_waits_ms(test_prng_between(&prng, 0, 3000));
        int64_t waited_ms = 0;
        assert_status(tw_add(scene.family, tw_str("k"), 1, NULL), TW_OK);
        for (; unsent() != 0; waited_ms++) host_waits_ms(1);
        /* the interval is jittered: 3/4 to 5/4 */
        assert_true(waited_ms <= INTERVAL_MS * 5 / 4 + REPLY_MS);
    }
    end();
}

/* Goal: what has a time of its own comes at that time, though nothing else wakes the loop: the end of a window. */
TEST(a_quiet_engine_closes_its_windows_in_time) {
    for (int has_redis = 0; has_redis < 2; has_redis++) {
        tw_family_options options;
        tw_family *family;
        begin(has_redis);
        tw_family_options_init(&options);
        options.name = "hooked";
        options.window_ms = 7000;
        options.on_window_closed = on_closed;
        assert_status(tw_family_open(scene.engine, &options, &family), TW_OK);
        for (int window = 0; window < 8; window++) {
            assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
            host_waits_ms(7000);
        }
        assert_in_range(scene.closed, 7, 8);
        /* a count of the last moment is sent before */
        assert_true(scene.late_ms <= 2 * INTERVAL_MS + REPLY_MS);
        print_message("# %lld ms late at most\n", (long long)scene.late_ms);
        end();
    }
}
