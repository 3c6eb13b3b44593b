/* store_returns.c -- a store is left for another one, which is trusted, and then is back: what happens to a window that
 * ends meanwhile?
 *
 * Or it is not trusted, for it does not stay.
 *
 * The real engine with the real sync code, host-driven on the world's clock; the network has no faults, the other store
 * is empty. */
#include "tests/sim/engine_world.h"

#include "sync/turn/instance.h"

static struct {
    struct world world;
    tw_engine *engine;
    tw_family *family;
} scene;

static void pass(int64_t ms) {
    for (int64_t until_ms = scene.world.now_ms + ms; scene.world.now_ms < until_ms;) {
        world_step(&scene.world);
        test_turn(scene.engine, TEST_TURNS_MAX);
    }
}

/* The store has 100 units of a window. */
static void begin(int64_t doubt_ms) {
    tw_options options;
    tw_family_options family;
    memset(&scene, 0, sizeof scene);
    world_init(&scene.world, test_seed());
    engine_world_options(&scene.world, &options);
    options.sync_interval_ms = 100;
    options.redis_timeout_ms = 1000;
    options.memory_bytes_max = 4 << 20;
    test_tuning.doubt_ms = doubt_ms;
    scene.engine = engine_world_open(&scene.world, 0, &options, 1);
    tw_family_options_init(&family);
    family.name = "w";
    family.window_ms = TW_MINUTE;
    family.retention_ms = TW_MINUTE;
    assert_status(tw_family_open(scene.engine, &family, &scene.family), TW_OK);
    pass(TW_MINUTE - world_wall_ms(&scene.world) % TW_MINUTE + 1000);
    assert_status(tw_add(scene.family, tw_str("k"), 100, NULL), TW_OK);
    pass(2000);
    assert_i64_equal(test_stat_of(scene.engine, restored), 0);
}

/* An empty store appears, accepts the opening, and takes no counts yet. */
static void leave(void) {
    redis_model_init(&scene.world.other);
    scene.world.other.run = scene.world.other.history = 1000001;
    scene.world.other.policy = scene.world.redis.policy;
    scene.world.other.beside = scene.world.redis.beside;
    world_turn_to(&scene.world, 0, INT64_MAX);
    while (scene.world.other.edges[MODEL_OPENED] == 0) {
        test_turn(scene.engine, TEST_TURNS_MAX);
        world_step(&scene.world);
    }
    scene.world.other.refuses = "OOM command not allowed when used memory > 'maxmemory'.";
}

/* Goal: a window ends before it is re-sent to the other store. What the earlier store has of it is neither re-sent nor
 * lost; what was new is lost. Method: the other store refuses writes until the window's keys are expired by its clock,
 * and then replies LATE. Without the rule 107 units are lost, of which 100 are in the store that is back. */
TEST(a_window_that_ends_meanwhile_loses_only_new_counts) {
    begin(500);
    leave();
    assert_status(tw_add(scene.family, tw_str("k"), 7, NULL), TW_OK);
    pass(3 * TW_MINUTE);
    assert_i64_equal(test_stat_of(scene.engine, restored), 100);
    scene.world.other.refuses = NULL;
    pass(10000);
    assert_true(scene.world.other.edges[MODEL_ITEM_LATE] > 0);
    assert_i64_equal(test_stat_of(scene.engine, lost), 7);
    world_turn_to(&scene.world, 0, 0);
    pass(10000);
    assert_i64_equal(scene.world.redis.store.books[0].applied[0], 100); /* the only key there ever was */
    assert_i64_equal(test_stat_of(scene.engine, lost), 7);
    assert_i64_equal(test_stat_of(scene.engine, uncertain), 0);
    (void)tw_close(scene.engine, 0);
    world_free(&scene.world);
}

/* Goal: a server that had our ledger, and has followed an empty one since, is not trusted before it has stayed. Its
 * copy, which was promoted meanwhile, may be back. It is the same server (run_id), but its data have another past. */
TEST(a_server_that_took_over_an_empty_past_is_in_doubt) {
    begin(6000);
    redis_model_init(&scene.world.other);
    scene.world.other.run = scene.world.redis.run;
    scene.world.other.history = scene.world.redis.history + 1;
    scene.world.other.policy = scene.world.redis.policy;
    scene.world.other.beside = scene.world.redis.beside;
    world_turn_to(&scene.world, 0, INT64_MAX);
    assert_status(tw_add(scene.family, tw_str("k"), 7, NULL), TW_OK);
    pass(4000);
    world_turn_to(&scene.world, 0, 0);
    pass(10000);
    assert_i64_equal(scene.world.other.edges[MODEL_OPENED], 0);
    assert_i64_equal(scene.world.redis.store.books[0].applied[0], 107);
    assert_i64_equal(test_stat_of(scene.engine, restored) + test_stat_of(scene.engine, lost), 0);
    assert_i64_equal(test_stat_of(scene.engine, uncertain), 0);
    (void)tw_close(scene.engine, 0);
    world_free(&scene.world);
}
