/* calls_ends_test.c -- the ends of calls that answer later: families and engines that are closed, stopped or forked
 * meanwhile; and engines with threads of their own, in which every start is delivered or cancelled. */
#include "tests/unit/core/calls_support.h"

#include "engine/core/queue.h"

#include <sys/wait.h>

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* Goal: a family that is closed while a call of it is under way is freed after the answer. */
LATER_TEST(a_family_waits_for_its_calls) {
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
LATER_TEST(a_stop_answers_everything) {
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

/* Goal: tw_stop() itself ends what is under way, also a waiter whose try is: the answers lie in the queue when it
 * returns, so running the queue steps no driver and waits for nothing, 0 means that none is left, and the queue can be
 * closed. */
LATER_TEST(a_stop_leaves_the_answers_in_their_queue) {
    static struct told told[3];
    tw_family *family = strict_family();
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    for (int i = 0; i < 3; i++) {
        prepare(&told[i], queue);
        told[i].request.timeout_ms = 60000;
    }
    assert_status(buy(&told[0], family), TW_STARTED);
    assert_status(tw_acquire_wait_async(&told[1].request, family, tw_str("k"), 1, 10), TW_STARTED);
    rig_turn(&rig); /* its try is under way */
    assert_status(tw_acquire_wait_async(&told[2].request, family, tw_str("k"), 1, 10), TW_STARTED);
    assert_true(twi_queue_awaits_answers(rig.engine));
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_false(twi_queue_awaits_answers(rig.engine));
    struct pollfd fd = {.fd = tw_queue_fd(queue), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(tw_queue_run(queue, 10), 3);
    assert_int_equal(tw_queue_run(queue, 10), 0);
    for (int i = 0; i < 3; i++) assert_true(told[i].request.status < 0 && told[i].times == 1);
    assert_status(tw_queue_close(queue), TW_OK);
    assert_status(tw_close(rig.engine, 0), TW_OK);
    later_open(&rig); /* for the teardown */
}

/* Goal: in a forked child the parent's calls are not answered, their requests may be used at once, a queue has a
 * separate descriptor, and the parent's call does not keep a family that the child closes; the parent continues. */
static int in_child(struct told *told, tw_family *family, tw_queue *queue, int parents_fd) {
    if (tw_request_cancel(&told->request) != TW_OK) return 1;
    if (buy(told, family) != TW_STARTED || later_count() != 1) return 2;
    if (tw_queue_fd(queue) < 0) return 3;
    later_answer(0, "OK 1 1 0 0");
    if (tw_turn(rig.engine) != TW_OK || told->times != 0) return 4;
    struct pollfd fds[2] = {{.fd = parents_fd, .events = POLLIN}, {.fd = tw_queue_fd(queue), .events = POLLIN}};
    if (poll(&fds[1], 1, 0) != 1 || tw_queue_run(queue, 10) != 1 || told->times != 1) return 5;
    if (told->request.status != TW_OK) return 6;
    if (tw_family_close(family) != TW_OK) return 7;
    for (int i = 0; i < 20; i++) rig_pass(&rig, 50);
    return twi_load_relaxed(&rig.engine->roster.count) == 0 ? 0 : 8;
}
LATER_TEST(a_child_begins_without_calls) {
    if (test_misses_wiped_pages()) return;
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
LATER_TEST(the_second_thread_answers) {
    rig_close(&rig);
    threaded_open();
    tw_family *family = strict_family();
    assert_false(twi_load_relaxed(&rig.engine->here->second.runs));
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
    assert_true(twi_load_relaxed(&rig.engine->here->second.runs));
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
LATER_TEST(every_start_is_delivered_or_cancelled) {
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
