/* timeout_check_test.c -- when the log says that redis_timeout_ms is too short, and how often. Each bound is tried on
 * both of its sides: the last millisecond or microsecond that changes nothing, and the first one that does. */
#include "engine/port/services.h"
#include "tests/unit/hand_driver.h"

#define TIMEOUT_MS 99
#define ENOUGH_US 33000 /* three round trips of this length are exactly TIMEOUT_MS */

/* What the log had about redis_timeout_ms. */
struct told {
    int timeouts, ways, unsent;
    char text[512];
};

static struct told told;

static void write_line(void *ctx, int level, int event, const char *text) {
    struct told *lines = ctx;
    if (event == TW_EVENT_LOST_CONNECTION) {
        lines->unsent++;
        snprintf(lines->text, sizeof lines->text, "%s", text);
    }
    if (strstr(text, "redis_timeout_ms: ") == NULL) return;
    assert_int_equal(level, TW_LOG_WARNING);
    assert_int_equal(event, TW_EVENT_START);
    lines->timeouts += strstr(text, "tries of calls that wait") != NULL;
    lines->ways += strstr(text, "three round trips") != NULL;
    snprintf(lines->text, sizeof lines->text, "%s", text);
}

static void turn_after(struct rig *rig, int64_t ms) {
    fake_clock_advance_ms(&rig->clock, ms);
    rig_run_turn(rig->engine);
}

/* The machine has run for a second: times that are unknown are zero, and so nearly are those of now. */
static void open_told(struct rig *rig, uint32_t timeout_ms) {
    hand_init(rig);
    told = (struct told){0};
    atomic_store(&rig->clock.mono_ns, INT64_C(1000000000));
    rig->options.redis_timeout_ms = timeout_ms;
    rig->options.log_write = write_line;
    rig->options.log_ctx = &told;
    rig_start(rig);
    twi_port_connected(rig->engine, true);
    rig_run_turn(rig->engine);
    turn_after(rig, 1000); /* looks for the first time at a second in which Redis replied */
}

/* The last line, and how many there were of each kind. */
static void expect(int timeouts, int ways, const char *bound, const char *way) {
    assert_int_equal(told.timeouts, timeouts);
    assert_int_equal(told.ways, ways);
    assert_non_null(strstr(told.text, bound));
    assert_non_null(strstr(told.text, way));
}

/* As many looks as make a line, if each of them finds the way too long. */
static void look_thrice(struct rig *rig) {
    for (int i = 0; i < 3; i++) turn_after(rig, 1000);
}

/* Goal: calls without a reply are told of with their number, by the second look: until then an outage would be
 * known. */
TEST(calls_without_a_reply_are_told_of_after_two_seconds) {
    struct rig rig;
    open_told(&rig, 250);
    twi_port_measured(rig.engine, 70000, 0);
    twi_port_count(rig.engine, ask_timeouts, 1);
    turn_after(&rig, 1000);
    turn_after(&rig, 999);
    assert_int_equal(told.timeouts, 0);
    turn_after(&rig, 1);
    expect(1, 0, "within 250 ms", "70.0 ms, so Redis or the way to it pauses at times [");
    assert_non_null(strstr(told.text, "redis_timeout_ms: 1 tries"));
    turn_after(&rig, 20000); /* they are told of once */
    assert_int_equal(told.timeouts, 1);
    hand_close(&rig);
}

/* Goal: what was never sent needs no longer time, but a connection: the line says so, with the reason. */
TEST(calls_without_a_connection_are_told_of_as_such) {
    struct rig rig;
    open_told(&rig, TIMEOUT_MS);
    twi_port_last_error(rig.engine, "recv: Connection reset by peer");
    for (int i = 0; i < 3; i++) {
        twi_port_count(rig.engine, ask_timeouts, 1);
        twi_port_timed_out_unsent(rig.engine);
    }
    turn_after(&rig, 1000);
    turn_after(&rig, 1000);
    turn_after(&rig, 10000);
    assert_int_equal(told.unsent, 1);
    assert_int_equal(told.timeouts, 0);
    assert_string_equal(told.text, "3 calls that wait had no connection to Redis within 99 ms, though it acknowledges "
                                   "counts; the last error: recv: Connection reset by peer [TW-E011: check Redis and "
                                   "the network; counts wait here meanwhile]");
    hand_close(&rig);
}

