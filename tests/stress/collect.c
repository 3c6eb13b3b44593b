/* collect.c -- what adders add while a driver collects, acknowledges, returns and gives up is always in exactly one
 * place (P2). The driver keeps a ledger by key and window (tests/support/fake_driver.h). Windows of a second roll over
 * on a fake clock. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

struct field {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family, *endless;
    uint64_t rounds, windows;
    _Atomic int64_t added[FAKE_WINDOWS][FAKE_KEYS + 1];
    _Atomic int64_t endless_added;
    _Atomic int64_t lost; /* reported by on_lost */
    int64_t told_sum;
    uint32_t told_times[FAKE_WINDOWS];
    atomic_int stop;
};
static struct field field;

static uint32_t window_of(int64_t ms) {
    return (uint32_t)((ms - STRESS_START_MS) / TW_SECOND) % FAKE_WINDOWS;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms;
    struct tally tally = {.seen = NULL};
    expect(tw_each(family, start_ms, tally_count, &tally) == TW_OK);
    field.told_sum += tally.sum + tally.overflow;
    field.told_times[window_of(start_ms)]++;
    bool has_given_up = atomic_load(&fake_driver.items_given_up[window_of(start_ms)]) != 0;
    expect(!has_given_up || (flags & TW_CLOSED_LOCAL) != 0); /* it is never reported as complete */
    if (!has_given_up && (flags & TW_CLOSED_LOCAL) != 0) return true;
    int64_t settled = 0; /* drained: everything was acknowledged or given up */
    for (uint32_t key = 0; key <= FAKE_KEYS; key++)
        settled += atomic_load(&fake_driver.acked[window_of(start_ms)][key]) +
                   atomic_load(&fake_driver.given_up[window_of(start_ms)][key]);
    expect(settled == tally.sum + tally.overflow);
    return true;
}

static void on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    (void)ctx, (void)family, (void)key, (void)start_ms, (void)reason;
    atomic_fetch_add(&field.lost, delta);
}

