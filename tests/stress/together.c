/* together.c -- everything at once in one process: growth, pins, batches, event times, roll-over, resets, limits,
 * walks, forks. There are two engines, each with a separate thread: one keeps its counts, the other has a driver that
 * keeps a ledger (tests/support/fake_driver.h). Windows of a second pass on a clock that the test moves. The other
 * programs of this folder test each piece alone; here they meet. At the end the sums of the windows reported, of the
 * ledger and of the units admitted are exact. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS 48u
#define MANY 24u
#define LIMITS 256u
#define LIMIT 37

struct field {
    struct fake_clock clock;
    tw_engine *local_engine, *synced_engine;
    tw_family *local, *synced, *limits;
    uint64_t windows;
    atomic_int stop;
    uint64_t limits_used; /* keys of `limits` that a thread has acquired */
    _Atomic int64_t admitted[LIMITS];
    /* of the hooks, each called by one thread at a time */
    int64_t told_local, told_synced;
    uint32_t told_times[2][FAKE_WINDOWS];
    _Atomic int64_t added[FAKE_WINDOWS][FAKE_KEYS];
    _Atomic int64_t local_added, synced_added, late, forks;
};
static struct field field;

static uint32_t window_of(int64_t ms) {
    return (uint32_t)((ms - STRESS_START_MS) / TW_SECOND) % FAKE_WINDOWS;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    bool synced = ctx != NULL;
    (void)end_ms, (void)flags;
    struct tally tally = {.seen = NULL}, again = {.seen = NULL};
    expect(tw_each(family, start_ms, tally_count, &tally) == TW_OK);
    expect(tw_each(family, start_ms, tally_count, &again) == TW_OK);
    expect(tally.sum == again.sum && tally.counters == again.counters); /* final */
    *(synced ? &field.told_synced : &field.told_local) += tally.sum + tally.overflow;
    field.told_times[synced][window_of(start_ms)]++;
    return true;
}

