/* waiters_test.c -- calls that wait for what the turn brings, answered later: acquire_wait, flush, ready, fetch. */
#include "tests/unit/later_driver.h"

static struct rig rig;

static int waiters_setup(void **state) {
    later_open(*state);
    return 0;
}
static int waiters_teardown(void **state) {
    rig_close(*state);
    return 0;
}
#define WAITERS_TEST(test) TEST_WITH(test, waiters_setup, waiters_teardown, &rig)

struct told {
    tw_request request;
    int times;
};
static void note(tw_request *request) {
    ((struct told *)request->ctx)->times++;
}
static void prepare(struct told *told, tw_queue *queue, uint32_t timeout_ms) {
    memset(told, 0, sizeof *told);
    tw_request_init(&told->request);
    told->request.done = note;
    told->request.ctx = told;
    told->request.queue = queue;
    told->request.timeout_ms = timeout_ms;
}

/* A family of this process alone: where there is no Redis. */
static void open_locally(void) {
    rig_close(&rig);
    rig_open(&rig);
}

/* ---- acquire_wait ------------------------------------------------------------------------------------------------ */

/* Goal: a waiter is admitted by the turn after a refund; it is denied at the end of its time; without hope it is denied
 * at once; one that is cancelled takes nothing. */
WAITERS_TEST(units_that_return_go_to_who_waits) {
    static struct told first, late, gone;
    open_locally();
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    prepare(&first, NULL, 5000);
    prepare(&late, NULL, 300);
    prepare(&gone, NULL, 5000);
    assert_status(tw_acquire_wait_async(&first.request, family, tw_str("k"), 1, 1), TW_OK);
    assert_status(tw_acquire_wait_async(&first.request, family, tw_str("k"), 2, 1), TW_DENIED); /* never */
    assert_status(tw_acquire_wait_async(&gone.request, family, tw_str("k"), 1, 1), TW_STARTED);
    assert_status(tw_acquire_wait_async(&late.request, family, tw_str("l"), 1, 0), TW_DENIED);
    assert_status(tw_acquire(family, tw_str("l"), 1, 1, NULL), TW_OK);
    assert_status(tw_acquire_wait_async(&late.request, family, tw_str("l"), 1, 1), TW_STARTED);
    assert_status(tw_acquire_wait_async(&first.request, family, tw_str("k"), 1, 1), TW_STARTED);
    rig_turn(&rig);
    assert_status(tw_request_cancel(&gone.request), TW_OK);
    rig_pass(&rig, 90);
    assert_int_equal(first.times, 0);
    assert_status(tw_refund(family, tw_str("k"), 1, 0), TW_OK);
    rig_turn(&rig);
    assert_int_equal(first.times, 1);
    assert_status(first.request.status, TW_OK);
    assert_i64_equal(first.request.verdict.used, 1);
    assert_i64_equal(rig_get(family, "k"), 1);
    for (int i = 0; i < 4; i++) rig_pass(&rig, 90);
    assert_int_equal(late.times, 1);
    assert_status(late.request.status, TW_DENIED);
    assert_int_equal(gone.times, 0);
}

/* Goal: waiting callers get the whole rate, also if each of them is woken up late, and no more. Method: a thousand
 * units in 100 s, and turns only each 45 ms. Windows of a second end meanwhile. */
WAITERS_TEST(who_waits_gets_the_whole_rate_although_it_wakes_up_late) {
    static struct told told;
    open_locally();
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, 1000);
    options.limit_shape = TW_SHAPE_GCRA;
    options.burst = 1;
    tw_family *family = rig_family_of(&rig, &options);
    rig_pass(&rig, 80); /* so a unit is free shortly before a window ends, and is taken shortly after */
    int64_t begin_ms = rig_now(&rig), admitted = 0;
    while (rig_now(&rig) < begin_ms + 100 * TW_SECOND) {
        prepare(&told, NULL, 5000);
        tw_status status = tw_acquire_wait_async(&told.request, family, tw_str("k"), 1, 10);
        while (status == TW_STARTED && told.times == 0) rig_pass(&rig, 45);
        admitted++;
    }
    assert_in_range(admitted, 999, 1001);
}

/* Goal: what a waiter has taken leaves the count when the waiter is cancelled, whatever others have done with the count
 * meanwhile, also below 0, and also when the window has ended and accepts late counts (P1). Method: the turn admits the
 * waiter into its queue, where it can still be cancelled. */
