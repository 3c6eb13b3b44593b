/* keyless_slot.c -- no master held a key of a store's slot: for how long is that trusted (sync/turn/split.c)?
 *
 * The real engine with the real sync code, host-driven on the world's clock; the cluster (cluster_world.h) and the
 * network have no faults but those of the test.
 * Covers: sync/turn/split.c. */
#include "tests/sim/cluster_world.h"
#include "tests/sim/engine_world.h"

static struct {
    struct world world;
    struct cluster_world cluster;
    tw_engine *engine;
    uint32_t slot; /* of the only counter */
    int from, to;  /* it lies at `from`; `to` is another master */
    bool at_opening;
    int questions; /* that reached other masters */
    int64_t maps;  /* questions for the map of the cluster */
    bool watches;
    bool moves;
} scene;

static const char counter[] = "w:{1}:k", marker[] = "tw:marker:{1}";

static void (*answer)(struct world *world, struct world_connection *connection, const struct model_word *words,
                      size_t count, struct twi_bytes *reply);

/* Number 0. */
static bool is_opening(const struct model_word *words, size_t count) {
    if (count < 9 || words[0].size < 4 || memcmp(words[0].data, "EVAL", 4) != 0) return false;
    size_t number_at = 3 + (size_t)(words[2].data[0] - '0') + 1;
    return number_at < count && words[number_at].size == 1 && words[number_at].data[0] == '0';
}

/* The slot begins to move when all masters have been asked; or when the opening comes, which is turned away then. */
static void look_and_answer(struct world *world, struct world_connection *connection, const struct model_word *words,
                            size_t count, struct twi_bytes *reply) {
    scene.maps += count == 2 && words[1].size == 5 && memcmp(words[1].data, "SLOTS", 5) == 0;
    bool asks = scene.watches && count == 3 && words[1].size == 15 && memcmp(words[1].data, "COUNTKEYSINSLOT", 15) == 0;
    scene.questions += asks;
    bool begins = scene.watches && (scene.at_opening ? is_opening(words, count) : asks);
    if (!scene.moves && scene.questions == CLUSTER_WORLD_MASTERS - 1 && begins) {
        scene.moves = true;
        cluster_model_move_begin(&scene.cluster.model, scene.slot, scene.to);
        if (scene.at_opening) assert_true(cluster_model_move_key(&scene.cluster.model, scene.slot, scene.to, counter));
    }
    answer(world, connection, words, count, reply);
}

static void step(void) {
    world_step(&scene.world);
    cluster_world_step(&scene.cluster);
    test_turn(scene.engine, TEST_TURNS_MAX);
}

static void pass(int64_t ms) {
    for (int64_t until_ms = scene.world.now_ms + ms; scene.world.now_ms < until_ms;) step();
}

static struct redis_model *redis_at(int node) {
    return &scene.cluster.model.nodes[node].redis;
}

/* The counter has 100. */
static void begin(uint64_t seed, bool at_opening) {
    tw_options options;
    tw_family_options options_of;
    tw_family *family = NULL;
    memset(&scene, 0, sizeof scene);
    scene.at_opening = at_opening;
    scene.slot = twi_key_slot_of(counter, strlen(counter));
    world_init(&scene.world, seed);
    cluster_world_begin(&scene.cluster, &scene.world, &scene.slot, 1);
    answer = scene.world.aside;
    scene.world.aside = look_and_answer;
    engine_world_options(&scene.world, &options);
    options.redis_url = CLUSTER_WORLD_URL;
    options.sync_interval_ms = 100;
    options.redis_timeout_ms = 1000;
    options.memory_bytes_max = 4 << 20;
    test_tuning.doubt_ms = 300;
    scene.engine = engine_world_open(&scene.world, 0, &options, 1);
    tw_family_options_init(&options_of);
    options_of.name = "w";
    options_of.window = TW_WINDOW_FOREVER;
    options_of.redis_key = "w:{1}:%k";
    assert_status(tw_family_open(scene.engine, &options_of, &family), TW_OK);
    assert_status(tw_add(family, tw_str("k"), 100, NULL), TW_OK);
    pass(3000);
    scene.from = scene.cluster.model.owners[scene.slot];
    scene.to = (scene.from + 1) % CLUSTER_WORLD_MASTERS;
    assert_i64_equal(redis_model_find(redis_at(scene.from), counter)->value, 100);
    redis_model_slot_loses_ledgers(redis_at(scene.from), scene.slot);
    (void)redis_model_make(redis_at(scene.from), marker, MODEL_NONE);
    scene.watches = true;
    assert_status(tw_add(family, tw_str("k"), 7, NULL), TW_OK);
}

/* Goal: ledger and marker of a slot are gone, its counter is there, and no other master has a key. The slot was not
 * split then. Before the engine can open the store, the slot begins to move, and the counter goes to another master.
 * Ten seconds later the source fails over, and forgets the move. Now the slot is split: no data is sent again. */
static void split_after_the_ruling(uint64_t seed, bool at_opening) {
    begin(seed, at_opening);
    while (!scene.moves) step();
    if (!at_opening) pass(200); /* the last master has said 0 */
    if (!at_opening) assert_true(cluster_model_move_key(&scene.cluster.model, scene.slot, scene.to, counter));
    pass(10000);
    cluster_model_move_forget(&scene.cluster.model, scene.slot, scene.to);
    pass(10000);
    assert_i64_equal(test_stat_of(scene.engine, restored), 0);
    for (int i = 0; i < 40; i++) { /* also while the masters are asked once more */
        assert_i64_equal(test_stat_of(scene.engine, stores_split), 1);
        pass(100);
    }
    assert_null(redis_model_find(redis_at(scene.from), counter));
    assert_true(redis_model_move(redis_at(scene.to), redis_at(scene.from), counter)); /* the operator's `fix` */
    pass(10000);
    assert_i64_equal(test_stat_of(scene.engine, stores_split), 0);
    assert_i64_equal(test_stat_of(scene.engine, uncertain), 100);
    assert_i64_equal(redis_model_find(redis_at(scene.from), counter)->value, 107);
    for (int i = 0; i < 1000 && test_stat_of(scene.engine, map_refreshes) != scene.maps; i++) step(); /* one is asked */
    assert_true(scene.maps > 1);
    assert_i64_equal(test_stat_of(scene.engine, map_refreshes), scene.maps);
    (void)tw_close(scene.engine, 0);
    world_free(&scene.world);
}

TEST(a_slot_that_is_split_after_the_ruling_is_not_restored) {
    uint64_t seeds[256];
    size_t count = test_seeds("keyless_slot", test_scale(4), seeds, sizeof seeds / sizeof *seeds);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("keyless_slot", seeds[i]);
        split_after_the_ruling(seeds[i], false);
        split_after_the_ruling(seeds[i], true);
        test_seed_ends();
    }
}
