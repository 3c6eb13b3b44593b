/* hotkeys.c -- few keys, all of them contended. Counters become striped and limits sliced under threads that add with
 * and without a view, through pins and in batches, acquire, refund, reset and read, while windows roll over and a
 * driver collects. Sums and limits are exact. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

#include "engine/count/lookup.h"
#include "engine/port/messages.h"
#include "engine/count/dirty.h"
#include "engine/table/stripe.h"

/* keys from 0 on are only added to, from LIMITED on only acquired, from MIXED on both */
#define LIMITED 6u
#define MIXED 10u
#define KEYS 13u
#define LIMIT 3000
#define WINDOWS_MAX (FAKE_WINDOWS - 8)

struct field {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    uint64_t windows;
    bool synced;
    _Atomic int64_t taken[FAKE_WINDOWS][KEYS]; /* acquired */
    _Atomic bool denied[FAKE_WINDOWS][KEYS];   /* a call for one unit */
    int64_t told[FAKE_WINDOWS][KEYS];
    uint32_t told_times[FAKE_WINDOWS];
    atomic_int stop;
};
static struct field field;

static uint32_t window_of(int64_t ms) {
    return (uint32_t)((ms - STRESS_START_MS) / TW_SECOND) % FAKE_WINDOWS;
}

static bool tell_count(void *ctx, const tw_count *count) {
    uint32_t number = KEYS;
    expect(count->key.size == sizeof number);
    memcpy(&number, count->key.data, sizeof number);
    expect(number < KEYS);
    field.told[window_of(count->start_ms)][number] = count->local;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms, (void)flags;
    field.told_times[window_of(start_ms)]++;
    return tw_each(family, start_ms, tell_count, NULL) == TW_OK;
}

static void field_open(bool synced) {
    memset(&field, 0, sizeof field);
    field.synced = synced;
    fake_clock_init(&field.clock, STRESS_START_MS);
    fake_driver_reset(STRESS_START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&field.clock, &options);
    if (synced) fake_driver_install(&options);
    fake_driver.totals = true; /* this engine is the only one. The view is the counted units here */
    fake_driver.return_percent = 20;
    fake_driver.hold_percent = 30;
    fake_driver.collect_max = 7;
    field.engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "hot";
    family.window_ms = TW_SECOND;
    family.history_ms = TW_NONE;
    family.keys_expected = test_seed() % 2 == 0 ? 0 : 500;
    family.on_window_closed = on_closed;
    field.family = stress_family(field.engine, &family);
    stress_write_time(field.engine);
}

/* ---- the members ------------------------------------------------------------------------------------------------- */

/* The windows are over. They are some more if no counter is striped yet, because the processors were busy elsewhere. */
static bool is_over(void) {
    uint32_t window = window_of(fake_clock_wall_ms(&field.clock));
    return window >= WINDOWS_MAX || (window >= field.windows && test_stat_of(field.engine, striped) > 0);
}

static void let_time_pass(struct member *member) {
    while (!is_over()) {
        stress_pass(&field.clock, field.engine, 1 + (int64_t)test_prng_below(&member->prng, 60));
        test_sleep_ms(1);
    }
    atomic_store(&field.stop, 1);
}

/* Requests stripes or slices of a random key, as contention would: on two cores contention is too rare. */
static void ask_for_stripes(struct member *member) {
    while (!atomic_load(&field.stop)) {
        uint32_t number = (uint32_t)test_prng_below(&member->prng, KEYS);
        bool slices = test_prng_chance(&member->prng, number < LIMITED ? 1 : 7, 8);
        struct twi_call call;
        struct twi_place place;
        expect(twi_call_begin(&call, field.family, fake_key(&number)) == TW_OK);
        if (twi_call_now(&call) == TW_OK && twi_place_find(&call, &place))
            twi_contention_request(field.engine, place.generation, place.cell, slices ? LIMIT : TWI_NO_LIMIT);
        twi_call_end(&call);
        test_sleep_ms(test_prng_below(&member->prng, 3) == 0);
    }
}

