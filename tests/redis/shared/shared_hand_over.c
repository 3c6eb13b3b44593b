/* shared_hand_over.c -- the sync of a shared engine ends and another one continues, while children count: the instance,
 * its last number, and the batches in flight stay.
 * Method: this process ends its sync and makes another one, as two processes do one after the other. Sometimes it waits
 * for replies before that, sometimes batches are in flight, as if the process had been killed between two turns.
 * Covers: engine/turn/remote.c, sync/message/state.c. */
#include "tests/redis/shared/shared_support.h"

#include "engine/count/lookup.h"
#include "engine/limit/lease.h"
#include "engine/table/area.h"
#include "engine/turn/remote.h"
#include "engine/turn/turn.h"

/* Batches without a reply, those of earlier syncs included. */
static int64_t unanswered(const struct stage *stage) {
    int64_t answered = test_stat_of(stage->engine, batches_ok) + test_stat_of(stage->engine, batches_dup);
    return test_stat_of(stage->engine, batches_sent) - answered;
}

/* Without a wait, a batch is in flight. */
static void change_sync(struct stage *stage, uint32_t timeout_ms) {
    while (!twi_turn_take(stage->engine)) usleep(100);
    static int64_t of_earlier;
    for (uint32_t i = 0; timeout_ms == 0 && i < 100 && unanswered(stage) <= of_earlier; i++) {
        twi_turn_run(stage->engine);
        twi_turn_nap(stage->engine, 1);
    }
    for (uint32_t ms = 0; ms < timeout_ms && !twi_remote_is_finished(stage->engine); ms++) {
        twi_turn_run(stage->engine);
        twi_turn_nap(stage->engine, 1);
    }
    twi_remote_leave(stage->engine);
    of_earlier = unanswered(stage);
    twi_turn_run(stage->engine);
    assert_non_null(stage->engine->here->remote.sync);
    twi_turn_leave(stage->engine);
}

/* Goal of both: the sums are equal to the unit, nothing is uncertain, and there is one ledger. */
static void change_many_times(uint32_t timeout_ms) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    pid_t pids[CHILDREN];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(&stage, add_until_enough, i);
    for (uint32_t i = 0; i < test_scale(100); i++) {
        usleep((useconds_t)test_prng_below(&prng, 30000));
        change_sync(&stage, timeout_ms);
    }
    atomic_store(stage.enough, true);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    check_sums(&stage, 0);
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    assert_i64_equal(test_stat_of(stage.engine, lost), 0);
    if (timeout_ms == 0) assert_true(test_stat_of(stage.engine, batches_dup) > 0);
    assert_int_equal(count_lines(redis_server_ask(&stage.server, "KEYS", "tw:ledger:*", NULL)), 1);
    stage_end(&stage);
}

/* Goal: hand-overs leave nothing uncertain, and the sums are equal to the unit. */
TEST(a_sync_that_hands_over_leaves_nothing_open) {
    change_many_times(1000);
}

/* Goal: the batches in flight of a sync that ended are settled by Redis's ledger. */
TEST(batches_in_flight_are_settled_by_the_next_sync) {
    change_many_times(0);
}

/* ---- real processes ---------------------------------------------------------------------------------------------- */

/* Leads when it is its turn, counts for a while, and hands over. */
static void lead_for_a_while(struct stage *stage, struct child *child, uint32_t number) {
    tw_status status;
    while ((status = tw_lead(stage->engine)) == TW_PENDING) usleep(200);
    if (status != TW_OK) _exit(3);
    int64_t end_ms = test_mono_ms() + number % 30;
    for (uint32_t i = number; test_mono_ms() < end_ms; i++) {
        char name[16];
        uint32_t key = i % KEYS;
        if (tw_add(stage->family, key_name(key, name), 1, NULL) == TW_OK) child->added[key]++;
    }
}

static pid_t leader_begin(struct stage *stage, uint32_t number) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0) return pid;
    alarm(120);
    lead_for_a_while(stage, &stage->children[CHILDREN - 1], number);
    _exit(tw_close(stage->engine, 5000) == TW_OK ? 0 : 9);
}

/* Goal: each leader's tw_close() leaves the instance to the next leader: nothing is uncertain, nothing is lost.
 * Method: one hundred leaders, one after the other; the next one waits already. Three processes only count. */
