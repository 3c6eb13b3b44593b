/* parked_test.c -- counters whose store is unreachable. They are not collected again and again, nothing of them is
 * lost, and all are owed once the store can take them. */
#include "tests/unit/hand_driver.h"

static void key_text(char text[16], size_t number) {
    snprintf(text, 16, "%zu", number);
}

static void park_all(struct twi_parking *parking) {
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        assert_true(twi_port_park(parking, &item));
    }
}

static int64_t acknowledge_all(void) {
    int64_t sum = 0;
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        sum += item.delta;
        twi_port_acknowledge(&item, &(struct twi_reply){0});
    }
    return sum;
}

/* Goal: a parked counter is passed over, however often it is counted on, also in a flush; others are collected. Once it
 * is unparked all of it is unsent, in one item. Method: many turns of adds and collections. */
TEST(a_parked_counter_is_collected_once_its_store_is_back) {
    struct rig rig;
    struct twi_parking parking = {0};
    char key[16];
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    for (size_t i = 0; i < 500; i++) key_text(key, i), rig_add(family, key, 1);
    assert_i64_equal(hand_collect(1000), 500);
    park_all(&parking);
    assert_int_equal(parking.count, 500);
    for (int turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < 500; i++) key_text(key, i), rig_add(family, key, 1);
        rig_add(family, "another", 1);
        if (turn % 5 == 4) twi_port_collect_begin(rig.engine);
        assert_i64_equal(hand_collect(1000), 1);
        assert_i64_equal(acknowledge_all(), 1);
    }
    assert_int_equal(parking.count, 500);
    assert_i64_equal(rig_get(family, "7"), 21);
    assert_true(twi_port_unpark(rig.engine, &parking, 200)); /* some are left */
    assert_i64_equal(hand_collect(1000), 200);
    assert_i64_equal(acknowledge_all(), 200 * 21);
    assert_false(twi_port_unpark(rig.engine, &parking, 1000));
    assert_i64_equal(hand_collect(1000), 300);
    assert_i64_equal(acknowledge_all(), 300 * 21);
    assert_i64_equal(hand_collect(1000), 0);
    hand_close(&rig);
}

/* Goal: a window that owes parked counts is not dropped, whatever its age; when they are unparked it sends them, with
 * the counted units meanwhile. Also its overflow counter. */
TEST(a_window_waits_for_its_parked_counts) {
    struct rig rig;
    struct twi_parking parking = {0};
    hand_init(&rig);
    rig_start(&rig);
    twi_port_connected(rig.engine, true);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = 2;
    options.retention_ms = TW_DAY;
    tw_family *family = rig_family_of(&rig, &options);
    int64_t view;
    for (int i = 0; i < 4; i++) /* c and d overflow */
        (void)tw_add(family, tw_str((const char *[]){"a", "b", "c", "d"}[i]), 10, &view);
    size_t count = hand_collect(10);
    assert_true(count >= 2);
    park_all(&parking);
    rig_add(family, "a", 5);
    assert_int_equal(tw_add(family, tw_str("c"), 5, &view), TW_OVERFLOWED);
    for (int minute = 0; minute < 10; minute++) rig_pass(&rig, TW_MINUTE), rig_settle(&rig);
    assert_i64_equal(hand_collect(10), 0);
    assert_i64_equal(test_stat_of(rig.engine, generations), 1);
    assert_false(twi_port_unpark(rig.engine, &parking, 10));
    assert_i64_equal(hand_collect(10), (int64_t)count);
    assert_i64_equal(acknowledge_all(), 50);
    for (int minute = 0; minute < 10; minute++) rig_pass(&rig, TW_MINUTE), rig_settle(&rig);
    assert_i64_equal(test_stat_of(rig.engine, generations), 0);
    hand_close(&rig);
}

/* Goal: what is parked when the engine ends is reported as not sent, to the unit. */
TEST(what_is_parked_at_the_end_is_reported) {
    struct rig rig;
    struct twi_parking parking = {0};
    struct lost_log lost = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &lost;
    rig_start(&rig);
    twi_port_connected(rig.engine, true);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    rig_add(family, "a", 3), rig_add(family, "b", 4);
    assert_i64_equal(hand_collect(10), 2);
    park_all(&parking);
    rig_add(family, "a", 2);
    assert_int_equal(tw_close(rig.engine, 0), TW_ERR_TIMEOUT);
    twi_port_parking_free(&parking);
    assert_i64_equal(lost.delta, 9);
    assert_int_equal(lost.reason, TW_LOST_CLOSED);
}

/* Goal: a counter that was counted on between its collection and its parking, and so was collected twice, is parked
 * once, with both parts. Method: two items of one counter in the hand, both parked. */
TEST(a_counter_that_was_collected_twice_is_parked_once) {
    struct rig rig;
    struct twi_parking parking = {0};
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    rig_add(family, "a", 3);
    assert_i64_equal(hand_collect(10), 1);
    rig_add(family, "a", 4);
    assert_i64_equal(hand_collect(10), 1);
    park_all(&parking);
    assert_int_equal(parking.count, 1);
    assert_i64_equal(hand_collect(10), 0);
    assert_false(twi_port_unpark(rig.engine, &parking, 10));
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(acknowledge_all(), 7);
    hand_close(&rig);
}
