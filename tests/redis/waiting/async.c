/* async.c -- calls that answer later, over a real Redis: in the host's own loop, and in an engine with threads of its
 * own. Each kind brings what its blocking form brings, and whatever is cancelled, Redis has the admitted units.
 * Method: a strict limit that is reached, many calls in flight, cancels at random; in the end the count in Redis is
 * compared with the answers. */
#include "tests/redis/waiting/async_support.h"

#define CALLS 64

/* ---- each kind --------------------------------------------------------------------------------------------------- */

/* Goal: in a host-driven engine each kind of call brings what its blocking form brings elsewhere. */
TEST(each_kind_answers_in_the_hosts_loop) {
    static struct told told;
    open_async(TW_HOST_DRIVEN);
    tw_family_options options = strict_options("s");
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *family = strict_family(engine, &options);
    tw_request *request = &told.request;
    prepare(&told);
    request->timeout_ms = 20000;
    assert_status(answer_of(&told, tw_ready_async(request, engine)), TW_OK);
    assert_status(answer_of(&told, tw_acquire_async(request, family, tw_str("k"), 3, 5)), TW_OK);
    assert_i64_equal(request->verdict.used, 3);
    assert_int_equal(request->verdict.decided_by, TW_BY_REDIS);
    assert_status(answer_of(&told, tw_acquire_async(request, family, tw_str("k"), 3, 5)), TW_DENIED);
    assert_status(answer_of(&told, tw_acquire_some_async(request, family, tw_str("k"), 3, 5)), TW_OK);
    assert_i64_equal(request->taken, 2);
    assert_status(answer_of(&told, tw_once_async(request, family, tw_str("o"))), TW_OK);
    assert_true(request->first);
    assert_status(answer_of(&told, tw_once_async(request, family, tw_str("o"))), TW_OK);
    assert_false(request->first);
    assert_status(answer_of(&told, tw_once_cancel_async(request, family, tw_str("o"))), TW_OK);
    assert_status(answer_of(&told, tw_lock_async(request, family, tw_str("l"), 60000)), TW_OK);
    char token[TW_TOKEN_SIZE];
    uint64_t fence = request->fence;
    memcpy(token, request->token, sizeof token);
    assert_status(answer_of(&told, tw_lock_async(request, family, tw_str("l"), 60000)), TW_DENIED);
    assert_status(answer_of(&told, tw_lock_extend_async(request, family, tw_str("l"), token, 60000)), TW_OK);
    assert_status(answer_of(&told, tw_lock_release_async(request, family, tw_str("l"), token)), TW_OK);
    assert_status(answer_of(&told, tw_lock_async(request, family, tw_str("l"), 60000)), TW_OK);
    assert_true(request->fence > fence);
    assert_status(answer_of(&told, tw_reserve_async(request, family, tw_str("r"), 2, 3, 60000, tw_str("ann"))), TW_OK);
    memcpy(token, request->token, sizeof token);
    assert_status(answer_of(&told, tw_reserve_async(request, family, tw_str("r"), 2, 3, 60000, tw_str("bob"))),
                  TW_DENIED);
    assert_status(answer_of(&told, tw_reserve_confirm_async(request, engine, token)), TW_OK);
    assert_status(answer_of(&told, tw_reserve_cancel_async(request, engine, token)), TW_ERR_LATE);
    assert_status(answer_of(&told, tw_hold_async(request, family, tw_str("h"), 1)), TW_OK);
    assert_status(answer_of(&told, tw_hold_async(request, family, tw_str("h"), 1)), TW_DENIED);
    assert_status(answer_of(&told, tw_hold_release_async(request, family, tw_str("h"))), TW_OK);
    assert_status(answer_of(&told, tw_hold_async(request, family, tw_str("h"), 1)), TW_OK);
    assert_status(tw_add(family, tw_str("f"), 7, NULL), TW_OK);
    assert_status(answer_of(&told, tw_flush_async(request, engine)), TW_OK);
    const tw_key key = tw_str("f");
    int64_t total = 0;
    assert_status(answer_of(&told, tw_fetch_async(request, family, &key, 1, &total)), TW_OK);
    assert_i64_equal(total, 7);
    assert_i64_equal(redis_server_get(&server, "s:k"), 5);
    assert_status(tw_acquire(family, tw_str("k"), 1, 5, NULL), TW_ERR_MODE); /* it would wait */
    close_async();
}

/* ---- many, cancelled at random ----------------------------------------------------------------------------------- */

static struct told many[CALLS];
static bool is_used[CALLS];
static int64_t started, delivered, cancelled, admitted;

