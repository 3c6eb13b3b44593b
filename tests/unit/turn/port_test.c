/* port_test.c -- the engine's side of port.h: what is owed is collected once, and settled once.
 * Covers: engine/turn/lost.c, engine/turn/settle.c, engine/turn/collect.c. */
#include "tests/unit/hand_driver.h"

#include "engine/turn/turn.h"

static tw_reading read_of(tw_family *family, const char *key) {
    tw_reading reading;
    assert_status(tw_read(family, tw_str(key), &reading), TW_OK);
    return reading;
}

/* ---- collecting -------------------------------------------------------------------------------------------------- */

static void a_counter_is_collected_once_for_all_adds_since_the_last_time(void **state) {
    (void)state;
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
    hand_close(&rig);
}

static void an_item_is_named_as_its_template_says(void **state) {
    (void)state;
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

/* Goal: whatever does not fit into a collection comes with the next ones, each counter once.
 * Method: 1000 counters in two families, collected in pieces of every size. */
static void what_does_not_fit_into_a_collection_comes_with_a_later_one(void **state) {
    (void)state;
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
static void a_quarter_of_a_collection_is_kept_for_open_windows(void **state) {
    (void)state;
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
static void what_dies_first_is_collected_first(void **state) {
    (void)state;
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

static void adds_that_cancel_out_ask_for_the_total_only(void **state) {
    (void)state;
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

static void trap_e41_reading_an_unknown_key_asks_for_its_total_and_counts_nothing(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_i64_equal(rig_get(family, "a"), 0);
    tw_reading reading = read_of(family, "a");
    assert_false(reading.known);
    assert_i64_equal(reading.age_ms, TW_UNBOUNDED);
    assert_i64_equal(reading.error_bound, TW_UNBOUNDED);
    assert_i64_equal(hand_collect(10), 1); /* asked twice, collected once */
    assert_i64_equal(hand->held[0].delta, 0);
    hand_acknowledge(7);
    fake_clock_advance_ms(&rig.clock, 250);
    reading = read_of(family, "a");
    assert_true(reading.known);
    assert_i64_equal(reading.view, 7);
    assert_i64_equal(reading.total, 7);
    assert_i64_equal(reading.local, 0);
    assert_i64_equal(reading.unsent, 0);
    assert_i64_equal(reading.age_ms, 250);
    assert_i64_equal(test_stat_of(rig.engine, increments), 0);
    hand_close(&rig);
}

static void trap_e41_reads_do_not_fill_a_family(void **state) {
    (void)state;
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
static void trap_e6_the_view_holds_own_adds_at_every_step_of_a_batch(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_i64_equal(rig_add(family, "a", 10), 10);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(rig_add(family, "a", 5), 15);
    tw_reading reading = read_of(family, "a");
    assert_i64_equal(reading.local, 15);
    assert_i64_equal(reading.unsent, 15);
    hand_acknowledge(110); /* 100 of others */
    assert_i64_equal(rig_get(family, "a"), 115);
    reading = read_of(family, "a");
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
    assert_i64_equal(read_of(family, "a").unsent, 0);
    hand_close(&rig);
}

static void a_returned_delta_is_collected_again(void **state) {
    (void)state;
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

static void a_delta_returned_with_a_delay_waits(void **state) {
    (void)state;
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
static void a_refused_counter_that_is_counted_on_waits_alone(void **state) {
    (void)state;
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
static void a_counter_that_is_refused_twice_comes_back_once(void **state) {
    (void)state;
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
static void what_is_refused_to_the_end_is_told_as_poison(void **state) {
    (void)state;
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
static void a_delta_returned_with_a_delay_keeps_its_window(void **state) {
    (void)state;
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

static void what_is_given_up_is_reported_to_the_unit(void **state) {
    (void)state;
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
static void a_total_that_does_not_come_fails_no_flush(void **state) {
    (void)state;
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

static void a_close_that_runs_out_of_time_reports_every_unit_once(void **state) {
    (void)state;
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

/* ---- sealing ----------------------------------------------------------------------------------------------------- */

struct closed_log {
    int calls;
    uint32_t flags;
    int64_t sum;
};
static bool log_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)end_ms;
    struct closed_log *log = ctx;
    log->calls++;
    log->flags = flags;
    log->sum = rig_each(family, start_ms).sum;
    return true;
}

static tw_family *take_family_answer(struct rig *rig, struct closed_log *log) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = log_closed;
    options.closed_ctx = log;
    options.history_ms = TW_NONE;
    return rig_family_of(rig, &options);
}

static void the_hook_waits_until_all_of_its_window_is_acknowledged(void **state) {
    (void)state;
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 3);
    rig_add(family, "b", 4);
    rig_pass(&rig, TW_MINUTE);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 0);
    assert_i64_equal(hand_collect(1), 1);
    hand_acknowledge(0);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 0);
    assert_i64_equal(hand_collect(10), 1);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 0);
    hand_acknowledge(0);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.flags, 0);
    assert_i64_equal(log.sum, 7);
    hand_close(&rig);
    assert_i64_equal(log.calls, 1);
}

static void trap_r3_with_redis_away_for_60_s_the_hook_gets_the_local_figures(void **state) {
    (void)state;
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 3);
    rig_pass(&rig, TW_MINUTE);
    rig_pass(&rig, 59999);
    assert_i64_equal(log.calls, 0);
    rig_pass(&rig, 21);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.flags, TW_CLOSED_LOCAL);
    assert_i64_equal(log.sum, 3);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(hand_collect(10), 1); /* the delta continues to Redis all the same */
    assert_i64_equal(hand->held[0].delta, 3);
    assert_i64_equal(test_stat_of(rig.engine, entries), 1);
    hand_acknowledge(3);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    hand_close(&rig);
}

/* Goal: E8, E10. A counter whose adder slept between its add and its mark is found by sealing.
 * Method: the add's first half by hand. */
static void trap_e8_sealing_finds_what_was_added_and_never_marked(void **state) {
    (void)state;
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(1);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
    assert_i64_equal(before & TWI_DIRTY, 0);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    rig_run_turn(rig.engine);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 20);
    twi_place_mark(&call, &place, before); /* the adder wakes up: sealed, it has nothing to mark */
    twi_call_end(&call);
    assert_i64_equal(hand_collect(10), 0);
    hand_acknowledge(21);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.sum, 21);
    hand_close(&rig);
}

/* Goal: an adder that has set DIRTY and slept, while its window was sealed, drained, told of and dropped, then lists a
 * window that waits to be reused. It is reused all the same, and never while it is on a list.
 * Method: the adder's steps by hand, the turn next to it. */
static void trap_e10_a_mark_that_comes_after_the_window_was_dropped_harms_nobody(void **state) {
    (void)state;
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(1);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
    (void)twi_or_acqrel(&place.cell->local, TWI_DIRTY); /* D1, and here it sleeps */
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    rig_run_turn(rig.engine);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(21);
    fake_clock_advance_ms(&rig.clock, 100);
    for (int i = 0; i < 3; i++) rig_run_turn(rig.engine);
    assert_i64_equal(log.calls, 1);
    assert_true(rig.engine->unlinked.generations != 0);
    hand_list_late(rig.engine, &place);
    twi_call_end(&call);
    for (int i = 0; i < 3; i++) rig_pass(&rig, 100);
    assert_i64_equal(rig.engine->unlinked.generations, 0);
    assert_i64_equal(hand_collect(10), 0);
    rig_add(family, "b", 1); /* into memory that was the old window's */
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 1);
    hand_close(&rig);
}

/* Goal: E10. A full collection begun while an adder is between its add and its mark waits for it. */
static void trap_e10_a_flush_waits_for_a_mark_under_way(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    if (!twi_place_find(&call, &place)) assert_status(twi_place_make(&call, &place), TW_OK);
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
    twi_port_collect_begin(rig.engine);
    assert_i64_equal(hand_collect(10), 0);
    assert_false(twi_port_collect_is_done(rig.engine));
    twi_place_mark(&call, &place, before);
    twi_call_end(&call);
    while (!twi_port_collect_is_done(rig.engine)) (void)hand_collect(10);
    assert_i64_equal(hand->count, 1);
    assert_i64_equal(hand->held[0].delta, 20);
    hand_close(&rig);
}

static void a_full_collection_is_done_only_when_nothing_was_left_out(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    twi_port_collect_begin(rig.engine);
    for (int i = 0; i < 10; i++) {
        assert_false(twi_port_collect_is_done(rig.engine));
        assert_i64_equal(hand_collect(10), 10);
    }
    assert_i64_equal(hand_collect(10), 0);
    assert_true(twi_port_collect_is_done(rig.engine));
    hand_close(&rig);
}

/* ---- E24: lives that Redis decides ------------------------------------------------------------------------------- */

static struct twi_item pop_and_adopt(int64_t total, int64_t end_ms) {
    struct twi_item item = hand_pop();
    struct twi_reply answer = {.total = total, .has_total = true, .end_ms = end_ms};
    twi_port_acknowledge(&item, &answer);
    return item;
}

/* Goal: the end that Redis names is the key's end here, sooner or later than we thought. */
static void trap_e24_a_life_ends_when_redis_says(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    rig_add(family, "soon", 1);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].flags, TWI_ITEM_FIRST | TWI_ITEM_FROM_FIRST);
    assert_i64_equal(hand->held[0].expiry_ms, RIG_START_MS + TW_MINUTE);
    (void)pop_and_adopt(11, RIG_START_MS + 10000);
    fake_clock_advance_ms(&rig.clock, 9999);
    assert_i64_equal(rig_add(family, "soon", 1), 12);
    fake_clock_advance_ms(&rig.clock, 1);
    tw_reading reading = read_of(family, "soon"); /* a new life, of which nothing is known yet */
    assert_i64_equal(reading.view, 0);
    assert_false(reading.known);
    assert_i64_equal(rig_add(family, "soon", 5), 5);
    assert_i64_equal(hand_collect(10), 2);
    int64_t old = 0, fresh = 0;
    for (size_t i = 0; i < 2; i++) {
        if (hand->held[i].expiry_ms == RIG_START_MS + 10000) old += hand->held[i].delta;
        if (hand->held[i].expiry_ms == RIG_START_MS + 10000 + TW_MINUTE) fresh += hand->held[i].delta;
    }
    assert_i64_equal(old, 1);
    assert_i64_equal(fresh, 5);
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.counters, 1);
    assert_i64_equal(seen.sum, 5);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE - 1);
    assert_i64_equal(rig_get(family, "soon"), 5);
    fake_clock_advance_ms(&rig.clock, 1);
    assert_i64_equal(rig_get(family, "soon"), 0);
    hand_close(&rig);
}