/* Goal: there is one line in ten seconds at most. Method: a look a millisecond before, and one just then. */
TEST(the_next_line_about_calls_comes_after_ten_seconds) {
    for (int64_t early_ms = 0; early_ms <= 1; early_ms++) {
        struct rig rig;
        open_told(&rig, 250);
        twi_port_measured(rig.engine, 83334, 0); /* three of them are longer than 250 ms */
        twi_port_count(rig.engine, ask_timeouts, 1);
        turn_after(&rig, 1000);
        twi_port_count(rig.engine, ask_timeouts, 1);
        turn_after(&rig, 1000);
        expect(1, 0, "within 250 ms", "a round trip takes 83.3 ms [");
        turn_after(&rig, 10000 - early_ms);
        assert_int_equal(told.timeouts, early_ms == 0 ? 2 : 1);
        hand_close(&rig);
    }
}

/* Goal: while Redis does not reply, nothing is said of the time-out, neither then nor afterwards. */
TEST(nothing_is_told_while_redis_does_not_reply) {
    struct rig rig;
    open_told(&rig, TIMEOUT_MS);
    twi_port_measured(rig.engine, ENOUGH_US + 1, 0);
    twi_port_connected(rig.engine, false);
    twi_port_count(rig.engine, ask_timeouts, 1);
    look_thrice(&rig);
    twi_port_measured(rig.engine, ENOUGH_US, 0);
    twi_port_connected(rig.engine, true);
    look_thrice(&rig);
    assert_int_equal(told.timeouts + told.ways, 0);
    hand_close(&rig);
}

/* Goal: an outage that begins and ends between two looks is none of the time-out's, nor are the calls just before it is
 * known, nor those just after. */
TEST(calls_of_an_outage_between_two_looks_are_not_told_of) {
    struct rig rig;
    open_told(&rig, TIMEOUT_MS);
    twi_port_count(rig.engine, ask_timeouts, 1); /* Redis is frozen, and nobody knows */
    turn_after(&rig, 1000);
    twi_port_connected(rig.engine, false);
    turn_after(&rig, 500);
    twi_port_count(rig.engine, ask_timeouts, 3);
    twi_port_connected(rig.engine, true);
    turn_after(&rig, 500);
    turn_after(&rig, 1000);
    turn_after(&rig, 1000);
    assert_int_equal(told.timeouts, 0);
    hand_close(&rig);
}

/* Goal: a way of which three fit into redis_timeout_ms is short enough. One that is a microsecond longer is told of, by
 * the third look in a row. */
TEST(a_way_that_is_too_long_for_three_looks_is_told_of) {
    struct rig rig;
    open_told(&rig, TIMEOUT_MS);
    twi_port_measured(rig.engine, ENOUGH_US, 0);
    look_thrice(&rig);
    turn_after(&rig, 1000);
    assert_int_equal(told.ways, 0);
    twi_port_measured(rig.engine, ENOUGH_US + 1, 0);
    turn_after(&rig, 1000);
    turn_after(&rig, 1000);
    assert_int_equal(told.ways, 0);
    twi_port_measured(rig.engine, ENOUGH_US, 0); /* a host that was late only for a while */
    turn_after(&rig, 1000);
    twi_port_measured(rig.engine, 100000, 0);
    turn_after(&rig, 1000);
    turn_after(&rig, 1000);
    assert_int_equal(told.ways, 0);
    turn_after(&rig, 1000);
    expect(0, 1, "redis_timeout_ms: 99 ms", "100.0 ms");
    hand_close(&rig);
}

/* Goal: an option that stays too short is told of every ten minutes. */
TEST(the_next_line_about_the_way_comes_after_ten_minutes) {
    for (int64_t early_ms = 0; early_ms <= 1; early_ms++) {
        struct rig rig;
        open_told(&rig, TIMEOUT_MS);
        twi_port_measured(rig.engine, ENOUGH_US + 1, 0);
        look_thrice(&rig);
        assert_int_equal(told.ways, 1);
        turn_after(&rig, 600000 - early_ms);
        assert_int_equal(told.ways, early_ms == 0 ? 2 : 1);
        hand_close(&rig);
    }
}

/* Goal: without redis_timeout_ms the engine takes what follows from the way, so no way is too long. */
TEST(a_timeout_that_follows_from_the_way_is_never_too_short) {
    struct rig rig;
    open_told(&rig, 0);
    twi_port_measured(rig.engine, 900000, 0);
    look_thrice(&rig);
    assert_int_equal(told.ways, 0);
    hand_close(&rig);
}
