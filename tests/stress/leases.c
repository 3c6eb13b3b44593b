/* leases.c -- single schedules of hard limits, forced: a caller is stopped at a race point while the turn and Redis
 * continue. And what a lost reply must not do.
 * Method: a host-driven engine on a fake clock; a store of one lease that grants what is needed and no more; messages
 * between them, which the test cuts where it likes. Callers are stopped by errand.h. In builds without
 * -Drace_points=true only the schedules run that need no race point.
 * Always true: only the stopped thread and the test's own run. */
#include "tests/support/fake_driver.h"

#include "engine/core/state.h"
#include "engine/limit/lease.h"
#include "engine/turn/turn_check.h"

#define ASKS 8

/* ---- a store of one lease ---------------------------------------------------------------------------------------- */

struct store {
    const char *epoch;
    int64_t granted, returned, spent; /* of this engine */
    int64_t elsewhere;                /* units in leases of other engines */
    bool loses;                       /* a message about the lease is executed, and its reply lost */
};

static void run_lease(struct store *store, const struct twi_lease_message *ask, struct twi_lease_answer *answer) {
    store->returned = ask->returned;
    store->spent = ask->spent;
    if (ask->granted > store->granted) store->granted = ask->granted; /* Redis had forgotten it */
    int64_t room = ask->limit - store->elsewhere - (store->granted - store->returned);
    if (ask->need > 0 && room >= ask->need && ask->target > store->granted) store->granted += ask->need;
    answer->granted = store->granted;
    answer->total = store->granted - store->returned + store->elsewhere;
    answer->spent_all = store->spent;
    answer->stranded = -1;
}

/* ---- an engine and its messages ---------------------------------------------------------------------------------- */

struct rig {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    struct store store;
};