/* Goal: a third life of a key in one window has no cell, and never counts in a dead one. */
static void trap_e24_a_third_life_in_one_window_does_not_count_in_a_dead_one(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_HOUR);
    for (int life = 1; life <= 2; life++) {
        assert_i64_equal(rig_add(family, "k", 1), 1);
        while (hand_collect(10) != 0) continue;
        while (hand->count != 0) (void)pop_and_adopt(1, fake_clock_wall_ms(&rig.clock) + 1000);
        fake_clock_advance_ms(&rig.clock, 1000);
    }
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OVERFLOWED);
    assert_i64_equal(rig_get(family, "k"), 0);
    hand_close(&rig);
}

/* ---- E27: an outage occupies no slot ----------------------------------------------------------------------------- */

/* Goal: hundreds of windows that wait for Redis delay neither counting nor each other, and each goes to its own window
 * at last. Method: an hour of 5-s windows without Redis, then collections of every size. */
static void trap_e27_hundreds_of_undrained_windows_wait_and_are_sent(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    struct closed_log log = {0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, 5 * TW_SECOND);
    options.on_window_closed = log_closed;
    options.closed_ctx = &log;
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    enum { WINDOWS = 720 };
    for (int i = 0; i < WINDOWS; i++) {
        assert_i64_equal(rig_add(family, "a", i + 1), i + 1);
        rig_add(family, "b", 1);
        rig_pass(&rig, 5 * TW_SECOND);
    }
    assert_i64_equal(test_stat_of(rig.engine, entries), 2 * WINDOWS);
    static int64_t sums[WINDOWS];
    memset(sums, 0, sizeof sums);
    for (size_t room = 1; hand_collect(room) != 0; room = room % 100 + 1) {
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            int64_t window = (twi_port_start_ms(&item) - RIG_START_MS) / (5 * TW_SECOND);
            assert_true(window >= 0 && window < WINDOWS);
            sums[window] += item.delta;
            struct twi_reply answer = {0};
            twi_port_acknowledge(&item, &answer);
        }
    }
    for (int i = 0; i < WINDOWS; i++) assert_i64_equal(sums[i], i + 2);
    rig_pass(&rig, 100);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, WINDOWS);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    hand_close(&rig);
}

