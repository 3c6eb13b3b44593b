/* cluster_life.c -- nodes of a real cluster come and go while an engine counts. A node joins, gets slots, gives them
 * back and leaves; another one comes back under another address. And the process forks.
 *
 * Another thread counts all the time. Always true: at the end each key has the added units, and no count is
 * reported. */
#include "tests/redis/cluster/cluster_support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    pthread_t thread;
    _Atomic bool stops;
} load;

static void *count(void *ctx) {
    while (!atomic_load(&load.stops)) {
        cluster_add_all(1);
        test_sleep_ms(5);
    }
    return NULL;
}

static void begin_load(void) {
    atomic_store(&load.stops, false);
    assert_int_equal(pthread_create(&load.thread, NULL, count, NULL), 0);
}

static void end_load(void) {
    atomic_store(&load.stops, true);
    pthread_join(load.thread, NULL);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
}

struct figure {
    size_t offset;
    int64_t wanted;
};

static bool is_so(void *ctx) {
    const struct figure *figure = ctx;
    return test_stat(rig.engine, figure->offset) == figure->wanted;
}

#define await_stat(field, wanted) await(offsetof(tw_stats, field), #field, wanted)
static void await(size_t offset, const char *name, int64_t wanted) {
    struct figure figure = {offset, wanted};
    if (!test_wait(is_so, &figure, 30000))
        fail_msg("%s is %lld, not %lld: %s", name, (long long)test_stat(rig.engine, offset), (long long)wanted,
                 rig.lines.text);
}

static int tags_between(uint32_t first, uint32_t last) {
    int count = 0;
    for (int tag = 0; tag < CLUSTER_TAGS; tag++) {
        uint32_t slot = cluster_slot_of_tag(tag);
        count += slot >= first && slot <= last;
    }
    return count;
}

/* Goal: a node that joins is connected to once it has slots of the engine, and left alone once it is gone: no
 * descriptor stays, and nobody dials it any more. */
TEST(a_node_joins_and_leaves_while_an_engine_counts) {
    enum { FIRST = 4000, LAST = 6999 }; /* of two masters */
    cluster_open_engine("joins", NULL);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    await_stat(redis_nodes, CLUSTER_MASTERS);
    int64_t descriptors = test_fd_count();
    begin_load();
    size_t fresh = redis_cluster_add(&cluster);
    assert_i64_equal(test_stat_of(rig.engine, redis_nodes), CLUSTER_MASTERS); /* it has no slot yet */
    assert_true(tags_between(FIRST, LAST) > 1);
    redis_cluster_move(&cluster, FIRST, LAST, fresh);
    await_stat(redis_nodes, CLUSTER_MASTERS + 1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_cluster_move(&cluster, FIRST, LAST, 0);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_cluster_wait(&cluster);
    redis_cluster_remove(&cluster, fresh);
    await_stat(redis_nodes, CLUSTER_MASTERS);
    end_load();
    assert_true(test_stat_of(rig.engine, moved) > 0);
    assert_i64_equal(test_stat_of(rig.engine, connects), CLUSTER_MASTERS + 1);
    assert_i64_equal(test_stat_of(rig.engine, disconnects), 1);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 0);
    assert_i64_equal(test_stat_of(rig.engine, stores_away), 0);
    assert_i64_equal(test_fd_count(), descriptors);
    assert_null(strstr(rig.lines.text, "Connection refused"));
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a master that was restarted at another port, with its data and its id, is found there. */
TEST(a_master_comes_back_under_another_address) {
    cluster_open_engine("elsewhere", NULL);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    begin_load();
    int before = redis_cluster_server(&cluster, 1)->port;
    redis_cluster_relocate(&cluster, 1);
    assert_int_not_equal(redis_cluster_server(&cluster, 1)->port, before);
    await_stat(stores_away, 0);
    end_load();
    assert_i64_equal(test_stat_of(rig.engine, redis_nodes), CLUSTER_MASTERS);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Ends with 0 if the child has counted one for each key, over connections of its own. */
static int count_in_the_child(void) {
    char text[16];
    alarm(30);
    for (int key = 0; key < CLUSTER_KEYS; key++) {
        snprintf(text, sizeof text, "k%d", key);
        if (tw_add(rig.family, tw_str(text), 1, NULL) != TW_OK) return 1;
    }
    if (tw_flush(rig.engine, 20000) != TW_OK) return 2;
    if (test_stat_of(rig.engine, redis_nodes) != CLUSTER_MASTERS) return 3;
    return tw_close(rig.engine, 5000) == TW_OK ? 0 : 4;
}

static void be_hosted(tw_options *options) {
    options->threads = TW_HOST_DRIVEN;
}

/* Goal: a forked child counts over connections of its own, and its parent's connections notice nothing; also where the
 * parent's sockets are in one epoll descriptor, which the child has inherited. */
TEST(a_forked_child_counts_by_itself) {
    if (test_is_slow()) {
        test_leave_out(TEST_NO_FORK_HERE);
        return;
    }
    for (int is_hosted = 0; is_hosted < 2; is_hosted++) {
        cluster_open_engine(is_hosted ? "hosted" : "forks", is_hosted ? be_hosted : NULL);
        for (int round = 0; round < 3; round++) {
            int status = -1;
            cluster_add_all(10);
            if (is_hosted || round != 1) /* once in the middle of it */
                assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
            fflush(NULL);
            pid_t child = test_fork();
            if (child == 0) _exit(count_in_the_child());
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
            for (int key = 0; key < CLUSTER_KEYS; key++) added[key]++;
        }
        cluster_add_all(1);
        assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
        cluster_assert_sums();
        assert_i64_equal(test_stat_of(rig.engine, connects), CLUSTER_MASTERS);
        assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
        assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    }
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
