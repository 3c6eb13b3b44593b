/* history.c -- windows in history are read while the turn packs them, frees their tables and drops them. What the hook
 * of a window was shown is final: each read of that window, in whatever form it is kept at that moment, returns exactly
 * the same figures. Windows of a second roll over on a fake clock; the driver keeps a ledger in place of Redis.
 * Covers: engine/turn/windows.c. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

#define WINDOWS_MAX FAKE_WINDOWS
#define HISTORY_WINDOWS 6
#define LOCAL_KEYS 3000u

struct figures {
    int64_t counters, local, view;
};

struct field {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    uint32_t keys;
    uint64_t windows;
    struct figures told[WINDOWS_MAX];
    atomic_bool is_told[WINDOWS_MAX];
    _Atomic int64_t told_sum;
    _Atomic uint64_t reads;
    atomic_int stop;
};
static struct field field;

static uint32_t window_of(int64_t ms) {
    return (uint32_t)((ms - STRESS_START_MS) / TW_SECOND);
}

/* Checks that each counter comes once, and that its key is one of the test's. */
struct look {
    struct figures figures;
    uint8_t seen[LOCAL_KEYS];
    uint32_t nap_at; /* the visitor sleeps at this counter */
    bool twice;
};
static bool look_at(void *ctx, const tw_count *count) {
    struct look *look = ctx;
    uint32_t key = UINT32_MAX;
    if (count->key.size == sizeof key) memcpy(&key, count->key.data, sizeof key);
    look->twice = look->twice || key >= LOCAL_KEYS || look->seen[key]++ != 0;
    look->figures.counters++;
    look->figures.local += count->local;
    look->figures.view += count->view;
    if (look->figures.counters == look->nap_at) test_sleep_ms(2);
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms;
    static struct look look;
    uint32_t window = window_of(start_ms);
    expect(window < WINDOWS_MAX && !atomic_load(&field.is_told[window]));
    memset(&look, 0, sizeof look);
    expect(tw_each(family, start_ms, look_at, &look) == TW_OK);
    expect(!look.twice);
    atomic_fetch_add(&field.told_sum, look.figures.local);
    if (flags != 0) return true; /* closing: the hook may be called again with other figures */
    field.told[window] = look.figures;
    atomic_store(&field.is_told[window], true);
    return true;
}

static void field_open(bool synced) {
    memset(&field, 0, sizeof field);
    field.keys = synced ? FAKE_KEYS : test_is_slow() ? 300 : LOCAL_KEYS;
    fake_clock_init(&field.clock, STRESS_START_MS);
    fake_driver_reset(STRESS_START_MS, TW_SECOND);
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&field.clock, &options);
    if (synced) fake_driver_install(&options);
    atomic_store(&fake_driver.totals, true);
    field.engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "read";
    family.window_ms = TW_SECOND;
    family.history_ms = HISTORY_WINDOWS * TW_SECOND;
    family.on_window_closed = on_closed;
    field.family = stress_family(field.engine, &family);
    stress_write_time(field.engine);
}

/* ---- who takes part ---------------------------------------------------------------------------------------------- */

static void let_time_pass(struct member *member) {
    while (window_of(fake_clock_wall_ms(&field.clock)) < field.windows) {
        stress_pass(&field.clock, field.engine, 1 + (int64_t)test_prng_below(&member->prng, 60));
        test_sleep_ms(1);
    }
    atomic_store(&field.stop, 1);
}

/* Adds through a pin, in one call for many, by event time (mostly too late), or by plain tw_add(). */
static void add_some(struct member *member, tw_pin *pin) {
    enum { MANY = 16 };
    uint32_t numbers[MANY];
    tw_key keys[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        numbers[i] = (uint32_t)test_prng_below(&member->prng, field.keys);
        keys[i] = fake_key(&numbers[i]);
    }
    int64_t delta = test_prng_between(&member->prng, -3, 300), moments[MANY];
    tw_status status, each[MANY];
    switch (test_prng_below(&member->prng, 4)) {
    case 0:
        status = tw_pin_add(pin, delta, NULL);
        expect(status == TW_OK);
        if (status == TW_OK) member->sum += delta;
        return;
    case 1:
        expect(tw_add_many(field.family, keys, NULL, MANY, NULL, NULL) == TW_OK);
        member->sum += MANY;
        return;
    case 2:
        for (uint32_t i = 0; i < MANY; i++)
            moments[i] = stress_now_ms(field.engine) - (int64_t)test_prng_below(&member->prng, 9000);
        (void)tw_add_many_at(field.family, keys, NULL, MANY, moments, NULL, each);
        for (uint32_t i = 0; i < MANY; i++) {
            expect(each[i] == TW_OK || each[i] == TW_ERR_LATE);
            if (each[i] == TW_OK) member->sum++;
        }
        return;
    default:
        expect(tw_add(field.family, keys[0], delta, NULL) == TW_OK);
        member->sum += delta;
        if (test_prng_chance(&member->prng, 1, 64)) test_sleep_ms(1);
    }
}

