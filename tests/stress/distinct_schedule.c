/* distinct_schedule.c -- single schedules of sketches, forced: a thread is stopped at a race point while others run on
 * (errand.h). In builds without -Drace_points=true it is skipped.
 * Always true: engines are host-driven and run on a fake clock; only the stopped thread and the test's own run. */
#include "tests/support/hll_twin.h"

#define START_MS INT64_C(1700000000000)

#ifdef TWI_RACE_POINTS

#include "tests/stress/errand.h"

struct field {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    struct twin first, second; /* what the windows have */
    int64_t told, told_times;
};

struct job {
    struct errand errand;
    tw_family *family;
    tw_engine *turns; /* not NULL: it makes a turn instead of adding */
    uint64_t element;
    bool changed;
    tw_status status;
};

static void run_job(struct errand *errand) {
    struct job *job = (struct job *)errand;
    job->status = job->turns != NULL
                      ? tw_turn(job->turns)
                      : tw_distinct_add(job->family, tw_str("k"), twin_number(&job->element), &job->changed);
}

static void job_end(struct job *job) {
    errand_end(&job->errand);
    assert_status(job->status, TW_OK);
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct field *field = ctx;
    field->told_times++;
    assert_status(tw_distinct_get_at(family, tw_str("k"), start_ms, &field->told), TW_OK);
    return true;
}

