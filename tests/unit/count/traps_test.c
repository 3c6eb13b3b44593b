/* traps_test.c -- the schedules that break obvious engines, one step at a time. The test plays every thread but one, by
 * calling the steps that this thread would do. */
#include "tests/unit/rig.h"

#include "engine/table/index.h"
#include "engine/turn/turn.h"
#include "engine/core/window_map.h"

#include <pthread.h>

static bool never_current(void *ctx) {
    *(int *)ctx += 1;
    return false;
}

/* A call that has read the clock and not yet looked for its key. */
static void begin_and_stall(struct twi_call *call, tw_family *family, const char *key) {
    assert_status(twi_call_begin(call, family, tw_str(key)), TW_OK);
    assert_status(twi_call_now(call), TW_OK);
}

/* ---- E22: one key, one incarnation ------------------------------------------------------------------------------ */

/* Goal: a key cannot begin in a window after an inserter in the next window made sure that it is absent.
 * Method: close the probe as the next window's inserter does, then insert with a clock that has moved. */
TEST(trap_e22_who_inserts_next_closes_the_probe_in_the_window_before) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    rig_add(family, "other", 1);
    struct twi_call call;
    begin_and_stall(&call, family, "key");
    struct twi_generation *generation = twi_window_at(family, call.now_ms, true);
    assert_null(twi_table_close_probe(&rig.engine->arena, generation, &call.lookup));
    int asked = 0;
    struct twi_cell *cell = NULL;
    struct twi_insert insert = {&rig.engine->arena, generation, call.self, call.lookup, 0, NULL, 0, TWI_NO_VACANCY};
    enum twi_found found = twi_table_insert(&insert, never_current, &asked, &cell);
    assert_true(found == TWI_CLOCK_MOVED || found == TWI_GONE_SEALED);
    assert_null(twi_table_find(&rig.engine->arena, generation, &call.lookup));
    twi_call_end(&call);
    rig_close(&rig);
}

/* Goal: the closed probe survives the growth of its leaf. A third thread with another key, that read the clock before
 * the boundary and finds the leaf filled, copies it after the probe was closed. The copy must not have room for the
 * key.
 * Method: close the probe, grow the leaf, insert with an old clock. */
TEST(trap_e22_a_leaf_that_grows_afterwards_has_no_room_for_the_key) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    for (char key[2] = "a"; key[0] < 'f'; key[0]++) rig_add(family, key, 1);
    struct twi_call call;
    begin_and_stall(&call, family, "key");
    struct twi_arena *arena = &rig.engine->arena;
    struct twi_generation *generation = twi_window_at(family, call.now_ms, true);
    assert_null(twi_table_close_probe(arena, generation, &call.lookup));
    (void)twi_leaf_grow(arena, generation, twi_index_leaf(arena, generation, call.lookup.tag));
    int asked = 0;
    struct twi_cell *cell = NULL;
    struct twi_insert insert = {arena, generation, call.self, call.lookup, 0, NULL, 0, TWI_NO_VACANCY};
    enum twi_found found = twi_table_insert(&insert, never_current, &asked, &cell);
    assert_true(found == TWI_CLOCK_MOVED || found == TWI_GONE_SEALED);
    assert_null(twi_table_find(arena, generation, &call.lookup));
    twi_call_end(&call);
    rig_close(&rig);
}

/* Goal: the same where the window before did not even exist when the next one's inserter looked.
 * Method: one tw_once reads the clock at the end of a window and stalls; another begins the key's life in the next
 * window; the first continues. */
TEST(trap_e22_a_window_opened_too_late_takes_no_key) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE - 1);
    struct twi_call call;
    struct twi_place place;
    begin_and_stall(&call, family, "key");
    fake_clock_advance_ms(&rig.clock, 2);
    bool first = false;
    assert_status(tw_once(family, tw_str("key"), &first), TW_OK);
    assert_true(first);
    assert_false(twi_place_find(&call, &place));
    assert_status(twi_place_make(&call, &place), TWI_AGAIN); /* decide again */
    twi_call_end(&call);
    assert_status(tw_once(family, tw_str("key"), &first), TW_OK);
    assert_false(first);
    rig_close(&rig);
}