/* ---- what with Redis is another thing
 * ------------------------------------------------------------------------------------- */

static void once_decides_on_the_view_and_is_sent(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    bool first = false;
    assert_status(tw_once(family, tw_str("a"), &first), TW_OK);
    assert_true(first);
    assert_i64_equal(hand_collect(100), 1);
    assert_i64_equal(hand->held[0].delta, 1);
    hand_acknowledge(2); /* another one was first, too */
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 0);
    assert_i64_equal(hand_collect(100), 1);
    assert_i64_equal(hand->held[0].delta, -2);
    hand_acknowledge(0);
    assert_status(tw_once(family, tw_str("a"), &first), TW_OK);
    assert_true(first);
    hand_close(&rig);
}

static void acquire_decides_on_the_view(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str("a"), 3, 10, &verdict), TW_OK);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE); /* its total is not known yet */
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 3);
    hand_acknowledge(8); /* 5 of others */
    assert_status(tw_acquire(family, tw_str("a"), 3, 10, &verdict), TW_DENIED);
    assert_i64_equal(verdict.used, 8);
    assert_i64_equal(verdict.remaining, 2);
    assert_i64_equal(hand_collect(10), 0); /* a denied call has only loaded */
    assert_status(tw_acquire(family, tw_str("a"), 2, 10, &verdict), TW_OK);
    assert_i64_equal(verdict.used, 10);
    hand_close(&rig);
}

