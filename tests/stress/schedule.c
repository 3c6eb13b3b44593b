/* schedule.c -- single schedules, forced: a thread is stopped at a race point while others run on. The stress programs
 * meet these schedules by chance, once in a million; here each happens every time (errand.h). In builds without
 * -Drace_points=true it is skipped.
 * Always true: engines are host-driven and run on a fake clock; only the stopped thread and the test's own run. */
#include "tests/support/fake_driver.h"

#include "engine/core/family.h"
#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"

#define START_MS INT64_C(1700000000000)

#ifdef TWI_RACE_POINTS

#include "tests/stress/errand.h"

/* ---- what a stopped thread does ---------------------------------------------------------------------------------- */

struct job {
    struct errand errand;
    tw_family *family;
    uint32_t key;
    int64_t delta;
    int64_t at_ms; /* not 0: it adds by event time */
    tw_status status;
    bool walks;  /* it walks through the first window instead of adding */
    bool resets; /* it resets the key instead of adding */
    bool many;   /* it adds MANY times at once */
    enum { BY_TW_ADD, BY_LONG_KEY, BY_ACQUIRE, BY_LONG_ACQUIRE, BY_PIN, BY_REPEATED, BY_ALL } by;
    int64_t sum; /* of the walk; or what the reset took away */
};

#define MANY 8u /* a group (group_fast.h) */
static tw_status add_many(const struct job *job) {
    tw_key keys[MANY];
    int64_t deltas[MANY];
    for (size_t i = 0; i < MANY; i++) keys[i] = fake_key(&job->key), deltas[i] = job->delta;
    return tw_add_many(job->family, keys, deltas, MANY, NULL, NULL);
}

static tw_key long_key(const struct job *job) {
    static _Thread_local unsigned char bytes[40];
    memcpy(bytes, &job->key, sizeof job->key);
    return tw_bytes(bytes, sizeof bytes);
}
/* As a thread that has added to this key again and again. */
static tw_status add_again(const struct job *job) {
    tw_status status = tw_add(job->family, fake_key(&job->key), 0, NULL);            /* makes the counter */
    twi_thread_self->repeats = 9;                                                    /* the thread watches */
    if (status == TW_OK) status = tw_add(job->family, fake_key(&job->key), 0, NULL); /* remembers it */
    if (status == TW_OK) status = tw_add(job->family, fake_key(&job->key), job->delta, NULL);
    return status;
}
static tw_status add_by(const struct job *job) {
    tw_pin *pin;
    if (job->by == BY_LONG_KEY) return tw_add(job->family, long_key(job), job->delta, NULL);
    if (job->by == BY_ACQUIRE) return tw_acquire(job->family, fake_key(&job->key), job->delta, 1000, NULL);
    if (job->by == BY_LONG_ACQUIRE) return tw_acquire(job->family, long_key(job), job->delta, 1000, NULL);
    if (job->by == BY_REPEATED) return add_again(job);
    if (job->by != BY_PIN) return tw_add(job->family, fake_key(&job->key), job->delta, NULL);
    tw_status status = tw_pin_open(job->family, fake_key(&job->key), &pin);
    if (status == TW_OK) status = tw_pin_add(pin, 0, NULL); /* finds the counter */
    if (status == TW_OK) status = tw_pin_add(pin, job->delta, NULL);
    if (status == TW_OK) tw_pin_close(pin);
    return status;
}

static bool add_count(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

static void run_job(struct errand *errand) {
    struct job *job = (struct job *)errand;
    (void)twi_thread_here(); /* a thread's first call takes a slower path */
    if (job->walks)
        job->status = tw_each(job->family, START_MS, add_count, &job->sum);
    else if (job->resets)
        job->status = tw_reset(job->family, fake_key(&job->key), &job->sum);
    else if (job->many)
        job->status = add_many(job);
    else if (job->at_ms != 0)
        job->status = tw_add_at(job->family, fake_key(&job->key), job->delta, job->at_ms, NULL);
    else
        job->status = add_by(job);
}

/* ---- an engine --------------------------------------------------------------------------------------------------- */

struct rig {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family, *other;
    int64_t hook_calls, hook_sum;
    uint32_t hook_flags;
    int64_t acked_at_hook;
};

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct rig *rig = ctx;
    rig->hook_calls++;
    rig->hook_flags |= flags;
    rig->acked_at_hook = fake_driver_sum();
    assert_status(tw_each(family, start_ms, add_count, &rig->hook_sum), TW_OK);
    return true;
}

static tw_family *rig_family(struct rig *rig, const char *name, bool hook) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = TW_SECOND;
    options.history_ms = TW_NONE;
    if (hook) {
        options.on_window_closed = on_closed;
        options.closed_ctx = rig;
    }
    tw_family *family;
    assert_status(tw_family_open(rig->engine, &options, &family), TW_OK);
    return family;
}

