/* other_stores.c -- every kind of another store, seen for 5 ms to 5 s, again and again: sums are exact, no count is
 * uncertain, and no log line causes alarm. `redis_other_stores table 100` shows each kind a hundred times and prints a
 * row for each; without arguments it is the test, with a few of each. Always true: see other_store_stage.h. */
#include "tests/redis/outage/other_store_stage.h"
#include "tests/support/side_by_side.h"

#define SHORTEST_MS 5
#define LONGEST_MS 5000 /* shorter than the doubt: a store that is seen for longer is trusted */

static uint64_t flickers = 3;
static int64_t longest_ms = 600; /* in the test; in the table LONGEST_MS */

enum kind {
    EMPTY_REPLICA,
    EMPTY_WRITABLE_REPLICA,
    OLD_REPLICA,
    OLD_WRITABLE_REPLICA,
    SYNCED_REPLICA,
    EMPTY_MASTER,
    EMPTY_MASTER_ANEW,
    EMPTY_MASTER_WITHOUT_WRITES,
    PROMOTED,
    PROMOTED_WITHOUT_WRITES,
    FAILED_OVER_AND_BACK,
    DEMOTED,
    SWAPPED,
    KINDS
};

static const char *const kind_names[KINDS] = {"empty replica",
                                              "empty replica, writable",
                                              "old replica",
                                              "old replica, writable",
                                              "replica in sync",
                                              "empty master",
                                              "empty master, emptied",
                                              "empty master, no writes",
                                              "old copy, promoted",
                                              "old copy, promoted, no writes",
                                              "failed over and back",
                                              "demoted, live connections",
                                              "SWAPDB"};

/* Short times are as frequent as long ones. Each range is twice the last, with a random time in it. */
static int64_t how_long(struct stage *stage) {
    uint64_t doublings = 0;
    while (SHORTEST_MS << (doublings + 1) <= longest_ms) doublings++;
    int64_t low_ms = SHORTEST_MS << test_prng_below(&stage->prng, doublings + 1), high_ms = 2 * low_ms;
    return test_prng_between(&stage->prng, low_ms, high_ms < longest_ms ? high_ms : longest_ms);
}

static void follow(struct redis_server *replica, const struct redis_server *master) {
    char port[16];
    snprintf(port, sizeof port, "%d", master ? master->port : 1); /* 1: a port where no process listens */
    redis_server_ask(replica, "REPLICAOF", "127.0.0.1", port, NULL);
}

static void lead(struct redis_server *server) {
    redis_server_ask(server, "REPLICAOF", "NO", "ONE", NULL);
}