TEST(a_hundred_leaders_hand_over) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    pid_t pids[CHILDREN];
    for (uint32_t i = 0; i + 1 < CHILDREN; i++) pids[i] = child_begin(&stage, add_until_enough, i);
    pid_t leads = leader_begin(&stage, 0);
    for (uint32_t i = 1; i <= test_scale(100); i++) {
        pid_t next = leader_begin(&stage, i);
        child_expect_end(leads);
        leads = next;
    }
    child_expect_end(leads);
    atomic_store(stage.enough, true);
    for (uint32_t i = 0; i + 1 < CHILDREN; i++) child_expect_end(pids[i]);
    stage_lead(&stage);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    check_sums(&stage, 0);
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    assert_i64_equal(test_stat_of(stage.engine, lost), 0);
    assert_int_equal(count_lines(redis_server_ask(&stage.server, "KEYS", "tw:ledger:*", NULL)), 1);
    stage_end(&stage);
}

#define LIMIT INT64_C(100000)

static void sell_until_final(struct stage *stage, struct child *child, uint32_t number) {
    for (bool is_final = false; !is_final;) {
        tw_verdict verdict;
        tw_status status = tw_acquire(stage->family, tw_str("sale"), 1, LIMIT, &verdict);
        child->admitted += status == TW_OK;
        is_final = status == TW_DENIED && verdict.final;
        if (status != TW_OK) test_sleep_ms(1);
        if (status != TW_OK && status != TW_DENIED && status != TW_PENDING) _exit(2);
    }
}

/* Goal: one lease serves all processes, also when another process goes on with it, and the whole limit is sold. */
TEST(a_lease_goes_on_with_the_next_sync) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_HARD);
    stage_lead(&stage);
    pid_t pids[CHILDREN];
    uint64_t admitted = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = child_begin(&stage, sell_until_final, i);
    for (uint32_t i = 0; i < 50; i++) {
        test_sleep_ms(3);
        change_sync(&stage, i % 2 == 0 ? 0 : 1000);
    }
    for (uint32_t i = 0; i < CHILDREN; i++) {
        child_expect_end(pids[i]);
        admitted += stage.children[i].admitted;
    }
    assert_i64_equal(admitted, LIMIT);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(in_redis(&stage, "sale"), LIMIT);
    assert_i64_equal(test_stat_of(stage.engine, limit_at_risk), 0);
    assert_int_equal(stage.engine->leases.names, 0); /* Redis took no sync for a second copy of this process */
    stage_end(&stage);
}

/* As lease_of() of engine/limit/lease.c, if another thread was first: the lease is in the list, not in the cell. The
 * other one came later to the list, so the next sync would state this one first. */
static void make_late_lease(struct stage *stage, tw_key key) {
    struct twi_call call;
    struct twi_place place;
    struct twi_arena *arena = &stage->engine->arena;
    assert_int_equal(twi_call_begin(&call, stage->family, key), TW_OK);
    assert_int_equal(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    uint32_t line = twi_piece_take(arena, place.generation, TWI_LEASE_LINES);
    struct twi_lease *lease = twi_arena_at(arena, line);
    lease->generation = twi_arena_line(arena, place.generation);
    lease->cell = twi_arena_line(arena, place.cell);
    struct twi_lease *first = twi_lease_of(place.cell);
    assert_true(first != NULL && first->attached.older == 0);
    first->attached.older = line;
    twi_call_end(&call);
}

/* Goal: of two threads that make the first lease of a counter at once, one is too late. The next sync does not state
 * that lease: Redis would see an engine that was granted less than was spent, and take it for a copy. */
TEST(a_lease_that_came_too_late_is_not_stated) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_HARD);
    stage_lead(&stage);
    int64_t sold = 0, until_ms = test_mono_ms() + TEST_PATIENCE_MS;
    for (int round = 0; round < 3; round++) {
        for (int more = 0; more < 100 && test_mono_ms() < until_ms;) {
            if (tw_acquire(stage.family, tw_str("sale"), 1, LIMIT, NULL) == TW_OK)
                more++, sold++;
            else
                test_sleep_ms(1);
        }
        if (round == 0) make_late_lease(&stage, tw_str("sale"));
        change_sync(&stage, 1000);
    }
    assert_i64_equal(sold, 300);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(in_redis(&stage, "sale"), 300);
    assert_i64_equal(test_stat_of(stage.engine, limit_at_risk), 0);
    assert_int_equal(stage.engine->leases.names, 0); /* as above */
    stage_end(&stage);
}

