/* cluster_faults.c -- masters of a real cluster that die, fail over, go back, or come back empty, and slots that are
 * split. All that the engine counted is there to the unit, or reported; never twice. */
#include "tests/redis/cluster/cluster_support.h"

#include <poll.h>

enum { WITH_REPLICAS = 3 };

static void wait_for(int64_t (*figure)(void), int64_t least) {
    for (int i = 0; i < 2000 && figure() < least; i++) test_sleep_ms(10);
    assert_true(figure() >= least);
}

static int64_t split_stores(void) {
    return test_stat_of(rig.engine, stores_split);
}

static int64_t rollbacks(void) {
    return test_stat_of(rig.engine, rollbacks);
}

/* Goal: a master that is killed, and whose replica takes over with all it had, costs nothing. */
TEST(a_failover_with_replicas_in_sync_loses_nothing) {
    cluster_open_engine("failover", NULL);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(redis_cluster_server(&cluster, 1), "WAIT", "1", "1000", NULL);
    test_sleep_ms(300); /* the replica has what was flushed */
    redis_server_kill(redis_cluster_server(&cluster, 1));
    for (int i = 0; i < 30; i++) {
        cluster_add_all(1);
        test_sleep_ms(20);
    }
    redis_cluster_wait_takeover(&cluster, 4, 1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
    redis_server_restart(redis_cluster_server(&cluster, 1));
    redis_cluster_wait_follower(&cluster, 1, 4);
    redis_cluster_failover(&cluster, 1);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a master that comes back empty gets what its own keys had, and nothing of the others is sent again. */
TEST(a_master_that_comes_back_empty_gets_its_own_again) {
    cluster_open_engine("wiped", NULL);
    cluster_add_all(3);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(redis_cluster_server(&cluster, 2), "FLUSHALL", NULL);
    cluster_add_all(1);
    wait_for(rollbacks, 1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a slot of which half has moved, the ledger with it, and whose source forgets the move, is held: no data is sent
 * again, no count is doubled. Once the slot is whole again, all is there. */
TEST(a_split_slot_is_held_and_never_restored) {
    cluster_open_engine("split", NULL);
    cluster_add_all(2);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    uint32_t slot = cluster_slot_of_tag(0);
    size_t from = cluster.owners[slot], to = (from + 1) % CLUSTER_MASTERS;
    redis_cluster_move_begin(&cluster, slot, to);
    cluster_move_ledgers(slot, from, to);
    redis_cluster_move_keys(&cluster, slot, to, 3);
    redis_cluster_move_forget(&cluster, slot, to); /* as a failover of the source does */
    cluster_add_all(1);
    wait_for(split_stores, 1);
    test_sleep_ms(1500); /* the masters are asked again after 1 to 1.5 s: it stays so */
    assert_i64_equal(rollbacks(), 0);
    assert_i64_equal(test_stat_of(rig.engine, restored), 0);
    assert_non_null(strstr(rig.lines.text, "has lost this engine's ledger"));
    redis_cluster_move_begin(&cluster, slot, to); /* the operator puts it right */
    while (redis_cluster_move_keys(&cluster, slot, to, 100) != 0) continue;
    redis_cluster_move_end(&cluster, slot, to);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
    assert_i64_equal(split_stores(), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_cluster_move(&cluster, slot, slot, from);
}

static void be_hosted(tw_options *options) {
    options->threads = TW_HOST_DRIVEN;
}

static void note_done(tw_request *request) {
    *(bool *)request->ctx = true;
}

/* Goal: an engine whose turns the host runs waits for one descriptor, whatever node answers. */
TEST(a_host_waits_for_one_descriptor) {
    cluster_open_engine("hosted", be_hosted);
    cluster_add_all(1);
    bool is_done = false;
    tw_request flush;
    tw_request_init(&flush);
    flush.done = note_done;
    flush.ctx = &is_done;
    flush.timeout_ms = 60000;
    assert_status(tw_flush_async(&flush, rig.engine), TW_STARTED);
    for (int i = 0; i < 3000 && !is_done; i++) {
        struct pollfd fd = {.fd = tw_fd(rig.engine), .events = POLLIN};
        poll(&fd, 1, 20);
        assert_status(tw_turn(rig.engine), TW_OK);
    }
    assert_true(is_done);
    assert_status(flush.status, TW_OK);
    cluster_assert_sums();
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    redis_cluster_start(&cluster, CLUSTER_MASTERS, WITH_REPLICAS, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