static void acquire(struct member *member, uint32_t number) {
    int64_t n = 1 + (int64_t)test_prng_below(&member->prng, 3);
    tw_verdict verdict;
    tw_status status = tw_acquire(field.family, fake_key(&number), n, LIMIT, &verdict);
    expect(status == TW_OK || status == TW_DENIED);
    expect(verdict.remaining == (verdict.used < LIMIT ? LIMIT - verdict.used : 0));
    uint32_t window = window_of(verdict.window_start_ms);
    if (number < MIXED) expect(verdict.used <= LIMIT);
    if (status == TW_OK) atomic_fetch_add(&field.taken[window][number], n);
    if (status == TW_OK) member->sum += n;
    if (status == TW_DENIED && n == 1) atomic_store(&field.denied[window][number], true);
}

static void add(struct member *member, uint32_t number, tw_pin *pin) {
    int64_t delta = test_prng_between(&member->prng, -2, 4), view, reset = 0;
    tw_key keys[10];
    switch (test_prng_below(&member->prng, 16)) {
    case 0: expect(tw_add(field.family, fake_key(&number), delta, &view) == TW_OK); break;
    case 1:
        expect(tw_pin_add(pin, delta, NULL) == TW_OK); /* of key 0 */
        break;
    case 2: expect(tw_pin_add(pin, delta, &view) == TW_OK); break;
    case 3:
        for (size_t i = 0; i < 10; i++) keys[i] = fake_key(&number);
        expect(tw_add_many(field.family, keys, NULL, 10, NULL, NULL) == TW_OK);
        delta = 10;
        break;
    case 4:
        expect(tw_get(field.family, fake_key(&number), &view) == TW_OK);
        delta = 0;
        break;
    case 5:
        delta = 0;
        if (!test_prng_chance(&member->prng, 1, 8)) break;
        expect(tw_reset(field.family, fake_key(&number), &reset) == TW_OK);
        break;
    default: expect(tw_add(field.family, fake_key(&number), delta, NULL) == TW_OK); break;
    }
    member->sum += delta - reset;
}

static void count_hot_keys(struct member *member) {
    tw_pin *pin;
    uint32_t first = 0;
    expect(tw_pin_open(field.family, fake_key(&first), &pin) == TW_OK);
    for (uint64_t round = 1; !atomic_load(&field.stop); round++) {
        uint32_t number = (uint32_t)test_prng_below(&member->prng, KEYS);
        if (number < LIMITED || (number >= MIXED && test_prng_chance(&member->prng, 1, 2)))
            add(member, number, pin);
        else
            acquire(member, number);
        if (round % 4096 == 0) sched_yield();
    }
    tw_pin_close(pin);
}

static void use_hot_keys(struct member *member) {
    switch (member->index) {
    case 0: let_time_pass(member); break;
    case 1: ask_for_stripes(member); break;
    default: count_hot_keys(member); break;
    }
}

/* tw_fetch() gets Redis's total of a striped counter, too. Returns the sum of the added units. */
static int64_t fetch_striped(void) {
    for (uint32_t number = 0; number < LIMITED; number++) {
        struct twi_call call;
        struct twi_place place;
        tw_key key = fake_key(&number);
        int64_t total = -1, view;
        assert_status(tw_add(field.family, key, 1, NULL), TW_OK);
        assert_status(twi_call_begin(&call, field.family, key), TW_OK);
        assert_status(twi_call_now(&call), TW_OK);
        assert_true(twi_place_find(&call, &place));
        twi_contention_request(field.engine, place.generation, place.cell, TWI_NO_LIMIT);
        twi_call_end(&call);
        while ((twi_load_relaxed(&place.cell->meta) & TWI_META_STRIPED) == 0) test_sleep_ms(1); /* time does not move */
        for (int round = 0; round < 3; round++) {
            tw_reading reading;
            fake_clock_advance_ms(&field.clock, 10);
            assert_status(tw_fetch(field.family, &key, 1, 100000, &total), TW_OK);
            assert_status(tw_get(field.family, key, &view), TW_OK);
            assert_i64_equal(total, view);
            assert_status(tw_read(field.family, key, &reading), TW_OK);
            /* requested again although nothing is unsent, by a turn that may have begun before the clock was set */
            assert_true(reading.age_ms <= 10);
        }
    }
    return LIMITED;
}

/* ---- the books --------------------------------------------------------------------------------------------------- */