static void field_open(uint32_t threads, uint64_t keys_max) {
    memset(&field, 0, sizeof field);
    fake_clock_init(&field.clock, STRESS_START_MS);
    fake_driver_reset(STRESS_START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.threads = threads;
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.on_lost = on_lost;
    fake_clock_install(&field.clock, &options);
    fake_driver_install(&options);
    field.engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "rolling";
    family.window_ms = TW_SECOND;
    family.history_ms = TW_NONE;
    family.lateness_ms = 700;
    family.keys_max = keys_max;
    family.keys_expected = test_seed() % 2 == 0 ? 0 : 300;
    family.on_window_closed = on_closed;
    field.family = stress_family(field.engine, &family);
}

/* An adder does not know in which window a delta by the clock lands, so adders give event times. */
static void add_while_time_passes(struct member *member) {
    if (member->index == 0) {
        while (!atomic_load(&field.stop) && window_of(fake_clock_wall_ms(&field.clock)) < field.windows) {
            fake_clock_advance_ms(&field.clock, 1 + (int64_t)test_prng_below(&member->prng, 120));
            test_sleep_ms(1);
        }
        atomic_store(&field.stop, 1);
        return;
    }
    for (uint64_t round = 0; !atomic_load(&field.stop); round++) {
        uint32_t key = (uint32_t)test_prng_below(&member->prng, FAKE_KEYS);
        int64_t delta = test_prng_between(&member->prng, -2, 5);
        int64_t at_ms = fake_clock_wall_ms(&field.clock) - (int64_t)test_prng_below(&member->prng, 900);
        if (at_ms < STRESS_START_MS) at_ms = STRESS_START_MS;
        int64_t view;
        tw_status status = tw_add_at(field.family, fake_key(&key), delta, at_ms, &view);
        expect(status == TW_OK || status == TW_ERR_LATE || status == TW_OVERFLOWED);
        if (status == TW_OVERFLOWED) key = FAKE_KEYS;
        if (status == TW_ERR_LATE) continue;
        atomic_fetch_add(&field.added[window_of(at_ms)][key], delta);
        member->sum += delta;
        if (round % 256 == 0) test_sleep_ms(1); /* so that the driver can keep up and windows drain */
    }
}

static void compare_books(void) {
    int64_t differ = 0;
    for (uint32_t window = 0; window < FAKE_WINDOWS; window++) {
        for (uint32_t key = 0; key <= FAKE_KEYS; key++) {
            int64_t settled =
                atomic_load(&fake_driver.acked[window][key]) + atomic_load(&fake_driver.given_up[window][key]);
            if (settled != atomic_load(&field.added[window][key])) {
                print_error("window %u key %u: settled %lld, added %lld\n", window, key, (long long)settled,
                            (long long)atomic_load(&field.added[window][key]));
                differ++;
            }
        }
        assert_true(field.told_times[window] <= 1);
    }
    assert_i64_equal(differ, 0);
}

static uint64_t windows_to_pass(uint64_t windows) {
    windows = test_scale(windows);
    return windows < FAKE_WINDOWS - 8 ? windows : FAKE_WINDOWS - 8;
}

static void check_books(uint64_t keys_max, uint32_t return_percent, uint32_t give_up_percent, uint32_t hold_percent) {
    field_open(TW_OWN_THREAD, keys_max);
    fake_driver.return_percent = return_percent;
    fake_driver.give_up_percent = give_up_percent;
    fake_driver.hold_percent = hold_percent;
    fake_driver.collect_max = 37;
    fake_driver.totals = true;
    field.windows = windows_to_pass(50);
    int64_t added = team_work(5, add_while_time_passes, NULL);
    fake_driver.hold_percent = hold_percent / 4;
    fake_clock_go(&field.clock); /* items returned for later come back */
    /* tw_flush(): what was given up since the last flush counts, too, and is said once */
    assert_status(tw_flush(field.engine, UINT32_MAX), give_up_percent != 0 ? TW_ERR_REDIS : TW_OK);
    int64_t moved = fake_driver_sum() + fake_driver_given_up();
    assert_i64_equal(moved, added); /* the ticket covers everything added before it */
    fake_driver.give_up_percent = 0;
    assert_status(tw_flush(field.engine, UINT32_MAX), TW_OK);
    stress_close(field.engine, &field.clock);
    assert_i64_equal(fake_driver_sum() + fake_driver_given_up(), added);
    assert_i64_equal(field.told_sum, added);
    assert_i64_equal(atomic_load(&field.lost), fake_driver_given_up());
    assert_i64_equal(atomic_load(&fake_driver.in_flight), 0);
    compare_books();
}

/* Goal: acknowledged + given up = added, by key and window, no count twice (P2). Windows drain before their hook is
 * called. Method: a driver that settles at random next to adders and roll-over. */
TEST(everything_that_is_added_is_settled_once) {
    check_books(0, 0, 0, 0);
    check_books(0, 20, 0, 30);
}
TEST(what_is_given_up_is_reported_and_the_rest_is_settled) {
    check_books(0, 20, 10, 30);
}
/* The sum of the overflow counter is settled in the same way. */
TEST(overflow_counts_are_settled_too) {
    check_books(20, 20, 0, 30);
}

/* ---- tickets ----------------------------------------------------------------------------------------------------- */

static void add_and_flush(struct member *member) {
    for (uint64_t round = 0; round < field.rounds; round++) {
        uint32_t key = (uint32_t)(member->index * 8 + test_prng_below(&member->prng, 8)); /* its own keys */
        int64_t now_ms = STRESS_START_MS;
        expect(tw_add_at(field.family, fake_key(&key), 1, now_ms, NULL) == TW_OK);
        member->sum++;
        if (round % 8 != 0) continue;
        tw_status status = tw_flush(field.engine, 1000000);
        expect(status == TW_OK);
        int64_t acked = 0;
        for (uint32_t own = member->index * 8; own < member->index * 8 + 8; own++) acked += fake_driver_of(now_ms, own);
        expect(acked == member->sum); /* everything this thread added before the call is acknowledged */
    }
}

/* Goal: a flush covers what its thread has added (trap E10, S15). Method: each thread flushes and reads the ledger at
 * once. */
TEST(a_flush_covers_what_was_added_before_it) {
    for (int host = 0; host < 2; host++) {
        field_open(host ? TW_HOST_DRIVEN : TW_OWN_THREAD, 0);
        fake_driver.hold_percent = 30;
        field.rounds = test_scale(2000);
        team_work(6, add_and_flush, NULL);
        stress_close(field.engine, &field.clock);
    }
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

static void add_and_read(struct member *member) {
    uint32_t key = member->index;
    for (uint64_t round = 0; round < field.rounds; round++) {
        int64_t view;
        expect(tw_add_at(field.family, fake_key(&key), 1, STRESS_START_MS, &view) == TW_OK);
        member->sum++;
        expect(view == member->sum); /* the only adder, so the total is its own sum. The view is never off (E6) */
        if (round % 16 == 0) {
            expect(tw_get_at(field.family, fake_key(&key), STRESS_START_MS, &view) == TW_OK && view == member->sum);
            sched_yield();
        }
    }
}

/* Goal: a view contains each of the reader's own adds exactly once while batches are in flight (P3, trap E6). */
TEST(a_view_has_each_own_add_exactly_once) {
    field_open(TW_OWN_THREAD, 0);
    fake_driver.return_percent = 30;
    fake_driver.hold_percent = 50;
    fake_driver.totals = true;
    field.rounds = test_scale(60000);
    int64_t added = team_work(6, add_and_read, NULL);
    fake_driver.return_percent = 0;
    fake_clock_go(&field.clock); /* items returned for later come back */
    assert_status(tw_flush(field.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(fake_driver_sum(), added);
    stress_close(field.engine, &field.clock);
}

/* ---- Redis away -------------------------------------------------------------------------------------------------- */

/* Goal: a driver that never answers hides no loss: tw_close() reports it, and on_lost gets every counter (P8). */
TEST(counts_that_cannot_be_sent_are_named_at_close) {
    field_open(TW_OWN_THREAD, 0);
    atomic_store(&fake_driver.settle_nothing, true);
    field.windows = windows_to_pass(20);
    int64_t added = team_work(5, add_while_time_passes, NULL);
    fake_clock_go(&field.clock); /* time must pass for the time-out */
    assert_status(tw_close(field.engine, 300), TW_ERR_TIMEOUT);
    stress_check_noted();
    assert_i64_equal(atomic_load(&field.lost), added);
    assert_i64_equal(field.told_sum, added);
}