/* What a turn some seconds on says is unsent. */
static int64_t unsent_after(struct rig *rig) {
    fake_clock_advance_ms(&rig->clock, 2000);
    rig_turn(rig);
    return test_stat_of(rig->engine, unsent_keys);
}

/* Goal: the gauge tells how many counters owe Redis something, wherever they are: marked, marked by the turn, in a
 * batch, or waiting after a refusal; in open and closed windows, overflow included. Method: 3000 counters in two
 * windows of one family and 500 of an endless one that holds 400; then all are settled bit by bit. */
static void counters_that_owe_redis_are_sampled(void **state) {
    (void)state;
    struct rig rig;
    char key[16];
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.lateness_ms = TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    options = rig_options("small", TW_WINDOW_FOREVER, 0);
    options.keys_max = 400;
    tw_family *small = rig_family_of(&rig, &options);
    assert_i64_equal(unsent_after(&rig), 0);
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add_at(family, tw_str(key), 1, RIG_START_MS - (i % 3 == 0 ? TW_HOUR : 0), NULL), TW_OK);
        if (i < 500) assert_true(tw_add(small, tw_str(key), 1, NULL) >= 0);
    }
    assert_i64_equal(unsent_after(&rig), 3401);
    assert_i64_equal(hand_collect(1000), 1000); /* and what of a chunk did not fit was marked again by the turn */
    assert_i64_equal(unsent_after(&rig), 3401);
    for (int i = 0; i < 300; i++) {
        struct twi_item item = hand_pop();
        twi_port_return(&item, i < 100 ? 0 : 3600000);
    }
    assert_i64_equal(unsent_after(&rig), 3401);
    for (int i = 0; i < 400; i++) hand_acknowledge(1);
    assert_i64_equal(unsent_after(&rig), 3001);
    while (hand->count != 0 || hand_collect(1000) != 0) hand_acknowledge(1);
    assert_i64_equal(unsent_after(&rig), 200); /* those that wait for an hour */
    hand_close(&rig);
}

static void templates_that_collide_are_refused(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("one", TW_WINDOW_FOREVER, 0);
    options.redis_key = "x:%k";
    (void)rig_family_of(&rig, &options);
    options.name = "two";
    char error[256] = "";
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family *family = NULL;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(error, "redis_key"));
    assert_null(family);
    hand_close(&rig);
}

/* A closed family sends what it owes before it goes. */
static void a_closed_family_goes_when_it_has_sent_all(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    int64_t before = test_memory_bytes(rig.engine);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    rig_add(family, "a", 5);
    assert_status(tw_family_close(family), TW_OK);
    rig_pass(&rig, 1000);
    assert_null(tw_family_find(rig.engine, "f"));
    assert_true(test_memory_bytes(rig.engine) > before);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    rig_pass(&rig, 1000);
    char name[TWI_REDIS_KEY_MAX]; /* the item still has its family */
    assert_i64_equal(twi_port_render(&hand->held[0], name), 3);
    hand_acknowledge(5);
    rig_pass(&rig, 1000);
    rig_pass(&rig, 1000);
    assert_i64_equal(test_memory_bytes(rig.engine), before);
    hand_close(&rig);
}

/* ---- the overflow counter ---------------------------------------------------------------------------------------- */

