/* depth_test.c -- how much is under way to Redis at once. */
#include "sync/batch/depth.h"

#include "engine/port/services.h"
#include "sync/batch/batch.h"
#include "tests/support/support.h"

static struct twi_load load_at(int64_t way_us) {
    struct twi_depth depth = {.near_keys = TWI_NEAR_KEYS};
    if (way_us != 0) twi_depth_note(&depth, way_us, 0, 1000);
    return twi_depth_load(&depth);
}

/* Goal: near a Redis, and where nothing is known of the way yet, one small batch is under way at a time: others are
 * served between two. */
static void near_a_redis_one_small_batch_at_a_time(void **state) {
    (void)state;
    static const int64_t near_us[] = {0, 1, 50, 200, 255};
    for (size_t i = 0; i < sizeof near_us / sizeof *near_us; i++) {
        assert_int_equal(load_at(near_us[i]).batches, 1);
        assert_int_equal(load_at(near_us[i]).keys, TWI_NEAR_KEYS);
    }
}

/* Goal: a longer way has more under way, never less, within the bounds of both; and what is under way takes Redis, at 2
 * us a key, no longer than half of the way beyond the one small batch. Method: every way up to a second, in steps of 7
 * %. */
static void what_is_under_way_grows_with_the_way(void **state) {
    (void)state;
    uint32_t before = 0;
    for (int64_t way_us = 1; way_us < 1000000; way_us += way_us / 14 + 1) {
        struct twi_load load = load_at(way_us);
        uint32_t all = load.keys * load.batches;
        assert_true(load.batches >= 1 && load.batches <= TWI_PIPELINE_MAX);
        assert_true(load.keys >= TWI_NEAR_KEYS && load.keys <= TWI_BATCH_ITEMS_MAX);
        assert_true(all >= before || all + TWI_PIPELINE_MAX > before); /* but for what rounding leaves over */
        assert_true(((int64_t)all - TWI_NEAR_KEYS) * 2 <= way_us / 2);
        before = all;
    }
    assert_int_equal(load_at(16000).batches, TWI_PIPELINE_MAX);
    assert_int_equal(load_at(16000).keys, TWI_BATCH_ITEMS_MAX);
    assert_int_equal(load_at(INT64_MAX / 2).keys, TWI_BATCH_ITEMS_MAX);
}

/* Goal: 100,000 keys a second go through over every way up to 16 ms, as one pipeline of a round trip each. */
static void no_way_up_to_16_ms_is_a_bottleneck(void **state) {
    (void)state;
    for (int64_t way_us = 1; way_us <= 16000; way_us += way_us / 20 + 1) {
        struct twi_load load = load_at(way_us);
        int64_t under_way = (int64_t)load.keys * load.batches;
        int64_t round_us = way_us + under_way * 2 + 100; /* Redis's time for them, and a turn */
        assert_true(under_way * 1000000 / round_us >= 100000);
    }
}

/* Goal: a Redis that is busy for a while, and a thread that wakes late, are not taken for a long way: the quickest
 * answer counts; the keys of its batch are no part of it. */
static void the_quickest_answer_tells_the_way(void **state) {
    (void)state;
    struct twi_depth depth = {.near_keys = TWI_NEAR_KEYS};
    assert_i64_equal(twi_depth_way_us(&depth), 0);
    twi_depth_note(&depth, 20000, 0, 0);
    twi_depth_note(&depth, 100, 0, 1000000);
    twi_depth_note(&depth, 30000, 0, 2000000);
    assert_i64_equal(twi_depth_way_us(&depth), 100);
    twi_depth_note(&depth, 180, 64, 3000000);
    assert_i64_equal(twi_depth_way_us(&depth), 180 - 128);
    twi_depth_note(&depth, 50, 64, 3000000); /* a quicker Redis than we reckon with */
    assert_i64_equal(twi_depth_way_us(&depth), 1);
}

/* Goal: a way that has become longer is known after ten seconds at most, and not before five; a shorter one at once. */
static void a_way_that_became_longer_is_known_in_ten_seconds(void **state) {
    (void)state;
    for (int64_t offset_ms = 0; offset_ms < 5000; offset_ms += 500) {
        struct twi_depth depth = {.near_keys = TWI_NEAR_KEYS};
        int64_t now_ms = 1, known_ms = 0;
        for (; now_ms < 7000 + offset_ms; now_ms += 100) twi_depth_note(&depth, 100, 0, now_ms * 1000);
        for (int64_t since_ms = now_ms; known_ms == 0; now_ms += 100) {
            twi_depth_note(&depth, 5000, 0, now_ms * 1000);
            if (twi_depth_way_us(&depth) == 5000) known_ms = now_ms - since_ms + 1;
            assert_true(now_ms - since_ms <= 10000);
        }
        assert_true(known_ms >= 4900);
        twi_depth_note(&depth, 90, 0, now_ms * 1000);
        assert_i64_equal(twi_depth_way_us(&depth), 90);
    }
}

/* Goal: where nothing can be timed, for all the time something is under way, what was known stays. After a long silence
 * the next answer stands alone. A clock that leaps back is no harm. */
static void what_was_known_stays_until_something_is_timed(void **state) {
    (void)state;
    struct twi_depth depth = {.near_keys = TWI_NEAR_KEYS};
    twi_depth_note(&depth, 100, 0, 1);
    assert_i64_equal(twi_depth_way_us(&depth), 100); /* an hour later still: nothing here asks for the time */
    twi_depth_note(&depth, 700, 0, INT64_C(3600000000));
    assert_i64_equal(twi_depth_way_us(&depth), 700);
    twi_depth_note(&depth, 900, 0, 5);
    assert_true(twi_depth_way_us(&depth) >= 700);
}

/* Goal: a host that runs turns every ten milliseconds, and quicker ones while it flushes, is not held to one small
 * batch a turn. */
static void where_the_host_runs_the_turns_the_latest_answer_tells(void **state) {
    (void)state;
    struct twi_depth depth = {.near_keys = TWI_NEAR_KEYS, .by_latest = true};
    twi_depth_note(&depth, 100, 0, 1000);
    assert_int_equal(twi_depth_load(&depth).batches, 1);
    twi_depth_note(&depth, 10000, 0, 11000);
    struct twi_load load = twi_depth_load(&depth);
    assert_true(load.keys * load.batches >= 2000); /* 200,000 keys a second */
    twi_depth_forget(&depth);
    assert_i64_equal(twi_depth_way_us(&depth), 0);
    assert_true(depth.by_latest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_a_redis_one_small_batch_at_a_time),
        cmocka_unit_test(what_is_under_way_grows_with_the_way),
        cmocka_unit_test(no_way_up_to_16_ms_is_a_bottleneck),
        cmocka_unit_test(the_quickest_answer_tells_the_way),
        cmocka_unit_test(a_way_that_became_longer_is_known_in_ten_seconds),
        cmocka_unit_test(where_the_host_runs_the_turns_the_latest_answer_tells),
        cmocka_unit_test(what_was_known_stays_until_something_is_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
