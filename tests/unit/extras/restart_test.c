/* restart_test.c -- a planned restart is one rule: what is in the file of tw_save() is PARTIAL in the old process, and
 * final in the new one. Whatever the clock does between the calls, each window is final once, with all of its counts.
 * Covers: engine/save.c, engine/load.c, engine/turn/window_end.c. */
#include "tests/unit/extras/save_rig.h"

/* ---- what hooks were told ---------------------------------------------------------------------------------------- */

#define TOLD_MAX 64
static struct told {
    int64_t start_ms, units;
    uint32_t flags;
} told[TOLD_MAX];
static int told_count;
static bool hook_answers;

static int begin_told(void **state) {
    told_count = 0;
    hook_answers = true;
    return begin(state);
}

static bool add_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}

static bool tell(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    if (!hook_answers) return false;
    assert_true(told_count < TOLD_MAX);
    struct told *now = &told[told_count++];
    *now = (struct told){.start_ms = start_ms, .flags = flags};
    return tw_each(family, start_ms, add_up, &now->units) == TW_OK;
}

/* How often a window was reported as final, and its units. */
static int finals_of(int64_t start_ms, int64_t *units) {
    int finals = 0;
    *units = 0;
    for (int i = 0; i < told_count; i++) {
        if (told[i].start_ms != start_ms || (told[i].flags & TW_CLOSED_PARTIAL) != 0) continue;
        finals++;
        *units += told[i].units;
    }
    return finals;
}

static void assert_final(int64_t start_ms, int64_t want) {
    int64_t units;
    assert_int_equal(finals_of(start_ms, &units), 1);
    assert_i64_equal(units, want);
}

static tw_family_options minutes(int64_t lateness_ms, int64_t earliness_ms) {
    tw_family_options options = rig_options("views", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = lateness_ms;
    options.earliness_ms = earliness_ms;
    options.on_window_closed = tell;
    return options;
}

static void save_only(void) {
    stop();
    if (tw_save(rig.engine, path) != TW_OK) fail_msg("%s", tw_error_text());
}

static void close_only(void) {
    assert_status(tw_close(rig.engine, 0), TW_OK);
    is_open = false;
}

/* ---- each window is final once ----------------------------------------------------------------------------------- */

/* Goal: a window in its lateness is final in the new process alone. Method: the restart comes between the end of the
 * window and that of its lateness_ms. */
TEST_WITH(a_window_in_its_lateness_is_final_in_the_new_process, begin_told, end, NULL) {
    tw_family_options options = minutes(30 * TW_SECOND, 0);
    rig_add(rig_family_of(&rig, &options), "k", 7);
    rig_pass(&rig, 70 * TW_SECOND);
    save_only();
    close_only();
    assert_int_equal(told_count, 1);
    assert_int_equal(told[0].flags, TW_CLOSED_PARTIAL);
    start_again();
    tw_family *family = rig_family_of(&rig, &options);
    load();
    assert_status(tw_add_at(family, tw_str("k"), 1, RIG_START_MS, NULL), TW_OK);
    rig_pass(&rig, 40 * TW_SECOND);
    assert_final(RIG_START_MS, 8);
}

/* Goal: the same if its time ends between tw_save() and tw_close(). */
TEST_WITH(a_window_that_ends_after_the_save_is_final_in_the_new_process, begin_told, end, NULL) {
    tw_family_options options = minutes(0, 0);
    rig_add(rig_family_of(&rig, &options), "k", 7);
    save_only();
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    close_only();
    assert_int_equal(told_count, 1);
    assert_int_equal(told[0].flags, TW_CLOSED_PARTIAL);
    start_again();
    (void)rig_family_of(&rig, &options);
    load();
    assert_i64_equal(stat_of(offsetof(tw_stats, load_skipped)), 0);
    rig_settle(&rig);
    assert_final(RIG_START_MS, 7);
}

/* Goal: the same if its time has ended, and its hook has not been called yet, or has returned false. */
TEST_WITH(a_window_that_no_hook_has_accepted_is_saved, begin_told, end, NULL) {
    tw_family_options options = minutes(0, 0);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "k", 7);
    hook_answers = false;
    rig_pass(&rig, TW_MINUTE);
    rig_add(family, "k", 1);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    save_only();
    hook_answers = true;
    close_only();
    for (int i = 0; i < told_count; i++) assert_int_equal(told[i].flags & TW_CLOSED_PARTIAL, TW_CLOSED_PARTIAL);
    start_again();
    (void)rig_family_of(&rig, &options);
    load();
    rig_settle(&rig);
    assert_final(RIG_START_MS, 7);
    assert_final(RIG_START_MS + TW_MINUTE, 1);
}