static void rig_open(struct rig *rig) {
    memset(rig, 0, sizeof *rig);
    rig->store.epoch = "first";
    fake_clock_init(&rig->clock, INT64_C(1700000000000));
    fake_driver_reset(INT64_C(1700000000000), TW_HOUR);
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 16 << 20;
    fake_clock_install(&rig->clock, &options);
    fake_driver_install(&options);
    assert_status(tw_open(&options, &rig->engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "sale";
    family.window = TW_WINDOW_FOREVER;
    family.limit_mode = TW_LIMIT_HARD;
    assert_status(tw_family_open(rig->engine, &family, &rig->family), TW_OK);
}

static void answer(struct rig *rig, const struct twi_lease_message *ask) {
    struct twi_lease_answer told = {.kind = TWI_LEASE_NUMBERS,
                                    .open = true,
                                    .id = rig->store.epoch,
                                    .run = "run",
                                    .incarnation = "1",
                                    .whole = true};
    if (ask->lease != NULL) {
        run_lease(&rig->store, ask, &told);
        if (rig->store.loses) told.kind = TWI_LEASE_RESEND;
    }
    twi_port_lease_answered(rig->engine, ask, &told);
}

/* Runs `ms` turns, a millisecond each; every message is executed and answered at once. */
static void exchange(struct rig *rig, int ms) {
    for (int turn = 0; turn < ms; turn++) {
        struct twi_lease_message asks[ASKS];
        fake_clock_advance_ms(&rig->clock, 1);
        assert_status(tw_turn(rig->engine), TW_OK);
        size_t count = twi_port_leases(rig->engine, 0, 1, asks, ASKS);
        for (size_t i = 0; i < count; i++) answer(rig, &asks[i]);
    }
}

static const uint32_t the_key = 1;

static tw_status buy(struct rig *rig, int64_t limit) {
    return tw_acquire(rig->family, fake_key(&the_key), 1, limit, NULL);
}

/* Closes without waiting; the last messages are executed as in exchange(). */
static void rig_close(struct rig *rig) {
    assert_true(twi_turn_is_valid(rig->engine));
    assert_status(tw_close(rig->engine, 0), TW_OK);
}

/* ---- what a lost reply must not do ------------------------------------------------------------------------------- */

/* Goal: a unit that was drawn under a limit of 20 is not spent by a call that names 10, although the reply that brings
 * it belongs to a message that named 10 (L9). Method: the draw under 20 is executed and its reply lost; then all
 * callers name 10, under which no unit is left. */
TEST(a_grant_that_was_lost_keeps_its_limit) {
    struct rig rig;
    rig_open(&rig);
    rig.store.elsewhere = 15;
    rig.store.loses = true;
    assert_status(buy(&rig, 20), TW_PENDING);
    for (int i = 0; i < 2000 && rig.store.granted == 0; i++) exchange(&rig, 1);
    rig.store.loses = false;
    assert_i64_equal(rig.store.granted, 1);
    for (int i = 0; i < 100; i++) {
        assert_int_not_equal(buy(&rig, 10), TW_OK);
        exchange(&rig, 20);
    }
    assert_i64_equal(rig.store.granted - rig.store.returned, 0); /* the unit was returned instead */
    for (int i = 0; i < 100 && buy(&rig, 20) != TW_OK; i++) exchange(&rig, 20);
    assert_i64_equal(rig.store.granted - rig.store.returned, 1);
    rig.store.elsewhere = 0; /* the others returned theirs: from here on a limit of 10 has room as well */
    for (int i = 0; i < 200 && buy(&rig, 10) != TW_OK; i++) exchange(&rig, 20);
    assert_i64_equal(rig.store.granted - rig.store.returned, 2);
    rig_close(&rig);
}

#ifdef TWI_RACE_POINTS

#include "tests/stress/errand.h"

/* ---- a caller that stops ----------------------------------------------------------------------------------------- */

struct job {
    struct errand errand;
    struct rig *rig;
    int64_t limit;
    tw_status status;
};

static void run_job(struct errand *errand) {
    struct job *job = (struct job *)errand;
    job->status = buy(job->rig, job->limit);
}

/* Runs until the lease has one unit for callers that name `limit`. */
static void draw_one(struct rig *rig, int64_t limit) {
    assert_status(buy(rig, limit), TW_PENDING);
    int64_t before = rig->store.granted;
    for (int i = 0; i < 2000 && rig->store.granted == before; i++) exchange(rig, 1);
    assert_i64_equal(rig->store.granted, before + 1);
    exchange(rig, 5);
}

/* Goal: a caller has seen a unit under the limit that it names, and stalls. It does not spend another unit that was
 * drawn under a greater limit meanwhile (L9). Method: it stops before its compare-and-swap; its unit is sold, the limit
 * raised, and one more is requested. */
TEST(a_unit_of_a_greater_limit_is_not_taken_for_another) {
    struct rig rig;
    rig_open(&rig);
    draw_one(&rig, 10);
    struct job job = {.rig = &rig, .limit = 10, .errand.stop_at = "lease_seen_not_taken"};
    errand_begin(&job.errand, run_job);
    assert_status(buy(&rig, 10), TW_OK);
    rig.store.elsewhere = 10; /* under a limit of 10 all units are sold */
    assert_status(buy(&rig, 20), TW_PENDING);
    exchange(&rig, 200);
    errand_end(&job.errand);
    assert_status(job.status, TW_PENDING);
    for (int i = 0; i < 100 && buy(&rig, 20) != TW_OK; i++) exchange(&rig, 20);
    assert_i64_equal(rig.store.granted - rig.store.returned, 2);
    rig_close(&rig);
}

/* Goal: after Redis forgot everything the engine reports every grant again, even while the thread that made the lease
 * stalls (L2). Method: the thread stops when others can find the lease; they draw and spend; then Redis forgets. */
TEST(a_lease_whose_maker_stalls_is_reported_again) {
    struct rig rig;
    rig_open(&rig);
    struct job job = {.rig = &rig, .limit = 100, .errand.stop_at = "lease_entered"};
    errand_begin(&job.errand, run_job);
    draw_one(&rig, 100);
    assert_status(buy(&rig, 100), TW_OK);
    exchange(&rig, 3000); /* everything is reported, and the lease is idle */
    assert_i64_equal(rig.store.spent, 1);
    rig.store = (struct store){.epoch = "second"};
    exchange(&rig, 3000);
    assert_i64_equal(rig.store.granted, 1);
    assert_i64_equal(rig.store.spent, 1);
    errand_end(&job.errand);
    rig_close(&rig);
}

/* One unit more, and the count would not be in its range. */
static void fill(struct rig *rig) {
    for (int i = 0; i < 255; i++) assert_status(tw_add(rig->family, fake_key(&the_key), TW_DELTA_MAX, NULL), TW_OK);
    assert_status(tw_add(rig->family, fake_key(&the_key), TW_DELTA_MAX - 1, NULL), TW_OK);
}

/* Goal: a unit that was taken out of a lease and could not be counted is not lost: when the lease is idle, it is
 * returned (P5). Method: the count is at the end of its range; the caller stops with the unit taken until the lease is
 * idle. */
TEST(a_unit_that_could_not_be_counted_is_returned) {
    struct rig rig;
    rig_open(&rig);
    draw_one(&rig, 10);
    fill(&rig);
    struct job job = {.rig = &rig, .limit = 10, .errand.stop_at = "unit_taken_not_counted"};
    errand_begin(&job.errand, run_job);
    exchange(&rig, 3000);
    errand_end(&job.errand);
    assert_status(job.status, TW_ERR_RANGE);
    exchange(&rig, 7000);
    assert_i64_equal(rig.store.granted - rig.store.returned, 0);
    rig_close(&rig);
}

/* Goal: a caller ends after it has asked for a unit, before its lease is in the turn's list. Those who ask later get
 * their units. Method: it ends before it lists the lease, and before it pushes it. */
TEST(a_caller_that_ends_with_its_request_holds_up_nobody) {
    static const char *const points[] = {"requested_not_listed", "lease_claimed_not_pushed"};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_open(&rig);
        struct job job = {.rig = &rig, .limit = 10, .errand.stop_at = points[i]};
        errand_die(&job.errand, run_job);
        draw_one(&rig, 10);
        assert_status(buy(&rig, 10), TW_OK);
        rig_close(&rig);
    }
}

/* Goal: a unit that could not be counted is returned (P5), although its caller ends right after it has put it back.
 * Method: as above; the caller ends before it lists the lease, after the lease has left the turn's queue. */
TEST(a_unit_that_was_put_back_by_a_caller_that_ends_is_returned) {
    struct rig rig;
    rig_open(&rig);
    draw_one(&rig, 10);
    fill(&rig);
    struct job job = {
        .rig = &rig,
        .limit = 10,
        .errand = {.stop_at = "unit_taken_not_counted", .then_stop_at = "units_put_back_not_listed", .ends = true}};
    errand_begin(&job.errand, run_job);
    exchange(&rig, 3000);
    errand_go_on(&job.errand);
    errand_end(&job.errand);
    exchange(&rig, 7000);
    assert_i64_equal(rig.store.granted - rig.store.returned, 0);
    rig_close(&rig);
}

#endif
