/* port_test.c -- the engine's side of port.h: what is unsent is collected once, and settled once. Windows
 * that end: port_windows_test.c.
 * Covers: engine/turn/settle.c, engine/turn/settle.c, engine/turn/collect.c. */
#include "tests/unit/hand_driver.h"

#include "engine/turn/turn.h"

/* ---- collecting -------------------------------------------------------------------------------------------------- */

TEST(a_counter_is_collected_once_for_all_adds_since_the_last_time) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_false(twi_port_is_dirty(rig.engine));
    for (int i = 0; i < 10; i++) rig_add(family, "a", 2);
    assert_true(twi_port_is_dirty(rig.engine));
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item *item = &hand->held[0];
    assert_i64_equal(item->delta, 20);
    assert_i64_equal(item->flags, TWI_ITEM_FIRST);
    assert_i64_equal(item->expiry_ms, RIG_START_MS + TW_HOUR + TW_DAY);
    assert_i64_equal(twi_port_start_ms(item), RIG_START_MS);
    assert_i64_equal(twi_port_key(item).size, 1);
    assert_i64_equal(hand_collect(10), 0);
    assert_false(twi_port_is_dirty(rig.engine));
    rig_add(family, "a", 5);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[1].delta, 5);
    assert_i64_equal(test_stat_of(rig.engine, redis_configured), 1);
    hand_close(&rig);
}

TEST(an_item_is_named_as_its_template_says) {
    struct rig rig;
    hand_init(&rig);
    rig.options.redis_prefix = "app:";
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "key", 1);
    assert_i64_equal(hand_collect(10), 1);
    char name[TWI_REDIS_KEY_MAX];
    size_t size = twi_port_render(&hand->held[0], name);
    const char *want = "app:f:key:2023111423";
    assert_i64_equal(size, strlen(want));
    assert_memory_equal(name, want, size);
    assert_string_equal(twi_port_prefix(rig.engine), "app:");
    hand_close(&rig);
}

/* Goal: log lines have the name of an item in printable bytes, and each text stands for one name. */
TEST(the_title_of_an_item_is_printable) {
    struct rig rig;
    char title[100];
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    rig_add(family, "a~ \\\n\x7f", 1);
    assert_i64_equal(hand_collect(10), 1);
    twi_port_title(&hand->held[0], title, sizeof title);
    assert_string_equal(title, "f:a~\\x20\\x5c\\x0a\\x7f");
    twi_port_title(&hand->held[0], title, 12); /* room for a byte in the longest form, and an end, stays free */
    assert_string_equal(title, "f:a~\\x20");
    hand_close(&rig);
}

/* Goal: whatever does not fit into a collection comes with the next ones, each counter once.
 * Method: 1000 counters in two families, collected in pieces of every size. */
TEST(what_does_not_fit_into_a_collection_comes_with_a_later_one) {
    for (size_t room = 1; room < 700; room = room * 2 + 1) {
        struct rig rig;
        hand_open(&rig);
        tw_family *one = rig_family(&rig, "one", TW_WINDOW_ALIGNED, TW_HOUR),
                  *two = rig_family(&rig, "two", TW_WINDOW_FOREVER, 0);
        char key[80];
        int64_t sum = 0;
        for (int i = 0; i < 1000; i++) {
            snprintf(key, sizeof key, "%d%.*s", i, i % 60,
                     "------------------------------------------------------------");
            assert_status(tw_add(i % 3 == 0 ? one : two, tw_str(key), i, NULL), TW_OK);
            sum += i;
        }
        size_t count = 0, more;
        int64_t collected = 0;
        do {
            more = hand_collect(room);
            for (size_t i = 0; i < more; i++) collected += hand->held[hand->count - 1 - i].delta;
            count += more;
            if (hand->count > 2000)
                while (hand->count != 0) hand_acknowledge(0);
        } while (more != 0);
        assert_i64_equal(count, 1000);
        assert_i64_equal(collected, sum);
        hand_close(&rig);
    }
}

