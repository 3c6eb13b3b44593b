/* rollover_test.c -- what becomes of windows: told of once with their final figures, kept as long as promised, their
 * memory used again.
 * Covers: engine/turn/windows.h, engine/turn/window_end.c, engine/turn/windows.c,
 * engine/turn/window_end.c, engine/turn/windows.c. */
#include <pthread.h>
#include <time.h>

#include "tests/unit/rig.h"

#include "engine/core/window_map.h"

/* ---- the closing hook -------------------------------------------------------------------------------------------- */

struct told {
    int calls, refuse; /* `refuse`: answer false so often */
    int64_t start_ms, end_ms, sum, overflow;
    uint64_t counters;
    uint32_t flags;
    tw_engine *engine;
    bool call_everything;
};

/* R6: what a hook may call and what it may not. */
static void call_everything(struct told *told, tw_family *family, int64_t start_ms) {
    int64_t view;
    tw_reading reading;
    tw_verdict verdict;
    tw_stats stats;
    tw_key key = tw_str("hook");
    assert_status(tw_add(family, key, 1, &view), TW_OK);
    assert_status(tw_get(family, key, &view), TW_OK);
    assert_i64_equal(view, 1);
    assert_status(tw_get_at(family, tw_str("a"), start_ms, &view), TW_OK);
    assert_status(tw_read(family, key, &reading), TW_OK);
    assert_status(tw_acquire(family, key, 1, 10, &verdict), TW_OK);
    assert_status(tw_reset(family, key, &view), TW_OK);
    assert_status(tw_add_at(family, key, 1, start_ms, &view), TW_ERR_LATE);
    assert_status(tw_stats_read(told->engine, &stats), TW_OK);
    assert_status(tw_turn(told->engine), TW_ERR_MODE);
    assert_status(tw_flush(told->engine, 10), TW_ERR_MODE);
    assert_status(tw_fetch(family, &key, 1, 10, &view), TW_ERR_MODE);
    assert_status(tw_close(told->engine, 10), TW_ERR_MODE);
    assert_status(tw_family_close(family), TW_ERR_MODE);
    assert_ptr_equal(tw_family_find(told->engine, "f"), family);
}

static bool tell(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct told *told = ctx;
    told->calls++;
    told->start_ms = start_ms;
    told->end_ms = end_ms;
    told->flags = flags;
    struct rig_seen seen = rig_each(family, start_ms);
    told->sum = seen.sum;
    told->counters = seen.counters;
    told->overflow = seen.overflow;
    if (told->call_everything) call_everything(told, family, start_ms);
    return told->refuse-- <= 0;
}

static tw_family_options telling(struct told *told, uint32_t window, int64_t window_ms) {
    tw_family_options options = rig_options("f", window, window_ms);
    options.on_window_closed = tell;
    options.closed_ctx = told;
    return options;
}

static void add_keys(tw_family *family, int from, int to, int64_t delta) {
    char key[32];
    for (int i = from; i < to; i++) {
        snprintf(key, sizeof key, "key %d", i);
        rig_add(family, key, delta);
    }
}

TEST(the_hook_sees_every_counter_once_with_its_final_value) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 3000;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 0, 3000, 7);
    add_keys(family, 0, 1000, 1);
    assert_status(tw_add(family, tw_str("too many"), 5, NULL), TW_OVERFLOWED);
    rig_pass(&rig, TW_HOUR - 1);
    assert_i64_equal(told.calls, 0);
    rig_pass(&rig, 1);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.counters, 3000);
    assert_i64_equal(told.sum, 22000);
    assert_i64_equal(told.overflow, 5);
    assert_i64_equal(told.flags, 0);
    assert_i64_equal(told.start_ms, RIG_START_MS);
    assert_i64_equal(told.end_ms, RIG_START_MS + TW_HOUR);
    for (int i = 0; i < 10; i++) rig_pass(&rig, TW_HOUR);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), 1);
    rig_close(&rig);
    assert_i64_equal(told.calls, 1);
}

TEST(late_counts_are_in_the_figures_and_the_hook_waits_for_them) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    rig_pass(&rig, 2 * TW_MINUTE - 1);
    assert_i64_equal(told.calls, 0);
    assert_status(tw_add_at(family, tw_str("a"), 10, RIG_START_MS, NULL), TW_OK);
    rig_pass(&rig, 1);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.sum, 11);
    assert_status(tw_add_at(family, tw_str("a"), 10, RIG_START_MS, NULL), TW_ERR_LATE);
    rig_close(&rig);
}