static void rig_open_with(struct rig *rig, bool synced, uint64_t bytes) {
    memset(rig, 0, sizeof *rig);
    fake_clock_init(&rig->clock, START_MS);
    fake_driver_reset(START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = bytes;
    fake_clock_install(&rig->clock, &options);
    if (synced) fake_driver_install(&options);
    assert_status(tw_open(&options, &rig->engine), TW_OK);
    rig->family = rig_family(rig, "main", true);
    rig->other = rig_family(rig, "other", false);
}

static void rig_open(struct rig *rig, bool synced) {
    rig_open_with(rig, synced, 16 << 20);
}

static void rig_turns(struct rig *rig, int count) {
    for (int turn = 0; turn < count; turn++) {
        fake_clock_advance_ms(&rig->clock, 1);
        assert_status(tw_turn(rig->engine), TW_OK);
    }
}

static void rig_add(struct rig *rig, uint32_t key, int64_t delta) {
    assert_status(tw_add(rig->family, fake_key(&key), delta, NULL), TW_OK);
}

/* ---- the schedules ----------------------------------------------------------------------------------------------- */

/* Goal: a window whose hook was called and that was dropped is not opened again by a thread that found it before its
 * insert (P7: one hook, final). Method: the thread stops before its insert; the window ends, its hook is called, and it
 * is dropped. */
static void check_stalled_inserter(const char *point) {
    struct rig rig;
    rig_open(&rig, false);
    rig_add(&rig, 1, 2); /* opens the window */
    rig_add(&rig, 1, 3); /* finds it: from now on the fast path does */
    struct job job = {.errand.stop_at = point, .family = rig.family, .key = 2, .delta = 7};
    errand_begin(&job.errand, run_job);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 5);
    assert_i64_equal(rig.hook_calls, 1);
    errand_end(&job.errand);
    assert_status(job.status, TW_OK); /* in the next window, by the clock when it looked again */
    int64_t view;
    assert_status(tw_get(rig.family, fake_key(&job.key), &view), TW_OK);
    assert_i64_equal(view, 7);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 5);
    assert_i64_equal(rig.hook_calls, 2);
    assert_i64_equal(rig.hook_sum, 12);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}
TEST(a_dropped_window_is_not_opened_again_by_a_thread_that_found_it) {
    check_stalled_inserter("window_found_not_inserted");
}
/* The clock was read before. It is the closed slot that tells the thread. */
TEST(a_slot_that_was_seen_free_is_not_taken_in_a_window_that_was_closed_since) {
    check_stalled_inserter("absent_not_inserted");
}
/* The first delta, too, is only in a record that nobody sees. */
TEST(a_record_that_is_ready_is_not_published_in_a_window_that_was_closed_since) {
    check_stalled_inserter("record_ready_not_claimed");
}

/* Goal: a window in which no unit was counted is told to nobody, even if a thread had its first record ready when it
 * ended. Method: that thread stops before its slot; alone, or where another key was counted. */
static void check_window_of_a_record(bool alone) {
    struct rig rig;
    rig_open(&rig, false);
    if (!alone) rig_add(&rig, 1, 2);
    struct job job = {.errand.stop_at = "record_ready_not_claimed", .family = rig.family, .key = 2, .delta = 7};
    errand_begin(&job.errand, run_job);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_calls, alone ? 0 : 1);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), alone ? 0 : 1);
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_calls, alone ? 1 : 2);
    assert_i64_equal(rig.hook_sum, alone ? 7 : 9);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), alone ? 1 : 2);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}
TEST(a_window_for_which_only_a_record_was_ready_is_told_to_nobody) {
    check_window_of_a_record(true);
    check_window_of_a_record(false);
}

/* Goal: a reset that has read a count, and stalls until its window is sealed, has taken nothing of that window, and
 * says so. The window's hook has the whole count (P1). Method: it stops there. The next window has no such key, or has
 * one with another count. */
static void check_stalled_reset(bool synced, int64_t next_count) {
    struct rig rig;
    rig_open(&rig, synced);
    rig_add(&rig, 1, 39);
    struct job job = {.errand.stop_at = "view_read_not_taken_away", .family = rig.family, .key = 1, .resets = true};
    errand_begin(&job.errand, run_job);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 200);
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.hook_sum, 39);
    if (next_count != 0) rig_add(&rig, 1, next_count);
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    assert_i64_equal(job.sum, next_count);
    int64_t view;
    assert_status(tw_get(rig.family, fake_key(&job.key), &view), TW_OK);
    assert_i64_equal(view, 0);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 200);
    assert_i64_equal(rig.hook_sum, 39);
    if (synced) assert_i64_equal(fake_driver_sum(), 39);
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

TEST(a_reset_that_stalls_until_its_window_is_sealed_takes_nothing_of_it) {
    for (int synced = 0; synced < 2; synced++) {
        check_stalled_reset(synced != 0, 7);
        check_stalled_reset(synced != 0, 0);
    }
}

/* Goal: the hook of a window is called, and the window dropped, only when all its counts are acknowledged, even if an
 * adder is anywhere between its add and its last mark (traps E8, E18, P2). The window does not wait for that adder's
 * marks. Method: the adder stops there; another counter of the same chunk is added to; the window ends. */
