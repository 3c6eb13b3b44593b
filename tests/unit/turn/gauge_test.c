/* gauge_test.c -- families of kind TW_KIND_GAUGE: counters without Redis; with Redis, what is present is said whole,
 * and again. */
#include "tests/unit/hand_driver.h"

static struct rig rig;

static tw_family *gauge(void) {
    tw_family_options options = rig_options("online", TW_WINDOW_FOREVER, 0);
    options.kind = TW_KIND_GAUGE;
    return rig_family_of(&rig, &options);
}

RIG_TEST(without_redis_a_gauge_is_a_counter) {
    tw_family *online = gauge();
    assert_i64_equal(rig_add(online, "a", 3), 3);
    assert_i64_equal(rig_add(online, "a", -1), 2);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(rig_get(online, "a"), 2);
    assert_status(tw_acquire(online, tw_str("a"), 1, 2, NULL), TW_DENIED);
    assert_status(tw_hold(online, tw_str("a"), 3, NULL), TW_OK);
}

RIG_TEST(what_does_not_go_with_a_gauge_is_refused) {
    tw_family *family;
    char error[128];
    tw_family_options options = rig_options("g", TW_WINDOW_ALIGNED, 0);
    options.error_text = error;
    options.error_size = sizeof error;
    options.kind = TW_KIND_GAUGE;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_memory_equal(error, "kind: ", 6);
    options.window = TW_WINDOW_FOREVER;
    options.on_full = TW_ON_FULL_EVICT_IDLE;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_memory_equal(error, "on_full: ", 9);
    options.on_full = 0;
    options.limit_mode = TW_LIMIT_HARD;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_memory_equal(error, "limit_mode: ", 12);
    options.limit_mode = 0;
    options.limit_shape = TW_SHAPE_GCRA;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_memory_equal(error, "limit_shape: ", 13);
    options.limit_shape = 0;
    options.kind = 3; /* there is no such kind */
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_memory_equal(error, "kind: ", 6);
}

/* What the one item collected says; then Redis answers this sum. */
static int64_t said(int64_t sum) {
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item item = hand->held[hand->count - 1];
    assert_true((item.flags & TWI_ITEM_GAUGE) != 0);
    hand_acknowledge(sum);
    return item.units;
}

/* Goal: an item says all that is counted here, whatever was said before; the view is the others' and ours. */
HAND_TEST(the_whole_is_said_and_the_sum_comes_back) {
    tw_family *online = gauge();
    (void)rig_add(online, "a", 3);
    assert_i64_equal(said(10), 3);
    assert_i64_equal(rig_get(online, "a"), 10);
    assert_i64_equal(said(10), 3); /* the reader's question says it, too */
    (void)rig_add(online, "a", -2);
    assert_i64_equal(rig_get(online, "a"), 8);
    assert_i64_equal(said(5), 1);
    assert_i64_equal(rig_get(online, "a"), 5);
    assert_i64_equal(said(5), 1);
}

/* Goal: a statement of unknown fate is no delta: what comes next says the whole. */
HAND_TEST(a_lost_statement_is_said_anew) {
    tw_family *online = gauge();
    (void)rig_add(online, "a", 3);
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item lost = hand_pop();
    assert_i64_equal(lost.units, 3);
    (void)rig_add(online, "a", 4);
    twi_port_return(&lost, 0);
    assert_i64_equal(said(7), 7);
    assert_i64_equal(rig_get(online, "a"), 7);
    tw_reading reading;
    assert_status(tw_read(online, tw_str("a"), &reading), TW_OK);
    assert_i64_equal(reading.local, 7);
    assert_i64_equal(reading.unsent, 0);
    assert_i64_equal(said(7), 7);
}

/* Goal: what is present is said three times in its life, at once after a stall, and what is 0 is not. */
HAND_TEST(what_is_present_is_said_again_in_time) {
    tw_family *online = gauge();
    (void)rig_add(online, "a", 3);
    (void)rig_add(online, "gone", 1);
    (void)rig_add(online, "gone", -1);
    assert_i64_equal(hand_collect(10), 2);
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        struct twi_reply answer = {.total = item.units, .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
    rig_pass(&rig, 1);
    while (hand_collect(10) != 0) /* the first round, begun with the engine */
        while (hand->count != 0) hand_acknowledge(3);
    for (int i = 0; i < 3; i++) {
        rig_pass(&rig, 4990);
        assert_i64_equal(hand_collect(10), 0);
        rig_pass(&rig, 20);
        assert_i64_equal(said(3), 3);
    }
    fake_clock_advance_ms(&rig.clock, 600000); /* stopped */
    rig_turn(&rig);
    assert_i64_equal(said(0 + 3), 3);
    twi_port_presence_resend(rig.engine); /* the connection was lost */
    rig_turn(&rig);
    assert_i64_equal(said(3), 3);
    assert_i64_equal(hand_collect(10), 0);
}

/* Goal: who closes says 0 last, and loses nothing by it. */
TEST(closing_says_that_nothing_is_present) {
    struct lost_log lost = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &lost;
    rig_start(&rig);
    tw_family *online = gauge();
    (void)rig_add(online, "a", 3);
    assert_i64_equal(said(3), 3);
    (void)rig_add(online, "still", 4);
    assert_i64_equal(said(4), 4);
    (void)rig_add(online, "a", 2); /* not said */
    assert_status(tw_family_close(online), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(hand_collect(10), 2);
    for (int i = 0; i < 2; i++) {
        assert_i64_equal(hand->held[hand->count - 1].units, 0);
        hand_acknowledge(0);
    }
    rig_pass(&rig, 100);
    assert_i64_equal(test_stat_of(rig.engine, generations), 0);
    tw_family_options options = rig_options("other", TW_WINDOW_FOREVER, 0);
    options.kind = TW_KIND_GAUGE;
    tw_family *other = rig_family_of(&rig, &options);
    (void)rig_add(other, "a", 3);
    assert_i64_equal(said(3), 3);
    (void)rig_add(other, "b", 4);
    assert_status(tw_close(rig.engine, 0), TW_ERR_TIMEOUT); /* nobody answered: the part ends by itself */
    assert_i64_equal(lost.calls, 0);
}