static void take_answer(int i) {
    delivered++;
    assert_true(many[i].request.status == TW_OK || many[i].request.status == TW_DENIED);
    admitted += many[i].request.status == TW_OK;
    is_used[i] = false;
}

static void play(tw_family *family, struct test_prng *prng) {
    int i = (int)test_prng_below(prng, CALLS);
    if (is_used[i] && many[i].times != 0) {
        take_answer(i);
    } else if (is_used[i] && test_prng_chance(prng, 1, 15)) {
        assert_status(tw_request_cancel(&many[i].request), TW_OK);
        memset(&many[i], 0x5a, sizeof many[i]);
        is_used[i] = false;
        cancelled++;
    } else if (!is_used[i]) {
        prepare(&many[i]);
        many[i].request.timeout_ms = 60000;
        tw_status status = tw_acquire_async(&many[i].request, family, tw_str("k"), 1, 3000);
        if (status == TW_ERR_BUSY) return; /* many were given up at once. Their lanes are being settled */
        assert_status(status, TW_STARTED);
        is_used[i] = true;
        started++;
    }
}

/* Goal: each start is delivered or cancelled, and in the end Redis has the admitted units, to the unit: also of calls
 * that were cancelled before they were sent, while they were under way, and when their answer was there. */
TEST(redis_has_what_was_admitted) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    started = delivered = cancelled = admitted = 0;
    open_async(TW_HOST_DRIVEN);
    tw_family_options options = strict_options("s");
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *family = strict_family(engine, &options);
    memset(is_used, 0, sizeof is_used);
    static struct told told;
    prepare(&told);
    told.request.timeout_ms = 20000;
    assert_status(answer_of(&told, tw_acquire_async(&told.request, family, tw_str("warm"), 1, 1)), TW_OK);
    while (started < 6000 || cancelled < 100) { /* how many are met before their answer depends on the machine */
        for (int i = 0; i < 10; i++) play(family, &prng);
        turn();
    }
    for (int i = 0; i < CALLS; i++) {
        while (is_used[i] && many[i].times == 0) turn();
        if (is_used[i]) take_answer(i);
    }
    assert_i64_equal(started, delivered + cancelled);
    assert_true(admitted > 100);
    while (test_stat_of(engine, ask_unsettled) != 0) turn();
    assert_status(answer_of(&told, tw_flush_async(&told.request, engine)), TW_OK);
    assert_i64_equal(redis_server_get(&server, "s:k"), admitted);
    assert_true(admitted <= 3000);
    close_async();
}

/* ---- cancelled while the engine closes --------------------------------------------------------------------------- */

static void deliver_one(tw_queue *queue) {
    while (tw_queue_run(queue, 1) == 0) turn();
}

/* Goal: units of a call that was answered, and is cancelled after tw_stop() before its `done`, have left Redis when
 * tw_close() has returned; those of calls that were delivered are there. Method: a strict family, a hard one, and
 * waiters of both; the first answer of each queue is delivered, by then the others have come, too. */
TEST(a_cancel_after_the_stop_gives_units_back) {
    static struct told calls[4][5];
    tw_queue *queues[4];
    open_async(TW_HOST_DRIVEN);
    tw_family_options options = strict_options("s");
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *strict = strict_family(engine, &options);
    options = strict_options("h");
    options.limit_mode = TW_LIMIT_HARD;
    tw_family *hard = strict_family(engine, &options);
    for (int kind = 0; kind < 4; kind++) {
        assert_status(tw_queue_open(engine, &queues[kind]), TW_OK);
        for (int i = 0; i < 5; i++) {
            tw_request *request = &calls[kind][i].request;
            prepare(&calls[kind][i]);
            request->queue = queues[kind];
            request->timeout_ms = 60000;
        }
    }
    for (int i = 0; i < 5; i++) {
        assert_status(tw_acquire_async(&calls[0][i].request, strict, tw_str("now"), 2, 100), TW_STARTED);
        assert_status(tw_acquire_some_async(&calls[1][i].request, strict, tw_str("some"), 2, 100), TW_STARTED);
        assert_status(tw_acquire_wait_async(&calls[2][i].request, strict, tw_str("wait"), 2, 100), TW_STARTED);
        assert_status(tw_acquire_wait_async(&calls[3][i].request, hard, tw_str("wait"), 2, 100), TW_STARTED);
    }
    for (int kind = 0; kind < 4; kind++) deliver_one(queues[kind]);
    for (int i = 0; i < 10 || test_stat_of(engine, ask_active) != 0; i++) turn();
    assert_status(tw_stop(engine), TW_OK);
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 5; i++) {
            assert_status(tw_request_cancel(&calls[kind][i].request), TW_OK);
            memset(&calls[kind][i].request, 0x5a, sizeof calls[kind][i].request);
        }
        assert_int_equal(tw_queue_run(queues[kind], 10), 0);
        assert_status(tw_queue_close(queues[kind]), TW_OK);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "s:now"), 2);
    assert_i64_equal(redis_server_get(&server, "s:some"), 2);
    assert_i64_equal(redis_server_get(&server, "s:wait"), 2);
    assert_i64_equal(redis_server_get(&server, "h:wait"), 2);
    redis_server_destroy(&server);
}