static void check_stalled_marker(const char *point) {
    struct rig rig;
    rig_open(&rig, true);
    rig_add(&rig, 1, 5);
    rig_turns(&rig, 3);
    assert_i64_equal(fake_driver_sum(), 5);
    struct job job = {.errand.stop_at = point, .family = rig.family, .key = 1, .delta = 7};
    errand_begin(&job.errand, run_job);
    for (uint32_t key = 2; key < 10; key++) rig_add(&rig, key, 100);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 200);
    assert_i64_equal(fake_driver_sum(), 5 + 7 + 800);
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.hook_sum, 5 + 7 + 800);
    assert_i64_equal(rig.hook_flags, 0);
    assert_i64_equal(rig.acked_at_hook, 5 + 7 + 800); /* drained before its hook was called */
    atomic_store(&fake_driver.away, true);            /* nobody collects what the adder marks now */
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    rig_turns(&rig, 200);
    assert_i64_equal(rig.family->turn.held, 0);         /* the window's memory is free again ... */
    assert_i64_equal(rig.engine->collector.pending, 0); /* ... and no list has it any more */
    assert_i64_equal(atomic_load(&rig.engine->collector.marked), 0);
    atomic_store(&fake_driver.away, false);
    rig_turns(&rig, 5);
    assert_i64_equal(fake_driver_sum(), 5 + 7 + 800);
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

TEST(a_marker_that_stalls_after_dirty_delays_no_window) {
    check_stalled_marker("dirty_not_marked");
}
TEST(a_marker_that_stalls_after_its_bit_delays_no_window) {
    check_stalled_marker("bit_set_chunk_not_listed");
}
TEST(a_marker_that_stalls_before_it_lists_its_chunk_delays_no_window) {
    check_stalled_marker("chunk_listed_not_pushed");
}
TEST(a_marker_that_stalls_before_it_lists_its_window_delays_no_window) {
    check_stalled_marker("window_listed_not_pushed");
}

/* Goal: a thread ends between two marks. Its count, later ones of that counter and those of its neighbours are sent
 * without waiting for the window's end; the next thread has its slot. Method: it ends at each race point of marking. */