static void field_open(void) {
    memset(&field, 0, sizeof field);
    fake_clock_init(&field.clock, STRESS_START_MS);
    fake_driver_reset(STRESS_START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(256) << 20;
    fake_clock_install(&field.clock, &options);
    field.local_engine = stress_open(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_driver_install(&options);
    field.synced_engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "rolling";
    family.window_ms = TW_SECOND;
    family.lateness_ms = 700;
    family.history_ms = test_seed() % 3 == 0 ? 2 * TW_SECOND : TW_NONE;
    family.on_window_closed = on_closed;
    family.keys_expected = test_seed() % 2 == 0 ? 0 : 2000;
    field.local = stress_family(field.local_engine, &family);
    family.closed_ctx = &field;
    family.keys_expected = test_seed() % 2 == 0 ? 0 : KEYS;
    field.synced = stress_family(field.synced_engine, &family);
    tw_family_options_init(&family);
    family.name = "limits";
    family.window = TW_WINDOW_FOREVER;
    field.limits = stress_family(field.local_engine, &family);
    stress_write_time(field.local_engine);
    fake_driver.return_percent = 15;
    fake_driver.hold_percent = 25;
    fake_driver.collect_max = 29;
}

/* ---- what threads do --------------------------------------------------------------------------------------------- */

static void let_time_pass(struct member *member) {
    while (window_of(fake_clock_wall_ms(&field.clock)) < field.windows) {
        stress_pass(&field.clock, field.local_engine, 1 + (int64_t)test_prng_below(&member->prng, 80));
        test_sleep_ms(1);
    }
    atomic_store(&field.stop, 1);
}

static int64_t event_ms(struct member *member) {
    int64_t at_ms = fake_clock_wall_ms(&field.clock) - (int64_t)test_prng_below(&member->prng, 1500);
    return at_ms < STRESS_START_MS ? STRESS_START_MS : at_ms;
}

static void note_event(int64_t at_ms, uint32_t key, int64_t delta, tw_status status) {
    expect(status == TW_OK || status == TW_ERR_LATE);
    if (status != TW_OK) {
        atomic_fetch_add(&field.late, 1);
        return;
    }
    atomic_fetch_add(&field.added[window_of(at_ms)][key], delta);
    atomic_fetch_add(&field.synced_added, delta);
}

/* Adds by event time, one by one and many at once, to the engine whose driver keeps a ledger. */
static void count_events(struct member *member) {
    uint32_t numbers[MANY];
    tw_key keys[MANY];
    int64_t deltas[MANY], at_ms[MANY];
    tw_status each[MANY];
    for (uint64_t round = 0; !atomic_load(&field.stop); round++) {
        size_t count = round % 2 == 0 ? 1 : MANY;
        for (size_t i = 0; i < count; i++) {
            numbers[i] = (uint32_t)test_prng_below(&member->prng, KEYS);
            keys[i] = fake_key(&numbers[i]);
            deltas[i] = test_prng_between(&member->prng, -3, 9);
            at_ms[i] = event_ms(member);
        }
        if (count == 1)
            each[0] = tw_add_at(field.synced, keys[0], deltas[0], at_ms[0], NULL);
        else
            (void)tw_add_many_at(field.synced, keys, deltas, count, at_ms, NULL, each);
        for (size_t i = 0; i < count; i++) note_event(at_ms[i], numbers[i], deltas[i], each[i]);
        if (round % 32 == 0) test_sleep_ms(1); /* so that the driver keeps up and windows drain */
    }
}

/* Adds new keys all the time, so that each window grows from small; pins and batches on shared keys, and resets of
 * them. */
static void count_locally(struct member *member) {
    tw_pin *pins[4];
    uint64_t numbers[MANY], fresh = (uint64_t)(member->index + 1) << 40;
    tw_key keys[MANY];
    int64_t deltas[MANY], sum = 0;
    for (uint64_t i = 0; i < 4; i++) expect(tw_pin_open(field.local, number_key(&i), &pins[i]) == TW_OK);
    for (uint64_t round = 0; !atomic_load(&field.stop); round++) {
        int64_t delta = test_prng_between(&member->prng, -2, 7), last = 0;
        uint64_t shared = test_prng_below(&member->prng, KEYS);
        switch (test_prng_below(&member->prng, 5)) {
        case 0:
            expect(tw_pin_add(pins[shared % 4], delta, NULL) == TW_OK);
            sum += delta;
            break;
        case 1:
            for (size_t i = 0; i < MANY; i++) {
                numbers[i] = i % 3 == 0 ? shared + i : ++fresh;
                keys[i] = number_key(&numbers[i]);
                deltas[i] = delta + (int64_t)i;
                sum += deltas[i];
            }
            expect(tw_add_many(field.local, keys, deltas, MANY, NULL, NULL) == TW_OK);
            break;
        case 2:
            fresh++;
            expect(tw_add(field.local, number_key(&fresh), delta, NULL) == TW_OK);
            sum += delta;
            break;
        case 3:
            expect(tw_reset(field.local, number_key(&shared), &last) == TW_OK);
            sum -= last;
            break;
        default:
            expect(tw_add(field.local, number_key(&shared), delta, round % 2 == 0 ? &last : NULL) == TW_OK);
            sum += delta;
        }
        if (round % 64 == 0) test_sleep_ms(1);
    }
    for (int i = 0; i < 4; i++) tw_pin_close(pins[i]);
    atomic_fetch_add(&field.local_added, sum);
}

/* Acquires one key after the other until it is denied: exactly the limit of each is admitted. */
static void take(struct member *member) {
    for (uint64_t number = 0; number < LIMITS && !atomic_load(&field.stop); number++) {
        for (;;) {
            tw_verdict verdict;
            tw_status status = tw_acquire(field.limits, number_key(&number), 1, LIMIT, &verdict);
            expect(status == TW_OK || status == TW_DENIED);
            if (status != TW_OK) break;
            expect(atomic_fetch_add(&field.admitted[number], 1) < LIMIT);
        }
        if (number % 16 == 0) test_sleep_ms(1);
    }
}

static bool swallow(void *ctx, const char *text, size_t size) {
    (void)ctx, (void)text, (void)size;
    return true;
}

static void read_all(struct member *member) {
    while (!atomic_load(&field.stop)) {
        tw_family *family = test_prng_chance(&member->prng, 1, 2) ? field.local : field.synced;
        struct tally tally = {.seen = calloc(KEYS, 1), .numbers = KEYS};
        if (tally.seen == NULL) return;
        tw_status status = tw_each(family, event_ms(member), tally_count, &tally);
        expect(status == TW_OK || status == TW_ERR_LATE);
        for (uint64_t number = 0; number < KEYS; number++) expect(tally.seen[number] <= 1);
        free(tally.seen);
        uint64_t number = test_prng_below(&member->prng, KEYS);
        int64_t view;
        expect(tw_get(field.local, number_key(&number), &view) == TW_OK);
        tw_stats stats;
        expect(tw_stats_read(field.synced_engine, &stats) == TW_OK);
        expect(stats.memory_bytes_high <= stats.memory_bytes_max);
        expect(tw_metrics_write(field.local_engine, TW_METRICS_PROMETHEUS, swallow, NULL) == TW_OK);
        test_sleep_ms(1);
    }
}

/* A child begins at zero, and its counts are its own. */
static void be_forked(struct member *member) {
    while (!atomic_load(&field.stop)) {
        pid_t pid = test_fork();
        if (pid == 0) {
            alarm(20);
            uint64_t number = test_prng_below(&member->prng, KEYS);
            uint32_t key = (uint32_t)number;
            int64_t view = -1, synced_view = -1;
            bool good = tw_add(field.local, number_key(&number), 5, &view) == TW_OK && view == 5 &&
                        tw_add(field.synced, fake_key(&key), 7, &synced_view) == TW_OK && synced_view == 7;
            _exit(good ? 0 : 1);
        }
        int status = -1;
        expect(pid > 0 && waitpid(pid, &status, 0) == pid);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        atomic_fetch_add(&field.forks, 1);
        test_sleep_ms(20);
    }
}

static void do_your_part(struct member *member) {
    switch (member->index) {
    case 0: let_time_pass(member); break;
    case 1:
    case 2: count_events(member); break;
    case 3:
    case 4: count_locally(member); break;
    case 5:
    case 6: take(member); break;
    case 7: read_all(member); break;
    default: be_forked(member);
    }
}

/* ---- the account ------------------------------------------------------------------------------------------------- */

static void check_books(void) {
    for (uint32_t window = 0; window < FAKE_WINDOWS; window++) {
        for (uint32_t key = 0; key < KEYS; key++)
            if (atomic_load(&fake_driver.acked[window][key]) != atomic_load(&field.added[window][key]))
                fail_msg("window %u key %u: settled %lld, added %lld", window, key,
                         (long long)atomic_load(&fake_driver.acked[window][key]),
                         (long long)atomic_load(&field.added[window][key]));
        assert_true(field.told_times[0][window] <= 1 && field.told_times[1][window] <= 1);
    }
}

static void check_limits(void) {
    for (uint64_t number = 0; number < LIMITS; number++) {
        int64_t view = -1, admitted = atomic_load(&field.admitted[number]);
        assert_status(tw_get(field.limits, number_key(&number), &view), TW_OK);
        assert_i64_equal(view, admitted);
        assert_true(admitted == 0 || admitted == LIMIT);
    }
}

/* Goal: P1, P2, P3, P7 and exact limits hold while all of it continues at once. Method: eight threads, and a ninth that
 * forks if no sanitizer runs; then both engines are closed and everything is added up. */
TEST(all_of_it_at_once_adds_up) {
    if (test_misses_wiped_pages()) return;
    for (uint64_t left = test_scale(test_is_slow() ? 200 : 40), part; left != 0; left -= part) {
        part = left < 60 ? left : 60; /* so many windows; then a new pair of engines */
        field_open();
        field.windows = part;
        team_work(test_is_slow() ? 8 : 9, do_your_part, NULL);
        check_limits();
        fake_clock_go(&field.clock); /* items that the driver returned for later come back */
        int64_t synced = atomic_load(&field.synced_added), local = atomic_load(&field.local_added);
        assert_status(tw_flush(field.synced_engine, UINT32_MAX), TW_OK);
        assert_i64_equal(fake_driver_sum(), synced);
        assert_i64_equal(test_stat_of(field.synced_engine, late_increments), atomic_load(&field.late));
        stress_close(field.synced_engine, &field.clock);
        stress_close(field.local_engine, &field.clock);
        assert_i64_equal(fake_driver_sum(), synced);
        assert_i64_equal(field.told_synced, synced);
        assert_i64_equal(field.told_local, local);
        check_books();
    }
}
