/* shape_test.c -- sliding limits and GCRA: their verdicts, their refusals, and that threads together get exactly the
 * limit.
 * Random schedules: tests/model/shapes.c.
 * Covers: engine/limit/sliding.c, engine/limit/gcra.c, engine/limit/decision.h. */
#include "tests/unit/rig.h"

#include <pthread.h>

static struct rig rig;

static tw_family *shaped(uint32_t shape, int64_t window_ms, int64_t burst) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, window_ms);
    options.limit_shape = shape;
    options.burst = burst;
    return rig_family_of(&rig, &options);
}

static tw_verdict acquire(tw_family *family, const char *key, int64_t n, int64_t limit, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire(family, tw_str(key), n, limit, &verdict), want);
    for (size_t i = 0; i < 7; i++) assert_i64_equal(verdict.reserved[i], 0);
    return verdict;
}

/* ---- sliding ----------------------------------------------------------------------------------------------------- */

RIG_TEST(the_window_before_fades) {
    tw_family *family = shaped(TW_SHAPE_SLIDING, TW_MINUTE, 0);
    (void)acquire(family, "a", 90, 100, TW_OK);
    rig_pass(&rig, TW_MINUTE);
    tw_verdict verdict = acquire(family, "a", 11, 100, TW_DENIED);
    assert_i64_equal(verdict.used, 90);
    assert_i64_equal(verdict.remaining, 10);
    assert_i64_equal(verdict.retry_after_ms, 667); /* 90 * (60000 - 667) / 60000 <= 89 */
    assert_i64_equal(verdict.reset_after_ms, TW_MINUTE);
    rig_pass(&rig, 20000);
    verdict = acquire(family, "a", 40, 100, TW_OK); /* a third has gone */
    assert_i64_equal(verdict.used, 100);
    assert_i64_equal(verdict.remaining, 0);
    assert_i64_equal(verdict.reset_after_ms, 40000 + TW_MINUTE);
    assert_i64_equal(rig_get(family, "a"), 40); /* this window alone */
    rig_pass(&rig, 40000);
    verdict = acquire(family, "a", 0, 100, TW_OK);
    assert_i64_equal(verdict.used, 40);
    rig_pass(&rig, TW_MINUTE);
    verdict = acquire(family, "a", 101, 100, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, -1);
    verdict = acquire(family, "a", 100, 100, TW_OK);
    assert_i64_equal(verdict.used, 100);
}

/* Goal: a refund in this window counts. The previous window is over, and the taken units from it stays. */
RIG_TEST(a_sliding_window_takes_back_until_it_ends) {
    tw_family *family = shaped(TW_SHAPE_SLIDING, TW_MINUTE, 0);
    tw_verdict verdict = acquire(family, "a", 100, 100, TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 40, verdict.window_start_ms), TW_OK);
    (void)acquire(family, "a", 40, 100, TW_OK);
    rig_pass(&rig, TW_MINUTE);
    assert_status(tw_refund(family, tw_str("a"), 40, verdict.window_start_ms), TW_ERR_LATE);
    (void)acquire(family, "a", 1, 100, TW_DENIED);
}

RIG_TEST(a_sliding_limit_may_change_and_months_have_their_own_length) {
    tw_family_options options = rig_options("months", TW_WINDOW_MONTH, 0);
    options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *family = rig_family_of(&rig, &options);
    (void)acquire(family, "a", 30, 30, TW_OK); /* November */
    (void)acquire(family, "a", 1, 20, TW_DENIED);
    fake_clock_advance_ms(&rig.clock, 19 * TW_DAY);
    rig_settle(&rig);
    tw_verdict verdict = acquire(family, "a", 1, 30, TW_OK); /* the third of December, an hour before its end */
    assert_i64_equal(verdict.used, 29);                      /* 30 * 673 / 744, rounded up, and 1 */
    verdict = acquire(family, "a", 1, 20, TW_DENIED);
    assert_i64_equal(verdict.remaining, 0);
}

/* ---- GCRA -------------------------------------------------------------------------------------------------------- */