/* Goal: closed windows are collected first, yet a quarter of the room is kept for open ones. */
TEST(a_quarter_of_a_collection_is_kept_for_open_windows) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    rig_pass(&rig, TW_HOUR);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    assert_i64_equal(hand_collect(80), 80);
    int open = 0;
    for (size_t i = 0; i < 80; i++) open += twi_port_start_ms(&hand->held[i]) == RIG_START_MS + TW_HOUR;
    assert_i64_equal(open, 20);
    hand_close(&rig);
}

/* Goal: of many closed windows, those that die first in Redis are sent first (trap S10). Method: six hours pass without
 * a collection, in two families of different retention; then one counter at a time. */
TEST(what_dies_first_is_collected_first) {
    struct rig rig;
    hand_open(&rig);
    tw_family_options longer = rig_options("longer", TW_WINDOW_ALIGNED, TW_HOUR);
    longer.retention_ms = 27 * TW_HOUR + TW_MINUTE;
    tw_family *families[] = {rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR), rig_family_of(&rig, &longer)};
    for (int hour = 0; hour < 6; hour++) {
        for (int i = 0; i < 2; i++) rig_add(families[i], "k", 1);
        rig_pass(&rig, TW_HOUR);
    }
    int64_t last_ms = 0;
    for (size_t i = 0; i < 12; i++) {
        assert_i64_equal(hand_collect(1), 1);
        assert_true(hand->held[i].expiry_ms > last_ms);
        last_ms = hand->held[i].expiry_ms;
    }
    hand_close(&rig);
}

TEST(adds_that_cancel_out_ask_for_the_total_only) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", 3);
    rig_add(family, "a", -3);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 0);
    hand_acknowledge(40);
    assert_i64_equal(rig_get(family, "a"), 40);
    hand_close(&rig);
}

/* ---- E41: interest ----------------------------------------------------------------------------------------------- */

TEST(trap_e41_reading_an_unknown_key_asks_for_its_total_and_counts_nothing) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_i64_equal(rig_get(family, "a"), 0);
    tw_reading reading = rig_read(family, "a");
    assert_false(reading.known);
    assert_i64_equal(reading.age_ms, TW_UNBOUNDED);
    assert_i64_equal(reading.error_bound, TW_UNBOUNDED);
    assert_i64_equal(hand_collect(10), 1); /* asked twice, collected once */
    assert_i64_equal(hand->held[0].delta, 0);
    hand_acknowledge(7);
    fake_clock_advance_ms(&rig.clock, 250);
    reading = rig_read(family, "a");
    assert_true(reading.known);
    assert_i64_equal(reading.view, 7);
    assert_i64_equal(reading.total, 7);
    assert_i64_equal(reading.local, 0);
    assert_i64_equal(reading.unsent, 0);
    assert_i64_equal(reading.age_ms, 250);
    assert_i64_equal(test_stat_of(rig.engine, increments), 0);
    hand_close(&rig);
}

TEST(trap_e41_reads_do_not_fill_a_family) {
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 100;
    options.on_full = TW_ON_FULL_REJECT;
    tw_family *family = rig_family_of(&rig, &options);
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "read %d", i);
        assert_i64_equal(rig_get(family, key), 0);
    }
    for (int i = 0; i < 25; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    hand_close(&rig);
}

/* ---- settling ---------------------------------------------------------------------------------------------------- */

/* Goal: E6, P3. At every step of a batch the view is the others' part plus all that we added. */
TEST(trap_e6_the_view_holds_own_adds_at_every_step_of_a_batch) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_i64_equal(rig_add(family, "a", 10), 10);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(rig_add(family, "a", 5), 15);
    tw_reading reading = rig_read(family, "a");
    assert_i64_equal(reading.local, 15);
    assert_i64_equal(reading.unsent, 15);
    hand_acknowledge(110); /* 100 of others */
    assert_i64_equal(rig_get(family, "a"), 115);
    reading = rig_read(family, "a");
    assert_i64_equal(reading.view, 115);
    assert_i64_equal(reading.total, 110);
    assert_i64_equal(reading.unsent, 5);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    assert_i64_equal(hand->held[0].flags & TWI_ITEM_FIRST, 0);
    assert_i64_equal(rig_get(family, "a"), 115);
    struct twi_item item = hand_pop();
    struct twi_reply answer = {.has_total = false};
    twi_port_acknowledge(&item, &answer); /* during a replay: base stands still */
    assert_i64_equal(rig_get(family, "a"), 115);
    assert_i64_equal(rig_read(family, "a").unsent, 0);
    hand_close(&rig);
}