/* Goal: what the old process has reported as final does not come again. Method: windows before and after the save; a
 * sliding limit still looks at the window before. */
TEST_WITH(a_window_that_was_final_is_not_reported_again, begin_told, end, NULL) {
    tw_family_options options = minutes(0, 0);
    options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *family = rig_family_of(&rig, &options);
    acquire(family, "k", 40, 100, TW_OK);
    rig_pass(&rig, TW_MINUTE);
    acquire(family, "k", 2, 100, TW_OK);
    assert_final(RIG_START_MS, 40);
    save_only();
    close_only();
    start_again();
    family = rig_family_of(&rig, &options);
    load();
    assert_i64_equal(acquire(family, "k", 0, 100, TW_OK).used, 42);
    rig_pass(&rig, TW_MINUTE);
    assert_final(RIG_START_MS, 40);
    assert_final(RIG_START_MS + TW_MINUTE, 2);
}

/* Goal: a second tw_save() has all that the first had. Method: between them the time of a window ends; the engine's own
 * thread makes turns after tw_stop(), which report it as partial and would drop it. */
TEST_WITH(a_second_save_has_what_the_first_had, begin_told, end, NULL) {
    tw_family_options options = minutes(0, 0);
    options.history_ms = TW_NONE;
    rig_add(rig_family_of(&rig, &options), "k", 7);
    save_only();
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    for (int i = 0; i < 10; i++) rig_run_turn(rig.engine);
    assert_int_equal(told_count, 1);
    assert_int_equal(told[0].flags, TW_CLOSED_PARTIAL);
    assert_status(tw_save(rig.engine, path), TW_OK);
    close_only();
    assert_int_equal(told_count, 1);
    start_again();
    (void)rig_family_of(&rig, &options);
    load();
    rig_settle(&rig);
    assert_final(RIG_START_MS, 7);
}

/* Goal: after a save that failed, the old process alone has the counts. */
TEST_WITH(a_save_that_failed_leaves_the_windows_final_here, begin_told, end, NULL) {
    tw_family_options options = minutes(0, 0);
    rig_add(rig_family_of(&rig, &options), "k", 7);
    stop();
    assert_refused(tw_save(rig.engine, "/proc/self/counts"), TW_ERR_OPTIONS, "path");
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    close_only();
    assert_final(RIG_START_MS, 7);
}

/* Goal: where the family holds the window already, empty, the loaded counts are reported all the same. Method: a family
 * with keys_expected, whose first window is made when it is opened, and has ended, or is in history, at the load. */
TEST_WITH(an_empty_window_gives_its_place_to_the_loaded_one, begin_told, end, NULL) {
    tw_family_options options = minutes(0, 0);
    rig_add(rig_family_of(&rig, &options), "k", 7);
    save_only();
    close_only();
    start_again();
    options.keys_expected = 1000;
    tw_family *family = rig_family_of(&rig, &options);
    rig_pass(&rig, 90 * TW_SECOND);
    load();
    assert_i64_equal(stat_of(offsetof(tw_stats, load_skipped)), 0);
    rig_settle(&rig);
    assert_final(RIG_START_MS, 7);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("k"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 7);
    rig_add(family, "k", 1);
    rig_pass(&rig, 3 * TW_MINUTE);
    assert_final(RIG_START_MS + TW_MINUTE, 1);
}

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* Goal: a window without counts is not in the file. Method: from the middle of a window on, the turn prepares the next
 * one, which is further ahead than earliness_ms. */
