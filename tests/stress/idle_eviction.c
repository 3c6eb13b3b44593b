/* idle_eviction.c -- idle eviction under threads: they add, read, limit and walk while the turn moves keys from one
 * eviction epoch to the next, and a driver collects, refuses and gives up (P1, P2, P3). Best with -Drace_points=true
 * and under TSan. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

#include "engine/core/family.h"

#define ERAS_MIN 6
#define IDLE_MS 100
/* The engine measures by the system's coarse clock, which is behind by one of its ticks at most. */
#define TICK_MS 10

struct field {
    tw_engine *engine;
    tw_family *family;
    uint64_t keys_max, rounds;
    _Atomic int64_t added[FAKE_KEYS + 1];
    _Atomic int64_t lost; /* reported by on_lost */
    int64_t deadline_ms;
};
static struct field field;

static void on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    (void)ctx, (void)family, (void)key, (void)reason;
    expect(start_ms == 0);
    atomic_fetch_add(&field.lost, delta);
}

static void field_open(uint64_t keys_max) {
    memset(&field, 0, sizeof field);
    fake_driver_reset(0, 0);
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.on_lost = on_lost;
    fake_driver_install(&options);
    field.engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "aged";
    family.window = TW_WINDOW_FOREVER;
    family.on_full = TW_ON_FULL_EVICT_IDLE;
    family.idle_ms = IDLE_MS;
    family.keys_max = field.keys_max = keys_max;
    field.family = stress_family(field.engine, &family);
}

struct walk {
    uint8_t times[FAKE_KEYS];
};

static bool walk_count(void *ctx, const tw_count *count) {
    struct walk *walk = ctx;
    uint32_t number;
    if (count->key.size != sizeof number) return true;
    memcpy(&number, count->key.data, sizeof number);
    expect(number < FAKE_KEYS && ++walk->times[number] == 1);
    return true;
}

static void look(struct member *member, uint32_t key) {
    tw_reading reading;
    struct walk walk = {{0}};
    if (test_prng_chance(&member->prng, 1, 8)) {
        expect(tw_each(field.family, TW_NOW, walk_count, &walk) == TW_OK);
        /* an insert that finds no room counts for a moment */
        expect(test_stat_of(field.engine, entries) <= (int64_t)field.keys_max + TEAM_MAX);
    } else {
        expect(tw_read(field.family, fake_key(&key), &reading) == TW_OK);
    }
}

/* However slow the machine is, keys are to move a few times. */
static bool has_more_to_see(void) {
    return twi_load_relaxed(&field.family->eviction_epoch) < ERAS_MIN && test_mono_ms() < field.deadline_ms;
}

/* A thread sees its adds to its own key at once, whatever happens to the cell, as long as the key is in memory. A key
 * that is used all the time never leaves, unless there is no room. */
static void add_and_look(struct member *member) {
    uint32_t own = FAKE_KEYS - 1 - member->index;
    int64_t last = INT64_MIN, used_ms = 0;
    for (uint64_t round = 0; round < field.rounds || has_more_to_see(); round++) {
        uint32_t key = (uint32_t)((round / 500 * 3 + test_prng_below(&member->prng, 20)) % (FAKE_KEYS - TEAM_MAX));
        int64_t delta = test_prng_between(&member->prng, -2, 5), view = 0, began_ms = test_mono_ms();
        if (round % 4 == 0) key = own, delta = 1;
        tw_status status;
        if (round % 16 == 5) {
            tw_verdict verdict;
            status = tw_acquire(field.family, fake_key(&key), delta = 1, TW_DELTA_MAX, &verdict);
            if (verdict.decided_by == TW_BY_FULL) continue;
        } else {
            status = tw_add(field.family, fake_key(&key), delta, &view);
        }
        expect(status == TW_OK || status == TW_OVERFLOWED);
        atomic_fetch_add(&field.added[status == TW_OK ? key : FAKE_KEYS], delta);
        if (key == own && status == TW_OK && field.keys_max >= 4 * FAKE_KEYS && !fake_driver.give_up_percent) {
            /* the key may have left if it was unused for idle_ms, because the machine had no time for this thread */
            expect(last == INT64_MIN || view > last || test_mono_ms() - used_ms >= IDLE_MS - TICK_MS);
            last = view;
            used_ms = began_ms;
        }
        if (round % 64 == 0) look(member, key);
        if (round % 128 == 0) test_sleep_ms(1);
    }
}

static void keep_books(const char *test, uint64_t keys_max, uint32_t return_percent, uint32_t give_up_percent,
                       uint32_t hold_percent) {
    field_open(keys_max);
    field.rounds = test_scale(40000);
    field.deadline_ms = test_mono_ms() + (test_is_slow() ? 8000 : 60000);
    fake_driver.return_percent = return_percent;
    fake_driver.give_up_percent = give_up_percent;
    fake_driver.hold_percent = hold_percent;
    fake_driver.totals = true;
    team_work(4, add_and_look, NULL);
    int64_t era = twi_load_acquire(&field.family->eviction_epoch);
    int64_t evicted = test_stat_of(field.engine, evicted);
    fake_driver.return_percent = 0;
    fake_driver.hold_percent = 0;
    assert_status(tw_close(field.engine, TEST_PATIENCE_MS), TW_OK);
    stress_check_noted(); /* on_lost is called by tw_close(), too */
    for (uint32_t key = 0; key <= FAKE_KEYS; key++)
        assert_i64_equal(atomic_load(&fake_driver.acked[0][key]) + atomic_load(&fake_driver.given_up[0][key]),
                         atomic_load(&field.added[key]));
    assert_i64_equal(atomic_load(&field.lost), fake_driver_given_up());
    print_message("# %lld eras, %lld keys evicted\n", (long long)era, (long long)evicted);
    if (test_is_slow() && era < ERAS_MIN)
        test_left_out(test, "a sanitizer leaves time for too few eras");
    else
        assert_true(era >= ERAS_MIN);
}

/* Goal: with room for all keys in use every unit reaches the driver once, and a thread sees its own adds over each
 * move. */
TEST(moving_keys_lose_nothing) {
    keep_books(__func__, 4 * FAKE_KEYS, 0, 0, 20);
}

/* Goal: the same in a family that is always full, so that each generation is full as soon as it begins. */
TEST(crowded_generations_lose_nothing) {
    keep_books(__func__, 24, 10, 0, 30);
}

/* Goal: what Redis refuses for now or for ever is settled once, in whichever generation its cell stands. */
TEST(refusals_lose_nothing) {
    keep_books(__func__, 48, 20, 5, 30);
}
