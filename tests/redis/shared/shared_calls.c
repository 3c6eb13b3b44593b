/* shared_calls.c -- calls that wait for Redis, in processes that share an engine and do not lead. Each process has a
 * connection of its own for them, and the leader serves its flushes.
 * Method: forked children, and a real Redis. A child ends with 0 if all its answers were right.
 * Covers: engine/turn/turn.c, engine/core/operation.c, engine/flush.c, engine/flush.c. */
#include "tests/redis/shared/shared_support.h"

#include <poll.h>
#include <string.h>

#define LIMIT 300

#define EXPECT(condition, code) \
    do { \
        if (!(condition)) _exit(code); \
    } while (0)

static pid_t pids[CHILDREN];

static void begin_all(struct stage *stage, child_work *work) {
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(stage, work, i);
}

static uint64_t expect_all(struct stage *stage) {
    uint64_t admitted = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) {
        child_expect_end(pids[i]);
        admitted += stage->children[i].admitted;
    }
    return admitted;
}

/* ---- strict limits ----------------------------------------------------------------------------------------------- */

static void acquire_until_denied(struct stage *stage, struct child *child, uint32_t number) {
    for (uint32_t denied = 0; denied < 5;) {
        tw_verdict verdict;
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, LIMIT, &verdict);
        EXPECT(status == TW_OK || status == TW_DENIED, 1);
        EXPECT(verdict.decided_by == TW_BY_REDIS, 2);
        child->admitted += status == TW_OK;
        denied += status == TW_DENIED;
    }
}

/* Goal: a strict limit of four processes admits exactly its number, also while nobody leads. */
TEST(a_strict_limit_is_exact_whoever_leads) {
    for (int leads = 0; leads < 2; leads++) {
        struct stage stage;
        stage_begin(&stage, TW_LIMIT_STRICT);
        if (leads) stage_lead(&stage);
        begin_all(&stage, acquire_until_denied);
        assert_i64_equal(expect_all(&stage), LIMIT);
        assert_i64_equal(in_redis(&stage, "sale"), LIMIT);
        stage_end(&stage);
    }
}

static void acquire_for_ever(struct stage *stage, struct child *child, uint32_t number) {
    for (;;) {
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, INT64_C(1) << 40, NULL);
        EXPECT(status == TW_OK, 1);
        child->admitted++;
    }
}

/* Goal: of a killed process's calls at most the one under way is charged without an answer. A process that is forked
 * later never meets the calls of one that was killed. */
TEST(killed_processes_charge_at_most_the_call_under_way) {
    struct stage stage;
    struct test_prng prng;
    stage_begin(&stage, TW_LIMIT_STRICT);
    stage_lead(&stage);
    test_prng_seed(&prng, test_seed());
    begin_all(&stage, acquire_for_ever);
    int64_t kills = (int64_t)test_scale(40), admitted = 0;
    for (int64_t i = 0; i < kills; i++) {
        usleep(5000 + (useconds_t)test_prng_below(&prng, 20000));
        uint32_t one = (uint32_t)test_prng_below(&prng, CHILDREN);
        child_kill(pids[one]);
        pids[one] = child_begin(&stage, acquire_for_ever, one);
    }
    for (uint32_t i = 0; i < CHILDREN; i++) {
        child_kill(pids[i]);
        admitted += (int64_t)stage.children[i].admitted;
    }
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    int64_t redis = in_redis(&stage, "sale");
    assert_true(redis >= admitted && redis <= admitted + kills + CHILDREN);
    stage_end(&stage);
}

/* ---- once, locks ------------------------------------------------------------------------------------------------- */

static void be_first_or_not(struct stage *stage, struct child *child, uint32_t number) {
    char token[TW_TOKEN_SIZE];
    bool first = false;
    EXPECT(tw_once(stage->family, tw_str("job"), &first) == TW_OK, 1);
    child->admitted = first;
    for (int i = 0; i < 10; i++) {
        tw_status status;
        while ((status = tw_lock(stage->family, tw_str("lock"), 10000, token, NULL)) == TW_DENIED) test_sleep_ms(1);
        EXPECT(status == TW_OK, 2);
        EXPECT(atomic_exchange(stage->enough, true) == false, 3); /* no other process has the lock */
        atomic_store(stage->enough, false);
        EXPECT(tw_lock_release(stage->family, tw_str("lock"), token) == TW_OK, 4);
    }
}

