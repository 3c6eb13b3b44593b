/* schedule.c -- single schedules, forced: a thread is stopped at a race point while others run on.
 * The stress programs meet these by chance, once in a million; here each is met every time. The program brings its own
 * twi_race_nap() in place of engine/base/race_point.c's, so it tests something in builds with -Drace_points=true alone;
 * elsewhere it is skipped.
 * Always true: engines are host-driven and run on a fake clock; only the stopped thread and the test's own run. */
#include "tests/support/fake_driver.h"

#include "engine/core/family.h"
#include "engine/core/window_map.h"

#include <pthread.h>
#include <sched.h>

#define START_MS INT64_C(1700000000000)

#ifdef TWI_RACE_POINTS

/* ---- stopping a thread at a point -------------------------------------------------------------------------------- */

static _Thread_local const char *stop_at;   /* this thread does something there, once: */
static _Thread_local void (*call_at)(void); /* calls this, */
static _Thread_local atomic_int *gate;      /* or stands still until it is opened */
enum { GATE_AHEAD, GATE_REACHED, GATE_OPEN };

void twi_race_nap(const char *name) {
    if (stop_at == NULL || strcmp(stop_at, name) != 0) return;
    stop_at = NULL;
    if (gate == NULL) {
        call_at();
        return;
    }
    atomic_store(gate, GATE_REACHED);
    while (atomic_load(gate) != GATE_OPEN) sched_yield();
}

struct errand {
    pthread_t thread;
    atomic_int gate;
    const char *stop_at;
    tw_family *family;
    uint32_t key;
    int64_t delta;
    tw_status status;
    bool walks; /* through the first window, instead of adding */
    int64_t sum;
};