RIG_TEST(a_bucket_empties_evenly) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_MINUTE, 0);
    rig_pass(&rig, 1000);
    tw_verdict verdict = acquire(family, "a", 60, 60, TW_OK);
    assert_i64_equal(verdict.used, 60);
    assert_i64_equal(verdict.remaining, 0);
    assert_i64_equal(verdict.reset_after_ms, TW_MINUTE);
    assert_i64_equal(verdict.window_start_ms, RIG_START_MS);
    assert_i64_equal(verdict.decided_by, TW_BY_LOCAL);
    verdict = acquire(family, "a", 1, 60, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 1000);
    rig_pass(&rig, 58999);
    rig_pass(&rig, 1001); /* into the next window */
    verdict = acquire(family, "a", 0, 60, TW_OK);
    assert_i64_equal(verdict.used, 0);
    rig_pass(&rig, 30000);
    (void)acquire(family, "a", 60, 60, TW_OK);
    rig_pass(&rig, 30000); /* and over the boundary, half full */
    verdict = acquire(family, "a", 31, 60, TW_DENIED);
    assert_i64_equal(verdict.used, 30);
    assert_i64_equal(verdict.remaining, 30);
    assert_i64_equal(verdict.retry_after_ms, 1000);
    (void)acquire(family, "a", 30, 60, TW_OK);
}

RIG_TEST(a_burst_is_smaller_than_the_limit) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_SECOND, 3);
    for (int i = 0; i < 3; i++) (void)acquire(family, "a", 1, 10, TW_OK);
    tw_verdict verdict = acquire(family, "a", 1, 10, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 100);
    assert_i64_equal(verdict.used, 3);
    assert_i64_equal(acquire(family, "a", 4, 10, TW_DENIED).retry_after_ms, -1);
    rig_pass(&rig, 100);
    (void)acquire(family, "a", 1, 10, TW_OK);
    (void)acquire(family, "a", 1, 10, TW_DENIED);
    assert_i64_equal(acquire(family, "b", 3, 2, TW_DENIED).retry_after_ms, -1); /* the limit bounds the burst */
    assert_i64_equal(acquire(family, "b", 1, 0, TW_DENIED).retry_after_ms, -1);
    (void)acquire(family, "b", 2, 2, TW_OK);
    int64_t taken;
    assert_status(tw_acquire_some(family, tw_str("c"), 9, 10, &taken, NULL), TW_OK);
    assert_i64_equal(taken, 3);
}

/* Goal: if a call names another limit, the units in the bucket stay the same, and drain at the new rate afterwards. */
RIG_TEST(another_limit_finds_the_same_units) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_HOUR, 2);
    for (int i = 0; i < 2; i++) (void)acquire(family, "a", 1, 3, TW_OK);
    assert_i64_equal(acquire(family, "a", 1, 3, TW_DENIED).retry_after_ms, TW_HOUR / 3);
    assert_i64_equal(acquire(family, "a", 0, 3600, TW_OK).reset_after_ms, 2000); /* a look changes nothing */
    assert_i64_equal(acquire(family, "a", 0, 3, TW_OK).reset_after_ms, 2 * TW_HOUR / 3);
    assert_i64_equal(acquire(family, "a", 1, 3600, TW_DENIED).retry_after_ms, 1000); /* raised */
    rig_pass(&rig, 1000);
    tw_verdict verdict = acquire(family, "a", 1, 3600, TW_OK);
    assert_i64_equal(verdict.reset_after_ms, 2000);
    verdict = acquire(family, "a", 1, 4, TW_DENIED); /* lowered */
    assert_i64_equal(verdict.used, 2);
    assert_i64_equal(verdict.retry_after_ms, TW_HOUR / 4);
    rig_pass(&rig, TW_HOUR / 4);
    assert_i64_equal(acquire(family, "a", 1, 4, TW_OK).used, 2);
    assert_i64_equal(acquire(family, "a", 2, 1, TW_DENIED).retry_after_ms, -1); /* it can never be admitted */
    assert_i64_equal(acquire(family, "a", 0, 4, TW_OK).used, 2);
}

/* Goal: the same if the key has not been used in this window yet, whoever has looked at its bucket meanwhile. */
RIG_TEST(another_limit_finds_the_same_units_of_the_window_before) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_HOUR, 2);
    rig_pass(&rig, TW_HOUR - 1000);
    (void)acquire(family, "a", 1, 7, TW_OK);
    (void)acquire(family, "a", 1, 3, TW_OK);
    (void)acquire(family, "b", 2, 3, TW_OK);
    rig_pass(&rig, 1000);
    assert_i64_equal(acquire(family, "a", 0, 3, TW_OK).reset_after_ms, 2 * TW_HOUR / 3 - 1000);
    assert_i64_equal(acquire(family, "a", 1, 3600, TW_DENIED).retry_after_ms, 1000);
    assert_i64_equal(acquire(family, "b", 1, 3600, TW_DENIED).retry_after_ms, 1000);
    rig_pass(&rig, 1000);
    (void)acquire(family, "a", 1, 3600, TW_OK);
    (void)acquire(family, "b", 1, 3600, TW_OK);
}

