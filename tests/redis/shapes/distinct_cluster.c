/* distinct_cluster.c -- distinct counts of several engines in a real Redis Cluster: for each key PFCOUNT on the master
 * that has its slot answers for all engines, to the unit. Slots move, masters are killed, a replica that lags takes
 * over, and a slot is emptied, while elements are added.
 * Method: each engine notes how many elements of each key it has added; a twin has the registers of them all. */
#include "tests/redis/cluster/cluster_support.h"
#include "tests/support/hll_twin.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

enum { ENGINES = 3, REPLICAS = 3, KEYS = 24, GROUP = 16 };
#define WAIT_MS 60000 /* at the very most: a machine may be busy */

/* One engine, and how many elements of each key it has added: those from first_of() on. */
struct visited {
    tw_engine *engine;
    tw_family *family;
    struct log_lines lines;
    pthread_t thread;
    uint64_t counts[KEYS];
};

static struct visited all[ENGINES];
static _Atomic bool is_over;

/* Neighbours share the most of them, if they add as many. */
static uint64_t first_of(int engine) {
    return (uint64_t)engine * 40;
}

static tw_key element_of(int key, uint64_t number, char *text, size_t size) {
    return tw_bytes(text, (size_t)snprintf(text, size, "%d/%" PRIu64, key, number));
}

static void open_all(const char *named) {
    static char url[512];
    redis_cluster_url(&cluster, url, sizeof url);
    snprintf(family_name, sizeof family_name, "%s", named);
    memset(all, 0, sizeof all);
    atomic_store(&is_over, false);
    for (int i = 0; i < ENGINES; i++) {
        tw_options options;
        tw_family_options family;
        char error[160] = "";
        quick_options(&options, url);
        options.redis_timeout_ms = 500;
        options.sync_interval_ms = 100; /* each merge of a key writes all its registers, and masters log that to disk */
        options.log_write = on_log;
        options.log_ctx = &all[i].lines;
        assert_status(test_open(&options, &all[i].engine), TW_OK);
        tw_family_options_init(&family);
        family.name = family_name;
        family.kind = TW_KIND_DISTINCT;
        family.window = TW_WINDOW_FOREVER;
        family.redis_tags = CLUSTER_TAGS;
        family.error_text = error, family.error_size = sizeof error;
        if (tw_family_open(all[i].engine, &family, &all[i].family) != TW_OK) fail_msg("%s", error);
    }
}

static tw_status visit(int engine, int key, int count) {
    char name[16], texts[GROUP][32];
    tw_key elements[GROUP];
    snprintf(name, sizeof name, "k%d", key);
    for (int i = 0; i < count; i++)
        elements[i] =
            element_of(key, first_of(engine) + all[engine].counts[key] + (uint64_t)i, texts[i], sizeof texts[i]);
    tw_status status = tw_distinct_add_many(all[engine].family, tw_str(name), elements, (size_t)count, NULL);
    if (status == TW_OK) all[engine].counts[key] += (uint64_t)count;
    return status;
}

static void visit_all(int count) {
    for (int i = 0; i < ENGINES; i++)
        for (int key = 0; key < KEYS; key++) assert_status(visit(i, key, count), TW_OK);
}

/* The union of what all engines have added to the key. */
static int64_t union_of(int key) {
    struct twin twin;
    char text[32];
    memset(&twin, 0, sizeof twin);
    for (int i = 0; i < ENGINES; i++)
        for (uint64_t n = 0; n < all[i].counts[key]; n++)
            (void)twin_add(&twin, element_of(key, first_of(i) + n, text, sizeof text));
    return twin_estimate(&twin);
}

/* Asks the node that has the key. On a busy machine a replica may take over unasked. */
static const char *ask_for(const char *command, const char *name, const char *element) {
    size_t owner = cluster.owners[twi_key_slot_of(name, strlen(name))];
    const char *said = redis_server_ask(redis_cluster_server(&cluster, owner), command, name, element, NULL);
    for (size_t i = 0; i < cluster.count && (*said < '0' || *said > '9'); i++)
        said = redis_server_ask(redis_cluster_server(&cluster, i), command, name, element, NULL);
    return said;
}

static int64_t pfcount(int key) {
    char name[64];
    cluster_name_of(key, name, sizeof name);
    return atoll(ask_for("PFCOUNT", name, NULL));
}

static bool redis_has(void *ctx) {
    const int64_t *wanted = ctx;
    for (int key = 0; key < KEYS; key++)
        if (pfcount(key) != wanted[key]) return false;
    return true;
}

/* Every engine shows every key as Redis does. */
static bool engines_have(void *ctx) {
    const int64_t *wanted = ctx;
    char name[16];
    bool has_all = true;
    for (int i = 0; i < ENGINES; i++) {
        for (int key = 0; key < KEYS; key++) {
            int64_t estimate = 0;
            snprintf(name, sizeof name, "k%d", key);
            has_all &= tw_distinct_get(all[i].family, tw_str(name), &estimate) == TW_OK && estimate == wanted[key];
        }
    }
    return has_all;
}

