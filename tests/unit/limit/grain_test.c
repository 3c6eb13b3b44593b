/* grain_test.c -- decisions finer than the grain of the clock: who sleeps for `retry_after_ms` is admitted, and a rate
 * of many units in a millisecond is kept.
 * Method: the real clock, in engines with a separate thread and in host-driven ones. What the machine does not let a
 * caller do counts for neither side: an ideal bucket, asked at the same moments, says what could be had. A busy machine
 * gets several tries. The rule alone is tried on a simulated clock. */
#include "tests/unit/rig.h"

#include <pthread.h>
#include <time.h>

#define TRIES 5

static int64_t mono_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static tw_engine *open_engine(bool is_driven) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(16) << 20;
    if (is_driven) options.threads = TW_HOST_DRIVEN;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static tw_family *open_family(tw_engine *engine, const char *name, uint32_t window, uint32_t shape, int64_t burst) {
    tw_family_options options = rig_options(name, window, 1000);
    tw_family *family;
    options.limit_shape = shape;
    options.burst = burst;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* ---- rates ------------------------------------------------------------------------------------------------------- */

/* Calls without a pause for 150 ms. */
static bool keeps_rate(tw_family *family, int64_t rate, int64_t burst) {
    int64_t got = 0, ideal = 0, begun_us = mono_us(), us = begun_us, charge_ns = 1000000000 / rate;
    int64_t empty_ns = begun_us * 1000;
    while (us < begun_us + 150000) {
        bool is_ours = tw_acquire(family, tw_str("k"), 1, rate, NULL) == TW_OK;
        got += is_ours;
        us = mono_us();
        int64_t from_ns = empty_ns > us * 1000 ? empty_ns : us * 1000;
        if (from_ns + charge_ns - us * 1000 > charge_ns * burst) continue;
        empty_ns = from_ns + charge_ns;
        ideal++;
    }
    assert_true(got <= burst + (us - begun_us) * rate / 1000000 + 1); /* never above: that needs no second try */
    return got >= ideal * 95 / 100 - 1;
}

TEST(a_rate_finer_than_the_grain_is_kept) {
    static const struct {
        int64_t rate, burst;
    } rates[] = {{500, 1}, {1000, 1}, {5000, 1}, {20000, 1}, {5000, 5}, {20000, 20}};
    for (int is_driven = 0; is_driven < 2; is_driven++) {
        tw_engine *engine = open_engine(is_driven == 1);
        if (engine->clock.grain_ms != 0) print_message("no quick fine clock here: the grain stays\n");
        for (size_t i = 0; i < sizeof rates / sizeof *rates && engine->clock.grain_ms == 0; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "rate%zu", i);
            tw_family *family = open_family(engine, name, TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, rates[i].burst);
            bool is_kept = false;
            for (int tries = 0; tries < TRIES && !is_kept; tries++)
                is_kept = keeps_rate(family, rates[i].rate, rates[i].burst);
            if (!is_kept) fail_msg("%lld a second are not reached", (long long)rates[i].rate);
        }
        assert_status(tw_close(engine, 0), TW_OK);
    }
}

/* ---- those who sleep --------------------------------------------------------------------------------------------- */

struct sleeper {
    const char *name;
    uint32_t window, shape;
    int64_t burst, limit;
    int64_t ms; /* for how long */
};

static const struct sleeper sleepers[] = {
    {"gcra", TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, 1, 100, 500},
    {"fast", TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, 2, 1000, 500},
    {"sliding", TW_WINDOW_ALIGNED, TW_SHAPE_SLIDING, 0, 20, 2500},
    {"fixed", TW_WINDOW_ALIGNED, TW_SHAPE_FIXED, 0, 3, 2500},
    {"first", TW_WINDOW_FROM_FIRST, TW_SHAPE_FIXED, 0, 3, 2500},
};

struct asleep {
    const struct sleeper *sleeper;
    tw_engine *engine;
    tw_family *family;
    int slept, denied_again;
};

static void *sleep_as_told(void *ctx) {
    struct asleep *asleep = ctx;
    int64_t limit = asleep->sleeper->limit;
    for (int64_t until_us = mono_us() + asleep->sleeper->ms * 1000; mono_us() < until_us;) {
        tw_verdict verdict;
        if (tw_acquire(asleep->family, tw_str("k"), 1, limit, &verdict) == TW_OK) continue;
        test_sleep_ms(verdict.retry_after_ms);
        asleep->slept++;
        if (tw_acquire(asleep->family, tw_str("k"), 1, limit, NULL) != TW_OK) asleep->denied_again++;
    }
    return NULL;
}

/* Goal: in 99 of 100 cases, and the rest is left to a machine that does not run the engine's thread. */
static bool are_admitted(bool is_driven) {
    struct asleep all[sizeof sleepers / sizeof *sleepers];
    pthread_t threads[sizeof sleepers / sizeof *sleepers];
    size_t count = sizeof sleepers / sizeof *sleepers;
    tw_engine *engine = open_engine(is_driven);
    bool is_true = true;
    for (size_t i = 0; i < count; i++) {
        tw_family *family =
            open_family(engine, sleepers[i].name, sleepers[i].window, sleepers[i].shape, sleepers[i].burst);
        all[i] = (struct asleep){.sleeper = &sleepers[i], .engine = engine, .family = family};
        pthread_create(&threads[i], NULL, sleep_as_told, &all[i]);
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        assert_true(all[i].slept > 0);
        if (all[i].denied_again * 100 > all[i].slept) is_true = false;
        if (all[i].denied_again != 0)
            print_message("%s: %d of %d\n", sleepers[i].name, all[i].denied_again, all[i].slept);
    }
    assert_status(tw_close(engine, 0), TW_OK);
    return is_true;
}