TEST(a_returned_delta_is_collected_again) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", 10);
    assert_i64_equal(hand_collect(10), 1);
    rig_add(family, "a", 1);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 0);
    assert_i64_equal(rig_get(family, "a"), 11);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 11);
    hand_close(&rig);
}

TEST(a_delta_returned_with_a_delay_waits) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", 10);
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 10 * TW_MINUTE);
    assert_i64_equal(rig_get(family, "b"), 0);
    assert_i64_equal(hand_collect(10), 1); /* b's */
    hand_acknowledge(0);
    assert_false(twi_port_is_dirty(rig.engine));
    rig_pass(&rig, 10 * TW_MINUTE - 1);
    assert_i64_equal(hand_collect(10), 0);
    rig_pass(&rig, 1);
    assert_true(twi_port_is_dirty(rig.engine));
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 10);
    hand_close(&rig);
}

/* Goal: counters that Redis refuses are tried again at their time and not before, however often they are counted on
 * meanwhile; the others continue. Method: every third of 600 counters is returned with a wait; all are counted on at
 * each interval; then the time comes. */
TEST(a_refused_counter_that_is_counted_on_waits_alone) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 600; i++) {
            snprintf(key, sizeof key, "%d", i);
            rig_add(family, key, 1);
        }
        assert_i64_equal(hand_collect(1000), round == 0 ? 600 : 400);
        while (hand->count != 0) {
            struct twi_item item = hand->held[hand->count - 1];
            struct twi_reply answer = {0};
            if (atoi((const char *)twi_port_key(&item).data) % 3 == 0) {
                twi_port_return(&item, TW_MINUTE);
            } else {
                twi_port_acknowledge(&item, &answer);
            }
            hand->count--;
        }
        rig_pass(&rig, 100);
    }
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(hand_collect(1000), 200);
    for (size_t i = 0; i < hand->count; i++) assert_i64_equal(hand->held[i].delta, 20);
    hand_close(&rig);
}

/* Goal: a counter that is in two batches, both refused, comes back once, with both deltas, at the later time. */
TEST(a_counter_that_is_refused_twice_comes_back_once) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    for (int i = 1; i <= 2; i++) {
        rig_add(family, "a", i);
        assert_i64_equal(hand_collect(10), 1);
    }
    for (int i = 1; i <= 2; i++) {
        struct twi_item item = hand_pop();
        twi_port_return(&item, (uint32_t)i * TW_MINUTE);
    }
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(hand_collect(10), 0);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 3);
    hand_close(&rig);
}

/* Goal: what Redis refuses until tw_close() is over is told as refused, to the unit, and tried there no more than its
 * waits say. */
TEST(what_is_refused_to_the_end_is_told_as_poison) {
    struct rig rig;
    struct lost_log log = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &log;
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", 10);
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item item = hand_pop();
    twi_port_return(&item, TW_MINUTE);
    rig_add(family, "a", 5);
    hand->refuse_at_turns = true;
    assert_status(tw_close(rig.engine, 0), TW_ERR_TIMEOUT);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.reason, TW_LOST_POISON);
    assert_i64_equal(log.delta, 15);
    assert_i64_equal(hand_refused, 1);
}