static void await_unions(void) {
    int64_t wanted[KEYS];
    for (int key = 0; key < KEYS; key++) wanted[key] = union_of(key);
    if (!test_wait(redis_has, wanted, WAIT_MS)) {
        for (int key = 0; key < KEYS; key++)
            if (pfcount(key) != wanted[key])
                print_error("k%d: Redis estimates %lld, not %lld\n", key, (long long)pfcount(key),
                            (long long)wanted[key]);
        fail_msg("Redis lacks elements: %s", all[0].lines.text);
    }
    if (!test_wait(engines_have, wanted, WAIT_MS)) fail_msg("an engine lacks elements: %s", all[0].lines.text);
}

static void flush_all(void) {
    for (int i = 0; i < ENGINES; i++) assert_status(tw_flush(all[i].engine, WAIT_MS), TW_OK);
}

/* Nothing of a distinct count is ever lost or uncertain. */
static void close_all(void) {
    for (int i = 0; i < ENGINES; i++) {
        assert_i64_equal(test_stat_of(all[i].engine, lost) + test_stat_of(all[i].engine, uncertain), 0);
        assert_i64_equal(test_stat_of(all[i].engine, poison_keys), 0);
        assert_status(tw_close(all[i].engine, TEST_PATIENCE_MS), TW_OK);
    }
}

/* ---- at rest ----------------------------------------------------------------------------------------------------- */

/* Goal: keys on all masters; what PFADD wrote is joined; when a flush is over, Redis has all. */
TEST(each_master_has_the_union_of_its_keys) {
    char name[64];
    struct twin twin;
    open_all("union");
    cluster_name_of(KEYS, name, sizeof name);
    ask_for("PFADD", name, "ann");
    ask_for("PFADD", name, "bob");
    for (int round = 0; round < 50; round++) visit_all(GROUP);
    assert_status(tw_distinct_add(all[0].family, tw_str("k24"), tw_str("eve"), NULL), TW_OK);
    flush_all();
    for (int key = 0; key < KEYS; key++) assert_i64_equal(pfcount(key), union_of(key));
    memset(&twin, 0, sizeof twin);
    (void)twin_add(&twin, tw_str("ann")), (void)twin_add(&twin, tw_str("bob")), (void)twin_add(&twin, tw_str("eve"));
    assert_i64_equal(pfcount(KEYS), twin_estimate(&twin));
    await_unions();
    for (size_t i = 0; i < CLUSTER_MASTERS; i++)
        assert_string_equal(redis_server_ask(redis_cluster_server(&cluster, i), "KEYS", "tw:merge:*", NULL), "");
    close_all();
}

static uint32_t slot_of(int key) {
    char name[64];
    cluster_name_of(key, name, sizeof name);
    return twi_key_slot_of(name, strlen(name));
}

/* Goal: a slot that has lost everything is filled again by every engine, also its keys that no thread adds to. */
TEST(a_slot_that_was_emptied_is_filled_again) {
    uint32_t slot = slot_of(0);
    char number[16], names[8192];
    open_all("emptied");
    visit_all(GROUP);
    flush_all();
    await_unions();
    struct redis_server *server = redis_cluster_server(&cluster, cluster.owners[slot]);
    snprintf(number, sizeof number, "%u", slot);
    snprintf(names, sizeof names, "%s", redis_server_ask(server, "CLUSTER", "GETKEYSINSLOT", number, "1000", NULL));
    int count = 0;
    for (char *rest = names, *name; (name = strtok_r(rest, "\n", &rest)) != NULL; count++)
        redis_server_ask(server, "DEL", name, NULL);
    assert_true(count >= ENGINES + 2);                                      /* ledgers, the marker, a key */
    for (int i = 0; i < ENGINES; i++) assert_status(visit(i, 0, 1), TW_OK); /* which shows the wipe */
    await_unions();
    close_all();
}

static bool others_are_there(void *ctx) {
    const int64_t *wanted = ctx;
    for (int key = 0; key < KEYS; key++)
        if (wanted[key] != 0 && pfcount(key) != wanted[key]) return false;
    return true;
}

/* Redis has all of the keys in other slots than this one. */
static void await_others(uint32_t slot) {
    int64_t wanted[KEYS];
    for (int key = 0; key < KEYS; key++) wanted[key] = slot_of(key) == slot ? 0 : union_of(key);
    if (!test_wait(others_are_there, wanted, WAIT_MS)) fail_msg("keys wait for another slot: %s", all[0].lines.text);
}