TEST_WITH(a_window_that_was_only_prepared_is_not_saved, begin_told, end, NULL) {
    char key[16];
    tw_family_options options = minutes(0, TW_SECOND);
    tw_family *family = rig_family_of(&rig, &options);
    for (int window = 0; window < 2; window++) {
        for (int i = 0; i < 500; i++) {
            snprintf(key, sizeof key, "k%d", i);
            rig_add(family, key, 1);
        }
        if (window == 0) rig_pass(&rig, TW_MINUTE);
    }
    rig_pass(&rig, 45 * TW_SECOND);
    assert_i64_equal(stat_of(offsetof(tw_stats, generations)), 3);
    save_only();
    close_only();
    start_again();
    family = rig_family_of(&rig, &options);
    load();
    assert_i64_equal(rig_get(family, "k7"), 1);
}

/* Goal: a call that was refused changes nothing of the file. Method: tw_hold() with no room, denied, and with a wrong
 * limit; adds that are refused. */
TEST_WITH(refused_calls_change_nothing_that_is_saved, begin, end, NULL) {
    tw_family_options options = rig_options("stock", TW_WINDOW_FOREVER, 0);
    options.keys_max = 1;
    options.on_full = TW_ON_FULL_REJECT;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "k", 7);
    assert_status(tw_hold(family, tw_str("other"), 3, NULL), TW_ERR_FULL);
    assert_status(tw_hold(family, tw_str("k"), 3, NULL), TW_DENIED);
    assert_status(tw_hold(family, tw_str("k"), -1, NULL), TW_ERR_RANGE);
    assert_status(tw_add(family, tw_str("more"), 1, NULL), TW_ERR_FULL);
    save();
    start_again();
    family = rig_family_of(&rig, &options);
    load();
    assert_i64_equal(rig_get(family, "k"), 7);
}

static char logged[4096];
static int logged_lines;
static void note_line(void *ctx, int level, int event, const char *text) {
    if (event != TW_EVENT_SAVED) return;
    logged_lines++;
    snprintf(logged, sizeof logged, "%s", text);
}

/* Goal: who saves hears what is not in the file. Method: families of each kind that is left out, by tw_error_text() and
 * the log; one that closes is not named, and where none is left out, the text says so. */
TEST_WITH(families_that_are_left_out_are_named, begin, end, NULL) {
    rig_close(&rig);
    rig.options.log_write = note_line;
    start_again();
    logged_lines = 0;
    tw_family_options options = rig_options("connections", TW_WINDOW_FOREVER, 0);
    options.kind = TW_KIND_GAUGE;
    tw_family *slots = rig_family(&rig, "slots", TW_WINDOW_FOREVER, 0), *gauge = rig_family_of(&rig, &options);
    rig_add(hourly(), "k", 3);
    rig_add(gauge, "k", 12);
    assert_status(tw_hold(slots, tw_str("user"), 1, NULL), TW_OK);
    save_only();
    static const char *const names[] = {"\"connections\"", "TW_KIND_GAUGE", "\"slots\"", "tw_hold()"};
    for (size_t i = 0; i < 4; i++) {
        if (strstr(tw_error_text(), names[i]) == NULL) fail_msg("%s: not in: %s", names[i], tw_error_text());
        if (strstr(logged, names[i]) == NULL) fail_msg("%s: not in the log: %s", names[i], logged);
    }
    assert_int_equal(logged_lines, 1);
    assert_int_equal(strncmp(logged, "saved without family \"", 22), 0);
    assert_non_null(strstr(logged, "): these counts end with the process [TW-E029]"));
    assert_null(strstr(tw_error_text(), "\"hourly\""));
    (void)tw_close(rig.engine, 0);
    start_again();
    rig_add(hourly(), "k", 3);
    save_only();
    assert_string_equal(tw_error_text(), "Every family was saved.");
    assert_int_equal(logged_lines, 1);
    (void)tw_close(rig.engine, 0);
    rig.options.log_write = NULL;
    start_again();
}

/* ---- loading again ----------------------------------------------------------------------------------------------- */

static tw_family *bounded(uint64_t keys_max, uint64_t keys_expected) {
    tw_family_options options = rig_options("bounded", TW_WINDOW_DAY, 0);
    options.keys_max = keys_max;
    options.on_full = TW_ON_FULL_REJECT;
    options.keys_expected = keys_expected;
    return rig_family_of(&rig, &options);
}

/* Goal: a load that changed nothing can be repeated. Method: too little room, then more; a window that is there
 * already, and one that is not. After it has succeeded it cannot, also when its windows are gone. */
