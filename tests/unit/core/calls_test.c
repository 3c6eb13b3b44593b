/* calls_test.c -- calls that answer later: one answer for each start, in the right thread, whatever is cancelled, and
 * whatever `done` does.
 * Covers: engine/core/operation.c, engine/core/calls.c, engine/port/driver.h, engine/core/operation.c,
 * engine/core/queue.c. */
#include "tests/unit/core/calls_support.h"

/* ---- one answer -------------------------------------------------------------------------------------------------- */

/* Goal: what never waits answers at once, and `done` is not called; a strict call is started, and answered by the turn
 * once; its key is a copy. Method: a soft and a strict family; the key's bytes are overwritten after the start. */
LATER_TEST(an_answer_comes_at_once_or_once_later) {
    static struct told told;
    prepare(&told, NULL);
    tw_family_options options = rig_options("soft", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *soft = rig_family_of(&rig, &options), *strict = strict_family();
    assert_status(buy(&told, soft), TW_OK);
    assert_status(told.request.status, TW_OK);
    assert_int_equal(told.request.verdict.allowed, 1);
    assert_status(tw_acquire_async(&told.request, strict, tw_str("k"), -1, 10), TW_ERR_RANGE);
    assert_status(told.request.status, TW_ERR_RANGE);
    char key[] = "key";
    assert_status(tw_acquire_async(&told.request, strict, tw_str(key), 1, 10), TW_STARTED);
    memset(key, 'x', 3);
    assert_status(buy(&told, strict), TW_ERR_MODE); /* it is under way */
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    later_answer(0, "OK 1 4 1000 0");
    rig_turn(&rig);
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_i64_equal(told.request.verdict.used, 4);
    assert_i64_equal(told.request.verdict.remaining, 6);
    assert_i64_equal(told.request.verdict.retry_after_ms, 0);
    assert_int_equal(told.request.verdict.decided_by, TW_BY_REDIS);
    assert_i64_equal(rig_get(strict, "key"), 0);   /* asked for: local knowledge stays fresh */
    assert_status(buy(&told, strict), TW_STARTED); /* used again */
    later_answer(0, "DENIED 0 10 1000 1000");
    rig_turn(&rig);
    assert_int_equal(told.times, 2);
    assert_status(told.request.status, TW_DENIED);
    assert_i64_equal(told.request.verdict.retry_after_ms, 1000);
    assert_int_equal(told.request.verdict.final, 1);
}

/* Goal: a denied call says after which time the same one is worth it: what Redis says, even a millisecond; else the end
 * of the window; -1 if its units never fit. */
LATER_TEST(a_denial_says_when_to_ask_again) {
    static struct told told;
    tw_family *strict = strict_family();
    const int64_t left_ms = RIG_START_MS + TW_HOUR - rig_now(&rig);
    const struct {
        int64_t n, retry_after_ms;
        const char *answer;
    } cases[] = {{1, 1, "DENIED 0 10 1000 1"}, {1, left_ms, "DENIED 0 10 1000 0"}, {11, -1, "DENIED 0 10 1000 1"}};
    prepare(&told, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_status(tw_acquire_async(&told.request, strict, tw_str("k"), cases[i].n, 10), TW_STARTED);
        later_answer(0, cases[i].answer);
        rig_turn(&rig);
        assert_status(told.request.status, TW_DENIED);
        assert_i64_equal(told.request.verdict.retry_after_ms, cases[i].retry_after_ms);
    }
}

static void take_30_ms(struct told *told) {
    fake_clock_advance_ms(&rig.clock, 30);
}
static void take_20_ms(struct told *told) {
    fake_clock_advance_ms(&rig.clock, 20);
}

/* Goal: with a queue `done` is called by tw_queue_run() alone, as often as it was asked to; the descriptor is readable
 * exactly while answers wait. The longest time that a `done` takes is known. */
LATER_TEST(a_queue_delivers_what_it_is_asked_for) {
    static struct told told[5];
    tw_family *family = strict_family();
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    struct pollfd fd = {.fd = tw_queue_fd(queue), .events = POLLIN};
    for (int i = 0; i < 5; i++) {
        prepare(&told[i], queue);
        assert_status(buy(&told[i], family), TW_STARTED);
    }
    told[0].more = take_30_ms;
    told[1].more = take_20_ms;
    assert_status(tw_queue_close(queue), TW_ERR_MODE);
    assert_status(tw_close(rig.engine, 0), TW_ERR_MODE);
    assert_int_equal(poll(&fd, 1, 0), 0);
    for (int i = 0; i < 5; i++) later_answer((size_t)i, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_int_equal(told[0].times, 0);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_i64_equal(test_stat_of(rig.engine, done_ms_max), 0);
    assert_int_equal(tw_queue_run(queue, 3), 3);
    assert_i64_equal(test_stat_of(rig.engine, done_ms_max), 30);
    assert_int_equal(told[2].times, 1);
    assert_int_equal(told[3].times, 0);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(tw_queue_run(queue, 100), 2);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(tw_queue_run(queue, 100), 0);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* ---- cancelling -------------------------------------------------------------------------------------------------- */

/* Goal: a call that is cancelled is not answered, and its request is free at once: before Redis has answered (it is
 * forgotten), and while its answer waits in the queue (it is undone). Either way the lane takes the charge back. An
 * idle request may be cancelled. Method: the memory of each request is overwritten as soon as the cancel has
 * returned. */
LATER_TEST(a_cancelled_call_is_taken_back) {
    static struct told told;
    tw_family *family = strict_family();
    tw_queue *queue;
    tw_stats stats;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    prepare(&told, queue);
    assert_status(tw_request_cancel(&told.request), TW_OK);
    assert_status(buy(&told, family), TW_STARTED);
    assert_status(tw_request_cancel(&told.request), TW_OK);
    assert_int_equal(twi_load_relaxed(&later.forgotten), 1);
    prepare(&told, queue);
    assert_status(buy(&told, family), TW_STARTED);
    later_answer(0, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_status(tw_request_cancel(&told.request), TW_OK);
    memset(&told.request, 0x5a, sizeof told.request);
    assert_int_equal(tw_queue_run(queue, 10), 0);
    assert_i64_equal(later.undone, 1);
    assert_i64_equal(rig_get(family, "k"), 0); /* nothing is counted here */
    assert_int_equal(twi_load_relaxed(&later.forgotten), 1);
    assert_int_equal(told.times, 0);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.ask_cancelled, 2);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* Goal: a call that is cancelled between its answer and its delivery by the driver's thread is not answered either.
 * Method: the cancel comes in the `done` of the call that is delivered just before it. */
static struct told second;
static void cancel_second(struct told *told) {
    told->inside[0] = tw_request_cancel(&second.request);
    told->inside[1] = tw_request_cancel(&told->request); /* itself: it is idle by now */
}
LATER_TEST(a_done_may_cancel_the_next_one) {
    static struct told first;
    tw_family *family = strict_family();
    prepare(&first, NULL);
    prepare(&second, NULL);
    first.more = cancel_second;
    assert_status(buy(&first, family), TW_STARTED);
    assert_status(buy(&second, family), TW_STARTED);
    later_answer(0, "OK 1 1 0 0");
    later_answer(1, "OK 1 2 0 0");
    rig_turn(&rig);
    assert_int_equal(first.times, 1);
    assert_int_equal(second.times, 0);
    assert_status(first.inside[0], TW_OK);
    assert_status(first.inside[1], TW_OK);
}

/* Goal: who cancels while `done` runs in another thread is told so. */
static _Atomic int stage;
static void wait_for_stage(int wanted) {
    while (twi_load_acquire(&stage) < wanted) usleep(100);
}
static void stay(struct told *told) {
    twi_store_release(&stage, 1);
    wait_for_stage(2);
}
static void *run_one(void *queue) {
    assert_int_equal(tw_queue_run(queue, 1), 1);
    return NULL;
}
LATER_TEST(a_done_that_runs_elsewhere_is_pending) {
    static struct told told;
    tw_family *family = strict_family();
    tw_queue *queue;
    pthread_t thread;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    prepare(&told, queue);
    told.more = stay;
    twi_store_release(&stage, 0);
    assert_status(buy(&told, family), TW_STARTED);
    later_answer(0, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_int_equal(pthread_create(&thread, NULL, run_one, queue), 0);
    wait_for_stage(1);
    assert_status(tw_request_cancel(&told.request), TW_PENDING);
    twi_store_release(&stage, 2);
    pthread_join(thread, NULL);
    assert_status(tw_request_cancel(&told.request), TW_OK);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* ---- inside `done` ----------------------------------------------------------------------------------------------- */

static tw_family *inner;
static tw_queue *inner_queue;
static void try_what_waits(struct told *told) {
    told->inside[0] = tw_turn(rig.engine);
    told->inside[1] = tw_flush(rig.engine, 10);
    told->inside[2] = tw_close(rig.engine, 0);
    told->inside[3] = tw_family_close(inner);
    told->inside[4] = tw_queue_close(inner_queue);
    told->inside[5] = tw_acquire(inner, tw_str("k"), 1, 10, NULL);
}
/* Goal: a `done` that would wait for its own engine is refused, and may count. */
LATER_TEST(what_waits_is_refused_inside_done) {
    static struct told told;
    inner = strict_family();
    assert_status(tw_queue_open(rig.engine, &inner_queue), TW_OK);
    prepare(&told, NULL);
    told.more = try_what_waits;
    assert_status(buy(&told, inner), TW_STARTED);
    later_answer(0, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    for (int i = 0; i < 6; i++) assert_status(told.inside[i], TW_ERR_MODE);
    assert_status(tw_queue_close(inner_queue), TW_OK);
}

static int wanted;
static void buy_again(struct told *told) {
    if (told->times < wanted) told->inside[0] = buy(told, inner);
}
/* Goal: a `done` that starts the next call of its request, a hundred thousand times, needs no deeper stack and no more
 * than 256 answers a turn. */
LATER_TEST(a_done_may_start_the_next_call_for_ever) {
    static struct told told;
    inner = strict_family();
    wanted = (int)test_scale(100000);
    prepare(&told, NULL);
    told.more = buy_again;
    twi_store_relaxed(&later.answers_all, true);
    assert_status(buy(&told, inner), TW_STARTED);
    int turns = 0;
    for (; told.times < wanted; turns++) rig_turn(&rig);
    assert_true(turns >= wanted / 256);
    rig_turn(&rig);
    assert_int_equal(told.times, wanted);
}

/* ---- busy, late, away -------------------------------------------------------------------------------------------- */

/* Goal: a full calls_max is no outage: TW_ERR_BUSY at once, and on_outage decides only where the family says so. Either
 * there is no place for the call, or no lane. Room is there again when an answer was delivered or a call was
 * cancelled. */
LATER_TEST(a_full_house_is_no_outage) {
    rig_close(&rig);
    later_init(&rig);
    rig.options.calls_max = 16;
    rig_start(&rig);
    static struct told told[17];
    tw_stats stats;
    tw_family *family = strict_family();
    for (int i = 0; i < 17; i++) prepare(&told[i], NULL);
    for (int i = 0; i < 16; i++) assert_status(buy(&told[i], family), TW_STARTED);
    assert_status(buy(&told[16], family), TW_ERR_BUSY);
    assert_non_null(strstr(tw_error_text(), "calls_max: 16"));
    assert_int_equal(told[16].request.verdict.allowed, 0);
    assert_status(tw_request_cancel(&told[3].request), TW_OK);
    assert_status(buy(&told[16], family), TW_STARTED);
    later_answer(0, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_status(buy(&told[0], family), TW_STARTED);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.ask_busy, 1);
    for (int i = 0; i < 17; i++) assert_status(tw_request_cancel(&told[i].request), TW_OK);
    later.is_busy = true; /* no lane: calls that were given up are owed to Redis still */
    assert_status(buy(&told[0], family), TW_ERR_BUSY);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_OPEN;
    options.on_busy = TW_BUSY_AS_OUTAGE;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(buy(&told[0], family), TW_OK);
    assert_int_equal(told[0].request.verdict.decided_by, TW_BY_OUTAGE);
    assert_int_equal(told[0].times, 1);
    later.is_busy = false;
    for (int i = 0; i < 16; i++) assert_status(buy(&told[i], family), TW_STARTED);
    assert_status(buy(&told[16], family), TW_OK);
    assert_int_equal(told[16].request.verdict.decided_by, TW_BY_OUTAGE);
    assert_int_equal(told[16].times, 0);
    assert_status(tw_once_async(&told[16].request, family, tw_str("an id")), TW_OK);
    assert_true(told[16].request.first);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    uint64_t busy = stats.ask_busy;
    assert_status(tw_acquire_wait_async(&told[16].request, family, tw_str("k"), 1, 3), TW_OK); /* as it may not wait */
    assert_int_equal(told[16].request.verdict.decided_by, TW_BY_OUTAGE);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.ask_busy, busy + 1);
    assert_status(tw_lock_async(&told[16].request, family, tw_str("k"), 1000), TW_ERR_BUSY); /* only Redis decides */
    assert_status(tw_request_cancel(&told[3].request), TW_OK);
    assert_status(buy(&told[16], family), TW_STARTED);
}

/* Goal: without an answer in its time a strict call ends as on_outage says, by `done`; where Redis is known to be
 * unreachable it says so at once. A request's own time counts. */
LATER_TEST(time_and_outage_answer_by_policy) {
    static struct told told;
    tw_family *family = strict_family();
    prepare(&told, NULL);
    told.request.timeout_ms = 250;
    assert_status(buy(&told, family), TW_STARTED);
    fake_clock_advance_ms(&rig.clock, 249);
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    fake_clock_advance_ms(&rig.clock, 2);
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_DENIED);
    assert_int_equal(told.request.verdict.decided_by, TW_BY_OUTAGE);
    later.is_away = true;
    assert_status(buy(&told, family), TW_DENIED);
    assert_int_equal(told.times, 1);
    later.is_away = false;
}
