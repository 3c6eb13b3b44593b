/* rejected_test.c -- counters whose keys Redis rejects: how often each is tried, how they are counted, which wait. */
#include "engine/port/items.h"
#include "tests/support/support.h"

/* A different item for each number. Its counter and window are addresses without memory. */
static struct twi_item item_of(uintptr_t n) {
    return (struct twi_item){.cell = (struct twi_cell *)(n * 64 + 64), .generation = (struct twi_generation *)64};
}

/* Goal: each key that is rejected is new once, however many there are. A key that was acknowledged is new again. */
TEST(each_rejected_key_is_new_once) {
    struct twi_rejected rejected = {0};
    bool first;
    for (int round = 0; round < 3; round++) {
        for (uintptr_t n = 0; n < 5000; n++) {
            struct twi_item item = item_of(n);
            (void)twi_rejected_again(&rejected, &item, 7, 1000, &first);
            assert_int_equal(first, round == 0);
        }
        assert_int_equal(twi_rejected_count(&rejected, 1000), 5000);
    }
    for (uintptr_t n = 0; n < 5000; n += 2) {
        struct twi_item item = item_of(n);
        assert_true(twi_rejected_settled(&rejected, &item, 7)); /* an older batch: the entry stays */
        assert_true(twi_rejected_settled(&rejected, &item, 8));
        assert_false(twi_rejected_settled(&rejected, &item, 8));
    }
    assert_int_equal(twi_rejected_count(&rejected, 1000), 2500);
    for (uintptr_t n = 0; n < 5000; n++) {
        struct twi_item item = item_of(n);
        (void)twi_rejected_again(&rejected, &item, 9, 1001, &first);
        assert_int_equal(first, n % 2 == 0);
    }
    assert_true(twi_rejected_is_valid(&rejected));
    twi_rejected_free(&rejected);
}

/* Goal: waits double from 1 s to a minute with each try. What was under way when the key was rejected is no try. */
TEST(waits_double_with_each_try) {
    struct twi_rejected rejected = {0};
    struct twi_item item = item_of(1);
    bool first;
    int64_t now_ms = 5;
    for (uint32_t want_ms = 1000; want_ms < 200000; want_ms *= 2) {
        uint32_t most_ms = want_ms < 60000 ? want_ms : 60000;
        for (int i = 0; i < 3; i++)
            assert_int_equal(twi_rejected_again(&rejected, &item, 1, now_ms + i, &first), most_ms);
        now_ms += most_ms;
    }
    assert_true(twi_rejected_is_valid(&rejected));
    twi_rejected_free(&rejected);
}

/* Goal: a key that is not rejected again is forgotten, which makes room. Without room no unit is counted twice. */
TEST(a_key_that_is_not_rejected_again_is_forgotten) {
    struct twi_rejected rejected = {0};
    bool first;
    for (uintptr_t n = 0; n < TWI_REJECTED_MAX + 3; n++) {
        struct twi_item item = item_of(n);
        uint32_t wait_ms = twi_rejected_again(&rejected, &item, 1, 0, &first);
        assert_int_equal(first, n < TWI_REJECTED_MAX);
        assert_int_equal(wait_ms, first ? TWI_REJECTED_WAIT_MIN_MS : TWI_REJECTED_WAIT_MAX_MS);
    }
    struct twi_item late = item_of(TWI_REJECTED_MAX);
    (void)twi_rejected_again(&rejected, &late, 1, 3 * TWI_REJECTED_WAIT_MIN_MS + 1, &first);
    assert_true(first);
    assert_int_equal(twi_rejected_count(&rejected, 3 * TWI_REJECTED_WAIT_MIN_MS + 1), 1);
    assert_true(twi_rejected_is_valid(&rejected));
    twi_rejected_free(&rejected);
}

/* Goal: where there is no room, a known key that is rejected again is not forgotten for that: its wait doubles. */
TEST(a_known_key_needs_no_room) {
    struct twi_rejected rejected = {0};
    struct twi_item known = item_of(0);
    const int64_t late_ms = 3 * TWI_REJECTED_WAIT_MIN_MS + 1;
    bool first;
    for (uintptr_t n = 0; n < TWI_REJECTED_MAX; n++) {
        struct twi_item item = item_of(n);
        (void)twi_rejected_again(&rejected, &item, 1, 0, &first);
    }
    assert_int_equal(twi_rejected_again(&rejected, &known, 1, late_ms, &first), 2 * TWI_REJECTED_WAIT_MIN_MS);
    assert_false(first);
    assert_int_equal(twi_rejected_count(&rejected, late_ms), 1);
    assert_true(twi_rejected_settled(&rejected, &known, 2));
    assert_true(twi_rejected_is_valid(&rejected));
    twi_rejected_free(&rejected);
}

/* Goal: a counter waits once, until the latest of its times, and all that are due are taken. Method: 1,000 counters
 * wait for different times, some of them twice. They are taken at three times. */
TEST(counters_wait_once_and_until_the_latest_time) {
    struct twi_rejected rejected = {0};
    struct twi_rejected_key key;
    for (uintptr_t n = 0; n < 1000; n++) {
        struct twi_item item = item_of(n);
        assert_int_equal(twi_rejected_wait(&rejected, &item, 100 + (int64_t)n % 10), TWI_WAITS_FROM_NOW);
        if (n % 2 == 0) assert_int_equal(twi_rejected_wait(&rejected, &item, 200), TWI_WAITS_ALREADY);
        assert_true(twi_rejected_waits(&rejected, item.generation, item.cell));
        assert_false(twi_rejected_waits(&rejected, (const struct twi_generation *)128, item.cell));
    }
    const struct {
        int64_t now_ms;
        uint32_t taken;
    } steps[] = {{99, 0}, {104, 200}, {199, 300}, {200, 500}, {300, 0}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint32_t taken = 0;
        for (uint32_t at = 0; twi_rejected_take(&rejected, steps[i].now_ms, &at, &key); taken++) {
            assert_true(key.due_ms <= steps[i].now_ms);
            assert_false(twi_rejected_waits(&rejected, key.generation, key.cell));
        }
        assert_int_equal(taken, steps[i].taken);
        assert_true(twi_rejected_is_valid(&rejected));
    }
    for (uintptr_t n = 0; n < 100; n++) {
        struct twi_item item = item_of(n);
        assert_int_equal(twi_rejected_wait(&rejected, &item, 1000), TWI_WAITS_FROM_NOW);
    }
    twi_rejected_end_waits(&rejected, 300);
    uint32_t taken = 0;
    for (uint32_t at = 0; twi_rejected_take(&rejected, 300, &at, &key);) taken++;
    assert_int_equal(taken, 100);
    twi_rejected_free(&rejected);
}
