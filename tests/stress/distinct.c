/* distinct.c -- threads add elements to the same sketches while these grow, while windows end, and while others read.
 * Each estimate is compared with arrays of registers that the threads fill next to (hll_twin.h): no raise of a register
 * is lost, none comes from nowhere. */
#include "tests/stress/stress.h"
#include "tests/support/hll_twin.h"

static int64_t estimate_of(tw_family *family, uint64_t key) {
    int64_t estimate = -1;
    expect(tw_distinct_get(family, number_key(&key), &estimate) == TW_OK);
    return estimate;
}

/* ---- growth ---- */

enum { ADDERS = 4, ELEMENTS_MAX = 4000 };

struct growth {
    tw_family *family;
    uint64_t key, salt, elements;
    struct twin own[ADDERS]; /* what each thread has added */
    _Atomic int64_t changed;
    atomic_int adding;
};

/* The first thread reads: an estimate never falls. */
static void read_along(struct growth *growth) {
    int64_t last = 0;
    while (atomic_load(&growth->adding) != 0) {
        int64_t now = estimate_of(growth->family, growth->key);
        expect(now >= last);
        last = now;
    }
}

/* Adds about half of the elements, in an order of its own; so most are added by two threads. */
static void add_some(struct member *member) {
    struct growth *growth = member->team->ctx;
    if (member->index == 0) {
        read_along(growth);
        return;
    }
    struct twin *own = &growth->own[member->index - 1];
    tw_key batch[8];
    uint64_t numbers[8], at = test_prng_below(&member->prng, growth->elements), step = 1;
    int64_t changes = 0;
    for (uint64_t i = 0; i < growth->elements; i++, at = (at + step) % growth->elements) {
        if (test_prng_chance(&member->prng, 1, 2)) continue;
        size_t count = test_prng_chance(&member->prng, 1, 20) ? 8 : 1, changed_many = 0;
        bool changed = false;
        for (size_t j = 0; j < count; j++) {
            numbers[j] = growth->salt + (at + j) % growth->elements;
            batch[j] = twin_number(&numbers[j]);
            (void)twin_add(own, batch[j]);
        }
        if (count == 1)
            expect(tw_distinct_add(growth->family, number_key(&growth->key), batch[0], &changed) == TW_OK);
        else
            expect(tw_distinct_add_many(growth->family, number_key(&growth->key), batch, count, &changed_many) ==
                   TW_OK);
        changes += (int64_t)changed_many + changed;
        if (i % 97 == 0) expect(estimate_of(growth->family, growth->key) >= twin_estimate(own)); /* its own adds (P3) */
    }
    atomic_fetch_add(&growth->changed, changes);
    atomic_fetch_sub(&growth->adding, 1);
}

static void check_growth(uint32_t window) {
    static struct growth growth;
    static struct twin all;
    tw_options options;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    tw_engine *engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "f";
    family.kind = TW_KIND_DISTINCT;
    family.window = window;
    if (window == TW_WINDOW_FROM_FIRST) family.window_ms = TW_HOUR;
    tw_family *opened = stress_family(engine, &family);
    for (uint64_t round = 0; round < test_scale(80); round++) {
        memset((void *)&growth, 0, sizeof growth);
        memset(&all, 0, sizeof all);
        growth.family = opened;
        growth.key = round;
        growth.salt = test_prng_next(&prng);
        growth.elements = 1 + test_prng_below(&prng, round % 2 == 0 ? 100 : ELEMENTS_MAX);
        atomic_store(&growth.adding, ADDERS);
        (void)team_work(ADDERS + 1, add_some, &growth);
        for (int i = 0; i < ADDERS; i++) twin_join(&all, &growth.own[i]);
        int64_t set = 0;
        for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++) set += all.registers[i] != 0;
        assert_i64_equal(estimate_of(opened, round), twin_estimate(&all));
        assert_true(atomic_load(&growth.changed) >= set); /* each register was raised from 0 once */
    }
    assert_status(tw_close(engine, 1000), TW_OK);
}

TEST(no_register_is_lost_while_sketches_grow) {
    check_growth(TW_WINDOW_FOREVER);
}