static void overflow_counts_travel_under_their_own_name(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(1);
    int64_t view = 0;
    assert_status(tw_add(family, tw_str("b"), 2, &view), TW_OVERFLOWED);
    assert_i64_equal(view, 2);
    assert_status(tw_add(family, tw_str("c"), 3, &view), TW_OVERFLOWED);
    assert_i64_equal(view, 5);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    assert_true((hand->held[0].flags & TWI_ITEM_OVERFLOW) != 0);
    char name[TWI_REDIS_KEY_MAX];
    size_t size = twi_port_render(&hand->held[0], name);
    const char *want = "tw:overflow:f::2023111423";
    assert_i64_equal(size, strlen(want));
    assert_memory_equal(name, want, size);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 0);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    hand_close(&rig);
}

/* Goal: extremes of what Redis may hold do not wrap anything here. */
static void totals_at_the_edge_of_64_bits_saturate(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "least", -5);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(INT64_MIN);
    rig_add(family, "least", -5);
    assert_i64_equal(rig_get(family, "least"), INT64_MIN);
    assert_status(tw_reset(family, tw_str("least"), NULL), TW_ERR_RANGE);
    rig_add(family, "most", 5);
    while (hand_collect(10) != 0) continue;
    while (hand->count != 0) hand_acknowledge(INT64_MAX);
    rig_add(family, "most", 5);
    assert_i64_equal(rig_get(family, "most"), INT64_MAX);
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str("most"), 1, 10, &verdict), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
    assert_i64_equal(verdict.used, INT64_MAX);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    hand_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_is_collected_once_for_all_adds_since_the_last_time),
        cmocka_unit_test(an_item_is_named_as_its_template_says),
        cmocka_unit_test(what_does_not_fit_into_a_collection_comes_with_a_later_one),
        cmocka_unit_test(a_quarter_of_a_collection_is_kept_for_open_windows),
        cmocka_unit_test(what_dies_first_is_collected_first),
        cmocka_unit_test(adds_that_cancel_out_ask_for_the_total_only),
        cmocka_unit_test(trap_e41_reading_an_unknown_key_asks_for_its_total_and_counts_nothing),
        cmocka_unit_test(trap_e41_reads_do_not_fill_a_family),
        cmocka_unit_test(trap_e6_the_view_holds_own_adds_at_every_step_of_a_batch),
        cmocka_unit_test(a_returned_delta_is_collected_again),
        cmocka_unit_test(a_delta_returned_with_a_delay_waits),
        cmocka_unit_test(a_delta_returned_with_a_delay_keeps_its_window),
        cmocka_unit_test(a_refused_counter_that_is_counted_on_waits_alone),
        cmocka_unit_test(a_counter_that_is_refused_twice_comes_back_once),
        cmocka_unit_test(what_is_refused_to_the_end_is_told_as_poison),
        cmocka_unit_test(what_is_given_up_is_reported_to_the_unit),
        cmocka_unit_test(a_total_that_does_not_come_fails_no_flush),
        cmocka_unit_test(a_close_that_runs_out_of_time_reports_every_unit_once),
        cmocka_unit_test(the_hook_waits_until_all_of_its_window_is_acknowledged),
        cmocka_unit_test(trap_r3_with_redis_away_for_60_s_the_hook_gets_the_local_figures),
        cmocka_unit_test(trap_e8_sealing_finds_what_was_added_and_never_marked),
        cmocka_unit_test(trap_e10_a_mark_that_comes_after_the_window_was_dropped_harms_nobody),
        cmocka_unit_test(trap_e10_a_flush_waits_for_a_mark_under_way),
        cmocka_unit_test(a_full_collection_is_done_only_when_nothing_was_left_out),
        cmocka_unit_test(trap_e24_a_life_ends_when_redis_says),
        cmocka_unit_test(trap_e24_a_third_life_in_one_window_does_not_count_in_a_dead_one),
        cmocka_unit_test(trap_e27_hundreds_of_undrained_windows_wait_and_are_sent),
        cmocka_unit_test(once_decides_on_the_view_and_is_sent),
        cmocka_unit_test(acquire_decides_on_the_view),
        cmocka_unit_test(counters_that_owe_redis_are_sampled),
        cmocka_unit_test(templates_that_collide_are_refused),
        cmocka_unit_test(a_closed_family_goes_when_it_has_sent_all),
        cmocka_unit_test(overflow_counts_travel_under_their_own_name),
        cmocka_unit_test(totals_at_the_edge_of_64_bits_saturate),
    };
    return cmocka_run_group_tests_name("port", tests, NULL, NULL);
}
