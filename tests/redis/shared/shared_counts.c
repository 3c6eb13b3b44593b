/* shared_counts.c -- one engine for all processes of a host, with a real Redis: one has the connection, all count.
 * Method: four forked children count or take units of a limit; what they were answered is compared with Redis. */
#include "tests/redis/shared/shared_support.h"

#include <pthread.h>

static void add_to_all(struct stage *stage, struct child *child, uint32_t number) {
    char name[16];
    for (uint32_t round = 0; round < 200; round++)
        for (uint32_t key = 0; key < KEYS; key++)
            if (tw_add(stage->family, key_name(key, name), 1, NULL) == TW_OK) child->added[key]++;
}

/* Goal: what four processes add is in Redis, to the unit, over one connection. */
TEST(four_processes_count_over_one_connection) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    pid_t pids[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(&stage, add_to_all, i);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    check_sums(&stage, 0);
    assert_i64_equal(in_redis(&stage, "k0"), CHILDREN * 200);
    assert_i64_equal(test_stat_of(stage.engine, connects), 1);
    assert_i64_equal(test_stat_of(stage.engine, live_engines), 1);
    stage_end(&stage);
}

#define LIMIT 1000

static void acquire_until_denied(struct stage *stage, struct child *child, uint32_t number) {
    for (uint32_t denied = 0; denied < 100;) { /* a soft limit denies, too, while the total of a new key is unknown */
        tw_verdict verdict;
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, LIMIT, &verdict);
        child->admitted += status == TW_OK;
        denied += status == TW_DENIED;
        if (status != TW_OK) test_sleep_ms(5);
        if (status != TW_OK && status != TW_DENIED && status != TW_PENDING) _exit(2);
    }
}

static void sell_all(uint32_t mode) {
    struct stage stage;
    stage_begin(&stage, mode);
    stage_lead(&stage);
    assert_status(tw_ready(stage.engine, TEST_PATIENCE_MS), TW_OK);
    pid_t pids[CHILDREN];
    uint64_t admitted = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(&stage, acquire_until_denied, i);
    for (uint32_t i = 0; i < CHILDREN; i++) {
        child_expect_end(pids[i]);
        admitted += stage.children[i].admitted;
    }
    assert_i64_equal(admitted, LIMIT);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(in_redis(&stage, "sale"), LIMIT);
    stage_end(&stage);
}

/* Goal: four processes share one limit. With a hard limit, one lease serves them all. */
TEST(a_soft_limit_of_four_processes_admits_exactly_its_number) {
    sell_all(TW_LIMIT_SOFT);
}

TEST(a_hard_limit_of_four_processes_admits_exactly_its_number) {
    sell_all(TW_LIMIT_HARD);
}

/* ---- killed ------------------------------------------------------------------------------------------------------ */

static void sell_for_ever(struct stage *stage, struct child *child, uint32_t number) {
    for (;;) {
        tw_verdict verdict;
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, INT64_C(300000), &verdict);
        child->admitted += status == TW_OK;
        if (status == TW_PENDING) test_sleep_ms(1);
        if (status != TW_OK && status != TW_DENIED && status != TW_PENDING) _exit(2);
    }
}

static void kill_children(struct stage *stage, child_work *work, uint64_t kills) {
    pid_t pids[CHILDREN];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(stage, work, i);
    for (; kills != 0; kills--) {
        usleep(1000 + (useconds_t)test_prng_below(&prng, 20000));
        uint32_t i = (uint32_t)test_prng_below(&prng, CHILDREN);
        child_kill(pids[i]);
        pids[i] = child_begin(stage, work, i);
    }
    for (uint32_t i = 0; i < CHILDREN; i++) child_kill(pids[i]);
}

/* Goal: a killed process loses nothing that it was answered, and the flush after it ends. */
TEST(killed_processes_lose_no_answered_count) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    uint64_t kills = test_scale(200);
    kill_children(&stage, add_until_enough, kills);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    check_sums(&stage, (int64_t)kills + CHILDREN);
    stage_end(&stage);
}

/* Goal: a hard limit is never passed. A killed process takes at most the unit that it had in its hand. */
TEST(killed_processes_pass_no_hard_limit) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_HARD);
    stage_lead(&stage);
    uint64_t kills = test_scale(200), admitted = 0;
    kill_children(&stage, sell_for_ever, kills);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    for (uint32_t i = 0; i < CHILDREN; i++) admitted += stage.children[i].admitted;
    int64_t redis = in_redis(&stage, "sale");
    assert_true(admitted <= 300000 && redis <= 300000);
    assert_true(redis >= (int64_t)admitted && redis <= (int64_t)(admitted + kills + CHILDREN));
    stage_end(&stage);
}

/* ---- forked at any moment ---------------------------------------------------------------------------------------- */

static _Atomic bool is_over;

/* Batches of all sizes, so that the buffers of the sync grow and shrink. */
static void *count_for_ever(void *ctx) {
    const struct stage *stage = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    while (!atomic_load(&is_over)) {
        uint64_t few = test_prng_below(&prng, 2000);
        for (uint64_t key = 0; key < few; key++) (void)tw_add(stage->family, tw_bytes(&key, sizeof key), 1, NULL);
        usleep((useconds_t)test_prng_below(&prng, 3000));
    }
    return NULL;
}

/* Goal: a child may be forked while another thread of its parent is anywhere in a turn with Redis. Its first call makes
 * it a process of its own, and breaks nothing. */
TEST(a_child_is_forked_at_any_moment_of_a_turn) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    pthread_t counter;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&counter, NULL, count_for_ever, &stage), 0);
    for (uint64_t forks = test_scale(400); forks != 0; forks--) {
        pid_t pid = child_fork(60);
        if (pid == 0) {
            tw_status status = tw_add(stage.family, tw_str("child"), 1, NULL);
            _exit(status == TW_OK && tw_close(stage.engine, 0) == TW_OK ? 0 : 1);
        }
        child_expect_end(pid);
    }
    atomic_store(&is_over, true);
    pthread_join(counter, NULL);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(in_redis(&stage, "child"), (int64_t)test_scale(400));
    stage_end(&stage);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