/* Goal: of four processes one is the first, and one at a time has the lock. */
TEST(one_process_is_first_and_one_has_the_lock) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_STRICT);
    stage_lead(&stage);
    begin_all(&stage, be_first_or_not);
    assert_i64_equal(expect_all(&stage), 1);
    stage_end(&stage);
}

/* ---- reservations ------------------------------------------------------------------------------------------------ */

static char (*passed)[TW_TOKEN_SIZE]; /* in memory that all processes share */

/* Every second reservation is cancelled, so its unit is free again. */
static void reserve_until_denied(struct stage *stage, struct child *child, uint32_t number) {
    char token[TW_TOKEN_SIZE];
    tw_key key = tw_str("stock");
    tw_status status = TW_OK;
    for (int i = 0; status != TW_DENIED; i++) {
        status = tw_reserve(stage->family, key, 1, LIMIT, 60000, (tw_key){0}, token, NULL);
        if (status == TW_DENIED) break;
        EXPECT(status == TW_OK, 1);
        if (i % 2 == 0) {
            EXPECT(tw_reserve_cancel(stage->engine, token) == TW_OK, 2);
        } else {
            EXPECT(tw_reserve_confirm(stage->engine, token) == TW_OK, 3);
            child->admitted++;
        }
    }
    EXPECT(tw_reserve(stage->family, tw_str("passed"), 1, CHILDREN, 60000, (tw_key){0}, passed[number], NULL) == TW_OK,
           4);
}

/* Goal: no process sells more than there is, all of it is sold, and a reservation of one process is confirmed by
 * another one. */
TEST(reservations_of_all_processes_share_a_stock) {
    struct stage stage;
    passed = children_pages(CHILDREN * sizeof *passed);
    stage_begin(&stage, TW_LIMIT_STRICT);
    begin_all(&stage, reserve_until_denied);
    uint64_t sold = expect_all(&stage);
    assert_i64_equal(sold, LIMIT); /* the last one that is denied finds no reservation of others */
    for (uint32_t i = 0; i < CHILDREN; i++) assert_status(tw_reserve_confirm(stage.engine, passed[i]), TW_OK);
    assert_i64_equal(in_redis(&stage, "stock"), (int64_t)sold);
    assert_i64_equal(in_redis(&stage, "passed"), CHILDREN);
    stage_end(&stage);
    munmap(passed, CHILDREN * sizeof *passed);
}

/* ---- flushes ----------------------------------------------------------------------------------------------------- */

static void add_and_flush(struct stage *stage, struct child *child, uint32_t number) {
    for (int round = 1; round <= 5; round++) {
        char name[16], key[32];
        int64_t total = 0;
        tw_key own = key_name(number, name);
        EXPECT(tw_add(stage->family, own, 7, NULL) == TW_OK, 1);
        EXPECT(tw_flush(stage->engine, 20000) == TW_OK, 2);
        (void)snprintf(key, sizeof key, "f:k%u", number);
        EXPECT(redis_server_get(&stage->server, key) == 7 * round, 3);
        EXPECT(tw_fetch(stage->family, &own, 1, 20000, &total) == TW_OK && total == 7 * round, 4);
    }
    EXPECT(tw_ready(stage->engine, 20000) == TW_OK, 5);
}

/* Goal: what a process has counted is in Redis after its own flush, and its fetch shows what Redis has. */
TEST(a_flush_of_each_process_is_served) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    begin_all(&stage, add_and_flush);
    (void)expect_all(&stage);
    stage_end(&stage);
}

static void flush_in_vain(struct stage *stage, struct child *child, uint32_t number) {
    (void)child, (void)number;
    EXPECT(tw_add(stage->family, tw_str("k0"), 7, NULL) == TW_OK, 1);
    EXPECT(tw_flush(stage->engine, 100) == TW_ERR_TIMEOUT && strstr(tw_error_text(), "nobody leads") != NULL, 2);
    EXPECT(tw_ready(stage->engine, 100) == TW_ERR_TIMEOUT && strstr(tw_error_text(), "nobody leads") != NULL, 3);
}