static bool add_count(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

static void *run_errand(void *arg) {
    struct errand *errand = arg;
    gate = &errand->gate;
    stop_at = errand->stop_at;
    if (errand->walks)
        errand->status = tw_each(errand->family, START_MS, add_count, &errand->sum);
    else
        errand->status = tw_add(errand->family, fake_key(&errand->key), errand->delta, NULL);
    return NULL;
}

/* Starts an add in a thread of its own and returns when it stands at its point. */
static void send_out(struct errand *errand) {
    assert_int_equal(pthread_create(&errand->thread, NULL, run_errand, errand), 0);
    int64_t deadline = test_mono_ms() + 10000;
    while (atomic_load(&errand->gate) == GATE_AHEAD && test_mono_ms() < deadline) sched_yield();
    assert_int_equal(atomic_load(&errand->gate), GATE_REACHED);
}

static void call_home(struct errand *errand) {
    atomic_store(&errand->gate, GATE_OPEN);
    pthread_join(errand->thread, NULL);
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
    (void)end_ms;
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

static void rig_open(struct rig *rig, bool synced) {
    memset(rig, 0, sizeof *rig);
    fake_clock_init(&rig->clock, START_MS);
    fake_driver_reset(START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 16 << 20;
    fake_clock_install(&rig->clock, &options);
    if (synced) fake_driver_install(&options);
    assert_status(tw_open(&options, &rig->engine), TW_OK);
    rig->family = rig_family(rig, "main", true);
    rig->other = rig_family(rig, "other", false);
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

/* Goal: a window that was told of and dropped is not opened again by an inserter that had found it (P7: one hook,
 * final). Method: it stops before its insert; the window ends, is told of and dropped meanwhile. */
static void a_window_that_was_found_and_then_dropped_is_not_opened_again(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, false);
    rig_add(&rig, 1, 5);
    struct errand errand = {.stop_at = "window_found_not_inserted", .family = rig.family, .key = 2, .delta = 7};
    send_out(&errand);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 5);
    assert_i64_equal(rig.hook_calls, 1);
    call_home(&errand);
    assert_status(errand.status, TW_OK); /* in the next window, by the clock of its second look */
    int64_t view;
    assert_status(tw_get(rig.family, fake_key(&errand.key), &view), TW_OK);
    assert_i64_equal(view, 7);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 5);
    assert_i64_equal(rig.hook_calls, 2);
    assert_i64_equal(rig.hook_sum, 12);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a window is told of and dropped only when all that it owed has been acknowledged, also if an adder stands
 * anywhere between its add and its last mark (traps E8, E18, P2); what the adder has counted does not wait for it.
 * Method: it stops there; another counter of the same chunk is added to; the window ends. */
static void check_stalled_marker(const char *point) {
    struct rig rig;
    rig_open(&rig, true);
    rig_add(&rig, 1, 5);
    rig_turns(&rig, 3);
    assert_i64_equal(fake_driver_sum(), 5);
    struct errand errand = {.stop_at = point, .family = rig.family, .key = 1, .delta = 7};
    send_out(&errand);
    for (uint32_t key = 2; key < 10; key++) rig_add(&rig, key, 100);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 200);
    assert_i64_equal(fake_driver_sum(), 5 + 7 + 800);
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.hook_sum, 5 + 7 + 800);
    assert_i64_equal(rig.hook_flags, 0);
    assert_i64_equal(rig.acked_at_hook, 5 + 7 + 800); /* drained before it was told */
    atomic_store(&fake_driver.away, true);            /* nobody collects what it marks now */
    call_home(&errand);
    assert_status(errand.status, TW_OK);
    rig_turns(&rig, 200);
    assert_i64_equal(rig.family->turn.held, 0);         /* the window's memory has gone back ... */
    assert_i64_equal(rig.engine->collector.pending, 0); /* ... and no list names it any more */
    assert_i64_equal(atomic_load(&rig.engine->collector.marked), 0);
    atomic_store(&fake_driver.away, false);
    rig_turns(&rig, 5);
    assert_i64_equal(fake_driver_sum(), 5 + 7 + 800);
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

static void a_marker_that_stalls_after_dirty_delays_no_window(void **state) {
    (void)state;
    check_stalled_marker("dirty_not_marked");
}
static void a_marker_that_stalls_after_its_bit_delays_no_window(void **state) {
    (void)state;
    check_stalled_marker("bit_set_chunk_not_listed");
}
static void a_marker_that_stalls_before_it_lists_its_chunk_delays_no_window(void **state) {
    (void)state;
    check_stalled_marker("chunk_listed_not_pushed");
}
static void a_marker_that_stalls_before_it_lists_its_window_delays_no_window(void **state) {
    (void)state;
    check_stalled_marker("window_listed_not_pushed");
}

/* Goal: the ticket of tw_flush covers every window, also when adders go on marking in the one that is collected first
 * (trap E10). Method: two families owe; while the first is being collected, an add marks it again. */
static struct rig *marking_rig;
static void mark_again(void) {
    rig_add(marking_rig, 3, 1);
    uint32_t key = 3;
    assert_status(tw_add(marking_rig->other, fake_key(&key), 1, NULL), TW_OK);
}

static void a_flush_is_not_done_before_all_windows_were_collected(void **state) {
    (void)state;
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

/* Goal: the ticket covers a delta whose marks were left to a second thread, which left the last of them to a third one
 * that began after the ticket, and stalls: the grace period waits for the second only.
 * Method: key 1's adder stalls before it pushes the chunk; the test adds to key 2 of that chunk; ticket; an adder in
 * another chunk stalls before it pushes the window; the first goes home and finds the window listed. */
static void a_flush_does_not_rely_on_marks_of_who_came_after_it(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, true);
    for (uint32_t key = 0; key < 40; key++) rig_add(&rig, key, 1);
    assert_i64_equal(collect_once(&rig), 40);
    struct errand second = {.stop_at = "chunk_listed_not_pushed", .family = rig.family, .key = 38, .delta = 1};
    struct errand third = {.stop_at = "window_listed_not_pushed", .family = rig.family, .key = 0, .delta = 1};
    send_out(&second);
    rig_add(&rig, 39, 100);
    assert_i64_equal(collect_once(&rig), 0); /* the window is listed, the chunk is not */
    twi_port_collect_begin(rig.engine);
    send_out(&third);
    call_home(&second);
    int64_t sum = 0;
    for (int round = 0; round < 10 && !twi_port_collect_is_done(rig.engine); round++) sum += collect_once(&rig);
    assert_true(twi_port_collect_is_done(rig.engine));
    assert_true(sum >= 101);
    call_home(&third);
    assert_status(tw_close(rig.engine, 100), TW_OK);
}

/* Goal: a thread that has opened a window and stalls before it tells the wheel delays neither its hook nor its sending
 * for long. Method: it stops there, another counts in the window, the window ends. */
static void an_opener_that_stalls_delays_no_window(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, false);
    rig_turns(&rig, 1);
    struct errand errand = {.stop_at = "window_entered_not_announced", .family = rig.family, .key = 1, .delta = 7};
    send_out(&errand);
    rig_add(&rig, 2, 5);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    for (int turn = 0; turn < 20; turn++) {
        fake_clock_advance_ms(&rig.clock, 100);
        assert_status(tw_turn(rig.engine), TW_OK);
    }
    assert_i64_equal(rig.hook_calls, 1);
    assert_i64_equal(rig.hook_sum, 5);
    call_home(&errand);
    rig_turns(&rig, 1);
    assert_status(errand.status, TW_OK);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 20);
    assert_i64_equal(rig.hook_sum, 12);
    assert_i64_equal(rig.hook_calls, 2);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

