/* leases.c -- single schedules of hard limits, forced: a caller is stopped at a race point while the turn and Redis go
 * on; and what a lost answer may not do.
 * Method: a host-driven engine on a fake clock, a store of one lease that grants what is needed and no more, and a
 * conversation between them that the test cuts where it likes. The program brings its own twi_race_nap(); in builds
 * without
 * -Drace_points=true only the schedules run that need none.
 * Always true: only the stopped thread and the test's own run. */
#include "tests/support/fake_driver.h"

#include "engine/core/state.h"
#include "engine/limit/lease.h"

#include <pthread.h>
#include <sched.h>

#define ASKS 8

/* ---- a store of one lease ---- */

struct store {
    const char *epoch;
    int64_t granted, returned, spent; /* this engine's */
    int64_t elsewhere;                /* out in leases of others */
    bool loses;                       /* what is said of the lease is done, and its answer lost */
};

static void run_lease(struct store *store, const struct twi_lease_message *ask, struct twi_lease_answer *answer) {
    store->returned = ask->returned;
    store->spent = ask->spent;
    if (ask->granted > store->granted) store->granted = ask->granted; /* forgotten, and said again */
    int64_t room = ask->limit - store->elsewhere - (store->granted - store->returned);
    if (ask->need > 0 && room >= ask->need && ask->target > store->granted) store->granted += ask->need;
    answer->granted = store->granted;
    answer->total = store->granted - store->returned + store->elsewhere;
    answer->spent_all = store->spent;
    answer->stranded = -1;
}

/* ---- an engine that talks to it ---- */

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

/* `ms` turns, a millisecond each; all that is said is executed and answered at once. */
static void converse(struct rig *rig, int ms) {
    for (int turn = 0; turn < ms; turn++) {
        struct twi_lease_message asks[ASKS];
        fake_clock_advance_ms(&rig->clock, 1);
        assert_status(tw_turn(rig->engine), TW_OK);
        size_t count = twi_port_leases(rig->engine, 1, asks, ASKS);
        for (size_t i = 0; i < count; i++) answer(rig, &asks[i]);
    }
}

static const uint32_t the_key = 1;

static tw_status buy(struct rig *rig, int64_t limit) {
    return tw_acquire(rig->family, fake_key(&the_key), 1, limit, NULL);
}

/* Says goodbye as converse() does, in a close that waits for nothing. */
static void rig_close(struct rig *rig) {
    assert_status(tw_close(rig->engine, 0), TW_OK);
}

/* ---- what a lost answer may not do ---- */

/* Goal: a unit that was drawn under a limit of 20 is not spent by a call that names 10, although the answer that brings
 * it is one to a word which named 10 (L9).
 * Method: the draw under 20 is executed and its answer lost; then all callers name 10, under which nothing is left. */
static void a_grant_that_was_lost_keeps_its_limit(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    rig.store.elsewhere = 15;
    rig.store.loses = true;
    assert_status(buy(&rig, 20), TW_PENDING);
    for (int i = 0; i < 2000 && rig.store.granted == 0; i++) converse(&rig, 1);
    rig.store.loses = false;
    assert_i64_equal(rig.store.granted, 1);
    for (int i = 0; i < 100; i++) {
        assert_int_not_equal(buy(&rig, 10), TW_OK);
        converse(&rig, 20);
    }
    assert_i64_equal(rig.store.granted - rig.store.returned, 0); /* it went home instead */
    for (int i = 0; i < 100 && buy(&rig, 20) != TW_OK; i++) converse(&rig, 20);
    assert_i64_equal(rig.store.granted - rig.store.returned, 1);
    rig.store.elsewhere = 0; /* the others gave back: from here on 10 serves as well */
    for (int i = 0; i < 200 && buy(&rig, 10) != TW_OK; i++) converse(&rig, 20);
    assert_i64_equal(rig.store.granted - rig.store.returned, 2);
    rig_close(&rig);
}

#ifdef TWI_RACE_POINTS

/* ---- a caller that stops ---- */

static _Thread_local const char *stop_at;
static _Thread_local atomic_int *gate;
enum { GATE_AHEAD, GATE_REACHED, GATE_OPEN };

void twi_race_nap(const char *name) {
    if (stop_at == NULL || strcmp(stop_at, name) != 0) return;
    stop_at = NULL;
    atomic_store(gate, GATE_REACHED);
    while (atomic_load(gate) != GATE_OPEN) sched_yield();
}

struct errand {
    pthread_t thread;
    atomic_int gate;
    const char *stop_at;
    struct rig *rig;
    int64_t limit;
    tw_status status;
};

