/* refused_keys.c -- keys that Redis refuses: how often they are tried while they are counted on, and what happens to
 * their counts.
 *
 * The real engine with the real sync code, host-driven on the world's clock; the network has no faults, some keys are
 * lists.
 * Always true: each test plays the seeds that once failed (tests/seeds/refused.txt), and a drawn one. */
#include "tests/sim/engine_world.h"

#define KEYS 120
#define REFUSED 70 /* more than the near-limit ring has room for */

static struct world world;

struct rig {
    tw_engine *engine;
    tw_family *family;
    int64_t added; /* to each key */
};

static void rig_open(struct rig *rig, uint64_t seed) {
    tw_options options;
    tw_family_options family;
    memset(rig, 0, sizeof *rig);
    world_init(&world, seed);
    engine_world_options(&world, &options);
    options.sync_interval_ms = 100;
    options.redis_timeout_ms = 1000;
    rig->engine = engine_world_open(&world, 0, &options, seed + 1);
    tw_family_options_init(&family);
    family.name = "r";
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(rig->engine, &family, &rig->family), TW_OK);
}

static void step(struct rig *rig) {
    world_step(&world);
    test_turn(rig->engine, TEST_TURNS_MAX);
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

/* ---- how often they are tried ------------------------------------------------------------------------------------ */

#define WAIT_MIN_MS 1000 /* after the first refusal; it doubles with each try */
/* No step of the world is longer than 300 ms, and some ms come to each. Two steps after a refusal: its answer is read,
 * and the last batch that was sent before that is there. */
#define UNDER_WAY_MS 700
/* Four steps and 5/4 of an interval: the answer is read, a turn finds the wait over, the answers to other batches make
 * room for one more, and that one is there. */
#define LATE_MS 1400
#define TRIES 6   /* after 0, 1, 3, 7, 15 and 31 s; the next one would come after 63 s */
#define BATCHES 4 /* that can be under way with one key */

/* What Redis was asked for one refused key. */
static struct tried {
    int64_t began_ms;  /* the latest try */
    int64_t latest_ms; /* its last batch */
    int tries, batches;
} tried[REFUSED];

/* Redis refuses a key: either with the batches of the latest try, or as the next try, when the wait is over. */
static void note_refusal(const char *name) {
    int n = atoi(name + 2);
    assert_in_range(n, 0, REFUSED - 1);
    struct tried *key = &tried[n];
    int64_t after_ms = world.now_ms - key->began_ms;
    if (key->tries != 0 && after_ms < WAIT_MIN_MS) {
        assert_true(after_ms <= UNDER_WAY_MS);
        assert_true(++key->batches <= BATCHES);
        key->latest_ms = world.now_ms;
        return;
    }
    if (key->tries != 0) {
        int64_t wait_ms = (int64_t)WAIT_MIN_MS << (key->tries - 1);
        assert_true(after_ms >= wait_ms);
        assert_true(world.now_ms - key->latest_ms <= wait_ms + wait_ms / 4 + LATE_MS);
    }
    *key = (struct tried){.began_ms = world.now_ms, .latest_ms = world.now_ms, .tries = key->tries + 1, .batches = 1};
}

/* Goal: refused keys that are counted on are tried after 1 s, 2 s, 4 s and so on, and up to a quarter of that more. In
 * between no batch has them, but those that are under way when the refusal comes. Each is reported once. The other keys
 * continue. After a repair, each count arrives once (R6). Method: 70 of 120 keys are lists; all are counted on for a
 * minute. Without the rule each is tried some 500 times. */
static void refused_keys_that_are_counted_on_are_tried_ever_more_rarely(uint64_t seed) {
    struct rig rig;
    char name[16];
    rig_open(&rig, seed);
    refuse_some();
    memset(tried, 0, sizeof tried);
    world.redis.on_refusal = note_refusal;
    int64_t began_ms = world.now_ms;
    count_until(&rig, began_ms + 60000);
    for (int n = 0; n < REFUSED; n++) assert_int_equal(tried[n].tries, TRIES);
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

/* ---- a copy of the store replies differently --------------------------------------------------------------------- */

#define KEY "r:0"

static struct model_store copy; /* of the store, before the count in question */

static void overwrite(struct redis_model *redis, enum model_type type) {
    struct model_key *key = redis_model_find(redis, KEY);
    assert_non_null(key);
    key->type = type;
}

static void add(struct rig *rig, int64_t delta) {
    assert_status(tw_add(rig->family, tw_str(&KEY[2]), delta, NULL), TW_OK);
    rig->added += delta;
}

static void pass(struct rig *rig, int64_t ms) {
    for (int64_t until_ms = world.now_ms + ms; world.now_ms < until_ms;) step(rig);
}

static void cut_all(void) {
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *connection = &world.connections[i];
        if (!connection->used) continue;
        connection->to_redis.cut = connection->to_client.cut = true;
        connection->to_client.piece_count = 0; /* not even what has arrived and was not read */
        connection->broken_at_ms = world.now_ms;
    }
}

/* What the engine has counted and does not know to be in Redis. */
static int64_t unsent(struct rig *rig) {
    tw_reading reading;
    assert_status(tw_read(rig->family, tw_str(&KEY[2]), &reading), TW_OK);
    return reading.unsent;
}

static int64_t in_other(void) {
    const struct model_key *key = redis_model_find(&world.other, KEY);
    assert_non_null(key);
    return key->value;
}

/* The copy is promoted and the store is gone, for this time. */
static void promote_copy(int64_t ms) {
    redis_model_init(&world.other);
    world.other.store = copy;
    world.other.run = world.other.history = 1000001;
    world.other.policy = world.redis.policy;
    world.other.beside = world.redis.beside;
    world.other_until_ms[0] = world.now_ms + ms;
    cut_all();
}

/* The store and the copy have 5 units. 7 more are in flight to the store, which takes or refuses them, and its reply is
 * lost. */
static void lose_an_answer(struct rig *rig, bool refuses, uint64_t seed) {
    rig_open(rig, seed);
    add(rig, 5);
    pass(rig, 3000);
    assert_i64_equal(in_redis(0), 5);
    copy = world.redis.store;
    overwrite(&world.redis, refuses ? MODEL_TEXT : MODEL_INTEGER);
    uint64_t before = world.redis.edges[MODEL_ITEM_FAILED];
    add(rig, 7);
    while (world.redis.edges[MODEL_ITEM_FAILED] == before && in_redis(0) != 12) {
        test_turn(rig->engine, TEST_TURNS_MAX);
        world_step(&world);
    }
    assert_int_equal(world.redis.edges[MODEL_ITEM_FAILED] - before, refuses);
    promote_copy(3000);
}

/* Goal: what the store refused and a promoted copy took is counted as lost when the store is back. Method: see
 * lose_an_answer(). Without the check the 7 units are missing without a report. */
static void what_a_copy_took_and_the_store_refuses_is_lost_to_the_unit(uint64_t seed) {
    struct rig rig;
    lose_an_answer(&rig, true, seed);
    pass(&rig, 2500);
    struct model_key *key = redis_model_find(&world.other, KEY);
    assert_true(key && key->value == 12);
    pass(&rig, 10000);
    overwrite(&world.redis, MODEL_INTEGER);
    add(&rig, 1);
    pass(&rig, 70000);
    assert_i64_equal(in_redis(0), 6);
    assert_i64_equal(test_stat_of(rig.engine, lost), 7);
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    (void)tw_close(rig.engine, 0);
    world_free(&world);
}

/* Goal: what the store took and a promoted copy refused is sent again, and reported as uncertain when the store is
 * back. If the store does not come back, nothing is. */
static void what_a_copy_refused_and_the_store_took_is_uncertain_to_the_unit(uint64_t seed) {
    struct rig rig;
    lose_an_answer(&rig, false, seed);
    struct model_key *key = redis_model_find(&world.other, KEY);
    assert_non_null(key);
    key->type = MODEL_TEXT;
    pass(&rig, 2500);
    assert_true(world.other.edges[MODEL_ITEM_FAILED] > 0);
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    pass(&rig, 70000);
    int64_t uncertain = test_stat_of(rig.engine, uncertain);
    assert_i64_equal(uncertain, 7);
    assert_i64_equal(in_redis(0), rig.added + uncertain);
    assert_i64_equal(test_stat_of(rig.engine, lost), 0);
    (void)tw_close(rig.engine, 0);
    world_free(&world);
}

/* Goal: a copy that stays makes nothing lost or uncertain, whichever store refused the key. */
static void a_copy_that_stays_is_told_all_of_it(uint64_t seed) {
    for (int refuses = 0; refuses < 2; refuses++) {
        struct rig rig;
        lose_an_answer(&rig, refuses != 0, seed);
        world.other_until_ms[0] = INT64_MAX;
        overwrite(&world.other, MODEL_TEXT);
        pass(&rig, 3000);
        overwrite(&world.other, MODEL_INTEGER);
        pass(&rig, 70000);
        struct model_key *key = redis_model_find(&world.other, KEY);
        assert_true(key && key->value == 12);
        assert_i64_equal(test_stat_of(rig.engine, lost) + test_stat_of(rig.engine, uncertain), 0);
        (void)tw_close(rig.engine, 0);
        world_free(&world);
    }
}

/* A copy has taken the 7 units, which the store refused, and then one more. Another copy takes its place, which lacks
 * that one unit. `knows`: the engine has read the answer for it, else that answer is lost. */
static void go_back_by_one(struct rig *rig, bool knows, uint64_t seed) {
    lose_an_answer(rig, true, seed);
    pass(rig, 1000);
    struct model_key *key = redis_model_find(&world.other, KEY);
    assert_true(key && key->value == 12);
    copy = world.other.store;
    add(rig, 1);
    for (int64_t until_ms = world.now_ms + 10000; key->value != 13 && world.now_ms < until_ms;) {
        test_turn(rig->engine, TEST_TURNS_MAX);
        world_step(&world);
    }
    for (int64_t until_ms = world.now_ms + 10000; knows && unsent(rig) != 0 && world.now_ms < until_ms;) step(rig);
    assert_i64_equal(key->value, 13);
    assert_i64_equal(unsent(rig), !knows);
    promote_copy(INT32_MAX);
    world.other.run++;
    world.other.history++;
}

/* Goal: a store that lost what it had acknowledged went back, with all consequences, even while an engine checks again
 * what it had. */
static void a_copy_that_goes_back_is_found_out_while_it_is_asked_once_more(uint64_t seed) {
    struct rig rig;
    go_back_by_one(&rig, true, seed);
    int64_t before = test_stat_of(rig.engine, rollbacks);
    pass(&rig, 5000);
    assert_i64_equal(in_other(), 13);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), before + 1);
    assert_i64_equal(test_stat_of(rig.engine, lost) + test_stat_of(rig.engine, uncertain), 0);
    (void)tw_close(rig.engine, 0);
    world_free(&world);
}