static tw_status start_kind(int kind, tw_request *request, tw_family *const *families, tw_key key) {
    switch (kind) {
    case 0: return tw_acquire_async(request, families[0], key, 3, 10);
    case 1: return tw_acquire_async(request, families[1], key, 3, 10);
    case 2: return tw_acquire_async(request, families[2], key, 3, 10);
    case 3: return tw_acquire_wait_async(request, families[2], key, 3, 10);
    case 4: return tw_once_async(request, families[0], key);
    case 5: return tw_lock_async(request, families[0], key, 600000);
    case 6: return tw_hold_async(request, families[0], key, 1);
    default: return tw_reserve_async(request, families[0], key, 3, 10, 600000, tw_str("ann"));
    }
}
#define KINDS 8

/* Whether all of it can be had again. */
static bool is_free(int kind, tw_family *const *families, tw_key key) {
    static struct told told;
    prepare(&told);
    told.request.timeout_ms = 20000;
    tw_family *paced = families[2];
    if (kind == 2 || kind == 3) return answer_of(&told, tw_acquire_async(&told.request, paced, key, 10, 10)) == TW_OK;
    if (kind == 1) return answer_of(&told, tw_acquire_async(&told.request, families[1], key, 10, 10)) == TW_OK;
    if (kind == 4)
        return answer_of(&told, tw_once_async(&told.request, families[0], key)) == TW_OK && told.request.first;
    if (kind == 5 || kind == 6) return answer_of(&told, start_kind(kind, &told.request, families, key)) == TW_OK;
    return answer_of(&told, tw_acquire_async(&told.request, families[0], key, 10, 10)) == TW_OK;
}

/* Goal: whatever Redis gave to a call of any kind returns if its caller goes after the answer, and before it has it;
 * also where Redis is away when the caller goes. Method: the answers wait in a queue that nobody runs; Redis stops
 * meanwhile, for longer than a request may take. */
TEST(what_is_cancelled_after_its_answer_is_undone) {
    static struct told calls[KINDS];
    static const char *const names[KINDS] = {"fixed", "sliding", "paced", "waits", "once", "lock", "slot", "stock"};
    for (int stops = 0; stops < 2; stops++) {
        tw_options options;
        tw_family *families[3];
        tw_queue *queue;
        redis_server_start(&server, NULL);
        quick_options(&options, server.url);
        options.threads = TW_HOST_DRIVEN;
        options.redis_timeout_ms = stops != 0 ? 300 : STRICT_LONG_MS;
        assert_status(test_open(&options, &engine), TW_OK);
        for (int i = 0; i < 3; i++) {
            static const char *const family_names[] = {"s", "l", "g"};
            tw_family_options family = strict_options(family_names[i]);
            family.on_outage = TW_OUTAGE_FAIL_CLOSED;
            family.limit_shape = i == 0 ? TW_SHAPE_FIXED : i == 1 ? TW_SHAPE_SLIDING : TW_SHAPE_GCRA;
            if (i != 0) family.window = TW_WINDOW_ALIGNED, family.window_ms = LONG_WINDOW_MS;
            if (i == 2) family.burst = 10;
            families[i] = strict_family(engine, &family);
        }
        assert_status(tw_queue_open(engine, &queue), TW_OK);
        for (int kind = 0; kind < KINDS; kind++) {
            prepare(&calls[kind]);
            calls[kind].request.queue = queue;
            calls[kind].request.timeout_ms = 60000;
            assert_status(start_kind(kind, &calls[kind].request, families, tw_str(names[kind])), TW_STARTED);
        }
        for (int i = 0; i < 10 || test_stat_of(engine, ask_active) != 0; i++) turn();
        if (stops != 0) redis_server_pause(&server);
        for (int kind = 0; kind < KINDS; kind++) {
            assert_status(tw_request_cancel(&calls[kind].request), TW_OK);
            memset(&calls[kind].request, 0x5a, sizeof calls[kind].request);
        }
        for (int64_t end_ms = test_mono_ms() + 1000; stops != 0 && test_mono_ms() < end_ms;) turn();
        if (stops != 0) redis_server_resume(&server);
        turn();
        while (test_stat_of(engine, ask_unsettled) != 0) turn();
        assert_i64_equal(test_stat_of(engine, asks_forgotten), 0);
        assert_int_equal(tw_queue_run(queue, 10), 0);
        for (int kind = 0; kind < KINDS; kind++) {
            bool is = false;
            for (int tries = 0; tries < 100 && !is; tries++) is = is_free(kind, families, tw_str(names[kind]));
            if (!is) fail_msg("%s is not free", names[kind]);
        }
        assert_status(tw_queue_close(queue), TW_OK);
        close_async();
    }
}