/* Goal: a window that a delayed delta belongs to is kept, however long its end has passed, and the delta goes once. */
TEST(a_delta_returned_with_a_delay_keeps_its_window) {
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 10);
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 10 * TW_MINUTE);
    int64_t sum = 0;
    for (int i = 0; i < 20; i++) {
        if (i < 10) assert_i64_equal(test_stat_of(rig.engine, entries), 1);
        rig_pass(&rig, TW_MINUTE);
        (void)hand_collect(10);
        while (hand->count != 0) {
            assert_i64_equal(twi_port_start_ms(&hand->held[hand->count - 1]), RIG_START_MS);
            sum += hand->held[hand->count - 1].delta;
            hand_acknowledge(sum);
        }
        rig_pass(&rig, 100);
    }
    assert_i64_equal(sum, 10);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    hand_close(&rig);
}

TEST(what_is_given_up_is_reported_to_the_unit) {
    const int reasons[] = {TW_LOST_EXPIRED,   TW_LOST_LATE,   TW_LOST_ROLLBACK,
                           TW_LOST_UNCERTAIN, TW_LOST_POISON, TW_LOST_CLOSED};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        struct rig rig;
        struct lost_log log = {0};
        hand_init(&rig);
        rig.options.on_lost = lost_write;
        rig.options.lost_ctx = &log;
        rig_start(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        rig_add(family, "key", -10);
        assert_i64_equal(hand_collect(10), 1);
        struct twi_item item = hand_pop();
        twi_port_give_up(&item, reasons[i]);
        assert_i64_equal(log.calls, 1);
        assert_i64_equal(log.delta, -10);
        assert_i64_equal(log.reason, reasons[i]);
        assert_i64_equal(log.start_ms, RIG_START_MS);
        assert_string_equal(log.key, "key");
        tw_stats stats;
        assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
        bool uncertain = reasons[i] == TW_LOST_UNCERTAIN;
        assert_i64_equal(stats.uncertain, uncertain ? 10 : 0);
        assert_i64_equal(stats.lost, uncertain ? 0 : 10);
        assert_i64_equal(stats.late_deltas, reasons[i] == TW_LOST_LATE ? 10 : 0);
        assert_i64_equal(stats.expired_unsynced, reasons[i] == TW_LOST_EXPIRED ? 10 : 0);
        assert_i64_equal(rig_get(family, "key"), -10);
        assert_i64_equal(hand_collect(10), 1); /* of the read's interest: nothing is owed any more */
        assert_i64_equal(hand->held[0].delta, 0);
        hand_close(&rig);
        assert_i64_equal(log.calls, 1);
    }
}

/* Goal: an item that only asks for a total and is given up is nothing that was lost: on_lost names nothing, and so no
 * flush fails for it. */
TEST(a_total_that_does_not_come_fails_no_flush) {
    struct rig rig;
    struct lost_log log = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &log;
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "key", 1);
    assert_i64_equal(hand_collect(10), 1);
    struct twi_item item = hand_pop();
    struct twi_reply reply = {.total = 1, .has_total = true};
    twi_port_acknowledge(&item, &reply);
    (void)rig_get(family, "key"); /* wants the total */
    assert_i64_equal(hand_collect(10), 1);
    item = hand_pop();
    assert_i64_equal(item.delta, 0);
    uint64_t before = twi_load_relaxed(&rig.engine->collector.given_up);
    twi_port_give_up(&item, TW_LOST_POISON);
    assert_true(twi_load_relaxed(&rig.engine->collector.given_up) == before);
    assert_i64_equal(log.calls, 0);
    hand_close(&rig);
}

TEST(a_close_that_runs_out_of_time_reports_every_unit_once) {
    struct rig rig;
    struct lost_log log = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &log;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 3;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "held", 1);
    assert_i64_equal(hand_collect(10), 1);
    rig_add(family, "held", 10);
    rig_add(family, "marked", 100);
    assert_i64_equal(hand_collect(10), 2);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 60000);
    rig_add(family, "third", 1000);
    assert_status(tw_add(family, tw_str("fourth"), 10000, NULL), TW_OVERFLOWED);
    assert_status(tw_close(rig.engine, 0), TW_ERR_TIMEOUT);
    assert_i64_equal(log.delta, 11111);
    assert_i64_equal(log.reason, TW_LOST_CLOSED);
}
