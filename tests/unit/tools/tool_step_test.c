/* tool_step_test.c -- the counts of a step: equal ones add up, a full step changes nothing, one batch takes it. */
#include "tests/support/support.h"

#include <stdlib.h>

#include "engine/port/services.h"
#include "tools/count/step.h"

/* Counts and position travel in one batch, or a run that is killed leaves one without the other. The command knows
 * nothing of the library's insides, so the two figures meet here. */
_Static_assert(STEP_COUNTERS + STEP_POSITION_COUNTERS <= TWI_NEAR_KEYS, "a step does not fit into one batch");

static struct step step;

/* Goal: rows are those of (window, key), and a full step still takes its content. Method: more counters than fit, in
 * any order, next to a plain list of sums. */
TEST(counters_add_up_until_the_step_is_full) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    int64_t sums[2][STEP_COUNTERS] = {{0}};
    size_t known = 0;
    bool seen[2][STEP_COUNTERS] = {{false}};
    step_clear(&step);
    for (int i = 0; i < 20000; i++) {
        size_t window = test_prng_below(&prng, 2), number = test_prng_below(&prng, STEP_COUNTERS);
        char key[16];
        int size = snprintf(key, sizeof key, "key%zu", number);
        int64_t delta = (int64_t)test_prng_below(&prng, 7) - 3;
        bool fits = seen[window][number] || known < STEP_COUNTERS;
        assert_int_equal(step_add(&step, (int64_t)window * 3600000, tw_bytes(key, (size_t)size), delta, 0), fits);
        if (!fits) continue;
        known += !seen[window][number];
        seen[window][number] = true;
        sums[window][number] += delta;
    }
    assert_int_equal(step.count, STEP_COUNTERS);
    for (size_t i = 0; i < step.count; i++) {
        char key[16] = "";
        memcpy(key, step.row[i].key, step.row[i].size);
        size_t number = strtoul(key + 3, NULL, 10);
        assert_int_equal(step.row[i].delta, sums[step.row[i].start_ms != 0][number]);
    }
}

/* Goal: no row has a delta that one add refuses. */
TEST(a_sum_that_one_add_does_not_take_begins_a_new_step) {
    step_clear(&step);
    assert_true(step_add(&step, 0, tw_str("a"), TW_DELTA_MAX, 0));
    assert_false(step_add(&step, 0, tw_str("a"), 1, 0));
    assert_int_equal(step.row[0].delta, TW_DELTA_MAX);
    assert_true(step_add(&step, 0, tw_str("a"), -1, 0));
    step_clear(&step);
    assert_true(step_add(&step, 0, tw_str("a"), -TW_DELTA_MAX, 0));
    assert_false(step_add(&step, 0, tw_str("a"), -1, 0));
    assert_int_equal(step.count, 1);
}

/* Goal: keys of the longest size, with any bytes, are distinguished by their last one. */
TEST(long_keys_are_told_apart) {
    char key[TW_KEY_SIZE_MAX] = {0};
    step_clear(&step);
    for (int i = 0; i < STEP_COUNTERS; i++) {
        key[TW_KEY_SIZE_MAX - 1] = (char)i;
        assert_true(step_add(&step, 0, tw_bytes(key, sizeof key), 1, 0));
    }
    assert_int_equal(step.count, STEP_COUNTERS);
    assert_false(step_add(&step, 1, tw_bytes(key, sizeof key), 1, 0));
    assert_true(step_add(&step, 0, tw_bytes(key, sizeof key), 1, 0));
    assert_int_equal(step.row[STEP_COUNTERS - 1].delta, 2);
}

/* Goal: a line's count and sum are in a step both, or neither.
 * Method: a step that has room for one counter alone; a sum that would exceed a delta. */
TEST(a_count_and_its_sum_are_added_together) {
    step_clear(&step);
    for (int i = 0; i < STEP_COUNTERS - 1; i++) {
        char key[8];
        int size = snprintf(key, sizeof key, "%d", i);
        assert_true(step_add(&step, 0, tw_bytes(key, (size_t)size), 1, 0));
    }
    assert_false(step_add(&step, 0, tw_str("x"), 1, 5));
    assert_int_equal(step.count, STEP_COUNTERS - 1);
    assert_true(step_add(&step, 0, tw_str("x"), 1, 0));
    step_clear(&step);
    assert_true(step_add(&step, 0, tw_str("a"), 1, TW_DELTA_MAX));
    assert_true(step_add(&step, 0, tw_str("a"), 1, -7));
    assert_int_equal(step.count, 2);
    assert_false(step_add(&step, 0, tw_str("a"), 1, 8));
    for (size_t i = 0; i < 2; i++) assert_true(step.row[i].delta == (step.row[i].is_sum ? TW_DELTA_MAX - 7 : 2));
}