/* ---- P7: a window never reopens ---------------------------------------------------------------------------------- */

struct hook_log {
    int calls;
    int64_t sum;
};
static bool log_hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)end_ms, (void)flags;
    struct hook_log *log = ctx;
    log->calls++;
    log->sum += rig_each(family, start_ms).sum;
    return true;
}

/* Goal: a first insert that stalled until its window had ended does not open that window again (the hook would come
 * twice).
 * Method: read the clock, let the window end and be dropped, then insert. */
TEST(trap_p7_a_stalled_insert_does_not_reopen_a_window) {
    struct rig rig;
    rig_open(&rig);
    struct hook_log log = {0, 0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    options.on_window_closed = log_hook;
    options.closed_ctx = &log;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 5);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE - 1);
    struct twi_call call;
    struct twi_place place;
    begin_and_stall(&call, family, "key");
    fake_clock_advance_ms(&rig.clock, 1);
    rig_run_turn(rig.engine);
    rig_run_turn(rig.engine);
    assert_i64_equal(log.calls, 1);
    assert_false(twi_place_find(&call, &place));
    assert_status(twi_place_make(&call, &place), TWI_AGAIN);
    twi_call_end(&call);
    rig_pass(&rig, 5 * TW_MINUTE);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.sum, 5);
    rig_close(&rig);
}

/* ---- R6: what a hook may call ------------------------------------------------------------------------------------ */

struct adding_hook {
    tw_family *other;
    int calls;
    tw_status same, fresh, into_other;
};
static bool hook_that_adds(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)start_ms, (void)end_ms, (void)flags;
    struct adding_hook *hook = ctx;
    hook->calls++;
    hook->same = tw_add(family, tw_str("a"), 1, NULL);
    hook->fresh = tw_add(family, tw_str("new"), 1, NULL);
    hook->into_other = tw_add(hook->other, tw_str("closed"), 1, NULL);
    return true;
}

/* Goal: a hook that counts comes back, also when it is called for a window that tw_close() has sealed in its middle.
 * Method: such a hook; the adds into the sealed window are refused. */
TEST(trap_r6_a_hook_that_adds_at_close_is_refused_and_does_not_hang) {
    struct rig rig;
    rig_open(&rig);
    struct adding_hook hook = {0};
    hook.other = rig_family(&rig, "other", TW_WINDOW_FOREVER, 0);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = hook_that_adds;
    options.closed_ctx = &hook;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 5);
    rig_close(&rig);
    assert_i64_equal(hook.calls, 1);
    assert_status(hook.same, TW_ERR_CLOSED);
    assert_status(hook.fresh, TW_ERR_CLOSED);
    assert_true(hook.into_other == TW_OK || hook.into_other == TW_ERR_CLOSED);
}

/* ---- P6: memory comes back --------------------------------------------------------------------------------------- */

/* Goal: dropped windows give their memory back also when there is not a byte left for a new map of windows.
 * Method: fill the arena to the last line, let the windows end, count again. */
TEST(trap_p6_a_full_arena_lets_go_of_what_is_over) {
    struct rig rig;
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(1) << 20;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    char key[16];
    tw_status status = TW_OK;
    for (int i = 0; status == TW_OK; i++) {
        snprintf(key, sizeof key, "%d", i);
        status = tw_add(family, tw_str(key), 1, NULL);
    }
    assert_status(status, TW_OVERFLOWED);
    struct twi_arena *arena = &rig.engine->arena;
    for (uint32_t lines = 1024; lines != 0; lines /= 2)
        while (twi_arena_take(arena, lines) != 0) continue;
    int64_t before = test_memory_bytes(rig.engine);
    rig_pass(&rig, TW_MINUTE);
    rig_pass(&rig, 20);
    rig_pass(&rig, 20);
    assert_true(test_memory_bytes(rig.engine) < before);
    assert_status(tw_add(family, tw_str("x"), 1, NULL), TW_OK);
    rig_close(&rig);
}