TEST(who_sleeps_as_told_is_admitted) {
    for (int is_driven = 0; is_driven < 2; is_driven++) {
        bool is_true = false;
        for (int tries = 0; tries < TRIES && !is_true; tries++) is_true = are_admitted(is_driven == 1);
        assert_true(is_true);
    }
}

TEST(who_waits_gets_what_the_rate_allows) {
    if (test_is_emulated()) {
        test_leave_out("qemu-user has no clock that is read without a system call: run it on an ARM64 machine");
        return;
    }
    if (test_is_slow()) {
        test_leave_out("valgrind has no clock that is read without a system call: run it without valgrind");
        return;
    }
    tw_engine *engine = open_engine(false);
    tw_family *family = open_family(engine, "f", TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, 1);
    int64_t got = 0;
    for (int tries = 0; tries < TRIES && got < 40; tries++) {
        got = 0;
        for (int64_t until_us = mono_us() + 500000; mono_us() < until_us;)
            got += tw_acquire_wait(family, tw_str("k"), 1, 100, 1000, NULL) == TW_OK;
    }
    assert_true(got >= 40); /* of 50; by a clock of 5 ms 35 */
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- the rule, on a simulated clock ------------------------------------------------------------------------------ */

static struct rig rig;

static void pass_us(int64_t us) {
    atomic_fetch_add(&rig.clock.wall_ns, us * 1000);
    atomic_fetch_add(&rig.clock.mono_ns, us * 1000);
}

/* Goal: a bucket is decided to the microsecond. */
RIG_TEST(a_bucket_empties_by_the_microsecond) {
    tw_family *family = open_family(rig.engine, "f", TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, 1);
    int64_t got = 0;
    for (int64_t us = 0; us < 1000000; us += 7) {
        got += tw_acquire(family, tw_str("k"), 1, 20000, NULL) == TW_OK;
        pass_us(7);
    }
    assert_i64_equal(got, 1000000 / 56 + 1); /* each 50 us, seen by steps of 7 */
    tw_verdict verdict;
    while (tw_acquire(family, tw_str("k"), 1, 20000, &verdict) == TW_OK) continue;
    assert_i64_equal(verdict.retry_after_ms, 1);
}

/* Goal: without a quick fine clock a denial says to come again one grain later. */
RIG_TEST(a_grain_is_added_to_what_a_denial_says) {
    static const uint32_t shapes[] = {TW_SHAPE_FIXED, TW_SHAPE_SLIDING, TW_SHAPE_GCRA};
    for (size_t i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "shape%zu", i);
        tw_family *family = open_family(rig.engine, name, TW_WINDOW_ALIGNED, shapes[i], 0);
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, NULL), TW_OK);
        tw_verdict exact, coarse;
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, &exact), TW_DENIED);
        rig.engine->clock.grain_ms = 5;
        rig.engine->clock.near_ms = INT64_MAX;
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, &coarse), TW_DENIED);
        rig.engine->clock.grain_ms = 0;
        rig.engine->clock.near_ms = TWI_CLOCK_NEAR_MS;
        assert_i64_equal(coarse.retry_after_ms, exact.retry_after_ms + 5);
        assert_status(tw_acquire(family, tw_str("k"), 11, 10, &exact), TW_DENIED);
        assert_i64_equal(exact.retry_after_ms, -1);
    }
}

/* Goal: the time that a denial says is true, too, while engine time stands still because the wall clock was set back:
 * until then the call is denied, and then it is admitted. */
RIG_TEST(a_denial_says_how_long_engine_time_stands_still) {
    static const struct {
        uint32_t window, shape, mode;
    } kinds[] = {{TW_WINDOW_ALIGNED, TW_SHAPE_FIXED, TW_LIMIT_SOFT},   {TW_WINDOW_FROM_FIRST, TW_SHAPE_FIXED, 0},
                 {TW_WINDOW_ALIGNED, TW_SHAPE_FIXED, TW_LIMIT_HARD},   {TW_WINDOW_ALIGNED, TW_SHAPE_SLIDING, 0},
                 {TW_WINDOW_ALIGNED, TW_SHAPE_FIXED, TW_LIMIT_STRICT}, {TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "kind%zu", i);
        tw_family_options options = rig_options(name, kinds[i].window, 1000);
        options.limit_shape = kinds[i].shape;
        options.limit_mode = kinds[i].mode;
        tw_family *family = rig_family_of(&rig, &options);
        tw_verdict verdict;
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, NULL), TW_OK);
        rig_pass(&rig, 400);
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, &verdict), TW_DENIED);
        int64_t before_ms = verdict.retry_after_ms;
        assert_true(before_ms >= 600);
        fake_clock_step_wall_ms(&rig.clock, -3000);
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, &verdict), TW_DENIED);
        assert_i64_equal(verdict.retry_after_ms, before_ms + 3000);
        assert_status(tw_acquire(family, tw_str("k"), 11, 10, &verdict), TW_DENIED);
        assert_i64_equal(verdict.retry_after_ms, -1);
        rig_pass(&rig, before_ms + 2999);
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, &verdict), TW_DENIED);
        assert_i64_equal(verdict.retry_after_ms, 1);
        rig_pass(&rig, 1);
        assert_status(tw_acquire(family, tw_str("k"), 10, 10, NULL), TW_OK);
        rig_pass(&rig, 2000 - rig_now(&rig) % 1000);
    }
}
