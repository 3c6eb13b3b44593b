/* watermark_test.c -- tw_close_until(), and the order in which hooks are called. */
#include "tests/unit/hand_driver.h"

#include "engine/turn/closing.h"

#define CALLS_MAX 64

struct told {
    int calls;
    bool refuses;
    int64_t start_ms[CALLS_MAX], sum;
    uint32_t flags;
    tw_family *closes; /* the hook itself raises the watermark */
    int64_t until_ms;
};
static struct rig rig;
static struct told told;
static char log_text[256];
static int log_lines;

static bool sum_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms;
    told.sum = 0;
    assert_status(tw_each(family, start_ms, sum_up, &told.sum), TW_OK);
    if (told.calls < CALLS_MAX) told.start_ms[told.calls] = start_ms;
    told.calls++;
    told.flags = flags;
    if (told.closes != NULL) assert_status(tw_close_until(told.closes, told.until_ms), TW_OK);
    return !told.refuses;
}

static void on_log(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level;
    if (event != TW_EVENT_LATE) return;
    log_lines++;
    snprintf(log_text, sizeof log_text, "%s", text);
}

static tw_family_options options_of(int64_t lateness_ms) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = lateness_ms;
    options.earliness_ms = TW_HOUR;
    options.on_window_closed = on_closed;
    return options;
}

static tw_family *open_family(bool with_redis, int64_t lateness_ms, uint32_t by) {
    memset(&told, 0, sizeof told);
    log_lines = 0;
    if (with_redis)
        hand_init(&rig);
    else
        rig_init(&rig);
    rig.options.log_write = on_log;
    rig_start(&rig);
    tw_family_options options = options_of(lateness_ms);
    options.closed_by = by;
    return rig_family_of(&rig, &options);
}

static tw_status add_at(tw_family *family, int64_t delta, int64_t minute) {
    return tw_add_at(family, tw_str("a"), delta, RIG_START_MS + minute * TW_MINUTE, NULL);
}
static tw_status close_until(tw_family *family, int64_t minute) {
    return tw_close_until(family, RIG_START_MS + minute * TW_MINUTE);
}

/* Goal: a window that ends at or before the watermark takes no more counts and its hook is called. Later windows are
 * unchanged, and the past can be read. */
TEST(a_watermark_closes_what_ends_before_it) {
    tw_family *family = open_family(false, TW_UNBOUNDED, TW_CLOSED_BY_EACH);
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE);
    for (int i = 4; i >= 0; i--) assert_status(add_at(family, 1 + i, i), TW_OK); /* in any order */
    rig_settle(&rig);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(told.calls, 0);
    assert_status(tw_close_until(family, RIG_START_MS + 3 * TW_MINUTE - 1), TW_OK); /* the third lacks a millisecond */
    assert_status(add_at(family, 1, 1), TW_ERR_LATE);                               /* before any turn */
    assert_i64_equal(tw_timeout_ms(rig.engine), 0);
    rig_settle(&rig);
    assert_i64_equal(told.calls, 2);
    for (int i = 0; i < 2; i++) assert_i64_equal(told.start_ms[i], RIG_START_MS + i * TW_MINUTE);
    assert_i64_equal(told.flags, 0);
    assert_i64_equal(told.sum, 2);
    assert_status(add_at(family, 1, 0), TW_ERR_LATE);
    assert_status(add_at(family, 1, 2), TW_OK);
    assert_status(close_until(family, 1), TW_OK); /* an earlier one changes nothing */
    rig_settle(&rig);
    assert_i64_equal(told.calls, 2);
    assert_status(add_at(family, 1, 0), TW_ERR_LATE);
    assert_status(add_at(family, 1, 2), TW_OK);
    int64_t view = 0;
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 1);
    assert_status(close_until(family, 5), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(told.calls, 5);
    for (int i = 0; i < 5; i++) assert_i64_equal(told.start_ms[i], RIG_START_MS + i * TW_MINUTE);
    rig_pass(&rig, TW_MINUTE + 1000); /* history_ms, from the closing on */
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS, &view), TW_ERR_LATE);
    assert_status(add_at(family, 1, 0), TW_ERR_LATE);
    assert_status(add_at(family, 1, 20), TW_OK);
    rig_close(&rig);
}