TEST(trap_r2_a_hook_that_answers_false_is_called_again) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {.refuse = 3};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 4);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(told.calls, 1);
    for (int i = 0; i < 200; i++) rig_pass(&rig, 10);
    assert_i64_equal(told.calls, 4);
    assert_i64_equal(told.sum, 4); /* kept, although there is no history */
    assert_i64_equal(test_stat_of(rig.engine, hooks_again), 3);
    rig_pass(&rig, 10);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    rig_close(&rig);
    assert_i64_equal(told.calls, 4);
}

struct closer {
    tw_family *family;
    int calls;
    int64_t sum;
};

static void *close_family(void *ctx) {
    assert_status(tw_family_close(ctx), TW_OK);
    return NULL;
}

static bool close_and_refuse(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closer *closer = ctx;
    pthread_t thread;
    (void)end_ms, (void)flags;
    if (closer->calls++ == 0) {
        assert_int_equal(pthread_create(&thread, NULL, close_family, family), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        return false;
    }
    closer->sum = rig_each(family, start_ms).sum;
    return true;
}

/* Goal: the minute in which a hook is called again begins with tw_family_close(), also if another thread closes the
 * family while the hook runs. */
TEST(a_family_that_is_closed_during_its_hook_has_its_minute) {
    struct rig rig;
    rig_open(&rig);
    struct closer closer = {0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = close_and_refuse;
    options.closed_ctx = &closer;
    rig_add(rig_family_of(&rig, &options), "a", 4);
    rig_pass(&rig, TW_MINUTE);
    assert_int_equal(closer.calls, 1);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 10);
    assert_int_equal(closer.calls, 2);
    assert_i64_equal(closer.sum, 4);
    assert_i64_equal(test_stat_of(rig.engine, windows_untold), 0);
    rig_close(&rig);
}

TEST(closing_in_mid_window_tells_of_a_part) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 4);
    fake_clock_advance_ms(&rig.clock, TW_HOUR / 2);
    rig_close(&rig);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, TW_CLOSED_PARTIAL);
    assert_i64_equal(told.sum, 4);
}

TEST(a_window_that_has_ended_is_whole_also_when_the_engine_closes) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_HOUR);
    options.lateness_ms = TW_UNBOUNDED;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 4);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(told.calls, 0);
    rig_close(&rig);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, 0);
}

TEST(windows_without_counts_are_not_told_of) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = 1;
    options.on_full = TW_ON_FULL_REJECT;
    tw_family *family = rig_family_of(&rig, &options);
    for (int i = 0; i < 50; i++) {
        rig_get(family, "a");
        assert_status(tw_acquire(family, tw_str("a"), 0, 10, NULL), TW_OK);
        rig_pass(&rig, TW_MINUTE / 2);
    }
    assert_i64_equal(told.calls, 0);
    rig_add(family, "a", 0); /* a count of nothing is a count */
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(told.calls, 1);
    for (int i = 0; i < 10; i++) rig_pass(&rig, TW_MINUTE / 2); /* the successor that was prepared was never used */
    rig_close(&rig);
    assert_i64_equal(told.calls, 1);
}

TEST(trap_r6_a_hook_may_count_and_read_but_not_turn_flush_or_close) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {.call_everything = true, .engine = rig.engine};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 4);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(told.calls, 1);
    told.call_everything = false;
    rig_close(&rig);
}

TEST(trap_r4_families_without_starts_take_no_hook) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    const uint32_t windows[] = {TW_WINDOW_FROM_FIRST, TW_WINDOW_FOREVER};
    for (size_t i = 0; i < 2; i++) {
        tw_family_options options = telling(&told, windows[i], 0);
        char error[128] = "";
        options.error_text = error;
        options.error_size = sizeof error;
        tw_family *family = NULL;
        assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
        assert_non_null(strstr(error, "on_window_closed"));
        assert_null(family);
    }
    rig_close(&rig);
}

