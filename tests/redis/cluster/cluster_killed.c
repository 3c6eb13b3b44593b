/* cluster_killed.c -- masters of a real cluster that are killed while slots move from them or to them. Up to Redis 7
 * the replica that takes over knows nothing of the moves. A slot may be torn, its keys on two masters.
 *
 * Three slots of each test are at another point of their move. Once an operator has brought them together, each key has
 * the added units. Always true: no engine sends again what still stands somewhere, and no limit is oversold. */
#include "tests/redis/cluster/cluster_support.h"
#include "tests/redis/limits/hard_support.h"

enum { REPLICAS = 3 };

static size_t replica_of(size_t master) {
    return master + CLUSTER_MASTERS;
}

/* The slot of a tag: the number `skip` of those that this master has. */
static uint32_t slot_at(size_t master, int skip) {
    for (int tag = 0; tag < CLUSTER_TAGS; tag++) {
        uint32_t slot = cluster_slot_of_tag(tag);
        if (cluster.owners[slot] == master && skip-- == 0) return slot;
    }
    fail_msg("master %zu has too few tags", master);
    return 0;
}

static const char *ask_of(size_t node, uint32_t slot, const char *command, const char *how, const char *id) {
    char number[16];
    snprintf(number, sizeof number, "%u", slot);
    return redis_server_ask(redis_cluster_server(&cluster, node), "CLUSTER", command, number, how, id, NULL);
}

static int64_t keys_at(size_t node, uint32_t slot) {
    return atoll(ask_of(node, slot, "COUNTKEYSINSLOT", NULL, NULL));
}

/* What the master has written so far is at its replica. */
static void await_replica(size_t master) {
    for (int i = 0; i < 1000; i++) {
        const char *said = redis_server_ask(redis_cluster_server(&cluster, master), "INFO", "replication", NULL);
        const char *own = strstr(said, "master_repl_offset:"), *its = strstr(said, ",offset=");
        if (own && its && atoll(its + 8) >= atoll(own + 19)) return;
        test_sleep_ms(10);
    }
    fail_msg("the replica of master %zu lags", master);
}

static bool is_split(void *ctx) {
    return test_stat_of(rig.engine, stores_split) >= *(int64_t *)ctx;
}

static void await_split(int64_t stores) {
    if (!test_wait(is_split, &stores, 60000))
        fail_msg("%d stores are split: %s", (int)test_stat_of(rig.engine, stores_split), rig.lines.text);
}

/* The operator: that node lets keys of the slot come. Since the failover it has known nobody who serves it. */
static void reopen(size_t node, uint32_t slot) {
    const char *owner = cluster.nodes[cluster.owners[slot]].id;
    assert_string_equal(ask_of(node, slot, "SETSLOT", "NODE", owner), "OK");
}

static void finish_move(uint32_t slot, size_t to) {
    redis_cluster_move_begin(&cluster, slot, to);
    while (redis_cluster_move_keys(&cluster, slot, to, 100) != 0) continue;
    redis_cluster_move_end(&cluster, slot, to);
}

/* The operator takes the keys of the slot away from a node that does not serve it. With `adds`, what they count goes to
 * the keys of the same names at the owner. Returns how many keys there were. */
static int take_away(size_t node, uint32_t slot, bool adds) {
    static char names[65536];
    struct redis_server *server = redis_cluster_server(&cluster, node);
    int count = 0;
    const char *owner = cluster.nodes[cluster.owners[slot]].id;
    reopen(node, slot);
    assert_string_equal(ask_of(node, slot, "SETSLOT", "IMPORTING", owner), "OK");
    snprintf(names, sizeof names, "%s", ask_of(node, slot, "GETKEYSINSLOT", "1000", NULL));
    server->asking = true;
    for (char *rest = names, *name; (name = strtok_r(rest, "\n", &rest)) != NULL; count++) {
        char value[32];
        snprintf(value, sizeof value, "%.30s", redis_server_ask(server, "GET", name, NULL));
        assert_string_equal(redis_server_ask(server, "DEL", name, NULL), "1");
        if (adds) redis_server_ask(redis_cluster_server(&cluster, cluster.owners[slot]), "INCRBY", name, value, NULL);
    }
    server->asking = false;
    assert_string_equal(ask_of(node, slot, "SETSLOT", "STABLE", NULL), "OK");
    return count;
}

static void kill_under_load(size_t master) {
    redis_server_kill(redis_cluster_server(&cluster, master));
    for (int i = 0; i < 10; i++) {
        cluster_add_all(1);
        test_sleep_ms(20);
    }
    redis_cluster_wait_takeover(&cluster, replica_of(master), master);
    cluster_add_all(1);
}