TEST(a_thread_that_ends_between_two_marks_hides_no_count) {
    static const char *const points[] = {"dirty_not_marked", "bit_set_chunk_not_listed", "chunk_listed_not_pushed",
                                         "window_listed_not_pushed"};
    struct rig rig;
    rig_open(&rig, true);
    int64_t sum = 0;
    for (size_t i = 0; i < 2 * sizeof points / sizeof *points; i++) {
        rig_add(&rig, 1, 5);
        rig_turns(&rig, 3);
        assert_i64_equal(fake_driver_sum(), sum += 5);
        uint32_t slots = twi_load_relaxed(&twi_domain->slots);
        struct job job = {.errand.stop_at = points[i % 4], .family = rig.family, .key = 1, .delta = 7};
        errand_die(&job.errand, run_job);
        for (uint32_t key = 1; key < 10; key++) rig_add(&rig, key, 100);
        rig_turns(&rig, 3);
        assert_i64_equal(fake_driver_sum(), sum += 7 + 900);
        assert_true(i == 0 || twi_load_relaxed(&twi_domain->slots) == slots);
        uint64_t stamp = twi_epoch_stamp();
        assert_true(stamp < twi_epoch_reached());
    }
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

/* Goal: the ticket of tw_flush covers every window, even if adders keep marking the one that is collected first (trap
 * E10). Method: two families have unsent counts; while the first is being collected, an add marks it again. */
static struct rig *marking_rig;
static void mark_again(void) {
    rig_add(marking_rig, 3, 1);
    uint32_t key = 3;
    assert_status(tw_add(marking_rig->other, fake_key(&key), 1, NULL), TW_OK);
}

TEST(a_flush_is_not_done_before_all_windows_were_collected) {
    struct rig rig;
    rig_open(&rig, true);
    marking_rig = &rig;
    uint32_t key = 1;
    rig_add(&rig, 1, 10);
    rig_add(&rig, 3, 10);
    assert_status(tw_add(rig.other, fake_key(&key), 20, NULL), TW_OK);
    twi_port_collect_begin(rig.engine);
    struct twi_item items[64];
    int64_t sum = 0;
    stop_at = "generation_collected";
    call_at = mark_again;
    for (int round = 0; round < 10 && !twi_port_collect_is_done(rig.engine); round++) {
        size_t count = twi_port_collect(rig.engine, items, 64);
        for (size_t i = 0; i < count; i++) {
            sum += items[i].delta;
            twi_port_acknowledge(&items[i], &(struct twi_reply){0});
        }
    }
    stop_at = NULL;
    assert_true(twi_port_collect_is_done(rig.engine));
    assert_true(sum >= 40);
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

static int64_t collect_once(struct rig *rig) {
    struct twi_item items[64];
    int64_t sum = 0;
    size_t count = twi_port_collect(rig->engine, items, 64);
    for (size_t i = 0; i < count; i++) {
        sum += items[i].delta;
        twi_port_acknowledge(&items[i], &(struct twi_reply){0});
    }
    return sum;
}

/* Goal: the ticket covers a delta whose marks were left to a second thread. That thread left the last mark to a third
 * one, which began after the ticket and stalls: the grace period waits for the second thread only. Method: the adder of
 * key 1 stalls before it pushes the chunk. The test adds to key 2 of that chunk and takes the ticket. An adder in
 * another chunk stalls before it pushes the window. The first adder finishes and finds the window listed. */
TEST(a_flush_does_not_rely_on_marks_of_threads_that_came_after_it) {
    struct rig rig;
    rig_open(&rig, true);
    for (uint32_t key = 0; key < 40; key++) rig_add(&rig, key, 1);
    assert_i64_equal(collect_once(&rig), 40);
    struct job second = {.errand.stop_at = "chunk_listed_not_pushed", .family = rig.family, .key = 38, .delta = 1};
    struct job third = {.errand.stop_at = "window_listed_not_pushed", .family = rig.family, .key = 0, .delta = 1};
    errand_begin(&second.errand, run_job);
    rig_add(&rig, 39, 100);
    assert_i64_equal(collect_once(&rig), 0); /* the window is listed, the chunk is not */
    twi_port_collect_begin(rig.engine);
    errand_begin(&third.errand, run_job);
    errand_end(&second.errand);
    int64_t sum = 0;
    for (int round = 0; round < 10 && !twi_port_collect_is_done(rig.engine); round++) sum += collect_once(&rig);
    assert_true(twi_port_collect_is_done(rig.engine));
    assert_true(sum >= 101);
    errand_end(&third.errand);
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

/* Goal: a thread that has opened a window and stalls before it registers the window for roll-over delays neither its
 * hook nor its sending for long. Method: it stops there, another thread counts in the window, the window ends. */
TEST(an_opener_that_stalls_delays_no_window) {
    struct rig rig;
    rig_open(&rig, false);
    rig_turns(&rig, 1);
    struct job job = {.errand.stop_at = "window_entered_not_announced", .family = rig.family, .key = 1, .delta = 7};
    errand_begin(&job.errand, run_job);
    rig_add(&rig, 2, 5);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    for (int turn = 0; turn < 20; turn++) {
        fake_clock_advance_ms(&rig.clock, 100);
        assert_status(tw_turn(rig.engine), TW_OK);
    }
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.hook_sum, 5);
    errand_end(&job.errand);
    rig_turns(&rig, 1);
    assert_status(job.status, TW_OK);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_sum, 12);
    assert_i64_equal(rig.hook_calls, 2);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a walk has looked which form its window has, and stalls before it announces that it reads the table. When it
 * goes on it finds the table, although the window was packed meanwhile; afterwards the table is freed. Method: it stops
 * there. */
TEST(a_walk_that_stalls_in_its_choice_keeps_the_table) {
    struct rig rig;
    rig_open(&rig, false);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "history";
    options.window_ms = TW_SECOND;
    options.history_ms = TW_HOUR;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    int64_t sum = 0;
    for (uint32_t key = 0; key < 500; key++, sum += key)
        assert_status(tw_add(family, fake_key(&key), key + 1, NULL), TW_OK);
    struct job job = {.errand.stop_at = "each_form_chosen", .family = family, .walks = true};
    errand_begin(&job.errand, run_job);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 200);
    struct twi_generation *generation = twi_window_find(family, START_MS);
    assert_true(twi_generation_is_packed(generation));
    assert_true(atomic_load(&generation->chunks[0]) != 0);
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    assert_i64_equal(job.sum, sum);
    rig_turns(&rig, 20);
    assert_i64_equal(atomic_load(&generation->chunks[0]), 0);
    job.sum = 0;
    assert_status(tw_each(family, START_MS, add_count, &job.sum), TW_OK);
    assert_i64_equal(job.sum, sum);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a walk has read the clock, and stalls until its window is dropped. It must not find an empty window then, which
 * would be other figures than the hook saw. Method: it stops there. */
TEST(a_walk_that_stalls_until_its_window_is_dropped_is_late) {
    struct rig rig;
    rig_open(&rig, false);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "history";
    options.window_ms = TW_SECOND;
    options.history_ms = 5 * TW_SECOND;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    uint32_t key = 1;
    assert_status(tw_add(family, fake_key(&key), 7, NULL), TW_OK);
    struct job job = {.errand.stop_at = "walk_time_read", .family = family, .walks = true};
    errand_begin(&job.errand, run_job);
    for (int second = 0; second < 20; second++) {
        fake_clock_advance_ms(&rig.clock, TW_SECOND);
        rig_turns(&rig, 20);
    }
    assert_null(twi_window_find(family, START_MS));
    errand_end(&job.errand);
    assert_status(job.status, TW_ERR_LATE);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: an adder that takes a window for the current one, after the window was unlinked, still reads its span when
 * another one is current (P7). Its memory must not be another window's by then: the delta would be counted there.
 * Method: in the middle of the turn that unlinks the window, the adder stops with the window in hand; then another one
 * becomes current. */
static struct rig *unlinking_rig;
static struct job late_looker;

static void look_and_move_on(void) {
    uint32_t key = 1;
    errand_begin(&late_looker.errand, run_job);
    assert_status(tw_get(unlinking_rig->family, fake_key(&key), NULL), TW_OK);
    assert_ptr_equal(atomic_load(&unlinking_rig->family->current),
                     twi_window_find(unlinking_rig->family, START_MS + TW_SECOND));
}

TEST(a_window_found_as_current_after_it_was_unlinked_keeps_its_memory) {
    struct rig rig;
    rig_open(&rig, false);
    unlinking_rig = &rig;
    uint32_t key = 1;
    int64_t next_ms = START_MS + TW_SECOND, view;
    rig_add(&rig, key, 5);
    assert_status(tw_get(rig.family, fake_key(&key), NULL), TW_OK); /* makes the window current */
    rig_turns(&rig, 3);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    assert_status(tw_add_at(rig.family, fake_key(&key), 1, next_ms, NULL), TW_OK); /* the first one stays current */
    late_looker = (struct job){
        .errand.stop_at = "current_loaded_not_read", .family = rig.family, .key = key, .delta = 7, .at_ms = next_ms};
    stop_at = "unlinked_still_current";
    call_at = look_and_move_on;
    rig_turns(&rig, 20);
    assert_null(stop_at);
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.family->turn.held, 2);
    errand_end(&late_looker.errand);
    assert_status(late_looker.status, TW_OK);
    assert_status(tw_get_at(rig.family, fake_key(&key), next_ms, &view), TW_OK);
    assert_i64_equal(view, 8);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.family->turn.held, 1);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a window that was told of and dropped, and that a late-comer opens again, stays empty, even if it is `current`
 * and another thread still has a time of it (P7): a call reads the clock after it has loaded the window. Method: three
 * threads have read a time in the window: one that will open it again, one that will make it current, and an adder of a
 * new key. It stops between the two loads; meanwhile the window ends, is told of and dropped, and the others continue.
 * `written`: the adder takes the shortest path, as in an engine on the system's clock. */
static void check_reopened_window(bool written, const char *adder_stops_at, bool many) {
    struct rig rig;
    rig_open(&rig, false);
    if (written) (void)twi_and_acqrel(&rig.engine->clock.word, ~TWI_CLOCK_STATE);
    for (int i = 0; i < 2; i++) rig_add(&rig, 1, 2);
    int64_t start_ms = START_MS + TW_SECOND, view;
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    (void)twi_clock_read(&rig.engine->clock);
    struct job opener = {.errand.stop_at = "window_not_opened", .family = rig.family, .key = 2, .delta = 100},
               finder = {.errand.stop_at = "current_loaded_not_read",
                         .errand.then_stop_at = "window_found_not_inserted",
                         .family = rig.family,
                         .key = 3,
                         .delta = 1000},
               adder = {.errand.stop_at = adder_stops_at, .family = rig.family, .key = 4, .delta = 7, .many = many};
    errand_begin(&opener.errand, run_job);
    errand_begin(&finder.errand, run_job);
    for (int i = 0; i < 2; i++) rig_add(&rig, 1, 5);
    errand_begin(&adder.errand, run_job);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_calls, 2);
    assert_i64_equal(rig.hook_sum, 14);
    assert_null(twi_window_find(rig.family, start_ms));
    errand_end(&opener.errand);
    struct twi_generation *again = twi_window_find(rig.family, start_ms);
    assert_non_null(again);
    errand_go_on(&finder.errand);
    assert_ptr_equal(atomic_load(&rig.family->current), again);
    errand_end(&adder.errand);
    assert_i64_equal(atomic_load(&again->keys), 0);
    errand_end(&finder.errand);
    assert_true(opener.status == TW_OK && finder.status == TW_OK && adder.status == TW_OK);
    assert_status(tw_get(rig.family, fake_key(&adder.key), &view), TW_OK);
    assert_i64_equal(view, many ? 7 * MANY : 7);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_calls, 3);
    assert_i64_equal(rig.hook_sum, 14 + 1100 + view);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}
