/* engine_faults.c -- the real engine with the real sync code in seeded worlds of faults: what callers are told is true.
 *
 * Host-driven engines on the world's clock, three nodes, the same keys. Each seed draws for each family whether its
 * counters are strings, fields of hashes, or members of sorted sets. The test checks from outside. For each node and
 * key, Redis holds at least what the engine reports as acknowledged, and at most the added units (P2). A view contains
 * all own adds (P3). A flush that returns TW_OK has sent everything. At the end faults stop, and the sums equal, to the
 * unit, what on_lost reported. */
#include "engine/base/key_slot.h"
#include "sync/batch/batch.h"
#include "tests/sim/engine_world.h"

#define KEYS 12
#define STEPS 1500
#define TAGS 4u
#define SETTLE_MS 60000 /* after the faults stopped: 30 s until an idle store is looked at, and connecting again */

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
    uint32_t shapes[3]; /* TW_REDIS_*: of the endless family, the hours, the seconds */
    bool forgets;       /* Redis may be wiped: acknowledged counts may be missing for a while */
    bool tagged;        /* names have hash tags, and each tag is a store of its own */
    uint32_t wipe_slot; /* the chance in 10,000 that one store is wiped, at each step */
    uint64_t slots_wiped;
};

static struct sim sim;

static void note_failure(const char *what, int node, int key) {
    test_seed_failed(sim.name, sim.seed);
    print_error("%s: t %lld node %d key %d added %lld lost %lld\n", what, (long long)sim.world.now_ms, node, key,
                (long long)sim.nodes[node].added[key], (long long)sim.nodes[node].lost[key]);
    fail();
}

/* Also a subject and a field: four fields of each of three subjects. */
static void key_text(char *text, int key) {
    snprintf(text, 16, "s%d|k%d", key % 3, key);
}

static int key_of_text(tw_key key) {
    const char *field = memchr(key.data, 'k', key.size);
    return atoi(field + 1); /* a key in a counter has something behind it that is no digit */
}

/* The book, in the model of Redis, of a key of the endless family. */
static void name_text(char *name, size_t size, int key) {
    char text[16], subject[16], tag[16] = "";
    key_text(text, key);
    snprintf(subject, sizeof subject, "%.*s", sim.shapes[0] == TW_REDIS_HASH ? (int)strcspn(text, "|") : 16, text);
    uint32_t group = twi_key_slot_crc16(subject, strlen(subject)) % TAGS;
    if (sim.tagged) snprintf(tag, sizeof tag, "{%u}", twi_key_slot_tags(TAGS)[group]);
    if (sim.shapes[0] == TW_REDIS_ZSET)
        snprintf(name, size, "e%s%c%s", sim.tagged ? "{z}" : "", MODEL_INSIDE, text);
    else if (sim.shapes[0] == TW_REDIS_HASH)
        snprintf(name, size, "e:%s%s%ck%d", tag, subject, MODEL_INSIDE, key);
    else
        snprintf(name, size, "e:%s%s", tag, subject);
}

static void note_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    struct node *node = ctx;
    if (reason == TW_LOST_UNCERTAIN) node->unsure += delta;
    if (family == node->forever)
        node->lost[key_of_text(key)] += delta;
    else if (family == node->seconds)
        node->seconds_lost += delta;
    else
        node->hours_lost += delta;
}

static tw_family *open_family(tw_engine *engine, const char *name, uint32_t shape, uint32_t window, int64_t window_ms,
                              int64_t retention_ms) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window_ms;
    options.retention_ms = retention_ms;
    options.redis_shape = shape;
    if (sim.tagged) {
        bool stays = window == TW_WINDOW_FOREVER;
        options.redis_tags = TAGS;
        options.redis_key = stays ? "%n:{%t}%k" : "%n:{%t}%k:%Y%m%d%H%M%S";
        if (shape == TW_REDIS_ZSET) options.redis_key = stays ? "%n{z}" : "%n{z}:%Y%m%d%H%M%S";
    }
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void node_make(int index) {
    struct node *node = &sim.nodes[index];
    tw_options options;
    engine_world_options(&sim.world, &options);
    options.sync_interval_ms = 20;
    options.on_lost = note_lost;
    options.lost_ctx = node;
    node->engine = engine_world_open(&sim.world, index, &options, sim.seed * 31 + (uint64_t)index + 1);
    node->forever = open_family(node->engine, "e", sim.shapes[0], TW_WINDOW_FOREVER, 0, 0);
    node->hours = open_family(node->engine, "h", sim.shapes[1], TW_WINDOW_ALIGNED, TW_HOUR, 0);
    /* an outage may outlast it */
    node->seconds = open_family(node->engine, "s", sim.shapes[2], TW_WINDOW_ALIGNED, TW_SECOND, 4000);
}