/* Goal: a store that lost only what no engine knows that it had is none that went back. The batch is under way, and is
 * sent again. */
static void a_copy_that_lost_what_it_had_not_answered_did_not_go_back(uint64_t seed) {
    struct rig rig;
    go_back_by_one(&rig, false, seed);
    int64_t before = test_stat_of(rig.engine, rollbacks);
    pass(&rig, 5000);
    assert_i64_equal(in_other(), 13);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), before);
    assert_i64_equal(test_stat_of(rig.engine, lost) + test_stat_of(rig.engine, uncertain), 0);
    (void)tw_close(rig.engine, 0);
    world_free(&world);
}

/* Goal: what a copy took is counted as lost when the copy has followed the store, which refused it, and leads again. It
 * is the same server (run_id), but its data have another past. Without the check of that the 7 units are missing
 * without a report. */
static void a_copy_that_followed_the_store_and_leads_again_is_asked_once_more(uint64_t seed) {
    struct rig rig;
    lose_an_answer(&rig, true, seed);
    pass(&rig, 2500);
    struct model_key *key = redis_model_find(&world.other, KEY);
    assert_true(key && key->value == 12);
    world.other.store = world.redis.store;
    world.other.history++;
    world.other_until_ms[0] = INT64_MAX;
    cut_all();
    pass(&rig, 10000);
    overwrite(&world.other, MODEL_INTEGER);
    add(&rig, 1);
    pass(&rig, 70000);
    key = redis_model_find(&world.other, KEY);
    assert_true(key && key->value == 6);
    assert_i64_equal(test_stat_of(rig.engine, lost), 7);
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    (void)tw_close(rig.engine, 0);
    world_free(&world);
}