/* Goal: a walk that has looked which form its window has, and stalls before it says that it is in the table, finds the
 * table when it goes on, though the window was packed meanwhile; then the table goes. Method: it stops there. */
static void a_walk_that_stalls_in_its_choice_keeps_the_table(void **state) {
    (void)state;
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
    struct errand errand = {.stop_at = "each_form_chosen", .family = family, .walks = true};
    send_out(&errand);
    fake_clock_advance_ms(&rig.clock, TW_SECOND);
    rig_turns(&rig, 200);
    struct twi_generation *generation = twi_window_find(family, START_MS);
    assert_true(twi_generation_is_packed(generation));
    assert_true(atomic_load(&generation->chunks[0]) != 0);
    call_home(&errand);
    assert_status(errand.status, TW_OK);
    assert_i64_equal(errand.sum, sum);
    rig_turns(&rig, 20);
    assert_i64_equal(atomic_load(&generation->chunks[0]), 0);
    errand.sum = 0;
    assert_status(tw_each(family, START_MS, add_count, &errand.sum), TW_OK);
    assert_i64_equal(errand.sum, sum);
    assert_status(tw_close(rig.engine, 0), TW_OK);
}

static tw_family *racing;
static uint32_t raced_key;

static void win_the_race(void) {
    assert_status(tw_add(racing, fake_key(&raced_key), 1, NULL), TW_OK);
}

/* Adds a new key, whose record somebody else publishes first. */
static void lose_a_race(tw_family *family, uint32_t key) {
    racing = family;
    raced_key = key;
    gate = NULL;
    call_at = win_the_race;
    stop_at = "record_ready_not_claimed";
    assert_status(tw_add(family, fake_key(&key), 1, NULL), TW_OK);
    assert_null(stop_at);
}

/* Goal: a record that lost a race to be published is used by a later insert, whatever its thread has lost elsewhere
 * since. Method: two families take turns to lose; both then hold what one holds that has never lost. */
static void records_that_lost_a_race_are_used_again(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_that_was_found_and_then_dropped_is_not_opened_again),
        cmocka_unit_test(a_marker_that_stalls_after_dirty_delays_no_window),
        cmocka_unit_test(a_marker_that_stalls_after_its_bit_delays_no_window),
        cmocka_unit_test(a_marker_that_stalls_before_it_lists_its_chunk_delays_no_window),
        cmocka_unit_test(a_marker_that_stalls_before_it_lists_its_window_delays_no_window),
        cmocka_unit_test(a_flush_is_not_done_before_all_windows_were_collected),
        cmocka_unit_test(a_flush_does_not_rely_on_marks_of_who_came_after_it),
        cmocka_unit_test(an_opener_that_stalls_delays_no_window),
        cmocka_unit_test(a_walk_that_stalls_in_its_choice_keeps_the_table),
        cmocka_unit_test(records_that_lost_a_race_are_used_again),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}

#else
int main(void) {
    (void)START_MS;
    test_skip_program("built without -Drace_points=true");
}
#endif
