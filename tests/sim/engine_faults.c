/* engine_faults.c -- the real engine with the real sync code in seeded worlds of faults: what callers are told is true.
 *
 * Host-driven engines on the world's clock, three nodes, the same keys. The test checks from outside. For each node and
 * key, Redis holds at least what the engine reports as acknowledged, and at most what was added (P2). A view contains
 * all own adds (P3). A flush that returns TW_OK has sent everything. At the end faults stop, and the sums equal, to the
 * unit, what on_lost reported. */
#include "engine/port/driver.h"
#include "sync/batch/depth.h"
#include "tests/sim/world.h"

#define KEYS 12
#define STEPS 1500

struct node {
    tw_engine *engine;
    tw_family *forever, *hours, *seconds;
    int64_t added[KEYS], lost[KEYS];     /* of the endless family */
    int64_t seconds_added, seconds_lost; /* of the short windows: sums */
    int64_t hours_added, hours_lost;
    int64_t unsure;
};

struct sim {
    struct world world;
    struct node nodes[WORLD_NODES];
    const char *name; /* of the list of seeds */
    uint64_t seed;
    bool forgets; /* Redis may be wiped: acknowledged counts may be missing for a while */
};

static struct sim sim;

static void note_failure(const char *what, int node, int key) {
    test_seed_failed(sim.name, sim.seed);
    print_error("%s: t %lld node %d key %d added %lld lost %lld\n", what, (long long)sim.world.now_ms, node, key,
                (long long)sim.nodes[node].added[key], (long long)sim.nodes[node].lost[key]);
    fail();
}

static void key_text(char *text, int key) {
    snprintf(text, 16, "k%d", key);
}

static void note_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    struct node *node = ctx;
    (void)start_ms;
    if (reason == TW_LOST_UNCERTAIN) node->unsure += delta;
    if (family == node->forever)
        node->lost[atoi((const char *)key.data + 1)] += delta;
    else if (family == node->seconds)
        node->seconds_lost += delta;
    else
        node->hours_lost += delta;
}

static tw_family *open_family(tw_engine *engine, const char *name, uint32_t window, int64_t window_ms,
                              int64_t retention_ms) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window_ms;
    options.retention_ms = retention_ms;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void node_make(int index) {
    struct node *node = &sim.nodes[index];
    tw_options options;
    tw_options_init(&options);
    options.redis_url = "redis://sim";
    options.sync_interval_ms = 20;
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 8 << 20;
    options.clock_now_ns = world_clock_ns;
    options.clock_ctx = &sim.world;
    options.on_lost = note_lost;
    options.lost_ctx = node;
    assert_status(twi_open_with(&options, &world_transport, &sim.world.nodes[index],
                                sim.seed * 31 + (uint64_t)index + 1, &node->engine),
                  TW_OK);
    node->forever = open_family(node->engine, "e", TW_WINDOW_FOREVER, 0, 0);
    node->hours = open_family(node->engine, "h", TW_WINDOW_ALIGNED, TW_HOUR, 0);
    node->seconds = open_family(node->engine, "s", TW_WINDOW_ALIGNED, TW_SECOND, 4000); /* an outage may outlast it */
}

static void check_node(int index) {
    struct node *node = &sim.nodes[index];
    char text[16], name[32];
    for (int key = 0; key < KEYS; key++) {
        tw_reading reading;
        key_text(text, key);
        snprintf(name, sizeof name, "e:%s", text);
        int64_t applied = redis_model_applied(&sim.world.redis, name, index);
        if (applied > node->added[key] - node->lost[key] + node->unsure) note_failure("counted twice", index, key);
        assert_status(tw_read(node->forever, tw_str(text), &reading), TW_OK);
        if (reading.local != node->added[key]) note_failure("a local count is wrong", index, key);
        if (!sim.forgets && reading.local - reading.unsent - node->lost[key] > applied)
            note_failure("acknowledged, and not in Redis", index, key);
        if (reading.view < node->added[key]) note_failure("own adds are missing in the view", index, key);
    }
}

static void add_something(struct node *node) {
    char text[16];
    for (uint64_t n = test_prng_below(&sim.world.prng, 4); n > 0; n--) {
        int key = (int)test_prng_below(&sim.world.prng, KEYS);
        int64_t delta = test_prng_between(&sim.world.prng, 1, 100);
        key_text(text, key);
        switch (test_prng_below(&sim.world.prng, 4)) {
        case 0:
            assert_status(tw_add(node->hours, tw_str(text), delta, NULL), TW_OK);
            node->hours_added += delta;
            break;
        case 1:
            assert_status(tw_add(node->seconds, tw_str(text), delta, NULL), TW_OK);
            node->seconds_added += delta;
            break;
        default: assert_status(tw_add(node->forever, tw_str(text), delta, NULL), TW_OK); node->added[key] += delta;
        }
    }
}

static int64_t applied_sum(const char *prefix, int node) {
    int64_t sum = 0;
    for (size_t i = 0; i < MODEL_KEYS; i++)
        if (strncmp(sim.world.redis.store.books[i].name, prefix, strlen(prefix)) == 0)
            sum += sim.world.redis.store.books[i].applied[node];
    return sum;
}