/* ---- an engine with threads of its own --------------------------------------------------------------------------- */

static void count_one(tw_request *request) {
    if (request->status == TW_OK) (void)atomic_fetch_add((_Atomic int64_t *)request->ctx, 1);
    (void)atomic_fetch_add((_Atomic int64_t *)request->ctx + 1, 1);
}

/* Goal: without a queue the second thread calls `done`; with one the loop's thread does. Blocking calls continue. */
TEST(threads_and_queues_are_answered) {
    static tw_request requests[2 * CALLS];
    static _Atomic int64_t told[2]; /* admitted, all */
    open_async(TW_OWN_THREAD);
    tw_family_options options = strict_options("s");
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *family = strict_family(engine, &options);
    tw_queue *queue;
    assert_status(tw_queue_open(engine, &queue), TW_OK);
    told[0] = told[1] = 0;
    for (int i = 0; i < 2 * CALLS; i++) {
        tw_request_init(&requests[i]);
        requests[i].done = count_one;
        requests[i].ctx = (void *)told;
        requests[i].queue = i % 2 == 0 ? queue : NULL;
        assert_status(tw_acquire_async(&requests[i], family, tw_str("k"), 1, 100), TW_STARTED);
    }
    tw_status status = tw_acquire(family, tw_str("k"), 1, 1, NULL);
    assert_true(status == TW_OK || status == TW_DENIED);
    struct pollfd fd = {.fd = tw_queue_fd(queue), .events = POLLIN};
    while (told[1] < 2 * CALLS) {
        (void)poll(&fd, 1, 10);
        (void)tw_queue_run(queue, 16);
    }
    assert_i64_equal(told[0] + (status == TW_OK), 100);
    assert_i64_equal(redis_server_get(&server, "s:k"), 100);
    assert_status(tw_queue_close(queue), TW_OK);
    close_async();
}

/* An engine with threads of its own, a queue, 20 calls under way in it, and counts that are not sent. */
static tw_queue *open_ended(tw_request *requests, int count) {
    tw_family_options options = strict_options("s");
    tw_queue *queue;
    open_async(TW_OWN_THREAD);
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    tw_family *family = strict_family(engine, &options), *counts = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
    assert_status(tw_queue_open(engine, &queue), TW_OK);
    assert_status(tw_ready(engine, TEST_PATIENCE_MS), TW_OK);
    for (int i = 0; i < 1000; i++) assert_status(tw_add(counts, tw_str("k"), 1, NULL), TW_OK);
    for (int i = 0; i < count; i++) {
        static _Atomic int64_t told[2];
        tw_request_init(&requests[i]);
        requests[i].done = count_one;
        requests[i].ctx = (void *)told;
        requests[i].queue = queue;
        requests[i].timeout_ms = TEST_PATIENCE_MS;
        assert_status(tw_acquire_async(&requests[i], family, tw_str("k"), 1, 1000), TW_STARTED);
    }
    return queue;
}

/* Goal: the documented order of closing ends calls and counts, whatever is under way: tw_queue_run() gives all answers,
 * 0 means that none is left, and the queue and the engine close. */
TEST(the_order_of_closing_strands_nothing) {
    static tw_request requests[20];
    for (int round = 0; round < 20; round++) {
        tw_queue *queue = open_ended(requests, 20);
        size_t answers = 0;
        assert_status(tw_stop(engine), TW_OK);
        for (size_t count; (count = tw_queue_run(queue, 7)) != 0;) answers += count;
        assert_int_equal(answers, 20);
        assert_status(tw_queue_close(queue), TW_OK);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(&server, "c:k"), 1000);
        redis_server_destroy(&server);
    }
}

/* Goal: a tw_close() that is refused because a queue is open has sent the counts nevertheless. */
TEST(a_queue_that_is_open_strands_no_counts) {
    static tw_request requests[20];
    tw_queue *queue = open_ended(requests, 20);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_ERR_MODE);
    assert_i64_equal(redis_server_get(&server, "c:k"), 1000);
    assert_status(tw_stop(engine), TW_OK);
    while (tw_queue_run(queue, 7) != 0) {}
    assert_status(tw_queue_close(queue), TW_OK);
    close_async();
}