/* Goal: opening and closing a family leaves nothing behind in the arena. */
TEST(trap_p6_a_closed_family_gives_all_of_its_memory_back) {
    struct rig rig;
    rig_open(&rig);
    int64_t before = test_memory_bytes(rig.engine);
    for (int round = 0; round < 5; round++) {
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
        for (int64_t at = 0; at < 40; at++)
            (void)tw_add_at(family, tw_str("k"), 1, RIG_START_MS + at * TW_MINUTE, NULL);
        assert_status(tw_family_close(family), TW_OK);
        rig_settle(&rig);
        rig_pass(&rig, 10);
        assert_null(tw_family_find(rig.engine, "f"));
        assert_i64_equal(test_memory_bytes(rig.engine), before);
    }
    rig_close(&rig);
}

/* Goal: a shorter lateness or history takes effect when it is set, not when the old one would have been over. */
TEST(a_family_that_is_set_to_shorter_times_obeys_at_once) {
    struct rig rig;
    rig_open(&rig);
    struct hook_log log = {0, 0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_DAY;
    options.history_ms = TW_DAY;
    options.on_window_closed = log_hook;
    options.closed_ctx = &log;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 5);
    rig_pass(&rig, 2 * TW_MINUTE);
    assert_i64_equal(log.calls, 0);
    options.lateness_ms = 0;
    options.history_ms = TW_NONE;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_i64_equal(tw_timeout_ms(rig.engine), 0);
    rig_settle(&rig);
    assert_i64_equal(log.calls, 1);
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS, NULL), TW_ERR_LATE);
    rig_close(&rig);
}

/* Goal: P7. A window that is over stays over when a longer lateness is set: sealed and in history, dropped, or never
 * opened. A window that still takes counts takes them for longer, and its hook is called once.
 * Method: four minutes, each in one of these states; lateness is then a day. */
TEST(a_longer_lateness_opens_nothing_that_is_over) {
    struct rig rig;
    rig_open(&rig);
    struct hook_log log = {0, 0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_MINUTE;
    options.history_ms = TW_MINUTE;
    options.on_window_closed = log_hook;
    options.closed_ctx = &log;
    tw_family *family = rig_family_of(&rig, &options);
    int64_t dropped_ms = RIG_START_MS, sealed_ms = RIG_START_MS + 2 * TW_MINUTE, closed_ms = sealed_ms + TW_MINUTE;
    int64_t empty_ms = RIG_START_MS + TW_MINUTE, view;
    rig_add(family, "a", 5);
    rig_pass(&rig, 2 * TW_MINUTE);
    rig_add(family, "a", 6);
    rig_pass(&rig, TW_MINUTE);
    rig_add(family, "a", 7);
    rig_pass(&rig, TW_MINUTE + 1);
    assert_i64_equal(log.calls, 2);
    options.lateness_ms = TW_DAY;
    assert_status(tw_family_set(family, &options), TW_OK);
    for (int i = 0; i < 3; i++) {
        assert_status(tw_add_at(family, tw_str("a"), 1, dropped_ms, NULL), TW_ERR_LATE);
        assert_status(tw_add_at(family, tw_str("a"), 1, empty_ms, NULL), TW_ERR_LATE);
        assert_status(tw_add_at(family, tw_str("a"), 1, sealed_ms, NULL), TW_ERR_LATE);
        assert_status(tw_get_at(family, tw_str("a"), dropped_ms, &view), TW_ERR_LATE);
        assert_status(tw_get_at(family, tw_str("a"), sealed_ms, &view), TW_OK);
        assert_i64_equal(view, 6);
        assert_status(tw_add_at(family, tw_str("a"), 1, closed_ms, NULL), TW_OK);
        rig_pass(&rig, 10 * TW_MINUTE);
    }
    assert_i64_equal(log.calls, 2);
    rig_pass(&rig, TW_DAY);
    assert_i64_equal(log.calls, 3);
    assert_status(tw_add_at(family, tw_str("a"), 1, closed_ms, NULL), TW_ERR_LATE);
    rig_close(&rig);
}

/* Goal: the same, before the turn has seen that a shorter lateness had ended a window. */
TEST(a_window_that_a_shorter_lateness_ended_stays_over) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_DAY;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 5);
    rig_pass(&rig, 2 * TW_MINUTE);
    options.lateness_ms = 0;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(tw_add_at(family, tw_str("a"), 1, RIG_START_MS, NULL), TW_ERR_LATE);
    options.lateness_ms = TW_DAY;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(tw_add_at(family, tw_str("a"), 1, RIG_START_MS, NULL), TW_ERR_LATE);
    rig_settle(&rig);
    assert_int_equal(twi_load_relaxed(&twi_window_find(family, RIG_START_MS)->phase), TWI_HISTORY);
    rig_close(&rig);
}