/* Goal: a window has room for the first limit of each key and 14 others. A key whose limit finds no room keeps its
 * units when that is named, and what a denial says is true for it, too. */
RIG_TEST(a_window_has_room_for_some_limits) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_HOUR, 50);
    for (int64_t limit = 100; limit < 116; limit++)
        assert_i64_equal(acquire(family, "a", 1, limit, TW_OK).used, limit - 99);
    (void)acquire(family, "a", 34, 115, TW_OK);
    tw_verdict verdict = acquire(family, "a", 1, 115, TW_DENIED);
    assert_i64_equal(verdict.used, 50);
    rig_pass(&rig, verdict.retry_after_ms - 1);
    (void)acquire(family, "a", 1, 115, TW_DENIED);
    rig_pass(&rig, 1);
    (void)acquire(family, "a", 1, 115, TW_OK);
    const tw_claim claims[] = {
        {family, tw_str("b"), 40, 300}, {family, tw_str("b"), 5, 300}, {family, tw_str("b"), 5, 300}};
    (void)acquire(family, "b", 1, 7000, TW_OK);                /* the first limit of a key always has room */
    assert_status(tw_acquire_all(claims, 3, NULL), TW_DENIED); /* two are taken and put back */
    assert_i64_equal(acquire(family, "b", 0, 300, TW_OK).used, 1);
    assert_i64_equal(acquire(family, "b", 1, 700, TW_OK).used, 4); /* 1 of 300 is taken for more than 2 of 700 */
}

RIG_TEST(words_of_a_bucket_are_no_counts) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_SECOND, 0);
    tw_key key = tw_str("a"), keys[40];
    tw_pin *pin;
    tw_reading reading;
    for (int i = 0; i < 40; i++) keys[i] = key;
    tw_verdict verdict = acquire(family, "a", 1, 10, TW_OK);
    assert_status(tw_add(family, key, 1, NULL), TW_ERR_MODE);
    assert_status(tw_add_at(family, key, 1, rig_now(&rig), NULL), TW_ERR_MODE);
    assert_status(tw_add_many(family, keys, NULL, 40, NULL, NULL), TW_ERR_MODE);
    assert_status(tw_get(family, key, NULL), TW_ERR_MODE);
    assert_status(tw_get_at(family, key, rig_now(&rig), NULL), TW_ERR_MODE);
    assert_status(tw_read(family, key, &reading), TW_ERR_MODE);
    assert_status(tw_reset(family, key, NULL), TW_ERR_MODE);
    assert_status(tw_once(family, key, NULL), TW_ERR_MODE);
    assert_status(tw_refund(family, key, 1, verdict.window_start_ms), TW_ERR_MODE);
    assert_status(tw_pin_open(family, key, &pin), TW_OK);
    assert_status(tw_pin_add(pin, 1, NULL), TW_ERR_MODE);
    tw_pin_close(pin);
    assert_i64_equal(acquire(family, "a", 0, 10, TW_OK).used, 1);
    (void)acquire(family, "a", -1, 10, TW_ERR_RANGE);
    (void)acquire(family, "a", 1, -1, TW_ERR_RANGE);
    (void)acquire(family, "", 1, 10, TW_ERR_KEY);
}

RIG_TEST(a_bucket_put_back_by_others_denial_is_whole) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_SECOND, 0);
    const tw_claim claims[] = {
        {family, tw_str("a"), 5, 10}, {family, tw_str("a"), 5, 10}, {family, tw_str("a"), 5, 10}};
    assert_status(tw_acquire_all(claims, 3, NULL), TW_DENIED);
    assert_i64_equal(acquire(family, "a", 0, 10, TW_OK).used, 0);
    assert_status(tw_acquire_all(claims, 2, NULL), TW_OK);
    assert_i64_equal(acquire(family, "a", 0, 10, TW_OK).used, 10);
}