static void add_some(struct stage *stage, uint32_t rounds) {
    for (uint32_t i = 0; i < rounds * KEYS; i++) {
        char name[16];
        assert_status(tw_add(stage->family, key_name(i % KEYS, name), 1, NULL), TW_OK);
        stage->children[0].added[i % KEYS]++;
    }
}

/* Goal: the next sync finds that Redis was wiped, and sends everything again; also if the one before had begun that. */
TEST(a_wiped_redis_is_restored_by_the_next_sync) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    for (uint32_t i = 0; i < 4; i++) {
        add_some(&stage, 3);
        assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
        add_some(&stage, 1);
        (void)redis_server_ask(&stage.server, "FLUSHALL", NULL);
        for (uint32_t k = 0; k < 1 + i % 4; k++) {
            change_sync(&stage, k % 2 == 0 ? 1 : 1000);
            test_sleep_ms(i * 30);
        }
        assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
        check_sums(&stage, 0);
    }
    assert_true(test_stat_of(stage.engine, restored) > 0);
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    assert_i64_equal(test_stat_of(stage.engine, lost), 0);
    stage_end(&stage);
}

/* Goal: a key that Redis refuses waits with the next sync, and is counted once after its repair. */
TEST(a_refused_key_goes_on_waiting) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    stage_lead(&stage);
    (void)redis_server_ask(&stage.server, "LPUSH", "f:k0", "x", NULL);
    add_some(&stage, 3);
    assert_status(tw_flush(stage.engine, 20000), TW_ERR_REDIS);
    change_sync(&stage, 1000);
    add_some(&stage, 3);
    assert_status(tw_flush(stage.engine, 20000), TW_ERR_REDIS);
    (void)redis_server_ask(&stage.server, "DEL", "f:k0", NULL);
    change_sync(&stage, 1000);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    check_sums(&stage, 0);
    stage_end(&stage);
}

/* Goal: elements of a distinct count arrive, whichever sync had collected them. */
TEST(a_distinct_count_goes_on) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    tw_family *visitors = kind_of(stage.engine, "visitors", TW_KIND_DISTINCT);
    stage_lead(&stage);
    for (uint32_t i = 0; i < 500; i++) {
        char name[16];
        assert_status(tw_distinct_add(visitors, tw_str("page"), key_name(i, name), NULL), TW_OK);
        if (i % 25 == 24) change_sync(&stage, i % 2 == 0 ? 1 : 1000);
    }
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    int64_t count = strtoll(redis_server_ask(&stage.server, "PFCOUNT", "visitors:page", NULL), NULL, 10);
    assert_true(count > 480 && count < 520);
    stage_end(&stage);
}

struct closed {
    _Atomic int64_t sum;
};

static bool add_up(void *ctx, const tw_count *count) {
    struct closed *closed = ctx;
    (void)atomic_fetch_add(&closed->sum, count->view);
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed *closed = ctx;
    (void)end_ms, (void)flags;
    return tw_each(family, start_ms, add_up, closed) == TW_OK;
}

/* Goal: a window that one engine closes for all gets its hook once, and all its counts, whichever sync claimed it. */
TEST(a_window_is_closed_once_by_whichever_sync) {
    struct stage stage;
    struct closed closed = {0};
    stage_begin(&stage, TW_LIMIT_SOFT);
    tw_family_options one = plain_family_options("c", TW_WINDOW_ALIGNED, TW_SECOND);
    one.closed_by = TW_CLOSED_BY_ONE;
    one.on_window_closed = on_closed;
    one.closed_ctx = &closed;
    tw_family *family = opened_family(stage.engine, one);
    stage_lead(&stage);
    int64_t added = 0;
    for (uint32_t i = 0; i < 40; i++) {
        char name[16];
        assert_status(tw_add(family, key_name(i % 7, name), 1, NULL), TW_OK);
        added++;
        test_sleep_ms(50);
        if (i % 5 == 4) change_sync(&stage, i % 2 == 0 ? 1 : 1000);
    }
    for (uint32_t i = 0; i < 400 && atomic_load(&closed.sum) < added; i++) test_sleep_ms(20);
    assert_i64_equal(atomic_load(&closed.sum), added);
    stage_end(&stage);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