TEST(no_register_is_lost_in_keys_that_live_from_their_first_element) {
    check_growth(TW_WINDOW_FROM_FIRST);
}

/* ---- windows that end ---- */

enum { WINDOWS = 60, KEYS = 2, THREADS = 3 };

/* What a thread has added to a window: during which it surely stood, and what may have gone there. */
struct shares {
    struct twin sure[WINDOWS + 1][KEYS], perhaps[WINDOWS + 1][KEYS];
};

struct field {
    struct fake_clock clock;
    tw_family *family;
    struct shares *shares[THREADS];
    int64_t told[WINDOWS + 2][KEYS];
    atomic_int stop;
};

static uint64_t window_of(int64_t ms) {
    return (uint64_t)((ms - STRESS_START_MS) / TW_SECOND);
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct field *field = ctx;
    uint64_t window = window_of(start_ms);
    if (window > WINDOWS) return true;
    for (uint64_t key = 0; key < KEYS; key++) {
        int64_t estimate = -1;
        expect(tw_distinct_get_at(family, number_key(&key), start_ms, &estimate) == TW_OK);
        expect(field->told[window][key] == -1); /* told once */
        field->told[window][key] = estimate;
    }
    return true;
}

static void add_while_time_passes(struct member *member) {
    struct field *field = member->team->ctx;
    if (member->index == 0) {
        while (window_of(fake_clock_wall_ms(&field->clock)) < WINDOWS) {
            fake_clock_advance_ms(&field->clock, 1 + (int64_t)test_prng_below(&member->prng, 400));
            if (test_prng_chance(&member->prng, 1, 2)) test_sleep_ms(1);
        }
        atomic_store(&field->stop, 1);
        return;
    }
    struct shares *mine = field->shares[member->index - 1];
    for (uint64_t number = (uint64_t)member->index << 40; atomic_load(&field->stop) == 0; number++) {
        uint64_t key = test_prng_below(&member->prng, KEYS);
        uint64_t before = window_of(fake_clock_wall_ms(&field->clock));
        expect(tw_distinct_add(field->family, number_key(&key), twin_number(&number), NULL) == TW_OK);
        uint64_t after = window_of(fake_clock_wall_ms(&field->clock));
        if (before == after && before <= WINDOWS) (void)twin_add(&mine->sure[before][key], twin_number(&number));
        for (uint64_t window = before; window <= after && window <= WINDOWS && before != after; window++)
            (void)twin_add(&mine->perhaps[window][key], twin_number(&number));
    }
}

TEST(each_element_is_in_the_window_of_its_call) {
    static struct field field;
    static struct twin sure, most;
    tw_options options;
    for (uint64_t window = 0; window < WINDOWS + 2; window++)
        for (uint64_t key = 0; key < KEYS; key++) field.told[window][key] = -1;
    fake_clock_init(&field.clock, STRESS_START_MS);
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&field.clock, &options);
    tw_engine *engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "f";
    family.kind = TW_KIND_DISTINCT;
    family.window_ms = TW_SECOND;
    family.history_ms = TW_NONE;
    family.on_window_closed = on_closed;
    family.closed_ctx = &field;
    field.family = stress_family(engine, &family);
    for (int i = 0; i < THREADS; i++) field.shares[i] = calloc(1, sizeof *field.shares[i]);
    atomic_store(&field.stop, 0);
    (void)team_work(THREADS + 1, add_while_time_passes, &field);
    stress_close(engine, &field.clock);
    for (uint64_t window = 0; window < WINDOWS; window++) {
        for (uint64_t key = 0; key < KEYS; key++) {
            memset(&sure, 0, sizeof sure);
            for (int i = 0; i < THREADS; i++) twin_join(&sure, &field.shares[i]->sure[window][key]);
            most = sure;
            for (int i = 0; i < THREADS; i++) twin_join(&most, &field.shares[i]->perhaps[window][key]);
            int64_t told = field.told[window][key] == -1 ? 0 : field.told[window][key];
            assert_true(told >= twin_estimate(&sure) && told <= twin_estimate(&most));
        }
    }
    for (int i = 0; i < THREADS; i++) free(field.shares[i]);
}
