/* log_lines_test.c -- what an engine says of itself, word for word: faults that need no Redis.
 * tests/log_lines.txt names the test of each line; tests/redis/connection/log_lines.c has those of a server.
 * Method: a clock that obeys; all lines of a fault are compared, in their order.
 * Always true: what lasts is said at its beginning, each ten minutes, and at its end. */
#include "engine/port/services.h"
#include "tests/unit/hand_driver.h"

#include <pthread.h>

static char said[8192];

static void take(void *ctx, int level, int event, const char *text) {
    size_t used = strlen(said);
    (void)ctx, (void)event;
    snprintf(said + used, sizeof said - used, "%d %s\n", level, text);
}

static void begin(struct rig *rig) {
    said[0] = '\0';
    rig->options.log_write = take;
}

static void assert_said(const char *lines) {
    if (strcmp(said, lines) != 0) fail_msg("the log is\n%swhere it should be\n%s", said, lines);
    said[0] = '\0';
}

/* Goal: a thread that stays in a section is said after ten seconds, then each ten minutes, and its end is said. */
TEST(a_stalled_section_has_few_lines_and_an_end) {
    struct rig rig;
    if (test_misses_robust_lists()) return; /* the log says so, too */
    rig_init(&rig);
    begin(&rig);
    rig_start(&rig);
    struct twi_thread *self = twi_thread_here();
    twi_section_enter(self);
    rig_run_turn(rig.engine);
    for (int second = 0; second < 9; second++) {
        fake_clock_advance_ms(&rig.clock, 1000);
        rig_run_turn(rig.engine);
    }
    assert_said("");
    for (int second = 9; second < 600; second++) {
        fake_clock_advance_ms(&rig.clock, 1000);
        rig_run_turn(rig.engine);
    }
    char lines[200];
    const char *begins = "1 a thread has been in a read section for 10",
               *ends = strstr(said, " ms; memory waits for it ");
    assert_int_equal(strncmp(said, begins, strlen(begins)), 0);
    assert_non_null(ends);
    snprintf(lines, sizeof lines,
             "%.*s ms; memory waits for it [TW-E003: find the thread that stays inside tw_enter() or "
             "a visit]\n",
             (int)(ends - said), said);
    assert_said(lines);
    twi_section_leave(self);
    for (int turn = 0; turn < 3; turn++) {
        fake_clock_advance_ms(&rig.clock, 1000);
        rig_run_turn(rig.engine);
    }
    assert_said("2 no thread stays in a read section any more [TW-E003]\n");
    rig_close(&rig);
}

/* Goal: a leap of the wall clock is said, and that it is over. */
TEST(a_clock_that_leaps_has_two_lines) {
    struct rig rig;
    if (test_misses_robust_lists()) return; /* the log says so, too */
    rig_init(&rig);
    begin(&rig);
    rig_start(&rig);
    rig_run_turn(rig.engine);
    fake_clock_step_wall_ms(&rig.clock, TW_HOUR);
    rig_run_turn(rig.engine);
    assert_said(
        "1 the wall clock is 3600000 ms ahead of engine time, which follows after 5 s [TW-E002: set the machine's "
        "clock right]\n");
    rig_pass(&rig, 6000);
    rig_pass(&rig, 1000);
    assert_said("2 the wall clock and engine time agree again [TW-E002]\n");
    fake_clock_step_wall_ms(&rig.clock, -TW_HOUR);
    rig_pass(&rig, 1000);
    assert_said(
        "1 the wall clock was set back: engine time is 3600000 ms ahead of it and follows the monotonic clock; open "
        "the engine again if its windows must follow the wall clock again [TW-E002: set the machine's clock "
        "right]\n");
    rig_close(&rig);
}

