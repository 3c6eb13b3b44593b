/* cluster.c -- the engine over a real Redis Cluster: what it counted is there to the unit, whatever moves or is
 * unreachable. */
#include "tests/redis/cluster/cluster_support.h"

/* Goal: counts of keys in several slots reach the masters that have these, and are acknowledged. */
TEST(counts_reach_every_master) {
    cluster_open_engine("f1", NULL);
    for (int round = 1; round <= 3; round++) {
        cluster_add_all(round);
        assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
        cluster_assert_sums();
    }
    assert_i64_equal(test_stat_of(rig.engine, redis_nodes), CLUSTER_MASTERS);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: slots that move under load lose and double nothing. Method: each tag's slot goes to the next master and back,
 * key by key; counts are added and flushed at every step. */
TEST(counts_follow_slots_that_move) {
    cluster_open_engine("f2", NULL);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    for (int tag = 0; tag < CLUSTER_TAGS; tag += 3) {
        uint32_t slot = cluster_slot_of_tag(tag);
        size_t from = cluster.owners[slot], to = (from + 1) % CLUSTER_MASTERS;
        for (int way = 0; way < 2; way++, to = from) {
            redis_cluster_move_begin(&cluster, slot, to);
            cluster_add_all(1);
            test_sleep_ms(30);
            redis_cluster_move_keys(&cluster, slot, to, 5);
            cluster_add_all(1);
            test_sleep_ms(60);
            while (redis_cluster_move_keys(&cluster, slot, to, 50) != 0) continue;
            cluster_add_all(1);
            test_sleep_ms(60);
            redis_cluster_move_end(&cluster, slot, to);
            cluster_add_all(1);
            assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
        }
    }
    cluster_assert_sums();
    assert_true(test_stat_of(rig.engine, moved) > 0);
    assert_true(test_stat_of(rig.engine, asked) + test_stat_of(rig.engine, tryagain) > 0);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a master that is unreachable delays only its own slots, and has everything once it is back. */
TEST(a_master_that_is_away_holds_up_only_its_own) {
    cluster_open_engine("f3", NULL);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_kill(redis_cluster_server(&cluster, 1));
    cluster_add_all(1);
    char name[64], text[24];
    for (int key = 0; key < CLUSTER_KEYS; key++) { /* the others get theirs */
        cluster_name_of(key, name, sizeof name);
        size_t owner = cluster.owners[twi_key_slot_of(name, strlen(name))];
        if (owner == 1) continue;
        snprintf(text, sizeof text, "%lld", (long long)added[key]);
        const char *seen = "";
        for (int i = 0; i < 300 && strcmp(seen, text) != 0; i++) {
            seen = redis_server_ask(redis_cluster_server(&cluster, owner), "GET", name, NULL);
            if (strcmp(seen, text) != 0) test_sleep_ms(10);
        }
        assert_string_equal(seen, text);
    }
    assert_true(test_stat_of(rig.engine, stores_away) > 0);
    redis_server_restart(redis_cluster_server(&cluster, 1));
    redis_cluster_wait(&cluster);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
    assert_i64_equal(test_stat_of(rig.engine, stores_away), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