/* Goal: days, weeks and months end where the calendar says, and are told of then. */
TEST(calendar_windows_close_at_civil_midnights) {
    const struct {
        uint32_t window;
        int64_t start_ms, end_ms;
    } cases[] = {
        /* the rig starts on Tuesday, 2023-11-14T23:00Z, which is the 15th, 07:00, in Shanghai */
        {TW_WINDOW_DAY, INT64_C(1699977600000), INT64_C(1700064000000)},
        {TW_WINDOW_WEEK, INT64_C(1699804800000), INT64_C(1700409600000)},
        {TW_WINDOW_MONTH, INT64_C(1698768000000), INT64_C(1701360000000)},
    };
    for (size_t i = 0; i < 3; i++) {
        struct rig rig;
        rig_open(&rig);
        struct told told = {0};
        tw_family_options options = telling(&told, cases[i].window, 0);
        options.utc_offset_ms = 8 * TW_HOUR;
        tw_family *family = rig_family_of(&rig, &options);
        rig_add(family, "a", 4);
        rig_pass(&rig, cases[i].end_ms - RIG_START_MS - 1);
        assert_i64_equal(rig_get(family, "a"), 4);
        assert_i64_equal(told.calls, 0);
        rig_pass(&rig, 1);
        assert_i64_equal(told.calls, 1);
        assert_i64_equal(told.start_ms, cases[i].start_ms);
        assert_i64_equal(told.end_ms, cases[i].end_ms);
        rig_close(&rig);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Goal: the hundredth roll-over needs no more memory than the third.
 * Method: the same keys in every window; families that keep history and such that keep none. */
TEST(a_hundred_roll_overs_need_no_more_memory_than_three) {
    const int sizes[] = {1, 10, 300, 3000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (uint32_t window = TW_WINDOW_ALIGNED; window <= TW_WINDOW_FROM_FIRST; window++) {
            struct rig rig;
            rig_open(&rig);
            tw_family_options options = rig_options("f", window, TW_MINUTE);
            tw_family *family = rig_family_of(&rig, &options);
            int64_t high = 0, committed = 0;
            for (int round = 0, rounds = test_is_slow() ? 30 : 100; round < rounds; round++) {
                add_keys(family, 0, sizes[i], 1); /* others would split leaves at other places */
                rig_pass(&rig, TW_MINUTE / 2);
                rig_pass(&rig, TW_MINUTE / 2);
                if (round == 3) high = test_stat_of(rig.engine, memory_bytes_high);
                if (round == 3) committed = twi_arena_bytes_committed(&rig.engine->arena);
            }
            if (getenv("TW_VERBOSE") != NULL)
                print_message("# %d keys, kind %u: high %lld then %lld, committed %lld then %lld\n", sizes[i], window,
                              (long long)high, (long long)test_stat_of(rig.engine, memory_bytes_high),
                              (long long)committed, (long long)twi_arena_bytes_committed(&rig.engine->arena));
            assert_true(test_stat_of(rig.engine, memory_bytes_high) <=
                        high * 105 / 100 + 256); /* a map of windows on its way out */
            /* how leaves split depends on the hash's secret: two segments more or less */
            assert_true(twi_arena_bytes_committed(&rig.engine->arena) <= committed * 105 / 100 + 2 * TWI_SEGMENT_BYTES);
            assert_true(test_stat_of(rig.engine, generations) <= 4);
            rig_close(&rig);
        }
    }
}

TEST(what_is_over_is_forgotten_to_the_last_byte) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("aligned", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    tw_family *families[] = {rig_family_of(&rig, &options), rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE)};
    for (int i = 0; i < 2; i++) rig_add(families[i], "a", 1);
    for (int i = 0; i < 5; i++) rig_pass(&rig, TW_MINUTE);
    int64_t before = test_memory_bytes(rig.engine);
    for (int i = 0; i < 2; i++) add_keys(families[i], 0, 10000, 1);
    assert_true(test_memory_bytes(rig.engine) > before + 500000);
    for (int i = 0; i < 5; i++) rig_pass(&rig, TW_MINUTE);
    rig_pass(&rig, 10);
    assert_i64_equal(test_memory_bytes(rig.engine), before);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    assert_i64_equal(test_stat_of(rig.engine, generations), 0);
    rig_close(&rig);
}

/* Goal: E28. A year of minutes with one key each, in any order, stays under 400 MB, and every count is found again.
 * Method: a step through the year that is coprime to its length; the memory the process really holds is asked, too. */
TEST(trap_e28_a_year_of_minutes_in_any_order_costs_what_its_counters_cost) {
    struct rig rig;
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(1) << 30;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_UNBOUNDED;
    options.history_ms = TW_UNBOUNDED;
    tw_family *family = rig_family_of(&rig, &options);
    int64_t windows = test_is_slow() ? 20000 : (int64_t)test_scale(525600), rss = test_rss_bytes(), turns = 0,
            begun_ms = test_mono_ms();
    if (windows > 1000000) windows = 1000000;
    for (int64_t i = 0; i < windows; i++) {
        int64_t minute = i * 104729 % windows;
        assert_status(tw_add_at(family, tw_str("k"), minute + 1, RIG_START_MS - (minute + 1) * TW_MINUTE, NULL), TW_OK);
        if (i % 10000 == 9999) {
            rig_turn(&rig);
            turns++;
        }
    }
    rig_settle(&rig);
    print_message("# %lld windows: %lld bytes each, %lld resident, %lld ms\n", (long long)windows,
                  (long long)(test_memory_bytes(rig.engine) / windows), (long long)((test_rss_bytes() - rss) / windows),
                  (long long)(test_mono_ms() - begun_ms));
    assert_true(test_memory_bytes(rig.engine) / windows <= 400000000 / 525600);
    if (test_is_slow())
        test_leave_out("what a sanitizer holds is counted with ours: a build without one runs this");
    else
        assert_true((test_rss_bytes() - rss) / windows <= 400000000 / 525600);
    assert_i64_equal(test_stat_of(rig.engine, entries), windows);
    for (int64_t minute = 0; minute < windows; minute += 97) {
        int64_t view;
        assert_status(tw_get_at(family, tw_str("k"), RIG_START_MS - (minute + 1) * TW_MINUTE, &view), TW_OK);
        assert_i64_equal(view, minute + 1);
    }
    rig_close(&rig);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Goal: E27. Windows that nobody counted in cost nothing: a suspend of eight hours with windows of a second is one
 * turn, and no more is held afterwards than before. */
TEST(trap_e27_a_suspend_of_eight_hours_is_one_bounded_turn) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_SECOND);
    tw_family *family = rig_family_of(&rig, &options);
    for (int i = 0; i < 10; i++) {
        rig_add(family, "a", 1);
        rig_pass(&rig, 500);
        rig_pass(&rig, 500);
    }
    assert_i64_equal(told.calls, 10);
    rig_add(family, "a", 1);
    fake_clock_advance_ms(&rig.clock, 8 * TW_HOUR);
    clock_t begun = clock();
    rig_turn(&rig);
    if (test_is_slow())
        test_leave_out("a sanitizer's time is counted with ours: a build without one runs this");
    else
        assert_true(clock() - begun < CLOCKS_PER_SEC / 10); /* of this processor: the machine may be busy */
    assert_i64_equal(told.calls, 11);
    assert_i64_equal(rig_add(family, "a", 1), 1);
    rig_settle(&rig);
    rig_pass(&rig, 10);
    assert_true(test_stat_of(rig.engine, generations) <= 3);
    rig_close(&rig);
}

