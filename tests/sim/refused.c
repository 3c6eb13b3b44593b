/* refused.c -- keys that Redis refuses: how often they are tried while they are counted on, and what becomes of their counts.
 *
 * The real engine over the real sync code, host-driven on the world's clock; the network is kind, some keys are lists. */
#include "engine/port.h"
#include "tests/sim/world.h"

#define KEYS 120
#define REFUSED 70 /* more than the ring of those near their limits has room for */

static struct world world;

struct rig {
    tw_engine *engine;
    tw_family *family;
    int64_t added; /* to each key */
};

static void rig_open(struct rig *rig) {
    tw_options options;
    tw_family_options family;
    uint64_t seed = test_seed();
    memset(rig, 0, sizeof *rig);
    world_init(&world, seed);
    tw_options_init(&options);
    options.redis_url = "redis://sim";
    options.sync_interval_ms = 100;
    options.redis_timeout_ms = 1000;
    options.threads = TW_THREADS_HOST;
    options.memory_bytes_max = 8 << 20;
    options.clock_now_ns = world_clock_ns;
    options.clock_ctx = &world;
    assert_status(twi_open_with(&options, &world_transport, &world.nodes[0], seed + 1, &rig->engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "r";
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(rig->engine, &family, &rig->family), TW_OK);
}

static void step(struct rig *rig) {
    world_step(&world);
    assert_status(tw_turn(rig->engine), TW_OK);
}

static void name_of(int n, char *name) {
    snprintf(name, 16, "r:%d", n);
}

static void refuse_some(void) {
    char name[16];
    for (int n = 0; n < REFUSED; n++) {
        name_of(n, name);
        (void)redis_model_make(&world.redis, name, MODEL_LIST);
    }
}

static void count_until(struct rig *rig, int64_t until_ms) {
    char name[16];
    while (world.now_ms < until_ms) {
        for (int n = 0; n < KEYS; n++) {
            name_of(n, name);
            assert_status(tw_add(rig->family, tw_str(name + 2), 1, NULL), TW_OK);
        }
        rig->added++;
        step(rig);
    }
}

static int64_t in_redis(int n) {
    char name[16];
    name_of(n, name);
    const struct model_key *key = redis_model_find(&world.redis, name);
    return key != NULL && key->type == MODEL_INTEGER ? key->value : 0;
}

/* Goal: refused keys that are counted on are tried after 1 s, 2 s, 4 s and so on, not at each interval; each is told once; the others
 * go on; keys near their limits still go at once; and when they are repaired, each count lands once (R6).
 * Method: 70 of 120 keys are lists; all are counted on for a minute. Without the rule each is tried some 500 times. */
static void refused_keys_that_are_counted_on_are_tried_ever_more_rarely(void **state) {
    (void)state;
    struct rig rig;
    char name[16];
    rig_open(&rig);
    refuse_some();
    int64_t began_ms = world.now_ms;
    count_until(&rig, began_ms + 60000);
    uint64_t tries = world.redis.edges[MODEL_ITEM_FAILED];
    assert_true(tries >= 5 * REFUSED && tries <= 7 * REFUSED);
    assert_i64_equal(test_stat_of(rig.engine, poison_keys), REFUSED);
    for (int n = REFUSED; n < KEYS; n++) assert_true(in_redis(n) > rig.added / 2);
    for (int n = 0; n < REFUSED; n++) {
        name_of(n, name);
        struct model_key *key = redis_model_find(&world.redis, name);
        assert_non_null(key);
        memset(key, 0, sizeof *key);
    }
    while (world.now_ms < began_ms + 200000) step(&rig);
    for (int n = 0; n < KEYS; n++) assert_i64_equal(in_redis(n), rig.added);
    assert_i64_equal(test_stat_of(rig.engine, lost) + test_stat_of(rig.engine, uncertain), 0);
    (void)tw_close(rig.engine, 0);
    world_free(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_keys_that_are_counted_on_are_tried_ever_more_rarely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