static void assert_books_close(int index) {
    struct node *node = &sim.nodes[index];
    char name[32];
    for (int key = 0; key < KEYS; key++) {
        snprintf(name, sizeof name, "e:k%d", key);
        int64_t gap = node->added[key] - node->lost[key] - redis_model_applied(&sim.world.redis, name, index);
        if (gap > 0 || -gap > node->unsure) note_failure("the books do not close", index, key);
    }
    int64_t hours_gap = node->hours_added - node->hours_lost - applied_sum("h:", index);
    int64_t seconds_gap = node->seconds_added - node->seconds_lost - applied_sum("s:", index);
    if (sim.forgets && seconds_gap > 0) seconds_gap = 0; /* windows that ended before a wipe are not re-sent */
    if (hours_gap > 0 || seconds_gap > 0 || -hours_gap - seconds_gap > node->unsure)
        note_failure("windows do not close", index, 0);
}

static void step(bool adding) {
    world_step(&sim.world);
    for (int n = 0; n < WORLD_NODES; n++) {
        if (adding) add_something(&sim.nodes[n]);
        if (test_prng_chance(&sim.world.prng, 2, 3)) assert_status(tw_turn(sim.nodes[n].engine), TW_OK);
        check_node(n);
    }
}

static bool all_sent(int n) {
    char text[16];
    tw_reading reading;
    for (int key = 0; key < KEYS; key++) {
        key_text(text, key);
        assert_status(tw_read(sim.nodes[n].forever, tw_str(text), &reading), TW_OK);
        if (reading.unsent) return false;
    }
    return test_stat_of(sim.nodes[n].engine, redis_connected) == 1;
}

static void run_seed(const char *name, uint64_t seed, const struct world_faults *faults) {
    test_seed_begins(name, seed);
    memset(&sim, 0, sizeof sim);
    sim.name = name;
    sim.seed = seed;
    world_init(&sim.world, seed);
    sim.world.faults = *faults;
    atomic_store(&twi_near_limit_keys,
                 seed % 3 == 0 ? TWI_NEAR_KEYS : 1 + (uint32_t)(seed % 4)); /* few: a collection is several batches */
    sim.forgets = faults->wipe != 0;
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
    for (int i = 0; i < STEPS; i++) step(true);
    world_calm(&sim.world);
    int64_t until_ms = sim.world.now_ms + 100000;
    for (bool settled = false; !settled || sim.world.now_ms < until_ms - 90000;) { /* windows must drain, too */
        step(false);
        settled = true;
        for (int n = 0; n < WORLD_NODES; n++) settled = settled && all_sent(n);
        if (sim.world.now_ms > until_ms) note_failure("not settled after the faults stopped", 0, 0);
    }
    for (int n = 0; n < WORLD_NODES; n++) assert_books_close(n);
    for (int n = 0; n < WORLD_NODES; n++) {
        tw_status status = tw_close(sim.nodes[n].engine, 0);
        assert_true(status == TW_OK || status == TW_ERR_TIMEOUT);
        assert_books_close(n);
    }
    world_free(&sim.world);
    test_seed_ends();
}

/* Goal: P2, P3, P8 for callers of the real engine on a faulty network. Method: see above; many faults in every seed. */
static void what_callers_added_is_in_redis_or_reported(void **state) {
    (void)state;
    static const struct world_faults faults = {.refuse_connect = 1000,
                                               .black_hole = 300,
                                               .cut_request = 200,
                                               .cut_reply = 200,
                                               .tell_nobody = 4000,
                                               .garbage = 30,
                                               .slow = 100,
                                               .restart = 10,
                                               .flush_scripts = 10,
                                               .refuse_writes = 10};
    uint64_t seeds[10000];
    size_t count = test_seeds("engine_faults", test_scale(25), seeds, 10000);
    for (size_t i = 0; i < count; i++) run_seed("engine_faults", seeds[i], &faults);
}

/* Goal: after a wipe, Redis gets all that the counters of live windows had sent, once, whatever else fails meanwhile.
 * Method: wipes on top of a faulty network and restarts, while windows roll over. At the end the sums of the endless
 * family and of the hours agree to the unit; at every step nothing is there twice. */
static void what_a_wiped_redis_had_is_told_again(void **state) {
    (void)state;
    static const struct world_faults faults = {.refuse_connect = 300,
                                               .cut_request = 150,
                                               .cut_reply = 150,
                                               .tell_nobody = 3000,
                                               .slow = 50,
                                               .restart = 5,
                                               .flush_scripts = 5,
                                               .refuse_writes = 5,
                                               .wipe = 20};
    uint64_t seeds[10000];
    size_t count = test_seeds("engine_wipe", test_scale(25), seeds, 10000);
    for (size_t i = 0; i < count; i++) run_seed("engine_wipe", seeds[i], &faults);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_callers_added_is_in_redis_or_reported),
        cmocka_unit_test(what_a_wiped_redis_had_is_told_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