/* Goal: E30. A wall clock that is a day ahead for two seconds moves no count into another window. */
TEST(trap_e30_a_glitch_of_a_day_for_two_seconds_moves_nothing) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    fake_clock_step_wall_ms(&rig.clock, TW_DAY);
    for (int i = 0; i < 200; i++) {
        rig_pass(&rig, 10);
        assert_i64_equal(rig_add(family, "a", 1), 2 + i);
    }
    fake_clock_step_wall_ms(&rig.clock, -TW_DAY);
    for (int i = 0; i < 100; i++) rig_pass(&rig, 100);
    assert_i64_equal(rig_add(family, "a", 1), 202);
    assert_i64_equal(told.calls, 0);
    assert_true(test_stat_of(rig.engine, clock_held_ms) >= 2000);
    rig_close(&rig);
}

TEST(trap_e30_a_clock_set_back_reopens_nothing) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(told.calls, 1);
    fake_clock_step_wall_ms(&rig.clock, -10 * TW_MINUTE);
    for (int i = 0; i < 100; i++) {
        rig_pass(&rig, 100);
        assert_i64_equal(rig_add(family, "a", 1), i + 1);
    }
    assert_i64_equal(told.calls, 1);
    rig_close(&rig);
}

/* Goal: E31. A host that turns rarely gets its counts into the windows they belong to all the same. */
TEST(trap_e31_a_late_turn_moves_no_count) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_SECOND);
    options.history_ms = TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    for (int i = 0; i < 100; i++) {
        rig_add(family, "a", i);
        fake_clock_advance_ms(&rig.clock, TW_SECOND);
    }
    rig_settle(&rig);
    assert_i64_equal(told.calls, 100);
    for (int i = 0; i < 100; i++) {
        int64_t view;
        assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS + i * TW_SECOND, &view), TW_OK);
        assert_i64_equal(view, i);
    }
    rig_close(&rig);
}