/* Goal: a watermark ahead of the clock takes no count from a window that has not ended, and holds from its end on. */
TEST(a_watermark_ahead_of_the_clock_waits_for_it) {
    tw_family *family = open_family(false, TW_HOUR, TW_CLOSED_BY_EACH);
    assert_status(close_until(family, 2), TW_OK);
    rig_add(family, "a", 1);
    assert_status(add_at(family, 1, 1), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(told.calls, 0);
    rig_pass(&rig, TW_MINUTE - 1);
    rig_add(family, "a", 1);
    assert_i64_equal(told.calls, 0);
    rig_pass(&rig, 1);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.sum, 2);
    assert_status(add_at(family, 1, 0), TW_ERR_LATE);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(told.calls, 2);
    rig_add(family, "a", 1); /* the third has its lateness */
    rig_pass(&rig, TW_MINUTE);
    assert_status(add_at(family, 1, 2), TW_OK);
    assert_i64_equal(told.calls, 2);
    rig_close(&rig);
}

TEST(a_watermark_that_makes_no_sense_is_refused) {
    tw_family *family = open_family(false, TW_HOUR, TW_CLOSED_BY_EACH);
    assert_status(close_until(family, 62), TW_ERR_EARLY); /* beyond earliness_ms */
    assert_status(tw_close_until(family, TW_UNBOUNDED), TW_ERR_RANGE);
    assert_status(tw_close_until(family, TW_NOW), TW_ERR_RANGE);
    static const uint32_t windows[] = {TW_WINDOW_FROM_FIRST, TW_WINDOW_FOREVER};
    for (int i = 0; i < 2; i++) {
        char name[8];
        snprintf(name, sizeof name, "m%d", i);
        tw_family *other = rig_family(&rig, name, windows[i], windows[i] == TW_WINDOW_FROM_FIRST ? TW_MINUTE : 0);
        assert_status(tw_close_until(other, RIG_START_MS), TW_ERR_MODE);
    }
    tw_family_options paced = rig_options("paced", TW_WINDOW_ALIGNED, TW_MINUTE);
    paced.limit_shape = TW_SHAPE_GCRA;
    assert_status(tw_close_until(rig_family_of(&rig, &paced), RIG_START_MS), TW_ERR_MODE);
    tw_family *days = rig_family(&rig, "days", TW_WINDOW_DAY, 0);
    assert_status(tw_close_until(days, RIG_START_MS), TW_OK);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_close_until(family, RIG_START_MS), TW_ERR_CLOSED);
    rig_close(&rig);
}

/* Goal: civil windows, too; by their own ends. */
TEST(a_watermark_closes_days) {
    rig_open(&rig);
    memset(&told, 0, sizeof told);
    tw_family_options options = rig_options("days", TW_WINDOW_DAY, 0);
    options.utc_offset_ms = 8 * TW_HOUR; /* the rig's clock is at 07:00 */
    options.lateness_ms = TW_UNBOUNDED;
    options.on_window_closed = on_closed;
    tw_family *family = rig_family_of(&rig, &options);
    assert_status(tw_add_at(family, tw_str("a"), 1, RIG_START_MS - TW_DAY, NULL), TW_OK);
    assert_status(tw_close_until(family, RIG_START_MS - 7 * TW_HOUR - 1), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(told.calls, 0);
    assert_status(tw_close_until(family, RIG_START_MS - 7 * TW_HOUR), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.start_ms[0], RIG_START_MS - 31 * TW_HOUR);
    rig_close(&rig);
}

/* Goal: with Redis, a window's hook is called when Redis has the window, and hooks of later windows not before. */
TEST(with_redis_it_waits_for_redis_and_keeps_the_order) {
    tw_family *family = open_family(true, TW_UNBOUNDED, TW_CLOSED_BY_EACH);
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE);
    for (int i = 0; i < 4; i++) assert_status(add_at(family, 1, i), TW_OK);
    rig_settle(&rig);
    assert_int_equal(hand_collect(100), 4);
    assert_status(close_until(family, 4), TW_OK);
    rig_settle(&rig);
    struct twi_item first = hand->held[0];
    for (size_t i = 1; i < hand->count; i++)
        if (hand->held[i].generation->start_ms < first.generation->start_ms) first = hand->held[i];
    for (size_t i = hand->count; i != 0; i--) {
        struct twi_item item = hand_pop();
        if (item.generation != first.generation)
            twi_port_acknowledge(&item, &(struct twi_reply){.total = 1, .has_total = true});
    }
    for (int i = 0; i < 10; i++) rig_pass(&rig, 100);
    assert_i64_equal(told.calls, 0); /* three are drained, the first is not */
    twi_port_acknowledge(&first, &(struct twi_reply){.total = 1, .has_total = true});
    for (int i = 0; i < 10; i++) rig_pass(&rig, 100);
    assert_i64_equal(told.calls, 4);
    for (int i = 0; i < 4; i++) assert_i64_equal(told.start_ms[i], RIG_START_MS + i * TW_MINUTE);
    hand_close(&rig);
}