/* ---- sections that last ------------------------------------------------------------------------------------------ */

struct sleeper {
    pthread_t thread;
    pthread_barrier_t inside, over;
    tw_engine *engine;
};
static void *sleep_in_section(void *ctx) {
    struct sleeper *sleeper = ctx;
    tw_enter(sleeper->engine);
    pthread_barrier_wait(&sleeper->inside);
    pthread_barrier_wait(&sleeper->over);
    tw_leave(sleeper->engine);
    return NULL;
}
static void sleeper_begin(struct sleeper *sleeper, tw_engine *engine) {
    sleeper->engine = engine;
    pthread_barrier_init(&sleeper->inside, NULL, 2);
    pthread_barrier_init(&sleeper->over, NULL, 2);
    assert_int_equal(pthread_create(&sleeper->thread, NULL, sleep_in_section, sleeper), 0);
    pthread_barrier_wait(&sleeper->inside);
}
static void sleeper_end(struct sleeper *sleeper) {
    pthread_barrier_wait(&sleeper->over);
    pthread_join(sleeper->thread, NULL);
}

/* Goal: a thread that stalls inside a section delays the reuse of memory and nothing else. Windows close, hooks come,
 * and the host is not asked for turns without pause (traps E18, E19).
 * Method: a sleeping section while windows roll over; then it ends. */
TEST(trap_e18_a_sleeping_section_delays_only_the_reuse_of_memory) {
    struct rig rig;
    rig_open(&rig);
    struct hook_log log = {0, 0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    options.on_window_closed = log_hook;
    options.closed_ctx = &log;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    int64_t one = test_memory_bytes(rig.engine);
    struct sleeper sleeper;
    sleeper_begin(&sleeper, rig.engine);
    for (int i = 0; i < 20; i++) {
        rig_pass(&rig, TW_MINUTE);
        rig_add(family, "a", 1);
    }
    assert_i64_equal(log.calls, 20);
    assert_true(test_memory_bytes(rig.engine) > 10 * one);
    rig_turn(&rig);
    assert_true(tw_timeout_ms(rig.engine) > 0);
    assert_true(test_stat_of(rig.engine, sections_oldest_ms) >= 19 * TW_MINUTE);
    sleeper_end(&sleeper);
    rig_pass(&rig, 10);
    rig_pass(&rig, 10);
    assert_true(test_memory_bytes(rig.engine) < 4 * one);
    assert_i64_equal(test_stat_of(rig.engine, sections_oldest_ms), 0);
    rig_close(&rig);
}

/* Goal: E19. tw_turn() inside a section does not wait for itself. */
TEST(trap_e19_a_turn_inside_a_section_is_refused) {
    struct rig rig;
    rig_open(&rig);
    tw_enter(rig.engine);
    assert_status(tw_turn(rig.engine), TW_ERR_MODE);
    assert_status(tw_flush(rig.engine, 1000), TW_ERR_MODE);
    assert_status(tw_close(rig.engine, 1000), TW_ERR_MODE);
    tw_leave(rig.engine);
    rig_turn(&rig);
    rig_close(&rig);
}

/* Goal: E21. A section held over the boundary does not hold the window. */
TEST(trap_e21_a_section_held_over_the_boundary_counts_in_the_new_window) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_enter(rig.engine);
    rig_add(family, "a", 1);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    assert_i64_equal(rig_add(family, "a", 10), 10);
    tw_leave(rig.engine);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 1);
    rig_close(&rig);
}
