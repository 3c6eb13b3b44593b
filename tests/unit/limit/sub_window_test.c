/* sub_window_test.c -- sliding limits, as they are estimated: how far they may be passed, and what error_bound says.
 * Method: a simulated clock, and next to the engine a list of all that was admitted. What the last stretch of one
 * length truly holds is counted from that list. */
#include "tests/unit/rig.h"

#define ADMITTED_MAX 40000

static struct rig rig;

static struct { int64_t at_ms, units; } admitted[ADMITTED_MAX];
static size_t admitted_count;

static tw_family *sliding(const char *name, int64_t window_ms, uint32_t sub_windows) {
    tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, window_ms);
    options.limit_shape = TW_SHAPE_SLIDING;
    options.sub_windows = sub_windows;
    admitted_count = 0;
    return rig_family_of(&rig, &options);
}

/* Units admitted in the stretch of `length_ms` that ends now. */
static int64_t in_stretch(int64_t length_ms) {
    int64_t sum = 0, from_ms = rig_now(&rig) - length_ms;
    for (size_t i = admitted_count; i > 0 && admitted[i - 1].at_ms > from_ms; i--) sum += admitted[i - 1].units;
    return sum;
}

static tw_status take(tw_family *family, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_status status = tw_acquire(family, tw_str("k"), n, limit, verdict);
    if (status != TW_OK) return status;
    assert_true(admitted_count < ADMITTED_MAX);
    admitted[admitted_count].at_ms = rig_now(&rig);
    admitted[admitted_count++].units = n;
    return status;
}

/* All of the limit in the last moment of a sub-window, and then as much as there is. */
RIG_TEST(a_burst_passes_the_limit_by_its_part_at_most) {
    static const uint32_t parts[] = {1, 2, 6, 10, 60, 64};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%u", parts[i]);
        tw_family *family = sliding(name, TW_MINUTE, parts[i]);
        int64_t sub_ms = (TW_MINUTE + parts[i] - 1) / parts[i], limit = 100, most = 0;
        tw_verdict verdict;
        rig_pass(&rig, sub_ms - rig_now(&rig) % sub_ms + sub_ms - 1); /* a separate window: its last moment */
        while (take(family, 1, limit, &verdict) == TW_OK) continue;
        assert_i64_equal(in_stretch(TW_MINUTE), limit);
        for (int64_t ms = 0; ms < 2 * TW_MINUTE; ms += 50) {
            rig_pass(&rig, 50);
            while (take(family, 1, limit, &verdict) == TW_OK) continue;
            int64_t now = in_stretch(TW_MINUTE);
            if (now > most) most = now;
        }
        assert_true(most <= limit + limit / parts[i]);
        if (parts[i] == 1) assert_true(most > limit + limit / 2); /* the estimate is one. The header says so */
        assert_true(most >= limit);
    }
}

/* Goal: an even flow gets all of the limit, however many sub-windows there are. */
RIG_TEST(an_even_flow_gets_all_of_the_limit) {
    static const uint32_t parts[] = {1, 7, 20, 34, 64};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%u", parts[i]);
        tw_family *family = sliding(name, TW_MINUTE, parts[i]);
        int denied = 0;
        for (int call = 0; call < 1800; call++) { /* three minutes at 600 a minute, a limit of 605 */
            if (take(family, 1, 605, NULL) != TW_OK) denied++;
            rig_pass(&rig, 100);
        }
        assert_true(denied <= 3);
    }
}

/* Goal: at every moment |used - truth| <= error_bound, the limit is passed by no more than its part, and who waits for
 * retry_after_ms alone is admitted then, and not a millisecond before. This holds for each number of sub-windows and
 * each length, also for a number that does not divide the length. */