TEST_WITH(a_load_without_room_can_be_repeated_with_more, begin, end, NULL) {
    char key[16];
    tw_family *family = bounded(0, 0);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        rig_add(family, key, 1);
    }
    save();
    for (int expects = 0; expects < 2; expects++) {
        start_again();
        family = bounded(300, expects ? 100 : 0);
        assert_refused(tw_load(rig.engine, path), TW_ERR_FULL, "");
        struct rig_seen seen = rig_each(family, TW_NOW);
        assert_i64_equal(seen.sum + seen.overflow, 0);
        if (!expects) assert_i64_equal(seen.counters, 0);
        tw_family_options options = rig_options("bounded", TW_WINDOW_DAY, 0);
        options.keys_max = 2000;
        options.on_full = TW_ON_FULL_REJECT;
        assert_status(tw_family_set(family, &options), TW_OK);
        load();
        assert_i64_equal(rig_each(family, TW_NOW).sum, 1000);
        assert_refused(tw_load(rig.engine, path), TW_ERR_MODE, "bounded");
        rig_pass(&rig, 10 * TW_DAY);
        assert_refused(tw_load(rig.engine, path), TW_ERR_MODE, "bounded");
        fake_clock_advance_ms(&rig.clock, -10 * TW_DAY);
        rig_close(&rig);
    }
    start_again();
}

/* ---- files of earlier versions ----------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *to, uint64_t number, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> 8 * i);
    return to + bytes;
}

static unsigned char *put_old_window(unsigned char *to, int64_t start_ms, int64_t count) {
    to = put(put(put(to, 0xfffd, 2), 0, 4), (uint64_t)start_ms, 8);
    return count == 0 ? to : put(put(put(to, 1, 2), (uint64_t)count, 8), 'k', 1);
}

/* The file that format 1 had for a family of minutes: a window with counts, and the next one, empty. */
static void write_old_file(uint32_t shape) {
    unsigned char bytes[512], *to = bytes;
    memcpy(to, "twcounts", 8);
    to = put(put(to + 8, 1, 4), 0, 4);
    to = put(put(to, 0xfffe, 2), 5, 1);
    memcpy(to, "views", 5);
    to += 5;
    const int64_t fields[TWI_SAVED_FIELDS] = {
        TW_KIND_COUNTER, TW_WINDOW_ALIGNED, TW_MINUTE, 0, 0, shape, 1, TW_REDIS_STRING, 0};
    for (size_t i = 0; i < TWI_SAVED_FIELDS; i++) to = put(to, (uint64_t)fields[i], 8);
    if (shape == TW_SHAPE_SLIDING) to = put_old_window(to, RIG_START_MS - TW_MINUTE, 40);
    to = put_old_window(to, RIG_START_MS, 7);
    to = put_old_window(to, RIG_START_MS + TW_MINUTE, 0);
    write_summed(bytes, (size_t)(to - bytes));
}

/* Goal: a file that an earlier version has saved loads. Method: its bytes, with the empty window that it wrote; also
 * after its window has ended. */
TEST_WITH(a_file_of_the_first_format_loads, begin_told, end, NULL) {
    tw_family_options options = minutes(0, TW_SECOND);
    for (int late = 0; late < 2; late++) {
        write_old_file(TW_SHAPE_FIXED);
        told_count = 0;
        tw_family *family = rig_family_of(&rig, &options);
        if (late) fake_clock_advance_ms(&rig.clock, TW_MINUTE);
        load();
        if (!late) assert_i64_equal(rig_add(family, "k", 1), 8);
        rig_pass(&rig, TW_MINUTE);
        assert_final(RIG_START_MS, late ? 7 : 8);
        rig_close(&rig);
        rig_open(&rig);
    }
    write_old_file(TW_SHAPE_SLIDING);
    told_count = 0;
    options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *family = rig_family_of(&rig, &options);
    load();
    assert_i64_equal(acquire(family, "k", 0, 100, TW_OK).used, 47);
    rig_pass(&rig, TW_MINUTE);
    assert_int_equal(told_count, 1);
    assert_final(RIG_START_MS, 7);
}

int main(void) {
    return test_run();
}
