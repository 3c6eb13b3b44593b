/* shared_last.c -- all candidates of a shared engine close, and none is left who could lead, as when a server stops or
 * has no worker for a moment: Redis keeps no unit of a lease for the engine, and does not count it any more. Processes
 * that are forked later go on with its counts.
 * Method: generations of two candidates each, which close at the same time. Between two generations the process that
 * opened the engine looks into Redis.
 * Covers: engine/lead.c. */
#include "tests/redis/shared/shared_support.h"

#define LIMIT 100
#define SOME 7
#define CANDIDATES 2u

static bool is_host_driven(const struct stage *stage) {
    return stage->engine->life.host_driven;
}

static void turn_or_nap(struct stage *stage) {
    if (is_host_driven(stage)) (void)tw_turn(stage->engine);
    test_sleep_ms(1);
}

/* Sells so many units, or until nothing is left. */
static void sell(struct stage *stage, struct child *child, uint64_t most) {
    for (uint64_t sold = 0; sold < most;) {
        tw_verdict verdict;
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, LIMIT, &verdict);
        sold += status == TW_OK;
        child->admitted += status == TW_OK;
        if (status == TW_DENIED && verdict.final) break;
        if (status != TW_OK && status != TW_DENIED && status != TW_PENDING) _exit(2);
        turn_or_nap(stage);
    }
}

/* A candidate sells as many units as `other` says, and closes when it may. */
static void work(struct stage *stage, struct child *child, uint32_t number) {
    if (tw_lead(stage->engine) < 0) _exit(3);
    sell(stage, child, atomic_load(&child->other));
    atomic_fetch_add(&child->calls, 1);
    while (!atomic_load(stage->enough)) turn_or_nap(stage);
}

/* Two candidates that close at once. */
static void let_candidates_sell(struct stage *stage, uint64_t units_each) {
    pid_t pids[CANDIDATES];
    atomic_store(stage->enough, false);
    for (uint32_t i = 0; i < CANDIDATES; i++) {
        atomic_store(&stage->children[i].calls, 0);
        atomic_store(&stage->children[i].other, units_each);
        pids[i] = child_begin(stage, work, i);
    }
    for (uint32_t i = 0; i < CANDIDATES; i++)
        while (atomic_load(&stage->children[i].calls) == 0) test_sleep_ms(1);
    atomic_store(stage->enough, true);
    for (uint32_t i = 0; i < CANDIDATES; i++) child_expect_end(pids[i]);
}

static int64_t admitted(const struct stage *stage) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < CANDIDATES; i++) sum += (int64_t)atomic_load(&stage->children[i].admitted);
    return sum;
}

static int64_t lease_has(struct stage *stage, const char *field) {
    return strtoll(redis_server_ask(&stage->server, "HGET", "tw:lease:f:sale", field, NULL), NULL, 10);
}

/* What is out is spent, and no engine lives. */
static void check_redis(struct stage *stage) {
    assert_i64_equal(in_redis(stage, "sale"), admitted(stage));
    assert_i64_equal(lease_has(stage, "t"), admitted(stage));
    assert_i64_equal(lease_has(stage, "s"), admitted(stage));
    assert_string_equal(redis_server_ask(&stage->server, "ZCARD", "tw:live", NULL), "0");
    assert_string_equal(redis_server_ask(&stage->server, "HGET", "tw:leases", "n", NULL), "0");
}

static void sell_in_generations(uint32_t threads) {
    struct stage stage;
    stage_begin_with(&stage, TW_LIMIT_HARD, threads);
    for (uint32_t i = 0; i < 3; i++) {
        let_candidates_sell(&stage, SOME);
        assert_i64_equal(admitted(&stage), (i + 1) * CANDIDATES * SOME);
        check_redis(&stage);
    }
    let_candidates_sell(&stage, LIMIT);
    assert_i64_equal(admitted(&stage), LIMIT);
    check_redis(&stage);
    assert_i64_equal(test_stat_of(stage.engine, limit_at_risk), 0);
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    stage_end(&stage);
}