TEST(a_window_that_is_opened_again_and_current_stays_empty) {
    check_reopened_window(true, "window_loaded_time_not_read", false);
    check_reopened_window(true, "absent_not_inserted", false);
    check_reopened_window(false, "window_found_not_inserted", false);
    check_reopened_window(false, "absent_not_inserted", false);
    check_reopened_window(false, "window_found_not_inserted", true);
    check_reopened_window(true, "absent_not_inserted", true);
}

/* Goal: the short sections of the shortest paths hold the memory of their window, as all others do (section 7 of
 * docs/CONCURRENCY.md). Method: by each path a thread stops with the window in hand; meanwhile it ends and is dropped.
 * Its memory is free when the thread has gone on, and not before. */
TEST(a_short_section_keeps_the_memory_of_its_window) {
    for (int by = 0; by < BY_ALL; by++) {
        struct rig rig;
        rig_open(&rig, false);
        (void)twi_and_acqrel(&rig.engine->clock.word, ~TWI_CLOCK_STATE);
        for (int i = 0; i < 2; i++) rig_add(&rig, 1, 2);
        struct job job = {.errand.stop_at = by == BY_PIN        ? "pin_time_read_not_added"
                                            : by == BY_REPEATED ? "repeat_time_read_not_added"
                                                                : "window_loaded_time_not_read",
                          .family = rig.family,
                          .key = 2,
                          .delta = 7,
                          .by = by};
        errand_begin(&job.errand, run_job);
        fake_clock_advance_ms(&rig.clock, TW_SECOND);
        for (int turn = 0; turn < 100; turn++) rig_turns(&rig, 10);
        assert_i64_equal(rig.hook_calls, 1);
        assert_null(twi_window_find(rig.family, START_MS));
        assert_i64_equal(rig.family->turn.held, 1);
        errand_end(&job.errand);
        assert_status(job.status, TW_OK);
        rig_turns(&rig, 100);
        assert_i64_equal(rig.family->turn.held, 1); /* the window in which it has counted */
        fake_clock_advance_ms(&rig.clock, TW_SECOND);
        rig_turns(&rig, 100);
        assert_i64_equal(rig.family->turn.held, 0);
        assert_i64_equal(rig.hook_calls, 2);
        assert_i64_equal(rig.hook_sum, 4 + 7);
        assert_status(tw_close(rig.engine, 0), TW_OK);
    }
}

/* Goal: units are taken in no window that is sealed (E18). Method: on the shortest path, a thread stops with the
 * counter in hand, until its window was told of. */