static void field_open(struct field *field) {
    memset(field, 0, sizeof *field);
    fake_clock_init(&field->clock, START_MS);
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 16 << 20;
    fake_clock_install(&field->clock, &options);
    assert_status(tw_open(&options, &field->engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "f";
    family.kind = TW_KIND_DISTINCT;
    family.window_ms = TW_SECOND;
    family.history_ms = TW_NONE;
    family.on_window_closed = on_closed;
    family.closed_ctx = field;
    assert_status(tw_family_open(field->engine, &family, &field->family), TW_OK);
}

static void turns(struct field *field, int count) {
    for (int turn = 0; turn < count; turn++) {
        fake_clock_advance_ms(&field->clock, 10);
        assert_status(tw_turn(field->engine), TW_OK);
    }
}

static void add(struct field *field, uint64_t from, uint64_t to, struct twin *twin) {
    for (uint64_t number = from; number < to; number++) {
        bool changed;
        assert_status(tw_distinct_add(field->family, tw_str("k"), twin_number(&number), &changed), TW_OK);
        assert_int_equal(changed, twin_add(twin, twin_number(&number)));
    }
}

static void assert_estimate(struct field *field, const struct twin *twin) {
    int64_t estimate = -1;
    assert_status(tw_distinct_get(field->family, tw_str("k"), &estimate), TW_OK);
    assert_i64_equal(estimate, twin_estimate(twin));
}

/* The smallest number from `from` on whose register is still 0: its add takes a separate slot. */
static uint64_t new_to(const struct twin *twin, uint64_t from) {
    struct twin copy = *twin;
    for (;; from++) {
        struct twi_hll_element element = twi_hll_element(twi_hll_hash(&from, sizeof from));
        if (twin->registers[element.index] == 0 && twin_add(&copy, twin_number(&from))) return from;
    }
}

/* Adds until 14 registers are set. The next one makes the first piece grow. */
static uint64_t fill_first_piece(struct field *field) {
    uint64_t number = 0;
    for (int set = 0; set < 14; set++, number++) {
        number = new_to(&field->first, number);
        add(field, number, number + 1, &field->first);
    }
    return number;
}

/* ---- the schedules ----------------------------------------------------------------------------------------------- */

/* Goal: a thread that stalls in the middle of growth makes nobody wait, and what others add meanwhile stays, whichever
 * copy is published. Method: it stops with one slot closed, or with its copy complete; others fill the sketch up to the
 * dense form. */
static void check_stalled_growth(const char *point) {
    static struct field field;
    field_open(&field);
    uint64_t next = fill_first_piece(&field);
    struct job job = {.errand.stop_at = point, .family = field.family, .element = new_to(&field.first, next)};
    errand_begin(&job.errand, run_job);
    assert_estimate(&field, &field.first); /* reads need no copy */
    add(&field, 1000, 1003, &field.first);
    assert_estimate(&field, &field.first);
    add(&field, 2000, 5000, &field.first);
    turns(&field, 3); /* its old piece is not used again. It is still in its section */
    add(&field, 5000, 6000, &field.first);
    job_end(&job);
    assert_int_equal(job.changed, twin_add(&field.first, twin_number(&job.element)));
    assert_estimate(&field, &field.first);
    fake_clock_advance_ms(&field.clock, TW_SECOND);
    turns(&field, 3);
    assert_i64_equal(field.told_times, 1);
    assert_i64_equal(field.told, twin_estimate(&field.first));
    assert_status(tw_close(field.engine, 0), TW_OK);
}

TEST(a_thread_that_stalls_while_it_closes_slots_delays_nobody) {
    check_stalled_growth("sketch_slot_closed");
}

TEST(a_thread_that_stalls_with_its_copy_delays_nobody) {
    check_stalled_growth("sketch_copied_not_published");
}

/* Goal: a raise that was seen to be possible and comes late is made on the new piece, not on the closed one. */
TEST(a_raise_that_stalls_before_its_swap_is_not_lost) {
    static struct field field;
    field_open(&field);
    add(&field, 0, 5, &field.first);
    struct job job = {.errand.stop_at = "sketch_slot_seen", .family = field.family, .element = new_to(&field.first, 5)};
    errand_begin(&job.errand, run_job);
    add(&field, 1000, 1100, &field.first);
    job_end(&job);
    assert_int_equal(job.changed, twin_add(&field.first, twin_number(&job.element)));
    assert_estimate(&field, &field.first);
    assert_status(tw_close(field.engine, 0), TW_OK);
}

/* Goal: a copy that is complete when its window is sealed is not published behind the seal. Its element counts in the
 * next window, and the estimate that the hook was told is final (P7). */
TEST(a_copy_is_not_published_behind_the_seal) {
    static const char *const points[] = {"sketch_slot_closed", "sketch_copied_not_published"};
    for (int i = 0; i < 2; i++) {
        static struct field field;
        field_open(&field);
        uint64_t next = fill_first_piece(&field);
        struct job job = {.errand.stop_at = points[i], .family = field.family, .element = new_to(&field.first, next)};
        errand_begin(&job.errand, run_job);
        fake_clock_advance_ms(&field.clock, TW_SECOND);
        turns(&field, 3);
        assert_i64_equal(field.told_times, 1);
        assert_i64_equal(field.told, twin_estimate(&field.first));
        job_end(&job);
        assert_true(job.changed);
        (void)twin_add(&field.second, twin_number(&job.element));
        assert_estimate(&field, &field.second);
        assert_status(tw_close(field.engine, 0), TW_OK);
    }
}

/* Goal: while the turn is between SEALING and the last closed slot, or before FROZEN, adds count here or in the next
 * window, and reads answer. Nobody waits. */
TEST(adds_meet_a_seal_that_stalls) {
    static const char *const points[] = {"sketch_sealing_not_closed", "final_stored_not_frozen"};
    for (int i = 0; i < 2; i++) {
        static struct field field;
        field_open(&field);
        uint64_t next = fill_first_piece(&field);
        int64_t estimate = -1;
        fake_clock_advance_ms(&field.clock, TW_SECOND);
        struct job job = {.errand.stop_at = points[i], .family = field.family, .turns = field.engine};
        errand_begin(&job.errand, run_job);
        assert_status(tw_distinct_get_at(field.family, tw_str("k"), START_MS, &estimate), TW_OK);
        assert_i64_equal(estimate, twin_estimate(&field.first));
        add(&field, next, next + 100, &field.second);
        assert_estimate(&field, &field.second);
        job_end(&job);
        turns(&field, 3);
        assert_i64_equal(field.told_times, 1);
        assert_i64_equal(field.told, twin_estimate(&field.first));
        assert_status(tw_close(field.engine, 0), TW_OK);
    }
}

/* Goal: a copy is not published between the closing of a sketch and FROZEN either. The estimate is computed by then, so
 * what is raised in the copy would be in no window. Method: a thread stops with its copy, and the turn stops with the
 * estimate stored; the thread goes on first. */
TEST(a_copy_is_not_published_while_the_turn_seals) {
    static const char *const points[] = {"sketch_sealing_not_closed", "final_stored_not_frozen"};
    for (int i = 0; i < 2; i++) {
        static struct field field;
        field_open(&field);
        uint64_t next = fill_first_piece(&field);
        struct job job = {.errand.stop_at = "sketch_copied_not_published",
                          .family = field.family,
                          .element = new_to(&field.first, next)};
        struct job turn = {.errand.stop_at = points[i], .family = field.family, .turns = field.engine};
        errand_begin(&job.errand, run_job);
        fake_clock_advance_ms(&field.clock, TW_SECOND);
        errand_begin(&turn.errand, run_job);
        job_end(&job);
        assert_true(job.changed);
        (void)twin_add(&field.second, twin_number(&job.element));
        assert_estimate(&field, &field.second);
        job_end(&turn);
        turns(&field, 3);
        assert_i64_equal(field.told, twin_estimate(&field.first));
        assert_status(tw_close(field.engine, 0), TW_OK);
    }
}

#else
int main(void) {
    (void)START_MS;
    test_skip_program("built without race points: configure with -Drace_points=true (./dev check tsan does)");
}
#endif
