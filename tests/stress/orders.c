/* orders.c -- an engine ends in any order of the calls that chapter 16 of the header allows: tw_stop(), tw_queue_run(),
 * tw_queue_close(), tw_turn() and tw_close() with a queue open or not.
 * Goal: each count is acknowledged or reported as lost (TW_LOST_CLOSED), and each `done` is called once (P2, P8).
 * Method: calls are drawn by the seed, by engines with a thread and by host-driven ones, shared or not. The driver's
 * ledger and on_lost are compared with what was added. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

#define STEPS 40 /* after these the documented order follows */
#define CALLS_MAX 16

static struct {
    tw_engine *engine;
    tw_family *family;
    tw_queue *queue;
    struct test_prng prng;
    bool host_driven, shared, is_away;
    int64_t told, started;
    _Atomic int64_t done, lost;
    tw_request calls[CALLS_MAX];
    size_t call_count;
} run;

static void on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    (void)ctx, (void)family, (void)key, (void)start_ms;
    expect(reason == TW_LOST_CLOSED);
    atomic_fetch_add(&run.lost, delta);
}

static void on_done(tw_request *request) {
    expect(request->status != TW_STARTED);
    atomic_fetch_add(&run.done, 1);
}

static void add(void) {
    uint32_t key = (uint32_t)test_prng_below(&run.prng, FAKE_KEYS);
    tw_status status = tw_add(run.family, fake_key(&key), 1, NULL);
    assert_true(status == TW_OK || status == TW_ERR_CLOSED);
    run.told += status == TW_OK;
}

/* A flush, or a call that waits for units that do not come. */
static void start(void) {
    if (run.call_count == CALLS_MAX) return;
    tw_request *request = &run.calls[run.call_count++];
    tw_request_init(request);
    request->done = on_done;
    request->queue = run.queue;
    request->timeout_ms = 20;
    uint32_t key = 0;
    tw_status status = test_prng_chance(&run.prng, 1, 2)
                           ? tw_flush_async(request, run.engine)
                           : tw_acquire_wait_async(request, run.family, fake_key(&key), 1, 0);
    run.started += status == TW_STARTED;
}

static void close_queue(void) {
    tw_status status = tw_queue_close(run.queue);
    assert_true(status == TW_OK || status == TW_ERR_MODE);
    if (status == TW_OK) run.queue = NULL;
}

/* Returns true if the engine is closed. With a queue open, its counts are sent (not in a shared engine). */
static bool close_engine(void) {
    tw_status status = tw_close(run.engine, run.is_away ? 20 : TEST_PATIENCE_MS);
    if (run.queue == NULL) {
        assert_status(status, run.is_away && run.told != 0 ? TW_ERR_TIMEOUT : TW_OK);
        return true;
    }
    assert_status(status, TW_ERR_MODE);
    if (!run.shared && !run.is_away) assert_i64_equal(fake_driver_sum(), run.told);
    return false;
}

/* Returns true if the engine is closed. */
static bool step(void) {
    switch (test_prng_below(&run.prng, 12)) {
    case 0: assert_status(tw_stop(run.engine), TW_OK); return false;
    case 1: close_queue(); return false;
    case 2: return close_engine();
    case 3: start(); return false;
    case 4:
    case 5:
        if (run.queue != NULL) (void)tw_queue_run(run.queue, test_prng_below(&run.prng, 4));
        return false;
    case 6: test_sleep_ms(test_prng_between(&run.prng, 0, 3)); return false;
    case 7:
    case 8:
        if (run.host_driven) (void)tw_turn(run.engine);
        return false;
    default: add(); return false;
    }
}

static void end_as_documented(void) {
    assert_status(tw_stop(run.engine), TW_OK);
    if (run.queue != NULL) {
        while (tw_queue_run(run.queue, 100) != 0) continue;
        assert_status(tw_queue_close(run.queue), TW_OK);
        run.queue = NULL;
    }
    assert_true(close_engine());
}

static void play(uint64_t seed) {
    tw_options options;
    tw_family_options family;
    memset(&run, 0, sizeof run);
    test_prng_seed(&run.prng, seed);
    run.host_driven = test_prng_chance(&run.prng, 1, 2);
    run.shared = test_prng_chance(&run.prng, 1, 4);
    fake_driver_share(&options);
    options.shared = run.shared ? TW_SHARED_BY_FORK : TW_SHARED_NO;
    options.threads = run.host_driven ? TW_HOST_DRIVEN : TW_OWN_THREAD;
    options.on_lost = on_lost;
    run.is_away = test_prng_chance(&run.prng, 1, 4);
    fake_driver.away = run.is_away;
    fake_driver.hold_percent = (uint32_t)test_prng_below(&run.prng, 60);
    run.engine = stress_open(&options);
    if (run.shared) assert_status(tw_lead(run.engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "f";
    family.window = TW_WINDOW_FOREVER;
    run.family = stress_family(run.engine, &family);
    if (test_prng_chance(&run.prng, 2, 3)) assert_status(tw_queue_open(run.engine, &run.queue), TW_OK);
    bool is_closed = false;
    for (int i = 0; i < STEPS && !is_closed; i++) is_closed = step();
    if (!is_closed) end_as_documented();
    stress_check_noted();
    assert_i64_equal(fake_driver_sum() + atomic_load(&run.lost), run.told);
    assert_i64_equal(atomic_load(&run.done), run.started);
    if (!run.is_away) assert_i64_equal(atomic_load(&run.lost), 0);
}

TEST(in_any_order_counts_are_sent_or_reported) {
    uint64_t seeds[400];
    size_t count = test_seeds("orders", (size_t)test_scale(200), seeds, 400);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("orders", seeds[i]);
        play(seeds[i]);
        test_seed_ends();
    }
}