static void *run_errand(void *arg) {
    struct errand *errand = arg;
    gate = &errand->gate;
    stop_at = errand->stop_at;
    errand->status = buy(errand->rig, errand->limit);
    return NULL;
}

/* Starts a call in a thread of its own and returns when it stands at its point. */
static void send_out(struct errand *errand) {
    assert_int_equal(pthread_create(&errand->thread, NULL, run_errand, errand), 0);
    int64_t deadline = test_mono_ms() + 60000;
    while (atomic_load(&errand->gate) == GATE_AHEAD && test_mono_ms() < deadline) sched_yield();
    assert_int_equal(atomic_load(&errand->gate), GATE_REACHED);
}

static void call_home(struct errand *errand) {
    atomic_store(&errand->gate, GATE_OPEN);
    pthread_join(errand->thread, NULL);
}

/* Until one unit is in hand for callers that name `limit`. */
static void draw_one(struct rig *rig, int64_t limit) {
    assert_status(buy(rig, limit), TW_PENDING);
    int64_t before = rig->store.granted;
    for (int i = 0; i < 2000 && rig->store.granted == before; i++) converse(rig, 1);
    assert_i64_equal(rig->store.granted, before + 1);
    converse(rig, 5);
}

/* Goal: a caller that has seen a unit under the limit it names, and stalls, does not spend another one that was drawn
 * under a greater limit meanwhile (L9).
 * Method: it stops before its compare-and-swap; its unit is sold, the limit raised, and one more is asked for. */
static void a_unit_of_a_greater_limit_is_not_taken_for_another(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    draw_one(&rig, 10);
    struct errand errand = {.rig = &rig, .limit = 10, .stop_at = "lease_seen_not_taken"};
    send_out(&errand);
    assert_status(buy(&rig, 10), TW_OK);
    rig.store.elsewhere = 10; /* under 10 all are sold */
    assert_status(buy(&rig, 20), TW_PENDING);
    converse(&rig, 200);
    call_home(&errand);
    assert_status(errand.status, TW_PENDING);
    for (int i = 0; i < 100 && buy(&rig, 20) != TW_OK; i++) converse(&rig, 20);
    assert_i64_equal(rig.store.granted - rig.store.returned, 2);
    rig_close(&rig);
}

/* Goal: whatever was granted is said again to a Redis that has forgotten all, even while who made the lease stalls
 * (L2). Method: it stops when others find the lease; they draw and spend; then Redis forgets. */
static void a_lease_whose_maker_stalls_is_said_again(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    struct errand errand = {.rig = &rig, .limit = 100, .stop_at = "lease_entered"};
    send_out(&errand);
    draw_one(&rig, 100);
    assert_status(buy(&rig, 100), TW_OK);
    converse(&rig, 3000); /* all of it is said, and the lease rests */
    assert_i64_equal(rig.store.spent, 1);
    rig.store = (struct store){.epoch = "second"};
    converse(&rig, 3000);
    assert_i64_equal(rig.store.granted, 1);
    assert_i64_equal(rig.store.spent, 1);
    call_home(&errand);
    rig_close(&rig);
}

/* Goal: a unit that was taken out of a lease and could not be counted is not forgotten there: idle, it goes home (P5).
 * Method: the count is at the end of its range; the caller stops with the unit in its hand until the lease rests. */
static void a_unit_that_could_not_be_counted_goes_home(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    draw_one(&rig, 10);
    for (int i = 0; i < 255; i++) assert_status(tw_add(rig.family, fake_key(&the_key), TW_DELTA_MAX, NULL), TW_OK);
    assert_status(tw_add(rig.family, fake_key(&the_key), TW_DELTA_MAX - 1, NULL), TW_OK);
    struct errand errand = {.rig = &rig, .limit = 10, .stop_at = "unit_taken_not_counted"};
    send_out(&errand);
    converse(&rig, 3000);
    call_home(&errand);
    assert_status(errand.status, TW_ERR_RANGE);
    converse(&rig, 7000);
    assert_i64_equal(rig.store.granted - rig.store.returned, 0);
    rig_close(&rig);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_that_was_lost_keeps_its_limit),
#ifdef TWI_RACE_POINTS
        cmocka_unit_test(a_unit_of_a_greater_limit_is_not_taken_for_another),
        cmocka_unit_test(a_lease_whose_maker_stalls_is_said_again),
        cmocka_unit_test(a_unit_that_could_not_be_counted_goes_home),
#endif
    };
    return cmocka_run_group_tests_name("leases", tests, NULL, NULL);
}