TEST(units_are_not_taken_of_a_counter_that_was_frozen_since) {
    struct rig rig;
    rig_open(&rig, false);
    (void)twi_and_acqrel(&rig.engine->clock.word, ~TWI_CLOCK_STATE);
    for (int i = 0; i < 2; i++) rig_add(&rig, 1, 2);
    struct job job = {
        .errand.stop_at = "limit_cell_found_not_read", .family = rig.family, .key = 1, .delta = 7, .by = BY_ACQUIRE};
    twi_store_relaxed(&rig.family->requests.limit_lines, true);
    twi_limit_stats_turn(rig.family);
    errand_begin(&job.errand, run_job);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_sum, 4);
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_calls, 2);
    assert_i64_equal(rig.hook_sum, 4 + 7);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

static tw_family *racing;
static uint32_t raced_key;

static void win_the_race(void) {
    assert_status(tw_add(racing, fake_key(&raced_key), 1, NULL), TW_OK);
}

/* Adds a new key while another thread publishes a record of the same key first. */
static void lose_a_race(tw_family *family, uint32_t key) {
    racing = family;
    raced_key = key;
    gate = NULL;
    call_at = win_the_race;
    stop_at = "record_ready_not_claimed";
    assert_status(tw_add(family, fake_key(&key), 1, NULL), TW_OK);
    assert_null(stop_at);
}

/* Goal: a record that lost a race to be published is used by a later insert, whatever else its thread has lost since.
 * Method: two families take turns to lose; both then hold as much as one that has never lost. */