/* Goal: while nobody leads, a flush says so, and it is served later. */
TEST(without_a_leader_a_flush_says_that_nobody_leads) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    child_expect_end(child_begin(&stage, flush_in_vain, 0));
    stage_lead(&stage);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(in_redis(&stage, "k0"), 7);
    stage_end(&stage);
}

static void lead_until_killed(struct stage *stage, struct child *child, uint32_t number) {
    EXPECT(tw_lead(stage->engine) == TW_OK, 1);
    child->other = 1;
    for (;;) pause();
}

static void flush_for_ever(struct stage *stage, struct child *child, uint32_t number) {
    while (!atomic_load(stage->enough)) {
        EXPECT(tw_add(stage->family, tw_str("k0"), 1, NULL) == TW_OK, 1);
        EXPECT(tw_flush(stage->engine, 30000) == TW_OK, 2);
        child->calls++;
    }
}

/* Goal: a flush that the leader had not served when it was killed is served by the next one. */
TEST(a_flush_outlives_its_leader) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    pid_t flusher = 0;
    for (int round = 0; round < 3; round++) {
        stage.children[1].other = 0;
        pid_t leader = child_begin(&stage, lead_until_killed, 1);
        for (int i = 0; stage.children[1].other == 0 && i < 20000; i++) test_sleep_ms(1);
        if (round == 0) flusher = child_begin(&stage, flush_for_ever, 0);
        uint64_t before = stage.children[0].calls;
        for (int i = 0; stage.children[0].calls < before + 3 && i < 20000; i++) test_sleep_ms(1);
        assert_true(stage.children[0].calls >= before + 3);
        child_kill(leader);
        assert_status(tw_process_died(stage.engine), TW_OK);
    }
    stage_lead(&stage);
    atomic_store(stage.enough, true);
    child_expect_end(flusher);
    stage_end(&stage);
}

/* ---- host-driven ------------------------------------------------------------------------------------------------- */

struct answer {
    tw_request request;
    bool is_done;
};

static void note_answer(tw_request *request) {
    ((struct answer *)request->ctx)->is_done = true;
}

static void turn_until(struct stage *stage, const bool *is_done) {
    for (int i = 0; !*is_done && i < 30000; i++) {
        struct pollfd fd = {.fd = tw_fd(stage->engine), .events = POLLIN};
        uint32_t left_ms = tw_timeout_ms(stage->engine);
        (void)poll(&fd, 1, left_ms < 1000 ? (int)left_ms : 1000);
        tw_status status = tw_turn(stage->engine);
        EXPECT(status == TW_OK || status == TW_PENDING, 10);
    }
    EXPECT(*is_done, 11);
}

static void acquire_by_turns(struct stage *stage, struct child *child, uint32_t number) {
    if (number == 0) EXPECT(tw_lead(stage->engine) == TW_OK, 1);
    for (uint32_t denied = 0; denied < 5;) {
        static struct answer one;
        one = (struct answer){0};
        tw_request_init(&one.request);
        one.request.done = note_answer;
        one.request.ctx = &one;
        one.request.timeout_ms = 20000;
        tw_status status = tw_acquire_async(&one.request, stage->family, tw_str("sale"), 1, LIMIT);
        EXPECT(status == TW_STARTED, 2);
        turn_until(stage, &one.is_done);
        EXPECT(one.request.status == TW_OK || one.request.status == TW_DENIED, 3);
        child->admitted += one.request.status == TW_OK;
        denied += one.request.status == TW_DENIED;
    }
}

/* Goal: the same in host-driven processes, each of which drives its calls by its own turns. */
TEST(host_driven_processes_share_a_strict_limit) {
    struct stage stage;
    stage_begin_with(&stage, TW_LIMIT_STRICT, TW_HOST_DRIVEN);
    begin_all(&stage, acquire_by_turns);
    assert_i64_equal(expect_all(&stage), LIMIT);
    stage_end(&stage);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

/* Goal: what processes of a shared engine cannot do with Redis is refused with the reason. */
TEST(slots_are_refused) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_STRICT);
    assert_status(tw_hold(stage.family, tw_str("k"), 1, NULL), TW_ERR_MODE);
    assert_non_null(strstr(tw_error_text(), "shared"));
    stage_end(&stage);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
