/* calls_test.c -- calls that answer later, by a driver that answers when the test says so (later_driver.h): one answer
 * for each start, in the right thread, whatever is cancelled, closed, stopped or forked meanwhile. */
#include "tests/unit/later_driver.h"

#include <sys/wait.h>

static struct rig rig;

static int later_setup(void **state) {
    later_open(*state);
    return 0;
}
static int later_teardown(void **state) {
    twi_store_relaxed(&later.answers_all, true);
    rig_close(*state);
    return 0;
}
#define LATER_TEST(test) cmocka_unit_test_prestate_setup_teardown(test, later_setup, later_teardown, &rig)

static tw_family *family_of(uint32_t mode, uint32_t outage) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_mode = mode;
    options.on_outage = outage;
    return rig_family_of(&rig, &options);
}
static tw_family *strict_family(void) {
    return family_of(TW_LIMIT_STRICT, TW_OUTAGE_FAIL_CLOSED);
}

/* ---- what `done` sees -------------------------------------------------------------------------------------------- */

struct told {
    tw_request request;
    int times;
    tw_status inside[6];
    void (*more)(struct told *told);
};

static void note(tw_request *request) {
    struct told *told = request->ctx;
    told->times++;
    if (told->more != NULL) told->more(told);
}
static void prepare(struct told *told, tw_queue *queue) {
    memset(told, 0, sizeof *told);
    tw_request_init(&told->request);
    told->request.done = note;
    told->request.ctx = told;
    told->request.queue = queue;
}
static tw_status buy(struct told *told, tw_family *family) {
    return tw_acquire_async(&told->request, family, tw_str("k"), 1, 10);
}

/* ---- one answer -------------------------------------------------------------------------------------------------- */

/* Goal: what never waits answers at once, and `done` is not called; a strict call is started, and answered by the turn
 * once; its key is a copy. Method: a soft and a strict family; the key's bytes are overwritten after the start. */