/* Goal: families that refuse late counts at the same time are all named: each has one line for its life. */
TEST(each_family_with_late_counts_is_named) {
    struct rig rig;
    char lines[4000] = "";
    if (test_misses_robust_lists()) return; /* the log says so, too */
    rig_init(&rig);
    begin(&rig);
    rig_start(&rig);
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%d", i);
        tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_MINUTE);
        assert_status(tw_add_at(family, tw_str("a"), 1, RIG_START_MS - TW_HOUR, NULL), TW_ERR_LATE);
    }
    rig_pass(&rig, 1000);
    for (int i = 0; i < 3; i++)
        snprintf(
            lines + strlen(lines), sizeof lines - strlen(lines),
            "1 counts by event time came after the end of their window, and family \"f%d\" has no lateness_ms: they "
            "were refused (TW_ERR_LATE; tw_stats.late_increments counts them) [TW-E024: set lateness_ms or "
            "retention_ms, or call tw_close_until()]\n",
            i);
    assert_said(lines);
    rig_close(&rig);
}

/* Goal: counts that Redis has no place for have a line with their sum, at most one in ten seconds, and the last at the
 * end of the engine. */
TEST(counts_that_are_too_late_for_redis_are_summed) {
    struct rig rig;
    hand_init(&rig);
    begin(&rig);
    rig_start(&rig);
    rig_run_turn(rig.engine);
    said[0] = '\0';
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    static const int reasons[] = {TW_LOST_LATE, TW_LOST_EXPIRED, TW_LOST_LATE};
    for (int i = 0; i < 3; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        rig_add(family, key, 10 + i);
        assert_i64_equal(hand_collect(10), 1);
        struct twi_item item = hand_pop();
        twi_port_give_up(&item, reasons[i]);
        if (i != 1) continue;
        rig_run_turn(rig.engine);
        assert_said(
            "0 counts came too late for Redis: 10 units after the end of their key there (late_deltas), 11 after "
            "their retention_ms (expired_unsynced) [TW-E017: see on_lost for the keys, and tw_stats for the sums]\n");
    }
    fake_clock_advance_ms(&rig.clock, 9999);
    rig_run_turn(rig.engine);
    assert_said("");
    hand_close(&rig);
    assert_said(
        "0 counts came too late for Redis: 12 units after the end of their key there (late_deltas), 0 after their "
        "retention_ms (expired_unsynced) [TW-E017: see on_lost for the keys, and tw_stats for the sums]\n");
}

static bool refuse_window(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return false;
}

/* Goal: a hook that takes no window is named when its family has to close. */
TEST(a_hook_that_takes_no_window_is_named) {
    struct rig rig;
    if (test_misses_robust_lists()) return; /* the log says so, too */
    rig_init(&rig);
    begin(&rig);
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = refuse_window;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "k", 1);
    rig_pass(&rig, 2 * TW_MINUTE);
    assert_status(tw_family_close(family), TW_OK);
    for (int second = 0; second < 100 && said[0] == '\0'; second++) rig_pass(&rig, 1000);
    assert_said(
        "1 no hook was called for a window of family \"f\": its hook returned false until the family had to close "
        "[TW-E023: let a hook take the window, and Redis the tw:* keys of its names]\n");
    rig_close(&rig);
}

/* Goal: memory that runs short is said, and that there is some again. */
TEST(memory_that_runs_short_has_a_line_and_an_end) {
    struct rig rig;
    char key[16], *line;
    if (test_misses_robust_lists()) return; /* the log says so, too */
    rig_init(&rig);
    begin(&rig);
    rig.options.memory_bytes_max = 4 << 20;
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    for (int i = 0; i < 200000; i++) {
        snprintf(key, sizeof key, "%d", i);
        (void)tw_add(family, tw_str(key), 1, NULL);
    }
    rig_run_turn(rig.engine);
    assert_int_equal(strncmp(said, "1 counting memory: ", 19), 0);
    line = strstr(said, " of 4194304 bytes in use, ");
    assert_non_null(line);
    assert_non_null(strstr(line, " available [TW-E001: raise memory_bytes_max, or count fewer keys]\n"));
    said[0] = '\0';
    for (int minute = 0; minute < 4; minute++) rig_pass(&rig, TW_MINUTE);
    line = strstr(said, "2 counting memory: ");
    assert_non_null(line);
    assert_non_null(strstr(line, " of 4194304 bytes are available again [TW-E001]\n"));
    assert_null(strstr(line + 4, "counting memory"));
    rig_close(&rig);
}

int main(void) {
    test_skip_alone();
    return test_run();
}
