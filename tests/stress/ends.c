/* ends.c -- threads that end at a race point, and what they leave: flags that promise a step (turn/recover.c). Marks of
 * counters are in schedule.c, leases in leases.c. In builds without -Drace_points=true it is skipped.
 * Method: a thread ends at the point (errand.h). Then others go on, as if it had never been there.
 * Always true: engines are host-driven and run on a fake clock; only the thread that ends and the test's own run.
 * Covers: engine/turn/recover.c, engine/turn/recover.c. */
#include "tests/support/fake_driver.h"

#include "engine/core/family.h"
#include "engine/count/dirty.h"
#include "engine/count/lookup.h"

#define START_MS INT64_C(1700000000000)

#ifdef TWI_RACE_POINTS

#include "tests/stress/errand.h"

static struct rig {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    int64_t hook_calls, hook_sum;
} rig;

static bool add_count(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms, (void)flags;
    rig.hook_calls++;
    assert_status(tw_each(family, start_ms, add_count, &rig.hook_sum), TW_OK);
    return true;
}

static void open_rig(bool synced, int64_t lateness_ms) {
    memset((void *)&rig, 0, sizeof rig);
    fake_clock_init(&rig.clock, START_MS);
    fake_driver_reset(START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 16 << 20;
    fake_clock_install(&rig.clock, &options);
    if (synced) fake_driver_install(&options);
    assert_status(tw_open(&options, &rig.engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "f";
    family.window_ms = TW_SECOND;
    family.history_ms = TW_NONE;
    family.lateness_ms = lateness_ms;
    family.on_window_closed = on_closed;
    assert_status(tw_family_open(rig.engine, &family, &rig.family), TW_OK);
}

static void run_for(int64_t ms) {
    for (int64_t i = 0; i < ms; i += 20) {
        fake_clock_advance_ms(&rig.clock, 20);
        assert_status(tw_turn(rig.engine), TW_OK);
    }
}

static void add(uint32_t key, int64_t delta) {
    assert_status(tw_add(rig.family, fake_key(&key), delta, NULL), TW_OK);
}

static const uint32_t the_key = 1;

static void add_one(struct errand *errand) {
    (void)tw_add(rig.family, fake_key(&the_key), 1, NULL);
}

static int64_t windows_held(void) {
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    return stats.generations + rig.family->turn.held;
}

/* Goal: a thread ends while it opens a window. The window ends at its time, its hook is called once, and its memory is
 * given back; so with the windows after it. Method: it ends at each of the points between making and announcing. */
TEST(a_window_whose_opener_ended_goes_its_way) {
    static const char *const points[] = {"window_made_not_entered", "window_entered_not_announced",
                                         "window_announced_not_news", "news_claimed_not_pushed"};
    for (size_t i = 0; i < 4; i++) {
        open_rig(false, 0);
        run_for(40);
        struct errand opener = {.stop_at = points[i]};
        errand_die(&opener, add_one);
        add(2, 5);
        run_for(100);
        for (int window = 0; window < 3; window++) {
            add(3, 10);
            run_for(TW_SECOND);
        }
        assert_i64_equal(rig.hook_calls, 3);
        assert_i64_equal(rig.hook_sum, 35);
        run_for(2 * TW_SECOND);
        assert_i64_equal(windows_held(), 0);
        assert_status(tw_close(rig.engine, 0), TW_OK);
    }
}

static void close_until_now(struct errand *errand) {
    (void)tw_close_until(rig.family, START_MS + TW_SECOND);
}

/* Goal: a thread ends while it announces news of a family: the turn examines the family at once, and later ones of
 * others, too. Method: a watermark is the news. */
TEST(news_of_a_thread_that_ended_are_examined) {
    open_rig(false, TW_HOUR);
    add(1, 5);
    run_for(TW_SECOND + 40);
    struct errand closer = {.stop_at = "news_claimed_not_pushed"};
    errand_die(&closer, close_until_now);
    assert_i64_equal(rig.hook_calls, 0);
    run_for(100);
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.hook_sum, 5);
    assert_status(tw_family_close(rig.family), TW_OK);
    run_for(100);
    assert_int_equal(twi_load_relaxed(&rig.engine->roster.count), 0);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

static void with_the_counter(void (*what)(struct twi_call *call, struct twi_place *place)) {
    struct twi_call call;
    struct twi_place place;
    if (twi_call_begin(&call, rig.family, fake_key(&the_key)) != TW_OK) return;
    if (twi_call_now(&call) == TW_OK && twi_place_find(&call, &place)) what(&call, &place);
    twi_call_end(&call);
}

static void request(struct twi_call *call, struct twi_place *place) {
    twi_contention_request(call->engine, place->generation, place->cell, TWI_NO_LIMIT);
}
static void request_stripes(struct errand *errand) {
    with_the_counter(request);
}

/* Goal: a thread ends while it requests stripes. The next request of another thread is fulfilled. */
TEST(a_request_for_stripes_of_a_thread_that_ended_blocks_no_other) {
    open_rig(false, 0);
    add(1, 5);
    struct errand requester = {.stop_at = "request_claimed_not_written"};
    errand_die(&requester, request_stripes);
    run_for(20);
    with_the_counter(request);
    run_for(20);
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.striped, 1);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

static void acquire_near_the_limit(struct errand *errand) {
    (void)tw_acquire(rig.family, fake_key(&the_key), 1, 2, NULL);
}

static uint32_t notes_written(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TWI_NOTES; i++) count += twi_load_relaxed(&rig.engine->notes[i].of) >> 32 != 0;
    return count;
}

/* Goal: a thread ends while it notes a counter near its limit. The next one makes the note, so the overshoot of the
 * limit is measured. */
TEST(a_note_of_a_thread_that_ended_is_made_by_the_next) {
    open_rig(true, 0);
    struct errand caller = {.stop_at = "note_taken_not_written"};
    assert_status(tw_acquire(rig.family, fake_key(&the_key), 1, 2, NULL), TW_OK);
    assert_int_equal(notes_written(), 0);
    errand_die(&caller, acquire_near_the_limit);
    assert_int_equal(notes_written(), 0);
    run_for(20);
    acquire_near_the_limit(NULL);
    assert_int_equal(notes_written(), 1);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: threads end while they insert keys into an endless family. Afterwards it takes as many keys as before (trap 9
 * of shared engines: `keys` only grew). Method: they end with the key counted, and the record not there. */
TEST(keys_of_threads_that_ended_take_no_place) {
    open_rig(false, 0);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "endless";
    options.window = TW_WINDOW_FOREVER;
    options.keys_max = 10;
    options.on_full = TW_ON_FULL_REJECT;
    assert_status(tw_family_open(rig.engine, &options, &rig.family), TW_OK);
    add(2, 1);
    run_for(20);
    for (int i = 0; i < 9; i++) {
        struct errand inserter = {.stop_at = "record_ready_not_claimed"};
        errand_die(&inserter, add_one);
        run_for(100);
    }
    for (uint32_t key = 3; key < 12; key++) add(key, 1);
    const uint32_t more = 12;
    assert_status(tw_add(rig.family, fake_key(&more), 1, NULL), TW_ERR_FULL);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

#else
int main(void) {
    (void)START_MS;
    test_skip_program("built without race points: configure with -Drace_points=true (./dev check tsan does)");
}
#endif