static void cancel_an_admitted_waiter(tw_family *family, int64_t pass_ms) {
    static struct told told;
    tw_queue *queue;
    tw_verdict verdict;
    int64_t view;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    prepare(&told, queue, 60000);
    assert_status(tw_acquire(family, tw_str("k"), 1, 1, &verdict), TW_OK);
    assert_status(tw_acquire_wait_async(&told.request, family, tw_str("k"), 1, 1), TW_STARTED);
    assert_status(tw_refund(family, tw_str("k"), 1, verdict.window_start_ms), TW_OK);
    rig_turn(&rig);
    assert_i64_equal(rig_get(family, "k"), 1);
    assert_i64_equal(rig_add(family, "k", -1), 0);
    fake_clock_advance_ms(&rig.clock, pass_ms);
    assert_status(tw_request_cancel(&told.request), TW_OK);
    if (pass_ms == 0)
        view = rig_get(family, "k");
    else
        assert_status(tw_get_at(family, tw_str("k"), verdict.window_start_ms, &view), TW_OK);
    assert_i64_equal(view, -1);
    assert_status(tw_queue_close(queue), TW_OK);
}

WAITERS_TEST(what_a_cancelled_waiter_took_leaves_the_count) {
    open_locally();
    tw_family_options late = rig_options("late", TW_WINDOW_ALIGNED, TW_MINUTE);
    late.lateness_ms = TW_MINUTE;
    cancel_an_admitted_waiter(rig_family(&rig, "endless", TW_WINDOW_FOREVER, 0), 0);
    cancel_an_admitted_waiter(rig_family(&rig, "minutes", TW_WINDOW_ALIGNED, TW_MINUTE), 0);
    cancel_an_admitted_waiter(rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE), 0);
    cancel_an_admitted_waiter(rig_family_of(&rig, &late), TW_MINUTE);
}

/* Goal: a thousand waiters of one key cost one look a turn, and each unit that returns goes to one of them. Method: the
 * looks are the denials that the limit counts. */
WAITERS_TEST(waiters_of_one_key_cost_one_look) {
    enum { WAITERS = 1000 };
    static struct told told[WAITERS];
    tw_stats before, after;
    open_locally();
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    assert_status(tw_acquire(family, tw_str("k"), 5, 5, NULL), TW_OK);
    for (int i = 0; i < WAITERS; i++) {
        prepare(&told[i], NULL, 60000);
        assert_status(tw_acquire_wait_async(&told[i].request, family, tw_str("k"), 1, 5), TW_STARTED);
    }
    rig_turn(&rig);
    assert_status(tw_stats_read(rig.engine, &before), TW_OK);
    for (int i = 0; i < 5; i++) assert_status(tw_refund(family, tw_str("k"), 1, 0), TW_OK);
    rig_turn(&rig);
    assert_status(tw_stats_read(rig.engine, &after), TW_OK);
    int admitted = 0;
    for (int i = 0; i < WAITERS; i++) admitted += told[i].times;
    assert_int_equal(admitted, 5);
    assert_i64_equal(after.limit_admitted - before.limit_admitted, 5);
    assert_i64_equal(after.limit_denied - before.limit_denied, 1);
    for (int i = 0; i < 50; i++) rig_pass(&rig, 10);
    assert_status(tw_stats_read(rig.engine, &before), TW_OK);
    assert_true(before.limit_denied - after.limit_denied <= 60);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_close(rig.engine, 0), TW_OK);
    admitted = 0;
    for (int i = 0; i < WAITERS; i++) admitted += told[i].request.status == TW_OK;
    assert_int_equal(admitted, 5);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(told[i].times, 1);
        if (told[i].request.status != TW_OK) assert_status(told[i].request.status, TW_ERR_CLOSED);
    }
    rig_open(&rig);
}

/* Goal: a turn that could not look at all new waiters is followed by another one at once. The loop is told not to wait,
 * until each has been looked at. Method: 600 waiters of a key each, of which a turn looks at 256. */
WAITERS_TEST(new_waiters_that_a_turn_left_are_due_at_once) {
    enum { WAITERS = 600 };
    static struct told told[WAITERS];
    char key[16];
    open_locally();
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    fake_clock_advance_ms(&rig.clock, 1000);
    for (int i = 0; i < WAITERS; i++) {
        snprintf(key, sizeof key, "%d", i);
        prepare(&told[i], NULL, 60000);
        assert_status(tw_acquire(family, tw_str(key), 1, 1, NULL), TW_OK);
        assert_status(tw_acquire_wait_async(&told[i].request, family, tw_str(key), 1, 1), TW_STARTED);
    }
    for (int turns = 0; turns < 2; turns++) {
        rig_turn(&rig);
        assert_int_equal(tw_timeout_ms(rig.engine), 0);
    }
    rig_settle(&rig);
    uint32_t wait_ms = tw_timeout_ms(rig.engine);
    assert_true(wait_ms > 0 && wait_ms <= 100);
    for (int i = 0; i < WAITERS; i++) assert_status(tw_request_cancel(&told[i].request), TW_OK);
}