static void an_answer_comes_at_once_or_once_later(void **state) {
    (void)state;
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

/* Goal: with a queue `done` is called by tw_queue_run() alone, as often as it was asked to; the descriptor is readable
 * exactly while answers wait. */
static void a_queue_delivers_what_it_is_asked_for(void **state) {
    (void)state;
    static struct told told[5];
    tw_family *family = strict_family();
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    struct pollfd fd = {.fd = tw_queue_fd(queue), .events = POLLIN};
    for (int i = 0; i < 5; i++) {
        prepare(&told[i], queue);
        assert_status(buy(&told[i], family), TW_STARTED);
    }
    assert_status(tw_queue_close(queue), TW_ERR_MODE);
    assert_status(tw_close(rig.engine, 0), TW_ERR_MODE);
    assert_int_equal(poll(&fd, 1, 0), 0);
    for (int i = 0; i < 5; i++) later_answer((size_t)i, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_int_equal(told[0].times, 0);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(tw_queue_run(queue, 3), 3);
    assert_int_equal(told[2].times, 1);
    assert_int_equal(told[3].times, 0);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(tw_queue_run(queue, 100), 2);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(tw_queue_run(queue, 100), 0);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* ---- cancelling -------------------------------------------------------------------------------------------------- */

/* Goal: a call that is cancelled is not answered, and its request is free at once: before Redis has answered (the lane
 * takes the charge back), and while its answer waits in the queue (the units return as a refund). An idle request may
 * be cancelled. Method: the memory of each request is overwritten as soon as the cancel has returned. */
static void a_cancelled_call_is_taken_back(void **state) {
    (void)state;
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
    assert_i64_equal(rig_get(family, "k"), -1); /* one unit returns to Redis with the next sync */
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
static void a_done_may_cancel_the_next_one(void **state) {
    (void)state;
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
    (void)told;
    twi_store_release(&stage, 1);
    wait_for_stage(2);
}
static void *run_one(void *queue) {
    assert_int_equal(tw_queue_run(queue, 1), 1);
    return NULL;
}
static void a_done_that_runs_elsewhere_is_pending(void **state) {
    (void)state;
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
static void what_waits_is_refused_inside_done(void **state) {
    (void)state;
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
static void a_done_may_start_the_next_call_for_ever(void **state) {
    (void)state;
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

/* Goal: a full calls_max is no outage: TW_ERR_BUSY at once, and on_outage decides only where the family says so. Room
 * is there again when an answer was delivered or a call was cancelled. */
static void a_full_house_is_no_outage(void **state) {
    (void)state;
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
}

/* Goal: without an answer in its time a strict call ends as on_outage says, by `done`; where Redis is known to be away
 * it says so at once. A request's own time counts. */
static void time_and_outage_answer_by_policy(void **state) {
    (void)state;
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

/* ---- the other calls --------------------------------------------------------------------------------------------- */

/* Goal: once, lock and their cancels bring what the blocking forms bring; a cancel after the answer undoes each of
 * them by a request of its own. */
static void once_and_lock_answer_later(void **state) {
    (void)state;
    static struct told told;
    tw_family *family = strict_family();
    prepare(&told, NULL);
    assert_status(tw_once_async(&told.request, family, tw_str("k")), TW_STARTED);
    assert_string_equal(later_arg(0, 0), "O");
    later_answer(0, "FIRST");
    rig_turn(&rig);
    assert_status(told.request.status, TW_OK);
    assert_true(told.request.first);
    assert_status(tw_lock_async(&told.request, family, tw_str("k"), 1000), TW_STARTED);
    assert_string_equal(told.request.token, "");
    later_answer(0, "OK 4711");
    rig_turn(&rig);
    assert_status(told.request.status, TW_OK);
    assert_i64_equal(told.request.fence, 4711);
    char token[TW_TOKEN_SIZE];
    memcpy(token, told.request.token, sizeof token);
    assert_status(tw_lock_extend_async(&told.request, family, tw_str("k"), token, 1000), TW_STARTED);
    later_answer(0, "GONE");
    rig_turn(&rig);
    assert_status(told.request.status, TW_ERR_LATE);
    assert_non_null(strstr(tw_error_text(), "token:"));
    assert_status(tw_lock_release_async(NULL, family, tw_str("k"), token), TW_STARTED);
    assert_string_equal(later_arg(0, 0), "U");
    later_answer(0, "OK 0");
    rig_turn(&rig);
    assert_status(tw_lock_release_async(NULL, family, tw_str("k"), "nonsense"), TW_ERR_UNKNOWN_TOKEN);
    later.is_busy = true;
    assert_status(tw_lock_release_async(NULL, family, tw_str("k"), token), TW_ERR_BUSY);
    later.is_busy = false;
    assert_int_equal(told.times, 3);
}

/* An answer waits in the queue when its caller goes: the engine sends what undoes it. */
static void go_before_delivery(struct told *told, const char *answer, const char *undone_by) {
    later_answer(0, answer);
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    assert_status(tw_request_cancel(&told->request), TW_OK);
    assert_int_equal(later_count(), undone_by != NULL);
    if (undone_by == NULL) return;
    assert_string_equal(later_arg(0, 0), undone_by);
    later_answer(0, "OK 0");
    rig_turn(&rig);
}
static void a_late_cancel_undoes_by_a_request(void **state) {
    (void)state;
    static struct told told;
    tw_family *family = strict_family();
    tw_family_options options = rig_options("h", TW_WINDOW_FOREVER, 0);
    tw_family *holds = rig_family_of(&rig, &options);
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    prepare(&told, queue);
    assert_status(tw_once_async(&told.request, family, tw_str("k")), TW_STARTED);
    go_before_delivery(&told, "FIRST", "C");
    assert_status(tw_once_async(&told.request, family, tw_str("k")), TW_STARTED);
    go_before_delivery(&told, "SECOND", NULL);
    assert_status(tw_lock_async(&told.request, family, tw_str("k"), 1000), TW_STARTED);
    go_before_delivery(&told, "OK 12", "U");
    assert_status(tw_lock_async(&told.request, family, tw_str("k"), 1000), TW_STARTED);
    go_before_delivery(&told, "HELD 0", NULL);
    assert_status(tw_hold_async(&told.request, holds, tw_str("k"), 3), TW_STARTED);
    go_before_delivery(&told, "OK 1", "release");
    assert_status(tw_reserve_async(&told.request, family, tw_str("k"), 1, 3, 1000, tw_str("you")), TW_STARTED);
    go_before_delivery(&told, "OK 1 0 0", "where");
    assert_int_equal(told.times, 0);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* Goal: a hold is asked again while MORE dead ones are cleared; it is entered when it is answered; its release is one
 * request, or waits for the statement that may be under way. */
static void holds_answer_later(void **state) {
    (void)state;
    static struct told told;
    tw_family_options options = rig_options("h", TW_WINDOW_FOREVER, 0);
    tw_family *family = rig_family_of(&rig, &options);
    prepare(&told, NULL);
    assert_status(tw_hold_async(&told.request, family, tw_str("k"), 3), TW_STARTED);
    later_answer(0, "MORE 0");
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    later_answer(0, "OK 2");
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_i64_equal(told.request.verdict.used, 2);
    struct twi_hold_member member;
    fake_clock_advance_ms(&rig.clock, 6000);
    assert_true(twi_port_hold_due(rig.engine, &member)); /* a statement that has it is being sent */
    twi_port_holds_sent(rig.engine);
    assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_STARTED);
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    twi_port_holds_answered(rig.engine);
    rig_turn(&rig);
    assert_int_equal(later_count(), 1);
    assert_string_equal(later_arg(0, 0), "release");
    later_answer(0, "OK 1");
    rig_turn(&rig);
    assert_int_equal(told.times, 2);
    assert_status(told.request.status, TW_OK);
    assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_ERR_RANGE);
    assert_status(tw_hold_release_async(NULL, family, tw_str("k")), TW_ERR_RANGE);
}

/* Goal: a reservation brings its token; confirming asks where it is, then confirms there. */
static void reservations_answer_later(void **state) {
    (void)state;
    static struct told told;
    tw_family *family = strict_family();
    prepare(&told, NULL);
    char key[] = "k", buyer[] = "you";
    assert_status(tw_reserve_async(&told.request, family, tw_str(key), 1, 3, 0, tw_str(buyer)), TW_ERR_RANGE);
    assert_status(tw_reserve_async(&told.request, family, tw_str(key), 1, 3, 1000, tw_str(buyer)), TW_STARTED);
    assert_string_equal(later_arg(0, 5), "you");
    memset(buyer, 'x', 3);
    later_answer(0, "MORE 0 0 0");
    rig_turn(&rig);
    assert_string_equal(later_arg(0, 5), "you");
    later_answer(0, "OK 1 1 0");
    rig_turn(&rig);
    assert_status(told.request.status, TW_OK);
    char token[TW_TOKEN_SIZE];
    memcpy(token, told.request.token, sizeof token);
    assert_status(tw_reserve_confirm_async(&told.request, rig.engine, token), TW_STARTED);
    later_answer(0, "UNKNOWN");
    rig_turn(&rig);
    assert_status(told.request.status, TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_reserve_cancel_async(NULL, rig.engine, token), TW_STARTED);
    later_answer(0, "UNKNOWN");
    rig_turn(&rig);
    assert_status(tw_reserve_cancel_async(&told.request, rig.engine, "x"), TW_ERR_UNKNOWN_TOKEN);
    assert_int_equal(told.times, 2);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* Goal: a family that is closed while a call of it is under way is freed after the answer. */
static void a_family_waits_for_its_calls(void **state) {
    (void)state;
    static struct told told;
    tw_family *family = strict_family();
    prepare(&told, NULL);
    told.request.timeout_ms = 60000;
    assert_status(buy(&told, family), TW_STARTED);
    assert_status(tw_family_close(family), TW_OK);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 50);
    later_answer(0, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_int_equal(twi_load_relaxed(&rig.engine->roster.count), 1); /* it is there still */
    for (int i = 0; i < 20; i++) rig_pass(&rig, 50);
    assert_int_equal(twi_load_relaxed(&rig.engine->roster.count), 0);
}

/* Goal: a stop ends what is under way: CLOSED for what was never sent, TIMEOUT for what was; tw_close() calls the
 * `done` of those without a queue, the queue has the others, also where nobody makes turns any more. */
static void a_stop_answers_everything(void **state) {
    (void)state;
    static struct told told[4];
    tw_family *family = strict_family();
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    for (int i = 0; i < 4; i++) {
        prepare(&told[i], i == 0 || i == 3 ? queue : NULL);
        assert_status(tw_lock_async(&told[i].request, family, tw_str("k"), 1000), TW_STARTED);
    }
    assert_status(tw_stop(rig.engine), TW_OK);
    static tw_request late;
    assert_status(tw_lock_async(&late, family, tw_str("k"), 1000), TW_ERR_CLOSED);
    assert_int_equal(tw_queue_run(queue, 10), 2);
    assert_status(told[0].request.status, TW_ERR_TIMEOUT);
    assert_status(told[3].request.status, TW_ERR_CLOSED);
    assert_status(tw_queue_close(queue), TW_OK);
    assert_int_equal(told[1].times, 0);
    assert_status(tw_close(rig.engine, 0), TW_OK);
    assert_int_equal(told[1].times, 1);
    assert_int_equal(told[2].times, 1);
    assert_status(told[1].request.status, TW_ERR_TIMEOUT);
    assert_status(told[2].request.status, TW_ERR_CLOSED);
    later_open(&rig); /* for the teardown */
}

/* Goal: in a forked child the parent's calls are not answered, their requests may be used at once, a queue has a
 * descriptor of its own; the parent goes on. */
static int in_child(struct told *told, tw_family *family, tw_queue *queue, int parents_fd) {
    if (tw_request_cancel(&told->request) != TW_OK) return 1;
    if (buy(told, family) != TW_STARTED || later_count() != 1) return 2;
    if (tw_queue_fd(queue) < 0) return 3;
    later_answer(0, "OK 1 1 0 0");
    if (tw_turn(rig.engine) != TW_OK || told->times != 0) return 4;
    struct pollfd fds[2] = {{.fd = parents_fd, .events = POLLIN}, {.fd = tw_queue_fd(queue), .events = POLLIN}};
    if (poll(&fds[1], 1, 0) != 1 || tw_queue_run(queue, 10) != 1 || told->times != 1) return 5;
    return told->request.status == TW_OK ? 0 : 6;
}
static void a_child_begins_without_calls(void **state) {
    (void)state;
    static struct told told;
    tw_family *family = strict_family();
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    struct pollfd fd = {.fd = dup(tw_queue_fd(queue)), .events = POLLIN};
    prepare(&told, queue);
    assert_status(buy(&told, family), TW_STARTED);
    struct twi_sync *parents = later.sync;
    pid_t child = fork();
    if (child == 0) _exit(in_child(&told, family, queue, fd.fd));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_ptr_equal(later.sync, parents);
    assert_int_equal(poll(&fd, 1, 0), 0); /* the child has not rung the parent's */
    later_answer(0, "OK 1 1 0 0");
    rig_turn(&rig);
    assert_int_equal(tw_queue_run(queue, 10), 1);
    assert_int_equal(told.times, 1);
    (void)close(fd.fd);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* ---- an engine with threads of its own --------------------------------------------------------------------------- */

static void threaded_open(void) {
    later_init(&rig);
    rig.options.threads = TW_OWN_THREAD;
    rig.options.clock_now_ns = NULL;
    rig_start(&rig);
    twi_store_relaxed(&later.answers_all, true);
}

static _Atomic uint64_t delivered, deliverer_in;
static void count_done(tw_request *request) {
    /* one after the other */
    if (twi_add_relaxed(&deliverer_in, 1) != 0) abort();
    if (request->status != TW_OK || request->verdict.used != 1) abort();
    (void)twi_sub_acqrel(&deliverer_in, 1);
    twi_add_relaxed(&delivered, 1);
    twi_store_release((_Atomic uint64_t *)request->ctx, 1);
}

/* Goal: an engine that never waits has no second thread; the first call that waits makes it, and it calls `done` of
 * calls without a queue, one after the other; blocking calls are answered by it, too. */
static void the_second_thread_answers(void **state) {
    (void)state;
    rig_close(&rig);
    threaded_open();
    tw_family *family = strict_family();
    assert_false(twi_load_relaxed(&rig.engine->background.second.runs));
    static tw_request requests[64];
    static _Atomic uint64_t is_done[64];
    twi_store_relaxed(&delivered, 0);
    for (int i = 0; i < 64; i++) {
        tw_request_init(&requests[i]);
        requests[i].done = count_done;
        requests[i].ctx = &is_done[i];
        requests[i].timeout_ms = 60000;
        twi_store_relaxed(&is_done[i], 0);
        assert_status(tw_acquire_async(&requests[i], family, tw_str("k"), 1, 10), TW_STARTED);
    }
    assert_true(twi_load_relaxed(&rig.engine->background.second.runs));
    for (int i = 0; i < 64; i++)
        while (twi_load_acquire(&is_done[i]) == 0) usleep(100);
    tw_verdict verdict;
    for (int i = 0; i < 100; i++) assert_status(tw_acquire(family, tw_str("k"), 1, 10, &verdict), TW_OK);
    assert_int_equal(verdict.decided_by, TW_BY_REDIS);
    assert_int_equal(twi_load_relaxed(&delivered), 64);
}

/* Two threads: one starts and cancels at random, the other runs the queue; a cancelled request's memory is gone at
 * once. */
#define PAIRS 64
struct pair {
    tw_queue *queue;
    tw_family *family;
    _Atomic bool is_over;
    _Atomic uint64_t delivered;
    uint64_t started, cancelled;
};
struct item {
    tw_request request;
    struct pair *pair;
    _Atomic bool is_free;
};
static void item_done(tw_request *request) {
    struct item *item = request->ctx;
    (void)twi_add_relaxed(&item->pair->delivered, 1);
    twi_store_release(&item->is_free, true);
}
static void *run_queue_always(void *arg) {
    struct pair *pair = arg;
    struct pollfd fd = {.fd = tw_queue_fd(pair->queue), .events = POLLIN};
    while (!twi_load_acquire(&pair->is_over)) {
        (void)poll(&fd, 1, 10);
        while (tw_queue_run(pair->queue, 7) != 0) {}
    }
    return NULL;
}
static void start_or_cancel(struct item *item, struct pair *pair, struct test_prng *prng) {
    if (twi_load_acquire(&item->is_free)) {
        memset(&item->request, 0, sizeof item->request);
        item->request.done = item_done;
        item->request.ctx = item;
        item->request.queue = pair->queue;
        item->request.timeout_ms = 600000;
        twi_store_relaxed(&item->is_free, false);
        tw_status status = tw_acquire_async(&item->request, pair->family, tw_str("k"), 1, 10);
        assert_status(status, TW_STARTED);
        pair->started++;
    } else if (test_prng_chance(prng, 1, 3)) {
        tw_status status = tw_request_cancel(&item->request);
        if (status == TW_PENDING || twi_load_acquire(&item->is_free)) return; /* it was, or is being, delivered */
        assert_status(status, TW_OK);
        memset(&item->request, 0x5a, sizeof item->request);
        pair->cancelled++;
        twi_store_release(&item->is_free, true);
    }
}
/* Goal: whatever the schedule, each started call is delivered or cancelled, and never both. Method: a hundred thousand
 * starts; the thread that cancels knows a call as delivered only by its `done`, as a program does: a request whose
 * cancel answered TW_OK may have been delivered before. */
static void every_start_is_delivered_or_cancelled(void **state) {
    (void)state;
    rig_close(&rig);
    threaded_open();
    static struct pair pair;
    static struct item items[PAIRS];
    memset((void *)&pair, 0, sizeof pair);
    pair.family = strict_family();
    assert_status(tw_queue_open(rig.engine, &pair.queue), TW_OK);
    pthread_t thread;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int i = 0; i < PAIRS; i++) {
        items[i].pair = &pair;
        twi_store_relaxed(&items[i].is_free, true);
    }
    assert_int_equal(pthread_create(&thread, NULL, run_queue_always, &pair), 0);
    const uint64_t starts = test_scale(100000);
    while (pair.started < starts) start_or_cancel(&items[test_prng_below(&prng, PAIRS)], &pair, &prng);
    for (int i = 0; i < PAIRS; i++)
        while (!twi_load_acquire(&items[i].is_free)) usleep(100);
    twi_store_release(&pair.is_over, true);
    pthread_join(thread, NULL);
    assert_i64_equal(twi_load_relaxed(&pair.delivered) + pair.cancelled, pair.started);
    assert_true(pair.cancelled != 0 && twi_load_relaxed(&pair.delivered) != 0);
    assert_int_equal(tw_queue_run(pair.queue, 10), 0);
    assert_status(tw_queue_close(pair.queue), TW_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LATER_TEST(an_answer_comes_at_once_or_once_later),
        LATER_TEST(a_queue_delivers_what_it_is_asked_for),
        LATER_TEST(a_cancelled_call_is_taken_back),
        LATER_TEST(a_done_may_cancel_the_next_one),
        LATER_TEST(a_done_that_runs_elsewhere_is_pending),
        LATER_TEST(what_waits_is_refused_inside_done),
        LATER_TEST(a_done_may_start_the_next_call_for_ever),
        LATER_TEST(a_full_house_is_no_outage),
        LATER_TEST(time_and_outage_answer_by_policy),
        LATER_TEST(once_and_lock_answer_later),
        LATER_TEST(a_late_cancel_undoes_by_a_request),
        LATER_TEST(holds_answer_later),
        LATER_TEST(reservations_answer_later),
        LATER_TEST(a_family_waits_for_its_calls),
        LATER_TEST(a_stop_answers_everything),
        LATER_TEST(a_child_begins_without_calls),
        LATER_TEST(the_second_thread_answers),
        LATER_TEST(every_start_is_delivered_or_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