/* ---- with many seeds --------------------------------------------------------------------------------------------- */

struct play {
    const char *name;
    void (*with)(uint64_t seed);
};

#define PLAY(test) .name = #test, .with = (test)

static const struct play plays[] = {
    {PLAY(refused_keys_that_are_counted_on_are_tried_ever_more_rarely)},
    {PLAY(what_a_copy_took_and_the_store_refuses_is_lost_to_the_unit)},
    {PLAY(what_a_copy_refused_and_the_store_took_is_uncertain_to_the_unit)},
    {PLAY(a_copy_that_stays_is_told_all_of_it)},
    {PLAY(a_copy_that_followed_the_store_and_leads_again_is_asked_once_more)},
    {PLAY(a_copy_that_goes_back_is_found_out_while_it_is_asked_once_more)},
    {PLAY(a_copy_that_lost_what_it_had_not_answered_did_not_go_back)},
};
#define PLAYS (sizeof plays / sizeof *plays)

static uint64_t seed_now;
static bool is_playing;

static void each_seed(void **state) {
    const struct play *play = *state;
    static uint64_t seeds[4096];
    size_t count = test_seeds("refused_keys", test_scale(1), seeds, sizeof seeds / sizeof *seeds);
    for (size_t i = test_is_slow() ? count - 1 : 0; i < count; i++) { /* a sanitizer has time for one */
        seed_now = seeds[i];
        is_playing = true;
        test_seed_begins("refused_keys", seed_now);
        play->with(seed_now);
        test_seed_ends();
        is_playing = false;
    }
}

/* Before the next test begins its seeds. */
static int name_failed_seed(void **state) {
    if (is_playing) test_seed_failed("refused_keys", seed_now);
    test_seed_ends();
    is_playing = false;
    return 0;
}

int main(void) {
    struct CMUnitTest tests[PLAYS];
    for (size_t i = 0; i < PLAYS; i++)
        tests[i] = (struct CMUnitTest){plays[i].name, each_seed, NULL, name_failed_seed, (void *)&plays[i]};
    return test_run_list(tests);
}