static void check_hot_keys(bool synced) {
    field_open(synced);
    if (synced)
        twi_port_live_engines(field.engine, 0); /* the fake driver does not report it; shares would be small at first */
    field.windows = test_scale(60);
    if (field.windows > WINDOWS_MAX) field.windows = WINDOWS_MAX;
    int64_t counted = team_work(6, use_hot_keys, NULL);
    int64_t striped = test_stat_of(field.engine, striped);
    if (synced) {
        fake_driver.hold_percent = 0;
        /* The clock stands. Items returned for later come back all the same, because a caller waits. */
        assert_status(tw_flush(field.engine, UINT32_MAX), TW_OK);
        assert_i64_equal(fake_driver_sum(), counted);
        counted += fetch_striped();
    }
    stress_close(field.engine, &field.clock);
    int64_t told = 0;
    for (uint32_t window = 0; window < FAKE_WINDOWS; window++) {
        assert_true(field.told_times[window] <= 1);
        for (uint32_t number = 0; number < KEYS; number++) {
            told += field.told[window][number];
            if (number < LIMITED || number >= MIXED) continue;
            assert_i64_equal(field.told[window][number], atomic_load(&field.taken[window][number]));
            assert_true(field.told[window][number] <= LIMIT);
            if (atomic_load(&field.denied[window][number])) assert_i64_equal(field.told[window][number], LIMIT);
        }
    }
    assert_i64_equal(told, counted);
    assert_true(striped > 0);
}

/* Goal: stripes and slices lose nothing, double nothing and admit exactly the limit, whatever happens next to them (P1,
 * P7, E34 to E36). Method: the hook's figures are compared with each thread's own. */
TEST(hot_keys_are_counted_and_limited_exactly) {
    check_hot_keys(false);
}
/* The same for what was collected, returned and acknowledged meanwhile (P2, E9). */
TEST(hot_keys_are_settled_exactly) {
    check_hot_keys(true);
}

/* ---- one key, one limit ------------------------------------------------------------------------------------------ */

struct buyer {
    tw_family *family;
    uint64_t seed;
    int64_t limit, kept;
};

/* Acquires 1 to 10 at a time, by tw_acquire() or as many as there are, and refunds some now and then. */
static void *buy(void *ctx) {
    struct buyer *buyer = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, buyer->seed);
    for (int denied = 0; denied < 20;) {
        int64_t n = test_prng_between(&prng, 1, 10), taken = n;
        tw_status status = test_prng_chance(&prng, 1, 4)
                               ? tw_acquire_some(buyer->family, tw_str("hot"), n, buyer->limit, &taken, NULL)
                               : tw_acquire(buyer->family, tw_str("hot"), n, buyer->limit, NULL);
        if (status != TW_OK) {
            denied++;
            continue;
        }
        buyer->kept += taken;
        if (!test_prng_chance(&prng, 1, 16)) continue;
        assert_status(tw_refund(buyer->family, tw_str("hot"), 1, 0), TW_OK);
        buyer->kept--;
    }
    return NULL;
}

/* Goal: exactly the limit is admitted, every time. What is left when all callers were denied can still be acquired. */
TEST(a_limit_is_admitted_to_the_unit_with_some_and_refunds) {
    static const int64_t limits[] = {1, 2, 10, 999, 100000, 10000000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        int64_t limit = limits[i] > 1000000 ? (int64_t)test_scale(1000000) : limits[i], kept = 0, rest = 0;
        tw_options options;
        tw_family_options family_options;
        tw_engine *engine;
        struct buyer buyers[8];
        pthread_t threads[8];
        tw_options_init(&options);
        options.memory_bytes_max = UINT64_C(32) << 20;
        assert_status(tw_open(&options, &engine), TW_OK);
        tw_family_options_init(&family_options);
        family_options.name = "sale";
        family_options.window = TW_WINDOW_FOREVER;
        tw_family *family;
        assert_status(tw_family_open(engine, &family_options, &family), TW_OK);
        for (int t = 0; t < 8; t++) {
            buyers[t] = (struct buyer){family, test_seed() + (uint64_t)t, limit, 0};
            assert_int_equal(pthread_create(&threads[t], NULL, buy, &buyers[t]), 0);
        }
        for (int t = 0; t < 8; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
            kept += buyers[t].kept;
        }
        while (tw_acquire(family, tw_str("hot"), 1, limit, NULL) == TW_OK) rest++;
        assert_i64_equal(kept + rest, limit);
        assert_status(tw_close(engine, 1000), TW_OK);
    }
}