RIG_TEST(shapes_say_what_they_do_not_go_with) {
    const struct {
        uint32_t shape, window;
        int64_t history_ms, burst;
        const char *field;
    } wrong[] = {
        {TW_SHAPE_SLIDING, TW_WINDOW_FOREVER, 0, 0, "limit_shape:"},
        {TW_SHAPE_SLIDING, TW_WINDOW_FROM_FIRST, 0, 0, "limit_shape:"},
        {TW_SHAPE_GCRA, TW_WINDOW_DAY, 0, 0, "limit_shape:"},
        {TW_SHAPE_GCRA, TW_WINDOW_FOREVER, 0, 0, "limit_shape:"},
        {TW_SHAPE_SLIDING, TW_WINDOW_ALIGNED, TW_NONE, 0, "history_ms:"},
        {TW_SHAPE_GCRA, TW_WINDOW_ALIGNED, 1000, 0, "history_ms:"},
        {TW_SHAPE_SLIDING, TW_WINDOW_ALIGNED, 0, 5, "burst:"},
        {TW_SHAPE_GCRA, TW_WINDOW_ALIGNED, 0, -5, "burst:"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char error[200];
        tw_family *family;
        tw_family_options options = rig_options("f", wrong[i].window, 0);
        options.limit_shape = wrong[i].shape;
        options.history_ms = wrong[i].history_ms;
        options.burst = wrong[i].burst;
        options.error_text = error;
        options.error_size = sizeof error;
        assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
        assert_memory_equal(error, wrong[i].field, strlen(wrong[i].field));
    }
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct taker {
    tw_family *family;
    uint64_t seed;
    int64_t limit, got;
};

static void *take_until_denied(void *ctx) {
    struct taker *taker = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, taker->seed);
    for (int denied = 0; denied < 50;) {
        int64_t n = test_prng_between(&prng, 1, 3);
        if (tw_acquire(taker->family, tw_str("a"), n, taker->limit, NULL) == TW_OK)
            taker->got += n;
        else
            denied++;
    }
    return NULL;
}

static int64_t take_by_threads(tw_family *family, int64_t limit) {
    struct taker takers[8];
    pthread_t threads[8];
    int64_t got = 0, one = 0;
    for (int i = 0; i < 8; i++) {
        takers[i] = (struct taker){family, test_seed() + (uint64_t)i, limit, 0};
        assert_i64_equal(pthread_create(&threads[i], NULL, take_until_denied, &takers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_i64_equal(pthread_join(threads[i], NULL), 0);
        got += takers[i].got;
    }
    while (tw_acquire(family, tw_str("a"), 1, limit, NULL) == TW_OK) one++;
    return got + one;
}

/* Goal: exactly the limit is admitted, for each shape, with more threads than cores, and with a count from the previous
 * window. */
RIG_TEST(threads_get_exactly_the_limit) {
    const int64_t limits[] = {1, 7, 1000, 200000};
    for (uint32_t shape = TW_SHAPE_SLIDING; shape <= TW_SHAPE_GCRA; shape++)
        for (size_t i = 0; i < 4; i++) {
            tw_family *family = shaped(shape, TW_MINUTE, 0);
            assert_i64_equal(take_by_threads(family, limits[i]), limits[i]);
            rig_pass(&rig, TW_MINUTE + 30000); /* sliding: half of it still weighs; the bucket is empty again */
            int64_t want = shape == TW_SHAPE_GCRA ? limits[i] : limits[i] / 2;
            assert_i64_equal(take_by_threads(family, limits[i]), want);
            assert_status(tw_family_close(family), TW_OK);
            rig_pass(&rig, 30000);
            for (int turns = 0; turns < 100 && tw_family_find(rig.engine, "f") != NULL; turns++) rig_turn(&rig);
        }
}

#define BURST 5000

static void *name_limits_until_denied(void *ctx) {
    struct taker *taker = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, taker->seed);
    for (int denied = 0; denied < 50;) {
        int64_t n = test_prng_between(&prng, 1, 3), limit = BURST + test_prng_between(&prng, 0, 14) * 7;
        if (tw_acquire(taker->family, tw_str("a"), n, limit, NULL) == TW_OK)
            taker->got += n;
        else
            denied++;
    }
    return NULL;
}

/* Goal: threads that name other limits, as many as a window has room for, get exactly the burst together while the time
 * stands: a moment and its limit change together. */
RIG_TEST(threads_that_name_other_limits_get_exactly_the_burst) {
    tw_family *family = shaped(TW_SHAPE_GCRA, TW_MINUTE, BURST);
    struct taker takers[8];
    pthread_t threads[8];
    int64_t got = 0;
    for (int i = 0; i < 8; i++) {
        takers[i] = (struct taker){family, test_seed() + (uint64_t)i, 0, 0};
        assert_i64_equal(pthread_create(&threads[i], NULL, name_limits_until_denied, &takers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_i64_equal(pthread_join(threads[i], NULL), 0);
        got += takers[i].got;
    }
    while (tw_acquire(family, tw_str("a"), 1, BURST, NULL) == TW_OK) got++;
    assert_i64_equal(got, BURST);
}