TEST(records_that_lost_a_race_are_used_again) {
    struct rig rig;
    rig_open(&rig, false);
    tw_family *peaceful = rig_family(&rig, "peaceful", false);
    for (uint32_t key = 0; key < 5000; key++) {
        lose_a_race(rig.family, key);
        lose_a_race(rig.other, key);
        assert_status(tw_add(peaceful, fake_key(&key), 1, NULL), TW_OK);
    }
    int64_t bytes = atomic_load(&peaceful->quota.bytes);
    assert_true(atomic_load(&rig.family->quota.bytes) <= bytes + bytes / 4);
    assert_true(atomic_load(&rig.other->quota.bytes) <= bytes + bytes / 4);
    int64_t sum = 0;
    assert_status(tw_each(rig.other, START_MS, add_count, &sum), TW_OK);
    assert_i64_equal(sum, 10000);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a key whose inserter is between its slot and PUBLISHED is there for all. It gets no second counter, and what it
 * has counted is shown. Method: the inserter stops there; another thread adds to the key by each path. */
TEST(a_key_that_is_claimed_and_not_published_is_found) {
    struct rig rig;
    rig_open(&rig, false);
    rig_add(&rig, 1, 2);
    rig_add(&rig, 1, 3); /* as above */
    struct job job = {.errand.stop_at = "claimed_not_published", .family = rig.family, .key = 2, .delta = 7};
    errand_begin(&job.errand, run_job);
    int64_t view;
    assert_status(tw_add(rig.family, fake_key(&job.key), 5, &view), TW_OK);
    assert_i64_equal(view, 12);
    assert_status(tw_add(rig.family, fake_key(&job.key), 1, &view), TW_OK);
    assert_i64_equal(view, 13);
    int64_t sum = 0;
    assert_status(tw_each(rig.family, START_MS, add_count, &sum), TW_OK);
    assert_i64_equal(sum, 18);
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    assert_status(tw_get(rig.family, fake_key(&job.key), &view), TW_OK);
    assert_i64_equal(view, 13);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* What happens while a thread knows that its key is absent, and where it would stand. */
static struct meanwhile {
    tw_family *family;
    uint32_t key, others; /* other keys, from `key` + 1 on */
    bool same_key;        /* and then the thread's own */
} meanwhile;

static void insert_meanwhile(void) {
    for (uint32_t i = 1; i <= meanwhile.others; i++) {
        uint32_t other = meanwhile.key + i;
        assert_status(tw_add(meanwhile.family, fake_key(&other), 1, NULL), TW_OK);
    }
    if (meanwhile.same_key) assert_status(tw_add(meanwhile.family, fake_key(&meanwhile.key), 3, NULL), TW_OK);
}

static bool count_key_of(void *ctx, const tw_count *count) {
    ++*(int64_t *)ctx;
    return true;
}

/* Goal: T1. Free places that a look-up has seen are hints: whatever happens before the insert, the key gets one
 * counter, and each delta counts once. Method: between look-up and insert other keys come, few or so many that the
 * leaf grows, and in every second case the same key; with an area and without. */
static void check_stale_vacancies(uint64_t keys_expected) {
    const uint32_t others[] = {0, 1, 3, 17, 700};
    struct rig rig;
    rig_open(&rig, false);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "crowded";
    options.keys_expected = keys_expected;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    int64_t sum = 0, wanted = 0, keys = 0, keys_wanted = 0, view;
    for (uint32_t first = UINT32_MAX; wanted < 2; wanted++) /* opens the window, and finds it for the fast path */
        assert_status(tw_add(family, fake_key(&first), 1, NULL), TW_OK);
    keys_wanted = 1;
    for (uint32_t round = 0; round < 200; round++) {
        meanwhile = (struct meanwhile){family, round * 1000, others[round / 2 % 5], round % 2 != 0};
        gate = NULL;
        call_at = insert_meanwhile;
        stop_at = "absent_not_inserted";
        assert_status(tw_add(family, fake_key(&meanwhile.key), 5, &view), TW_OK);
        assert_null(stop_at);
        assert_i64_equal(view, meanwhile.same_key ? 8 : 5);
        wanted += 5 + meanwhile.others + (meanwhile.same_key ? 3 : 0);
        keys_wanted += 1 + meanwhile.others;
    }
    assert_status(tw_each(family, TW_NOW, add_count, &sum), TW_OK);
    assert_status(tw_each(family, TW_NOW, count_key_of, &keys), TW_OK);
    assert_i64_equal(sum, wanted);
    assert_i64_equal(keys, keys_wanted);
    struct twi_generation *generation = atomic_load(&family->current);
    assert_true(
        twi_table_is_valid(&rig.engine->arena, generation, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    assert_status(tw_close(rig.engine, 0), TW_OK);
}
TEST(places_that_a_look_up_has_seen_free_are_hints) {
    check_stale_vacancies(0);
    check_stale_vacancies(500);   /* an area that fills up */
    check_stale_vacancies(50000); /* and some that do not */
}

/* Goal: a thread that stalls while it lays out the area of a window of announced size delays nobody: the others count,
 * read and walk without them, the window ends, and each delta counts once. Method: one key of 500 decides, so the
 * thread of the second one lays out; others insert meanwhile, short keys and long ones. */
static void check_stalled_layout(bool ends) {
    struct rig rig;
    rig_open(&rig, false);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "told";
    options.window_ms = TW_SECOND;
    options.keys_expected = 500;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    uint32_t keys = 0;
    int64_t view, sum = 0, counted = 0;
    assert_status(tw_add(family, fake_key(&keys), 1, NULL), TW_OK);
    struct twi_generation *generation = twi_window_at(family, twi_clock_now_ms(&rig.engine->clock), true);
    struct job job = {.errand.stop_at = "area_made_not_shown", .family = family, .key = 1, .delta = 7};
    errand_begin(&job.errand, run_job);
    for (keys = 2; keys < 300; keys++) {
        char long_key[80];
        memset(long_key, 'k', sizeof long_key);
        memcpy(long_key, &keys, sizeof keys);
        tw_key key = keys % 3 == 0 ? tw_bytes(long_key, sizeof long_key) : fake_key(&keys);
        assert_status(tw_add(family, key, 1, &view), TW_OK);
        assert_i64_equal(view, 1);
        assert_status(tw_add(family, key, 1, &view), TW_OK);
        assert_i64_equal(view, 2);
    }
    assert_int_equal(twi_load_relaxed(&generation->area.places[0]), 0);
    assert_status(tw_each(family, TW_NOW, add_count, &sum), TW_OK);
    assert_i64_equal(sum, 1 + 2 * 298);
    if (ends) {
        fake_clock_advance_ms(&rig.clock, TW_SECOND);
        rig_turns(&rig, 5);
    }
    errand_end(&job.errand);
    assert_status(job.status, TW_OK);
    uint32_t late = 1;
    assert_status(tw_get(family, fake_key(&late), &view), TW_OK);
    assert_i64_equal(view, 7);
    sum = 0;
    assert_status(tw_each(family, TW_NOW, add_count, &sum), TW_OK);
    assert_i64_equal(sum, ends ? 7 : 1 + 2 * 298 + 7);
    if (!ends) {
        assert_true(twi_load_relaxed(&generation->area.places[0]) >= 500);
        assert_status(tw_each(family, TW_NOW, count_key_of, &counted), TW_OK);
        assert_i64_equal(counted, 300);
        assert_true(
            twi_table_is_valid(&rig.engine->arena, generation, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    }
    fake_clock_advance_ms(&rig.clock, 2 * TW_SECOND);
    rig_turns(&rig, 10);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}
TEST(a_thread_that_stalls_in_laying_out_an_area_delays_nobody) {
    check_stalled_layout(false);
    check_stalled_layout(true);
}

/* Goal: a thread that stalls with the copy of a root in hand delays nobody. The others replace the root themselves, and
 * split leaves below the new one; the late copy, which lacks all of that, replaces nothing. Method: a window that has
 * many more keys than were expected; the thread stops the first time that the root is full. */
struct filler {
    struct errand errand;
    tw_family *family;
    uint32_t first;
};
#define FILLED 20000u
static void fill(struct errand *errand) {
    struct filler *filler = (struct filler *)errand;
    (void)twi_thread_here();
    for (uint32_t key = filler->first; key < filler->first + FILLED; key++)
        if (tw_add(filler->family, fake_key(&key), 1, NULL) != TW_OK) abort();
}
TEST(a_thread_that_stalls_with_a_wider_root_in_hand_delays_nobody) {
    struct rig rig;
    rig_open(&rig, false);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "outgrown";
    options.keys_expected = 1000;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    struct filler stopped = {.errand.stop_at = "root_copied_not_published", .family = family};
    struct filler others = {.family = family, .first = FILLED};
    errand_begin(&stopped.errand, fill);
    struct twi_generation *generation = twi_window_at(family, twi_clock_now_ms(&rig.engine->clock), true);
    uint64_t before = atomic_load(&generation->root);
    fill(&others.errand);
    assert_true(twi_node_bits(atomic_load(&generation->root)) >= twi_node_bits(before) + 3);
    errand_end(&stopped.errand);
    int64_t sum = 0, keys = 0;
    assert_status(tw_each(family, TW_NOW, add_count, &sum), TW_OK);
    assert_status(tw_each(family, TW_NOW, count_key_of, &keys), TW_OK);
    assert_i64_equal(sum, 2 * FILLED);
    assert_i64_equal(keys, 2 * FILLED);
    assert_true(
        twi_table_is_valid(&rig.engine->arena, generation, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a record that lost a race was given a first delta. Who uses it next counts nothing of that. Method: adds lose
 * races, then calls of other kinds insert as many keys. */
static void check_delta_of_lost_records(uint64_t keys_expected) {
    struct rig rig;
    rig_open(&rig, false);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "losing";
    options.keys_expected = keys_expected;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    for (uint32_t first = UINT32_MAX, i = 0; i < 2; i++) /* as above */
        assert_status(tw_add(family, fake_key(&first), 1, NULL), TW_OK);
    for (uint32_t key = 0; key < 1000; key++) {
        lose_a_race(family, key);
        uint32_t next = 100000 + key;
        tw_verdict verdict;
        assert_status(tw_acquire(family, fake_key(&next), 1, 100, &verdict), TW_OK);
        assert_i64_equal(verdict.remaining, 99);
    }
    int64_t sum = 0;
    assert_status(tw_each(family, TW_NOW, add_count, &sum), TW_OK);
    assert_i64_equal(sum, 2 + 2000 + 1000);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}
TEST(a_record_that_lost_a_race_forgets_its_first_delta) {
    check_delta_of_lost_records(0);
    check_delta_of_lost_records(1000); /* an area so full that records lie elsewhere */
}

/* ---- a share that holds all of its users ------------------------------------------------------------------------- */

#define USERS 5000
#define OF_EACH 5

struct asker {
    struct errand errand;
    tw_family *family;
    int first, step;
    int64_t admitted, by_full;
};

static void ask_for_some(struct errand *errand) {
    struct asker *asker = (struct asker *)errand;
    (void)twi_thread_here();
    for (int user = asker->first; user < USERS; user += asker->step) {
        for (int time = 0; time <= OF_EACH; time++) {
            char key[40];
            tw_verdict verdict;
            (void)snprintf(key, sizeof key, "user of a longer name %08d", user);
            if (tw_acquire(asker->family, tw_str(key), 1, OF_EACH, &verdict) != TW_OK) continue;
            asker->admitted++;
            asker->by_full += verdict.decided_by == TW_BY_FULL;
        }
    }
}

static void flood(tw_family *family) {
    static uint32_t next;
    do next++;
    while (tw_add(family, fake_key(&next), 1, NULL) == TW_OK);
}

/* All users ask; where there is a point, half of them in a thread that stops there, and the others meanwhile. */
static void assert_all_are_held(tw_family *family, const char *point) {
    struct asker stopped = {.errand.stop_at = point, .family = family, .step = 2};
    struct asker others = {.family = family, .first = 1, .step = 2};
    if (point != NULL)
        errand_begin(&stopped.errand, ask_for_some);
    else
        ask_for_some(&stopped.errand);
    ask_for_some(&others.errand);
    if (point != NULL) errand_end(&stopped.errand);
    assert_i64_equal(stopped.by_full + others.by_full, 0);
    assert_i64_equal(stopped.admitted + others.admitted, USERS * OF_EACH);
}

static tw_family *open_login(struct rig *rig, uint64_t keys_expected) {
    tw_family_options options;
    tw_family *login, *pages;
    rig_open_with(rig, false, 2 << 20);
    tw_family_options_init(&options);
    options.name = "login";
    options.window_ms = TW_SECOND;
    options.memory_share = 1 << 20;
    options.on_full = TW_ON_FULL_REJECT;
    options.keys_expected = keys_expected;
    assert_status(tw_family_open(rig->engine, &options, &login), TW_OK);
    tw_family_options_init(&options);
    options.name = "pages";
    options.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(rig->engine, &options, &pages), TW_OK);
    flood(pages);
    return login;
}

/* Goal: P1. A share holds all of its users on both sides of a boundary, though the system stops a thread while it opens
 * the window, lays its index, or inserts a key: with and without keys_expected. Method: all users ask just before the
 * end of a window, and again just after it; before the second time a thread stops at each of the places where it has
 * memory in hand. */
TEST(a_thread_that_stalls_in_opening_a_window_takes_no_room_from_a_share) {
    static const char *const points[] = {"window_made_not_entered",  "window_entered_not_announced",
                                         "closed_not_copied",        "copied_not_published",
                                         "record_ready_not_claimed", "claimed_not_published"};
    for (size_t i = 0; i < 2 * sizeof points / sizeof *points; i++) {
        struct rig rig;
        tw_family *login = open_login(&rig, i % 2 != 0 ? USERS : 0);
        fake_clock_advance_ms(&rig.clock, TW_SECOND - 5);
        rig_turns(&rig, 1);
        assert_all_are_held(login, NULL);
        fake_clock_advance_ms(&rig.clock, 5);
        assert_all_are_held(login, points[i / 2]);
        assert_status(tw_close(rig.engine, 0), TW_OK);
    }
}

#else
int main(void) {
    (void)START_MS;
    test_skip_program("built without race points: configure with -Drace_points=true (./dev check tsan does)");
}
#endif
