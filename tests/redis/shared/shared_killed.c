/* shared_killed.c -- the leader of a shared engine is killed under load, with a real Redis: the next leader continues
 * its instance, and asks the ledger what became of its batches.
 * Method: two processes are candidates and count, two only count. A candidate is killed at a random moment, and another
 * one comes. What each process was answered is compared with Redis. */
#include "tests/redis/shared/shared_support.h"

/* Leads, or waits for that, and counts. */
static void lead_and_add(struct stage *stage, struct child *child, uint32_t number) {
    if (tw_lead(stage->engine) < 0) _exit(3);
    add_until_enough(stage, child, number);
}

static void kill_candidates(struct stage *stage, pid_t *pids, child_work *work, uint64_t kills) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (; kills != 0; kills--) {
        usleep(5000 + (useconds_t)test_prng_below(&prng, 60000));
        uint32_t i = (uint32_t)test_prng_below(&prng, 2);
        child_kill(pids[i]);
        assert_status(tw_process_died(stage->engine), TW_OK);
        pids[i] = child_begin(stage, work, i);
    }
}

static bool has_begun(void *ctx) {
    return in_redis(ctx, "k0") > 0;
}

static int ledgers(struct stage *stage) {
    return count_lines(redis_server_ask(&stage->server, "KEYS", "tw:ledger:*", NULL));
}

/* Goal: sums equal to the unit, but for calls that were not answered, and for units that on_lost has named. One
 * instance goes on. The first leader is not killed before its instance has begun: the ledger of which it has no reply
 * would stay, empty, until it expires. */
TEST(killed_leaders_lose_nothing) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    pid_t pids[CHILDREN];
    uint64_t kills = test_scale(100);
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(&stage, i < 2 ? lead_and_add : add_until_enough, i);
    assert_true(test_wait(has_begun, &stage, TEST_PATIENCE_MS));
    int begun = ledgers(&stage);
    kill_candidates(&stage, pids, lead_and_add, kills);
    atomic_store(stage.enough, true);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    stage_lead(&stage);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    assert_i64_equal(test_stat_of(stage.engine, lost), 0);
    check_sums(&stage, (int64_t)kills);
    assert_int_equal(ledgers(&stage), begun);
    stage_end(&stage);
}

#define LIMIT INT64_C(200000)

static void lead_and_sell(struct stage *stage, struct child *child, uint32_t number) {
    if (number < 2 && tw_lead(stage->engine) < 0) _exit(3);
    while (!atomic_load(stage->enough)) {
        tw_verdict verdict;
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, LIMIT, &verdict);
        child->admitted += status == TW_OK;
        if (status != TW_OK) test_sleep_ms(1);
        if (status != TW_OK && status != TW_DENIED && status != TW_PENDING) _exit(2);
    }
}

static uint64_t all_admitted(const struct stage *stage) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) sum += stage->children[i].admitted;
    return sum;
}

static bool has_admitted(void *ctx) {
    return all_admitted(ctx) != 0;
}

/* Goal: a hard limit is not passed, whatever the leader was doing. On a crowded machine each leader may be killed
 * before Redis has granted it a unit: the last one is given the time for that. */
TEST(killed_leaders_pass_no_hard_limit) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_HARD);
    pid_t pids[CHILDREN];
    uint64_t kills = test_scale(60);
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(&stage, lead_and_sell, i);
    kill_candidates(&stage, pids, lead_and_sell, kills);
    assert_true(test_wait(has_admitted, &stage, TEST_PATIENCE_MS));
    atomic_store(stage.enough, true);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    stage_lead(&stage);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    uint64_t admitted = all_admitted(&stage);
    int64_t redis = in_redis(&stage, "sale");
    assert_true(admitted != 0 && admitted <= LIMIT && redis <= LIMIT);
    assert_true(redis >= (int64_t)admitted && redis <= (int64_t)(admitted + kills));
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    stage_end(&stage);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