/* Goal: with TW_CLOSED_BY_ONE, the watermark is what this engine reports as finished. */
TEST(by_one_it_is_what_an_engine_is_through_with) {
    tw_family *family = open_family(true, TW_UNBOUNDED, TW_CLOSED_BY_ONE);
    tw_key names[TWI_CLOSING_NAMES_MAX];
    struct twi_closing_message say = {.names = names};
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE);
    for (int i = 0; i < 2; i++) {
        rig_pass(&rig, 1000);
        assert_true(twi_port_closing(rig.engine, &say));
        assert_int_equal(say.verb, TWI_CLOSING_SEND_HEARTBEAT);
        assert_i64_equal(say.floor_ms, i == 0 ? 0 : RIG_START_MS + 4 * TW_MINUTE);
        twi_port_closing_answered(rig.engine, &say, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_OK});
        assert_status(close_until(family, 4), TW_OK);
    }
    hand_close(&rig);
}

/* Goal: a window whose hook returns false delays the windows after it, and no other family. */
TEST(a_refused_window_holds_up_those_after_it) {
    tw_family *family = open_family(false, 0, TW_CLOSED_BY_EACH);
    told.refuses = true;
    for (int i = 0; i < 3; i++) {
        rig_add(family, "a", 1);
        rig_pass(&rig, TW_MINUTE);
    }
    assert_true(told.calls > 1);
    for (int i = 0; i < told.calls; i++) assert_i64_equal(told.start_ms[i], RIG_START_MS);
    told.refuses = false;
    told.calls = 0;
    rig_pass(&rig, 100);
    assert_i64_equal(told.calls, 3);
    for (int i = 0; i < 3; i++) assert_i64_equal(told.start_ms[i], RIG_START_MS + i * TW_MINUTE);
    rig_close(&rig);
}

/* Goal: hooks of thousands of windows, opened in any order, are called in the windows' order. */
TEST(many_windows_are_told_in_order) {
    tw_family *family = open_family(false, TW_UNBOUNDED, TW_CLOSED_BY_EACH);
    static int64_t minutes[3000];
    fake_clock_advance_ms(&rig.clock, 3000 * TW_MINUTE);
    for (int i = 0; i < 3000; i++) {
        minutes[i] = i * 1861 % 3000;
        assert_status(add_at(family, 1, minutes[i]), TW_OK);
        if (i % 700 == 0) rig_settle(&rig);
    }
    for (int minute = 0; minute <= 3000; minute += 30) {
        told.calls = 0;
        assert_status(close_until(family, minute), TW_OK);
        rig_settle(&rig);
        assert_i64_equal(told.calls, minute == 0 ? 0 : 30);
        for (int i = 0; i < told.calls; i++)
            assert_i64_equal(told.start_ms[i], RIG_START_MS + (minute - 30 + i) * TW_MINUTE);
    }
    rig_close(&rig);
}

/* Goal: the hook may raise it. */
TEST(a_hook_may_raise_the_watermark) {
    tw_family *family = open_family(false, TW_UNBOUNDED, TW_CLOSED_BY_EACH);
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE);
    for (int i = 0; i < 3; i++) assert_status(add_at(family, 1, i), TW_OK);
    told.closes = family;
    told.until_ms = RIG_START_MS + 3 * TW_MINUTE;
    assert_status(close_until(family, 1), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(told.calls, 3);
    rig_close(&rig);
}

/* Goal: a family without lateness that counts by event time gets one log line that counts came too late; a family with
 * a lateness gets none. */
TEST(late_counts_without_a_lateness_are_logged_once) {
    for (int lateness = 0; lateness < 2; lateness++) {
        tw_family *family = open_family(false, lateness, TW_CLOSED_BY_EACH);
        for (int i = 0; i < 3; i++) {
            rig_pass(&rig, TW_MINUTE + 1000);
            assert_status(add_at(family, 1, 0), TW_ERR_LATE);
            rig_settle(&rig);
        }
        assert_int_equal(log_lines, lateness == 0);
        if (lateness == 0) assert_non_null(strstr(log_text, "lateness_ms"));
        assert_i64_equal(test_stat_of(rig.engine, late_increments), 3);
        rig_close(&rig);
    }
}