/* Goal: tw_timeout_ms() says when there is something to do: a host that sleeps so long misses no boundary. */
TEST(a_host_that_sleeps_as_long_as_told_is_on_time) {
    struct rig rig;
    rig_open(&rig);
    struct told told = {0};
    tw_family_options options = telling(&told, TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    int turns = 0;
    for (; told.calls == 0; turns++) {
        rig_turn(&rig);
        uint32_t timeout_ms = tw_timeout_ms(rig.engine);
        assert_true(timeout_ms <= 1000);
        if (told.calls == 0) fake_clock_advance_ms(&rig.clock, timeout_ms);
    }
    assert_true(rig_now(&rig) - (RIG_START_MS + TW_MINUTE) < 2);
    assert_true(turns < 70);
    rig_close(&rig);
}

/* ---- the next window --------------------------------------------------------------------------------------------- */

/* Goal: the next window is there before its time, with room for as many keys as this one had, and counts like any
 * other. Method: look at it from inside in the second half of the window. */
TEST(the_next_window_is_prepared_with_room_for_as_many_keys) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 0, 20000, 1);
    rig_pass(&rig, TW_HOUR / 2 - 1);
    assert_null(twi_window_find(family, RIG_START_MS + TW_HOUR));
    rig_pass(&rig, 1);
    struct twi_generation *next = twi_window_find(family, RIG_START_MS + TW_HOUR);
    assert_non_null(next);
    assert_true(twi_entry_is_node(twi_load_relaxed(&next->root)));
    uint64_t root = twi_load_relaxed(&next->root), pieces = twi_load_relaxed(&next->pieces);
    rig_pass(&rig, TW_HOUR / 2);
    add_keys(family, 0, 18000, 1);
    assert_ptr_equal(twi_window_at(family, rig_now(&rig), true), next);
    assert_true(twi_load_relaxed(&next->root) == root);
    assert_true(twi_load_relaxed(&next->pieces) == pieces); /* it did not grow */
    assert_i64_equal(rig_each(family, TW_NOW).sum, 18000);
    assert_true(twi_table_is_valid(&rig.engine->arena, next, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    rig_close(&rig);
}

/* Goal: event time may open the next window early; then nothing is prepared for it, nor built and thrown away. Method:
 * memory and the turns' own notes, half an hour on. */
TEST(a_window_that_was_opened_ahead_is_not_prepared_again) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 0, 100000, 1); /* more than one turn could prepare */
    assert_status(tw_add_at(family, tw_str("ahead"), 3, RIG_START_MS + TW_HOUR, NULL), TW_OK);
    int64_t before = test_memory_bytes(rig.engine);
    fake_clock_advance_ms(&rig.clock, TW_HOUR / 2);
    for (int turns = 0; turns < 50; turns++) {
        rig_turn(&rig);
        assert_null(family->turn.prepared.generation);
        assert_true(test_memory_bytes(rig.engine) <= before);
    }
    assert_i64_equal(family->turn.prepared.start_ms, RIG_START_MS + TW_HOUR);
    assert_true(tw_timeout_ms(rig.engine) > 0); /* nothing is left to be done */
    for (int i = 0; i < 5; i++) rig_pass(&rig, TW_HOUR / 10);
    assert_i64_equal(rig_get(family, "ahead"), 3);
    assert_true(test_memory_bytes(rig.engine) <= before);
    rig_close(&rig);
}

TEST(preparing_without_memory_leaves_the_window_small) {
    struct rig rig;
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(1) << 20;
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    char key[16];
    for (int round = 0, rounds = test_is_slow() ? 6 : 20; round < rounds; round++) {
        int64_t sum = 0;
        for (int i = 0; i < 20000; i++) {
            snprintf(key, sizeof key, "%d", i);
            tw_status status = tw_add(family, tw_str(key), 1, NULL);
            assert_true(status == TW_OK || status == TW_OVERFLOWED || status == TW_ERR_FULL);
            sum += status >= 0;
        }
        rig_pass(&rig, TW_MINUTE / 2);
        struct rig_seen seen = rig_each(family, TW_NOW);
        assert_i64_equal(seen.sum + seen.overflow, sum);
        rig_pass(&rig, TW_MINUTE / 2);
    }
    rig_close(&rig);
}

int main(void) {
    test_skip_alone();
    return test_run();
}