RIG_TEST(random_calls_stay_within_their_bounds) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint32_t run = 0; run < 24; run++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%u", run);
        uint32_t parts = (uint32_t)test_prng_between(&prng, 1, TW_SUB_WINDOWS_MAX);
        if (run % 6 == 0) parts = 1;
        int64_t window_ms = 1000 * test_prng_between(&prng, 1, 20);
        int64_t sub_ms = (window_ms + parts - 1) / parts;
        tw_family *family = sliding(name, window_ms, parts);
        int64_t limit = test_prng_between(&prng, 1, 200);
        for (uint32_t step = 0; step < 400; step++) {
            tw_verdict verdict;
            int64_t most_ms = test_prng_chance(&prng, 1, 4) ? window_ms : sub_ms;
            rig_pass(&rig, test_prng_between(&prng, 0, most_ms));
            int64_t n = test_prng_between(&prng, 1, limit);
            tw_status status = take(family, n, limit, &verdict);
            int64_t truth = in_stretch(window_ms);
            int64_t off = verdict.used - truth;
            assert_true((off < 0 ? -off : off) <= verdict.error_bound);
            assert_true(truth <= limit + limit / parts);
            if (status == TW_OK || !test_prng_chance(&prng, 1, 3)) continue;
            assert_true(verdict.retry_after_ms > 0);
            rig_pass(&rig, verdict.retry_after_ms - 1);
            assert_status(take(family, n, limit, NULL), TW_DENIED);
            rig_pass(&rig, 1);
            assert_status(take(family, n, limit, NULL), TW_OK);
        }
        tw_verdict last;
        (void)take(family, 1, limit, &last);
        rig_pass(&rig, last.reset_after_ms);
        assert_status(take(family, 0, limit, &last), TW_OK);
        assert_i64_equal(last.used, 0);
        assert_i64_equal(last.reset_after_ms, 0);
    }
}

RIG_TEST(sub_windows_are_the_windows_of_the_family) {
    tw_family *family = sliding("f", TW_MINUTE, 6);
    tw_verdict verdict;
    assert_status(take(family, 3, 10, &verdict), TW_OK);
    rig_pass(&rig, 10000);
    assert_i64_equal(rig_get(family, "k"), 0);
    assert_status(tw_refund(family, tw_str("k"), 1, verdict.window_start_ms), TW_ERR_LATE);
    assert_status(take(family, 8, 10, &verdict), TW_DENIED);
    assert_i64_equal(verdict.used, 3);
    assert_status(take(family, 7, 10, &verdict), TW_OK);
    assert_i64_equal(verdict.window_start_ms, RIG_START_MS + 10000);
    assert_status(tw_refund(family, tw_str("k"), 7, verdict.window_start_ms), TW_OK);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("k"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 3);
}

static void refuse(tw_family_options options, const char *begins) {
    tw_family *family = NULL;
    char error[256];
    options.error_text = error;
    options.error_size = sizeof error;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_null(family);
    assert_memory_equal(error, begins, strlen(begins));
}

RIG_TEST(sub_windows_say_what_they_do_not_go_with) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.sub_windows = 2;
    refuse(options, "sub_windows: belongs to TW_SHAPE_SLIDING");
    options.limit_shape = TW_SHAPE_GCRA;
    refuse(options, "sub_windows: belongs to TW_SHAPE_SLIDING");
    options.limit_shape = TW_SHAPE_SLIDING;
    options.sub_windows = 65;
    refuse(options, "sub_windows: 65 is not in 1..64");
    options.sub_windows = 64;
    options.history_ms = 2000;
    refuse(options, "history_ms");
    options.history_ms = 0;
    options.window = TW_WINDOW_DAY;
    options.window_ms = 0;
    refuse(options, "sub_windows: belongs to TW_WINDOW_ALIGNED");
    tw_family *family = sliding("f", TW_MINUTE, 4);
    options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_shape = TW_SHAPE_SLIDING;
    options.sub_windows = 5;
    assert_status(tw_family_set(family, &options), TW_ERR_OPTIONS);
    assert_memory_equal(tw_error_text(), "sub_windows", 11);
    options.sub_windows = 4;
    assert_status(tw_family_set(family, &options), TW_OK);
}