static void prepare(struct stage *stage, enum kind kind) {
    struct redis_server *other = &stage->other;
    bool writable = kind == EMPTY_WRITABLE_REPLICA || kind == OLD_WRITABLE_REPLICA;
    bool is_copy = kind == OLD_REPLICA || kind == OLD_WRITABLE_REPLICA || kind == SYNCED_REPLICA || kind == PROMOTED ||
                   kind == PROMOTED_WITHOUT_WRITES || kind == FAILED_OVER_AND_BACK;
    redis_server_ask(other, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    redis_server_ask(other, "CONFIG", "SET", "replica-read-only", writable ? "no" : "yes", NULL);
    if (is_copy) stage_copy(stage);
    if (kind <= OLD_WRITABLE_REPLICA) follow(other, NULL);
    if (kind == PROMOTED || kind == PROMOTED_WITHOUT_WRITES) lead(other);
    if (kind == PROMOTED_WITHOUT_WRITES || kind == EMPTY_MASTER_WITHOUT_WRITES)
        redis_server_ask(other, "CONFIG", "SET", "min-replicas-to-write", "1", NULL);
    if (is_copy) test_sleep_ms(200); /* it lacks dozens of batches then */
}

/* Shows it to one engine or to both. */
static void show_for(struct stage *stage, int64_t for_ms) {
    uint64_t who = test_prng_below(&stage->prng, ENGINES + 1);
    for (int n = 0; n < ENGINES; n++)
        if ((int)who == n || who == ENGINES) show(stage, n, &stage->other);
    test_sleep_ms(for_ms);
    for (int n = 0; n < ENGINES; n++)
        if ((int)who == n || who == ENGINES) show(stage, n, &stage->first);
}

/* An engine that still sees the server that was failed over from sees a replica. */
static void fail_over_and_back(struct stage *stage, int64_t for_ms) {
    lead(&stage->other);
    for (int n = 0; n < ENGINES; n++) show(stage, n, &stage->other);
    follow(&stage->first, &stage->other);
    test_sleep_ms(for_ms);
    (void)test_wait(is_synced, &stage->first, 300); /* otherwise it has older data when it leads again */
    lead(&stage->first);
    for (int n = 0; n < ENGINES; n++) show(stage, n, &stage->first);
    follow(&stage->other, &stage->first);
    assert_true(test_wait(is_synced, &stage->other, TEST_PATIENCE_MS));
}

static void flick(struct stage *stage, enum kind kind, int64_t for_ms) {
    switch (kind) {
    case FAILED_OVER_AND_BACK: fail_over_and_back(stage, for_ms); break;
    case DEMOTED:
        follow(&stage->first, NULL);
        test_sleep_ms(for_ms);
        lead(&stage->first);
        break;
    case SWAPPED:
        redis_server_ask(&stage->first, "SWAPDB", "0", "1", NULL);
        test_sleep_ms(for_ms);
        redis_server_ask(&stage->first, "SWAPDB", "0", "1", NULL);
        break;
    case EMPTY_MASTER_ANEW: redis_server_ask(&stage->other, "FLUSHALL", NULL); /* fall through */
    default: show_for(stage, for_ms);
    }
}

static void play(enum kind kind, uint64_t count) {
    struct stage stage;
    int64_t began_ms = test_mono_ms(), replayed = 0;
    stage_goes_back = kind == PROMOTED || kind == FAILED_OVER_AND_BACK;
    stage_open(&stage, NULL);
    test_prng_seed(&stage.prng, test_seed() + (uint64_t)kind);
    prepare(&stage, kind);
    for (uint64_t i = 0; i < count; i++) {
        flick(&stage, kind, how_long(&stage));
        for (int n = 0; n < ENGINES; n++) /* the engine sees the first server again */
            assert_status(tw_flush(stage.nodes[n].engine, TEST_PATIENCE_MS), TW_OK);
    }
    for (int n = 0; n < ENGINES; n++) {
        assert_i64_equal(test_stat_of(stage.nodes[n].engine, restored), 0);
        replayed += test_stat_of(stage.nodes[n].engine, replayed);
    }
    int64_t added = stage_close(&stage);
    printf("# %-30s %3d times  %9lld units, %8lld of them sent again, off by 0  %4lld s\n", kind_names[kind],
           (int)count, (long long)added, (long long)replayed, (long long)(test_mono_ms() - began_ms) / 1000);
}

/* Goal: each kind of another store, seen for a moment, changes nothing. Method: see above. */
#define PLAY(kind, name) \
    TEST(name) { \
        play(kind, flickers); \
    }
PLAY(EMPTY_REPLICA, an_empty_replica_changes_nothing)
PLAY(EMPTY_WRITABLE_REPLICA, an_empty_replica_that_takes_writes_changes_nothing)
PLAY(OLD_REPLICA, an_old_replica_changes_nothing)
PLAY(OLD_WRITABLE_REPLICA, an_old_replica_that_takes_writes_changes_nothing)
PLAY(SYNCED_REPLICA, a_replica_in_sync_changes_nothing)
PLAY(EMPTY_MASTER, an_empty_master_changes_nothing)
PLAY(EMPTY_MASTER_ANEW, an_empty_master_that_is_emptied_each_time_changes_nothing)
PLAY(EMPTY_MASTER_WITHOUT_WRITES, an_empty_master_that_takes_no_writes_changes_nothing)
PLAY(PROMOTED, a_promoted_copy_of_a_while_ago_changes_nothing)
PLAY(PROMOTED_WITHOUT_WRITES, a_promoted_copy_that_takes_no_writes_changes_nothing)
PLAY(FAILED_OVER_AND_BACK, a_failover_and_back_changes_nothing)
PLAY(DEMOTED, a_master_that_is_a_replica_for_a_while_changes_nothing)
PLAY(SWAPPED, swapped_databases_change_nothing)

int main(int argc, char **argv) {
    redis_server_require();
    test_keeps_doubt = true;
    if (argc > 2 && strcmp(argv[1], "table") == 0) {
        flickers = strtoull(argv[2], NULL, 10);
        longest_ms = LONGEST_MS;
    } else if (argc > 1) {
        fprintf(stderr, "usage: %s [table COUNT]\n", argv[0]);
        return 2;
    }
    return test_run_side_by_side();
}