static void add_while_time_passes(struct member *member) {
    tw_pin *pin;
    uint32_t number = member->index;
    expect(tw_pin_open(field.family, fake_key(&number), &pin) == TW_OK);
    while (!atomic_load(&field.stop)) add_some(member, pin);
    tw_pin_close(pin);
}

/* Reads a whole window by one walk. */
static void read_by_walking(struct member *member, struct look *look, uint32_t window) {
    memset(look, 0, sizeof *look);
    look->nap_at = test_prng_chance(&member->prng, 1, 4) ? 1 + (uint32_t)test_prng_below(&member->prng, field.keys) : 0;
    tw_status status = tw_each(field.family, STRESS_START_MS + (int64_t)window * TW_SECOND, look_at, look);
    expect(status == TW_OK || status == TW_ERR_LATE);
    if (status != TW_OK) return;
    expect(!look->twice);
    expect(look->figures.counters == field.told[window].counters);
    expect(look->figures.local == field.told[window].local);
    expect(look->figures.view == field.told[window].view);
    atomic_fetch_add(&field.reads, 1);
}

/* Reads a window key by key, now and then in one section. */
static void read_by_asking(struct member *member, uint32_t window) {
    int64_t sum = 0, at_ms = STRESS_START_MS + (int64_t)window * TW_SECOND + 999;
    bool bracket = test_prng_chance(&member->prng, 1, 4);
    tw_status status = TW_OK;
    if (bracket) tw_enter(field.engine);
    for (uint32_t key = 0; key < field.keys + 10 && status == TW_OK; key++) { /* and ten keys that no thread counts */
        int64_t view = 0;
        status = tw_get_at(field.family, fake_key(&key), at_ms, &view);
        expect(status == TW_OK || status == TW_ERR_LATE);
        expect(key < field.keys || view == 0);
        sum += view;
    }
    if (bracket) tw_leave(field.engine);
    if (status != TW_OK) return;
    expect(sum == field.told[window].view);
    atomic_fetch_add(&field.reads, 1);
}

static void read_while_time_passes(struct member *member) {
    struct look *look = malloc(sizeof *look);
    expect(look != NULL);
    while (look != NULL && !atomic_load(&field.stop)) {
        uint32_t now = window_of(stress_now_ms(field.engine));
        uint32_t back = 1 + (uint32_t)test_prng_below(&member->prng, HISTORY_WINDOWS + 1);
        if (back > now || !atomic_load(&field.is_told[now - back])) {
            sched_yield();
            continue;
        }
        if (test_prng_chance(&member->prng, 1, 2))
            read_by_walking(member, look, now - back);
        else
            read_by_asking(member, now - back);
    }
    free(look);
}

static void take_part(struct member *member) {
    if (member->index == 0)
        let_time_pass(member);
    else if (member->index <= 2)
        add_while_time_passes(member);
    else
        read_while_time_passes(member);
}

static void check_history(bool synced) {
    field_open(synced);
    field.windows = test_scale(60) < 20 ? 20 : test_scale(60); /* fewer windows would not reach the end of history */
    if (field.windows > WINDOWS_MAX - 8) field.windows = WINDOWS_MAX - 8;
    int64_t added = team_work(5, take_part, &field);
    int64_t packed = test_stat_of(field.engine, windows_packed);
    stress_close(field.engine, &field.clock);
    assert_i64_equal(atomic_load(&field.told_sum), added);
    printf("# %lld windows packed, %lld reads of history\n", (long long)packed, (long long)atomic_load(&field.reads));
    assert_true(packed > 0 && atomic_load(&field.reads) > 0);
}

/* Goal: P1, P7. Whatever form a window in history has, its readers see what its hook saw. Method: a clock, two adders
 * (one of them by pins, in batches, by event time), two readers. One reader sleeps in its walks and holds sections. */
TEST(readers_of_history_see_what_the_hook_saw) {
    check_history(false);
}
/* Goal: the same with Redis: views, late marks, and windows that are packed only when nothing of them is unsent. */
TEST(readers_of_synced_history_see_what_the_hook_saw) {
    check_history(true);
}
