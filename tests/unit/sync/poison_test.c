/* poison_test.c -- counters that Redis refuses: how often each is tried, and how they are counted. */
#include "sync/batch/poison.h"
#include "tests/support/support.h"

/* An item of its own for each number; no memory stands behind it. */
static struct twi_item item_of(uintptr_t n) {
    return (struct twi_item){.cell = (struct twi_cell *)(n * 64 + 64), .generation = (struct twi_generation *)64};
}

/* Goal: each key that is refused is news once, however many they are, and whoever was acknowledged is news again. */
static void each_refused_key_is_news_once(void **state) {
    (void)state;
    struct twi_poison poison = {0};
    bool first;
    for (int round = 0; round < 3; round++) {
        for (uintptr_t n = 0; n < 5000; n++) {
            struct twi_item item = item_of(n);
            (void)twi_poison_add(&poison, &item, 7, 1000, &first);
            assert_int_equal(first, round == 0);
        }
        assert_int_equal(twi_poison_count(&poison, 1000), 5000);
    }
    for (uintptr_t n = 0; n < 5000; n += 2) {
        struct twi_item item = item_of(n);
        assert_true(twi_poison_remove(&poison, &item, 7)); /* an older batch: it goes on standing here */
        assert_true(twi_poison_remove(&poison, &item, 8));
        assert_false(twi_poison_remove(&poison, &item, 8));
    }
    assert_int_equal(twi_poison_count(&poison, 1000), 2500);
    for (uintptr_t n = 0; n < 5000; n++) {
        struct twi_item item = item_of(n);
        (void)twi_poison_add(&poison, &item, 9, 1001, &first);
        assert_int_equal(first, n % 2 == 0);
    }
    twi_poison_free(&poison);
}

/* Goal: waits double from 1 s to a minute with each try; what was under way when it was refused is no try. */
static void waits_double_with_each_try(void **state) {
    (void)state;
    struct twi_poison poison = {0};
    struct twi_item item = item_of(1);
    bool first;
    int64_t now_ms = 5;
    for (uint32_t want_ms = 1000; want_ms < 200000; want_ms *= 2) {
        uint32_t most_ms = want_ms < 60000 ? want_ms : 60000;
        for (int i = 0; i < 3; i++) assert_int_equal(twi_poison_add(&poison, &item, 1, now_ms + i, &first), most_ms);
        now_ms += most_ms;
    }
    twi_poison_free(&poison);
}

/* Goal: who did not come back is forgotten, and room is had again; without room nothing is counted twice. */
static void who_does_not_come_back_is_forgotten(void **state) {
    (void)state;
    struct twi_poison poison = {0};
    bool first;
    for (uintptr_t n = 0; n < TWI_POISON_ENTRIES + 3; n++) {
        struct twi_item item = item_of(n);
        uint32_t wait_ms = twi_poison_add(&poison, &item, 1, 0, &first);
        assert_int_equal(first, n < TWI_POISON_ENTRIES);
        assert_int_equal(wait_ms, first ? TWI_POISON_WAIT_MIN_MS : TWI_POISON_WAIT_MAX_MS);
    }
    struct twi_item late = item_of(TWI_POISON_ENTRIES);
    (void)twi_poison_add(&poison, &late, 1, 3 * TWI_POISON_WAIT_MIN_MS + 1, &first);
    assert_true(first);
    assert_int_equal(twi_poison_count(&poison, 3 * TWI_POISON_WAIT_MIN_MS + 1), 1);
    twi_poison_free(&poison);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_refused_key_is_news_once),
        cmocka_unit_test(waits_double_with_each_try),
        cmocka_unit_test(who_does_not_come_back_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