/* No count is lost or uncertain, and no slot is held any more. */
static void assert_all_is_there(bool restored) {
    tw_status status = tw_flush(rig.engine, 30000);
    if (status != TW_OK) print_error("%s\n", rig.lines.text);
    assert_status(status, TW_OK);
    cluster_assert_sums();
    assert_int_equal(test_stat_of(rig.engine, restored) != 0, restored);
    assert_i64_equal(test_stat_of(rig.engine, stores_split), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* A counter of the slot has that value at a node which the slot moves to. */
static void await_value(size_t node, uint32_t slot, int64_t value) {
    struct redis_server *server = redis_cluster_server(&cluster, node);
    char name[96] = "";
    int64_t seen = 0;
    static char names[65536];
    snprintf(names, sizeof names, "%s", ask_of(node, slot, "GETKEYSINSLOT", "1000", NULL));
    for (char *rest = names, *next; (next = strtok_r(rest, "\n", &rest)) != NULL;)
        if (!strstr(next, "tw:")) snprintf(name, sizeof name, "%s", next);
    server->asking = true;
    for (int i = 0; i < 1000 && (seen = redis_server_get(server, name)) != value; i++) test_sleep_ms(10);
    server->asking = false;
    assert_i64_equal(seen, value);
}

/* Three slots on their way between two masters. Of the first the ledger has gone, and three more keys; of the second
 * five counters; of the third everything, which the replica of `forgets` has not heard of. What is counted then is
 * acknowledged in the third slot. */
static void begin_moves(const char *named, const uint32_t slots[3], size_t from, size_t to, size_t forgets) {
    cluster_open_engine(named, NULL);
    cluster_add_all(2);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_cluster_move_begin(&cluster, slots[0], to);
    cluster_move_ledgers(slots[0], from, to);
    redis_cluster_move_keys(&cluster, slots[0], to, 3);
    redis_cluster_move_begin(&cluster, slots[1], to);
    assert_int_equal(cluster_move_some(slots[1], from, to, false, 5), 5);
    await_replica(forgets);
    redis_cluster_cut_off(&cluster, replica_of(forgets), forgets);
    redis_cluster_move_begin(&cluster, slots[2], to);
    while (redis_cluster_move_keys(&cluster, slots[2], to, 100) != 0) continue;
    cluster_add_all(1);
    await_value(to, slots[2], 3);
}

/* Goal: a source is killed. The slot whose ledger has moved is held and reported. In the slot that has kept its ledger,
 * counting goes on: counters that had moved begin again, and both parts make the sum. The slot that had moved as a
 * whole, which the replica did not see, continues from the replica's state, and gets again what that lacks. */
TEST(a_source_killed_in_mid_move_is_held_and_never_doubled) {
    enum { A = 0, B = 1 };
    uint32_t held = slot_at(A, 0), parted = slot_at(A, 1), unseen = slot_at(A, 2);
    begin_moves("source", (const uint32_t[]){held, parted, unseen}, A, B, A);
    kill_under_load(A);
    await_split(1);
    test_sleep_ms(500); /* it stays so */
    assert_i64_equal(test_stat_of(rig.engine, stores_split), 1);
    assert_non_null(strstr(rig.lines.text, "has lost this engine's ledger"));
    int64_t before = keys_at(B, held);
    reopen(B, held);
    finish_move(held, B);
    assert_true(keys_at(B, held) > before);
    assert_int_equal(take_away(B, parted, true), 5);
    assert_true(take_away(B, unseen, false) > 5);
    assert_true(test_stat_of(rig.engine, replayed) > 0);
    assert_all_is_there(false);
}

/* Goal: a target is killed. The slots wait, for their keys are apart, and the log says so. Where all keys had gone to a
 * master whose replica never got them, the slot is empty. Its counts are sent again, and no others. */
TEST(a_target_killed_in_mid_move_is_waited_for) {
    enum { A = 2, B = 1 };
    uint32_t half = slot_at(A, 0), counters = slot_at(A, 1), gone = slot_at(A, 2);
    test_tuning.apart_ms = 1000;
    begin_moves("target", (const uint32_t[]){half, counters, gone}, A, B, B);
    kill_under_load(B);
    test_sleep_ms(500); /* the engine is sent away for some time */
    await_split(2);
    assert_non_null(strstr(rig.lines.text, "has sent this engine away for"));
    size_t heir = replica_of(B);
    redis_server_restart(redis_cluster_server(&cluster, B));
    redis_cluster_wait_follower(&cluster, B, heir);
    finish_move(half, heir);
    finish_move(counters, heir);
    redis_cluster_move_forget(&cluster, gone, heir);
    assert_all_is_there(true);
}

/* ---- hard limits ------------------------------------------------------------------------------------------------- */

enum { LIMIT = 60, PARTS = 2 };

/* A key in the slot, and the slot's tag. */
struct subject {
    uint32_t slot;
    char key[16], tag[16];
    int64_t sold;
};

static struct subject subject_at(size_t master, int skip) {
    struct subject subject = {.slot = slot_at(master, skip)};
    for (int tag = 0; tag < CLUSTER_TAGS; tag++) {
        if (cluster_slot_of_tag(tag) != subject.slot) continue;
        snprintf(subject.tag, sizeof subject.tag, "{%u}", (unsigned)twi_key_slot_tags(CLUSTER_TAGS)[tag]);
        for (int number = 0;; number++) {
            int size = snprintf(subject.key, sizeof subject.key, "k%d", number);
            if (twi_key_slot_crc16(subject.key, (size_t)size) % CLUSTER_TAGS == (unsigned)tag) return subject;
        }
    }
    return subject;
}

static void sell_of(tw_family *const families[2], struct subject *subject, int64_t count, int64_t timeout_ms) {
    for (int i = 0; i < 2; i++) subject->sold += sell_some(families[i], tw_str(subject->key), count, LIMIT, timeout_ms);
}

static void move_one(const struct subject *subject, const char *name, size_t to) {
    char port[16];
    snprintf(port, sizeof port, "%d", redis_cluster_server(&cluster, to)->port);
    redis_cluster_move_begin(&cluster, subject->slot, to);
    struct redis_server *from = redis_cluster_server(&cluster, cluster.owners[subject->slot]);
    assert_string_equal(redis_server_ask(from, "MIGRATE", "127.0.0.1", port, name, "0", "10000", NULL), "OK");
}

/* Goal: of one limit the lease had moved when the source was killed, of the other one the counter. Two engines sell
 * both to the unit, and no more. */
TEST(limits_whose_source_is_killed_are_not_oversold) {
    enum { A = 2, B = 4 };
    static const char *const moves[PARTS] = {"tw:lease:limited:%s:%s", "limited:%s:%s"};
    struct subject subjects[PARTS];
    tw_engine *engines[2];
    tw_family *families[2];
    char url[512], name[96];
    redis_cluster_url(&cluster, url, sizeof url);
    for (int i = 0; i < 2; i++) {
        tw_family_options options;
        engines[i] = quick_engine(url, NULL);
        tw_family_options_init(&options);
        options.name = "limited";
        options.window = TW_WINDOW_FOREVER;
        options.limit_mode = TW_LIMIT_HARD;
        options.redis_tags = CLUSTER_TAGS;
        assert_status(tw_family_open(engines[i], &options, &families[i]), TW_OK);
    }
    for (int part = 0; part < PARTS; part++) {
        subjects[part] = subject_at(A, part);
        sell_of(families, &subjects[part], 10, 30000);
        assert_i64_equal(subjects[part].sold, 20);
    }
    for (int i = 0; i < 2; i++) assert_status(tw_flush(engines[i], TEST_PATIENCE_MS), TW_OK);
    for (int part = 0; part < PARTS; part++) {
        snprintf(name, sizeof name, moves[part], subjects[part].tag, subjects[part].key);
        move_one(&subjects[part], name, B);
        sell_of(families, &subjects[part], 2, 100);
    }
    await_replica(A);
    redis_server_kill(redis_cluster_server(&cluster, A));
    for (int part = 0; part < PARTS; part++) sell_of(families, &subjects[part], 2, 100);
    redis_cluster_wait_takeover(&cluster, replica_of(A), A);
    for (int part = 0; part < PARTS; part++) sell_of(families, &subjects[part], 5, 20000);
    for (int part = 0; part < PARTS; part++) assert_int_equal(take_away(B, subjects[part].slot, part == 1), 1);
    for (int part = 0; part < PARTS; part++) {
        tw_verdict verdict;
        struct subject *subject = &subjects[part];
        for (int i = 0; i < 2; i++) subject->sold += sell(families[i], tw_str(subject->key), 1, LIMIT, 30000, &verdict);
        assert_i64_equal(subject->sold, LIMIT);
        for (int i = 0; i < 2; i++) assert_status(tw_flush(engines[i], TEST_PATIENCE_MS), TW_OK);
        snprintf(name, sizeof name, "limited:%s:%s", subject->tag, subject->key);
        assert_i64_equal(redis_server_get(redis_cluster_server(&cluster, cluster.owners[subject->slot]), name), LIMIT);
    }
    for (int i = 0; i < 2; i++) {
        assert_i64_equal(test_stat_of(engines[i], limit_at_risk), 0);
        assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
    }
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, CLUSTER_MASTERS, REPLICAS, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