/* Goal: where Redis decides, each try is a request; the waiter comes again after retry_after_ms, waits for room where
 * calls_max calls are under way, and gives back what came for one that was cancelled. */
WAITERS_TEST(a_strict_waiter_asks_again) {
    static struct told told;
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *family = rig_family_of(&rig, &options);
    prepare(&told, NULL, 5000);
    assert_status(tw_acquire_wait_async(&told.request, family, tw_str("k"), 1, 5), TW_STARTED);
    rig_turn(&rig);
    later_answer(0, "DENIED 0 5 1000 50");
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    later.is_busy = true;
    rig_pass(&rig, 60);
    assert_int_equal(later_count(), 0);
    later.is_busy = false;
    rig_pass(&rig, 10);
    assert_int_equal(later_count(), 1);
    later_answer(0, "OK 1 5 1000 0");
    rig_turn(&rig);
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_int_equal(told.request.verdict.decided_by, TW_BY_REDIS);
    rig_turn(&rig);
    int64_t before = rig_get(family, "k");
    assert_status(tw_acquire_wait_async(&told.request, family, tw_str("k"), 1, 5), TW_STARTED);
    rig_turn(&rig);
    assert_status(tw_request_cancel(&told.request), TW_OK);
    later_answer(0, "OK 1 5 1000 0"); /* the try is under way still */
    rig_turn(&rig);
    assert_i64_equal(later.undone, 1);
    assert_i64_equal(rig_get(family, "k"), before); /* nothing is counted here */
    assert_int_equal(told.times, 1);
}

/* ---- flush, ready, fetch ----------------------------------------------------------------------------------------- */

/* Goal: a flush is answered when its ticket is done, or late; ready when all is known. */
WAITERS_TEST(flush_and_ready_are_answered_by_turns) {
    static struct told told, other;
    prepare(&told, NULL, 1000);
    prepare(&other, NULL, 50);
    assert_status(tw_flush_async(&told.request, rig.engine), TW_STARTED);
    assert_status(tw_flush_async(&other.request, rig.engine), TW_STARTED);
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    later.ticket = 1;
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    rig_pass(&rig, 60);
    assert_int_equal(other.times, 1);
    assert_status(other.request.status, TW_ERR_TIMEOUT);
    assert_string_equal(tw_error_text(), "timeout_ms: Redis has not acknowledged all of it yet; it stays queued");
    twi_port_last_error(rig.engine, "x");
    assert_status(tw_flush_async(&other.request, rig.engine), TW_STARTED);
    rig_pass(&rig, 60);
    assert_status(other.request.status, TW_ERR_TIMEOUT);
    assert_string_equal(tw_error_text(),
                        "timeout_ms: Redis has not acknowledged all of it yet; it stays queued; the last error: x");
    prepare(&told, NULL, 1000);
    assert_status(tw_ready_async(&told.request, rig.engine), TW_STARTED);
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    twi_port_live_engines(rig.engine, 0);
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_status(tw_ready_async(&told.request, rig.engine), TW_OK);
    open_locally();
    assert_status(tw_flush_async(&told.request, rig.engine), TW_OK);
    assert_status(tw_ready_async(&told.request, rig.engine), TW_OK);
}

/* Goal: a fetch writes all totals or none; a key for which Redis has none is named. Keys are copies. Method: the driver
 * acknowledges each key with the total 7, then with none. */
WAITERS_TEST(fetch_is_answered_when_all_totals_are_there) {
    static struct told told;
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char names[2][8] = {"one", "two"};
    const tw_key keys[2] = {tw_str(names[0]), tw_str(names[1])};
    int64_t totals[2] = {-1, -1};
    prepare(&told, NULL, 1000);
    later.total = 7;
    later.has_total = true;
    assert_status(tw_fetch_async(&told.request, family, keys, 2, totals), TW_STARTED);
    memset(names, 'x', sizeof names);
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    later.ticket = UINT64_MAX;
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_i64_equal(totals[0], 7);
    assert_i64_equal(totals[1], 7);
    later.has_total = false;
    totals[0] = -1;
    const tw_key unknown = tw_str("unknown");
    assert_status(tw_fetch_async(&told.request, family, &unknown, 1, totals), TW_STARTED);
    for (int i = 0; i < 5; i++) rig_turn(&rig);
    assert_int_equal(told.times, 2);
    assert_status(told.request.status, TW_ERR_REDIS);
    assert_non_null(strstr(tw_error_text(), "unknown"));
    assert_i64_equal(totals[0], -1);
    const tw_key empty = tw_str("");
    assert_status(tw_fetch_async(&told.request, family, &empty, 1, totals), TW_ERR_KEY);
}