/* Goal: a slot stops half-way. Its keys wait, those of other slots do not, and once the move is over all is there. */
TEST(keys_of_a_slot_that_is_half_moved_wait_alone) {
    uint32_t slot = slot_of(0);
    size_t from = cluster.owners[slot], to = (from + 1) % CLUSTER_MASTERS;
    open_all("half");
    visit_all(GROUP);
    flush_all();
    redis_cluster_move_begin(&cluster, slot, to);
    assert_true(redis_cluster_move_keys(&cluster, slot, to, 2) != 0);
    visit_all(GROUP);
    await_others(slot);
    assert_status(tw_flush(all[0].engine, 300), TW_ERR_TIMEOUT);
    visit_all(GROUP); /* a flush that waits for that slot delays no other */
    await_others(slot);
    while (redis_cluster_move_keys(&cluster, slot, to, 100) != 0) continue;
    redis_cluster_move_end(&cluster, slot, to);
    await_unions();
    flush_all();
    close_all();
    redis_cluster_move(&cluster, slot, slot, from);
}

/* ---- while elements are added ------------------------------------------------------------------------------------ */

/* To the first half of the keys, all the time. */
static void *add_elements(void *ctx) {
    int engine = (int)((struct visited *)ctx - all);
    struct test_prng prng;
    test_prng_seed(&prng, (uint64_t)engine + 1);
    while (!atomic_load(&is_over)) {
        for (int i = 0; i < 4; i++)
            if (visit(engine, (int)test_prng_below(&prng, KEYS / 2), 1 + (int)test_prng_below(&prng, 4)) != TW_OK)
                return NULL;
        test_sleep_ms(20);
    }
    return ctx;
}

/* `what` is done to the cluster while all engines add. */
static void run_load(const char *named, void (*what)(void)) {
    open_all(named);
    for (int i = 0; i < ENGINES; i++) assert_int_equal(pthread_create(&all[i].thread, NULL, add_elements, &all[i]), 0);
    test_sleep_ms(300); /* engines add before it is done */
    what();
    test_sleep_ms(300); /* engines add after it was done */
    atomic_store(&is_over, true);
    for (int i = 0; i < ENGINES; i++) {
        void *went_well = NULL;
        assert_int_equal(pthread_join(all[i].thread, &went_well), 0);
        assert_non_null(went_well);
    }
    await_unions();
    flush_all();
    close_all();
}

/* Each slot that has keys goes round all masters, twice, key by key. */
static void move_everything(void) {
    for (size_t round = 0; round < 2 * CLUSTER_MASTERS; round++) {
        for (int tag = 0; tag < CLUSTER_TAGS; tag++) {
            uint32_t slot = cluster_slot_of_tag(tag);
            redis_cluster_move(&cluster, slot, slot, (cluster.owners[slot] + 1) % CLUSTER_MASTERS);
        }
    }
}

struct pair {
    size_t master, replica;
};

/* Nodes i and CLUSTER_MASTERS + i: who leads now. On a busy machine a replica may have taken over unasked. */
static struct pair pair_at(size_t i) {
    struct pair pair = {i, CLUSTER_MASTERS + i};
    if (!redis_cluster_is_master(&cluster, i)) pair = (struct pair){pair.replica, i};
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++)
        if (cluster.owners[slot] == pair.replica) cluster.owners[slot] = (uint8_t)pair.master;
    return pair;
}

static void kill_master(struct pair pair) {
    redis_server_kill(redis_cluster_server(&cluster, pair.master));
    redis_cluster_wait_takeover(&cluster, pair.replica, pair.master);
}

static void bring_back(struct pair pair) {
    redis_server_restart(redis_cluster_server(&cluster, pair.master));
    redis_cluster_wait_follower(&cluster, pair.master, pair.replica);
}

static void kill_masters(void) {
    for (size_t i = 0; i < CLUSTER_MASTERS; i++) {
        struct pair pair = pair_at(i);
        kill_master(pair);
        test_sleep_ms(500); /* engines meet a master that is gone */
        bring_back(pair);
    }
}

/* The replica of a master is cut off, keys are added to that nobody else uses, and the master dies. */
static void kill_a_master_whose_replica_lags(void) {
    struct pair pair = pair_at(0);
    redis_cluster_cut_off(&cluster, pair.replica, pair.master);
    for (int key = KEYS / 2; key < KEYS; key++) assert_status(visit(0, key, GROUP), TW_OK);
    flush_all();
    kill_master(pair);
    redis_cluster_rejoin(&cluster, pair.replica);
}

TEST(nothing_is_missing_when_every_slot_has_moved) {
    run_load("moves", move_everything);
}

TEST(nothing_is_missing_when_masters_were_killed) {
    run_load("killed", kill_masters);
}

/* Goal: what the replica lacks is sent again, also of keys that no thread adds to any more. No batch is written
 * meanwhile that could tell of it. */
TEST(what_a_lagging_replica_lacks_is_sent_again) {
    run_load("lags", kill_a_master_whose_replica_lags);
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, CLUSTER_MASTERS, REPLICAS, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