static void check_node(int index) {
    struct node *node = &sim.nodes[index];
    char text[16], name[32];
    for (int key = 0; key < KEYS; key++) {
        tw_reading reading;
        key_text(text, key);
        name_text(name, sizeof name, key);
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

/* NULL: all that this node added is in Redis, or was reported. */
static const char *what_does_not_close(int index, int *failed_key) {
    struct node *node = &sim.nodes[index];
    char name[32];
    for (int key = 0; key < KEYS; key++) {
        name_text(name, sizeof name, key);
        int64_t gap = node->added[key] - node->lost[key] - redis_model_applied(&sim.world.redis, name, index);
        *failed_key = key;
        if (gap > 0 || -gap > node->unsure) return "the books do not close";
    }
    *failed_key = 0;
    int64_t hours_gap = node->hours_added - node->hours_lost - applied_sum("h", index);
    int64_t seconds_gap = node->seconds_added - node->seconds_lost - applied_sum("s", index);
    if (sim.forgets && seconds_gap > 0) seconds_gap = 0; /* windows that ended before a wipe are not re-sent */
    if (hours_gap > 0 || seconds_gap > 0 || -hours_gap - seconds_gap > node->unsure) return "windows do not close";
    return NULL;
}

static void assert_books_close(int index) {
    int key;
    const char *what = what_does_not_close(index, &key);
    if (what) note_failure(what, index, key);
}

static void draw_shapes(uint64_t seed) {
    struct test_prng prng;
    test_prng_seed(&prng, seed ^ 0x5a9e);
    for (int i = 0; i < 3; i++) sim.shapes[i] = (uint32_t)test_prng_below(&prng, 3);
}

static void wipe_one_store(void) {
    char tag[16];
    int size = snprintf(tag, sizeof tag, "{%u}", twi_key_slot_tags(TAGS)[test_prng_below(&sim.world.prng, TAGS)]);
    redis_model_wipe_slot(&sim.world.redis, twi_key_slot_of(tag, (size_t)size));
    sim.slots_wiped++;
}

static void step(bool adding) {
    world_step(&sim.world);
    if (adding && sim.wipe_slot && test_prng_chance(&sim.world.prng, sim.wipe_slot, 10000)) wipe_one_store();
    for (int n = 0; n < WORLD_NODES; n++) {
        if (adding) add_something(&sim.nodes[n]);
        if (test_prng_chance(&sim.world.prng, 2, 3)) test_turn(sim.nodes[n].engine, TEST_TURNS_MAX);
        check_node(n);
    }
}

static bool is_settled(int n) {
    char text[16];
    tw_reading reading;
    int failed_key;
    for (int key = 0; key < KEYS; key++) {
        key_text(text, key);
        assert_status(tw_read(sim.nodes[n].forever, tw_str(text), &reading), TW_OK);
        if (reading.unsent) return false;
    }
    return test_stat_of(sim.nodes[n].engine, redis_connected) == 1 && !what_does_not_close(n, &failed_key);
}

/* `wipe_slot` above 0: names have hash tags. */
static void run_seed(const char *name, uint64_t seed, const struct world_faults *faults, uint32_t wipe_slot) {
    test_seed_begins(name, seed);
    memset(&sim, 0, sizeof sim);
    sim.tagged = test_tuning.stores_by_tag = wipe_slot != 0;
    sim.wipe_slot = wipe_slot;
    sim.name = name;
    sim.seed = seed;
    draw_shapes(seed);
    world_init(&sim.world, seed);
    sim.world.faults = *faults;
    test_tuning.near_keys =
        seed % 3 == 0 ? TWI_NEAR_KEYS : 1 + (uint32_t)(seed % 4); /* few: a collection is several batches */
    sim.forgets = faults->wipe != 0 || sim.tagged;
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
    for (int i = 0; i < STEPS; i++) step(true);
    world_calm(&sim.world);
    /* A store that is idle, as those of some hash tags are now, learns within 30 s that it was wiped. */
    int64_t drained_ms = sim.world.now_ms + 10000, until_ms = sim.world.now_ms + SETTLE_MS;
    for (bool settled = false; !settled || sim.world.now_ms < drained_ms;) {
        step(false);
        settled = true;
        for (int n = 0; n < WORLD_NODES; n++) settled = settled && is_settled(n);
        if (sim.world.now_ms <= until_ms) continue;
        for (int n = 0; n < WORLD_NODES; n++) assert_books_close(n);
        note_failure("not settled after the faults stopped", 0, 0);
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
TEST(what_callers_added_is_in_redis_or_reported) {
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
    for (size_t i = 0; i < count; i++) run_seed("engine_faults", seeds[i], &faults, 0);
}

/* Goal: after a wipe, Redis gets all that the counters of live windows had sent, once, whatever else fails meanwhile.
 * Method: wipes on top of a faulty network and restarts, while windows roll over. At the end the sums of the endless
 * family and of the hours agree to the unit; at every step nothing is there twice. */
TEST(a_wiped_redis_gets_all_counts_again) {
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
    for (size_t i = 0; i < count; i++) run_seed("engine_wipe", seeds[i], &faults, 0);
}

/* Goal: the same with a store for each hash tag, which are wiped one by one. Each gets its own counts again, once, and
 * no count is doubled in the others. Method: as above, with four tags; the real engine tells which counter is where. */
TEST(a_wiped_store_gets_its_own_counts_again) {
    static const struct world_faults faults = {.refuse_connect = 300,
                                               .cut_request = 150,
                                               .cut_reply = 150,
                                               .tell_nobody = 3000,
                                               .slow = 50,
                                               .restart = 5,
                                               .flush_scripts = 5,
                                               .refuse_writes = 5};
    uint64_t seeds[10000], wiped = 0;
    size_t count = test_seeds("engine_stores", test_scale(10), seeds, 10000);
    for (size_t i = 0; i < count; i++) {
        run_seed("engine_stores", seeds[i], &faults, 40);
        wiped += sim.slots_wiped;
    }
    assert_true(wiped > 0 || count < 10); /* where a sanitizer runs one seed, it may have no wipe */
}