/* Goal of both: each generation leaves nothing in Redis, and the last one sells every unit that is left. */
TEST(the_last_candidate_returns_what_redis_lent) {
    sell_in_generations(TW_OWN_THREAD);
}

TEST(the_last_host_returns_what_redis_lent) {
    sell_in_generations(TW_HOST_DRIVEN);
}

/* Goal: a candidate that closes while another one lives returns nothing: the other one goes on with its lease. */
TEST(a_candidate_that_leaves_another_one_keeps_the_lease) {
    struct stage stage;
    stage_begin_with(&stage, TW_LIMIT_HARD, TW_OWN_THREAD);
    stage_lead(&stage);
    let_candidates_sell(&stage, SOME);
    assert_i64_equal(test_stat_of(stage.engine, lease_returned), 0);
    assert_string_equal(redis_server_ask(&stage.server, "ZCARD", "tw:live", NULL), "1");
    sell(&stage, &stage.children[0], LIMIT);
    assert_i64_equal(admitted(&stage), LIMIT);
    stage_end(&stage);
}

/* ---- a candidate that does not answer -------------------------------------------------------------------------- */

/* Stays a candidate until it is killed. */
static void stay(struct stage *stage, struct child *child, uint32_t number) {
    if (tw_lead(stage->engine) < 0) _exit(3);
    atomic_store(&child->calls, 1);
    for (;;) turn_or_nap(stage);
}

/* Counts and closes at once. */
static void count_and_close(struct stage *stage, struct child *child, uint32_t number) {
    if (tw_lead(stage->engine) < 0) _exit(3);
    atomic_store(&child->calls, 1);
    while (!atomic_load(stage->enough)) turn_or_nap(stage);
    for (int i = 0; i < SOME; i++)
        if (tw_add(stage->family, tw_str("last"), 1, NULL) != TW_OK) _exit(4);
    atomic_store(&child->calls, 2);
    _exit(tw_close(stage->engine, TEST_PATIENCE_MS) == TW_OK ? 0 : 5);
}

static void await_calls(const struct child *child, uint64_t calls) {
    while (atomic_load(&child->calls) < calls) test_sleep_ms(1);
}

/* Goal: a candidate that is there and makes no turn, as one that SIGKILL has not ended yet, is not taken for the next
 * leader. When it has ended, Redis has what the candidate counted that closed meanwhile. */
TEST_EACH(a_candidate_that_does_not_answer_inherits_nothing, TW_OWN_THREAD * 2, TW_OWN_THREAD * 2 + 1,
          TW_HOST_DRIVEN * 2, TW_HOST_DRIVEN * 2 + 1) {
    uintptr_t variant = (uintptr_t)*state;
    bool silent_leads = variant % 2 == 0;
    struct stage stage;
    stage_begin_with(&stage, TW_LIMIT_SOFT, (uint32_t)variant / 2);
    pid_t silent = 0, closes;
    if (silent_leads) {
        silent = child_begin(&stage, stay, 0);
        await_calls(&stage.children[0], 1);
    }
    closes = child_begin(&stage, count_and_close, 1);
    await_calls(&stage.children[1], 1);
    if (!silent_leads) {
        silent = child_begin(&stage, stay, 0);
        await_calls(&stage.children[0], 1);
    }
    assert_int_equal(kill(silent, SIGSTOP), 0);
    atomic_store(stage.enough, true);
    await_calls(&stage.children[1], 2);
    test_sleep_ms(200); /* it is closing now; if it is not yet, the test finds less */
    child_kill(silent);
    child_expect_end(closes);
    assert_i64_equal(in_redis(&stage, "last"), SOME);
    assert_string_equal(redis_server_ask(&stage.server, "ZCARD", "tw:live", NULL), "0");
    stage_end(&stage);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
