/* top_overflow_test.c -- tw_top() where a window overflowed: the heavy keys among those that found no room, with bounds
 * that are always true (engine/table/spill.h, engine/count/top.h).
 * Covers: engine/count/top.c. */
#include "tests/unit/hand_driver.h"

#include "engine/core/window_map.h"
#include "engine/table/spill.h"

#include <pthread.h>

static struct rig rig;

#define NUMBERS 20000u
static _Atomic int64_t begun[NUMBERS], counted[NUMBERS]; /* added up before a call and after it */
static int64_t overflowed[NUMBERS];                      /* of that, what the overflow counter took */
static bool has_overflowed[NUMBERS];

/* A key that holds its number; by `kind` of the size of that record kind: 4..32, 33..96, ... bytes. */
static tw_key key_of(uint32_t number, uint32_t kind, unsigned char bytes[TW_KEY_SIZE_MAX]) {
    static const size_t least[TWI_KINDS] = {4, 33, 97, 161, 225, 481}, span[TWI_KINDS] = {29, 64, 64, 64, 256, 544};
    size_t size = least[kind] + number % span[kind];
    memset(bytes, 'k', size);
    memcpy(bytes, &number, sizeof number);
    return tw_bytes(bytes, size);
}
static uint32_t number_of(tw_key key) {
    uint32_t number;
    assert_true(key.size >= sizeof number);
    memcpy(&number, key.data, sizeof number);
    assert_true(number < NUMBERS);
    return number;
}

/* Keys are of all kinds if `kind` is TWI_KINDS. */
static void add_number(tw_family *family, uint32_t number, uint32_t kind, int64_t delta) {
    unsigned char bytes[TW_KEY_SIZE_MAX];
    tw_key key = key_of(number, kind == TWI_KINDS ? number % TWI_KINDS : kind, bytes);
    begun[number] += delta;
    tw_status status = tw_add(family, key, delta, NULL);
    assert_true(status == TW_OK || status == TW_OVERFLOWED);
    counted[number] += delta;
    if (status != TW_OVERFLOWED) return;
    overflowed[number] += delta;
    has_overflowed[number] = true;
}

static void forget_counts(void) {
    memset((void *)begun, 0, sizeof begun);
    memset((void *)counted, 0, sizeof counted);
    memset(overflowed, 0, sizeof overflowed);
    memset(has_overflowed, 0, sizeof has_overflowed);
}

/* What tw_top() showed, each key once, heaviest first, its count within its bounds. */
struct seen {
    bool shown[NUMBERS];
    int64_t view[NUMBERS], error[NUMBERS];
    int64_t last;
    size_t used;
};
static struct seen seen;

static bool see(void *ctx, const tw_count *count) {
    uint32_t number = number_of(count->key);
    assert_false(seen.shown[number]);
    assert_true(seen.used++ == 0 || count->view <= seen.last);
    assert_true(count->error >= 0);
    seen.last = seen.view[number] = count->view;
    seen.error[number] = count->error;
    seen.shown[number] = true;
    return true;
}

static void look(tw_family *family, int64_t at_ms) {
    memset(&seen, 0, sizeof seen);
    assert_status(tw_top(family, 10000, at_ms, see, NULL), TW_OK);
}

static void check_bounds(void) {
    for (uint32_t number = 0; number < NUMBERS; number++) {
        if (!seen.shown[number]) continue;
        if (counted[number] > seen.view[number] || counted[number] < seen.view[number] - seen.error[number])
            fail_msg("key %u: %lld, shown as %lld with an error of %lld", number, (long long)counted[number],
                     (long long)seen.view[number], (long long)seen.error[number]);
        if (!has_overflowed[number]) assert_i64_equal(seen.error[number], 0);
    }
}

static void check_found(uint32_t parts) {
    int64_t sum = 0;
    for (uint32_t number = 0; number < NUMBERS; number++) sum += overflowed[number];
    for (uint32_t number = 0; number < NUMBERS; number++) {
        if (overflowed[number] > sum / parts && !seen.shown[number])
            fail_msg("key %u is not found: %lld of %lld", number, (long long)overflowed[number], (long long)sum);
    }
}

static tw_family *small_family(uint64_t keys_max) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = keys_max;
    return rig_family_of(&rig, &options);
}

/* ---- the property ------------------------------------------------------------------------------------------------ */

enum stream { ZIPF, UNIFORM, DRIFTING, JUST_ABOVE, STREAMS };

static uint32_t draw(struct test_prng *prng, enum stream stream, uint32_t step, uint32_t steps) {
    uint32_t bound = 1u << test_prng_below(prng, 14); /* about Zipf's law: each power of two is as likely */
    switch (stream) {
    case ZIPF: return (uint32_t)test_prng_below(prng, bound);
    case UNIFORM: return (uint32_t)test_prng_below(prng, NUMBERS);
    case DRIFTING: return (uint32_t)(test_prng_below(prng, bound) + (uint64_t)step * (NUMBERS - (1u << 14)) / steps);
    default: /* fifty keys of 1.2 % each at the beginning, then none of them, and a great many others */
        if (step < steps * 6 / 10) return 100 + step % 50;
        return 1000 + step % (NUMBERS - 1000);
    }
}

static void one_seed(uint64_t seed) {
    struct test_prng prng;
    test_prng_seed(&prng, seed);
    enum stream stream = (enum stream)test_prng_below(&prng, STREAMS);
    uint32_t kind = (uint32_t)test_prng_below(&prng, TWI_KINDS + 1), steps = 30000;
    int64_t most = test_prng_chance(&prng, 1, 2) ? 1 : 1000;
    bool falls = test_prng_chance(&prng, 1, 4); /* some deltas are negative: bounds hold, nothing need be found */
    rig_open(&rig);
    forget_counts();
    tw_family *family = small_family(1 + test_prng_below(&prng, 60));
    for (uint32_t step = 0; step < steps; step++) {
        int64_t delta = test_prng_between(&prng, 1, most);
        if (falls && test_prng_chance(&prng, 1, 5)) delta = -delta;
        add_number(family, draw(&prng, stream, step, steps), kind, delta);
        if (step == steps / 3) {
            look(family, TW_NOW);
            check_bounds();
        }
    }
    look(family, TW_NOW);
    check_bounds();
    if (!falls) check_found(100);
    if (test_prng_chance(&prng, 1, 3)) { /* the same from history */
        struct seen before = seen;
        rig_pass(&rig, TW_HOUR);
        look(family, RIG_START_MS);
        assert_memory_equal(&before, &seen, sizeof seen);
    }
    rig_close(&rig);
}

TEST(every_key_above_one_percent_is_found_within_its_error) {
    uint64_t seeds[200];
    size_t count = test_seeds("top_overflow", test_scale(15) + 1, seeds, 200);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("top_overflow", seeds[i]);
        one_seed(seeds[i]);
        test_seed_ends();
    }
}

/* Goal: keys that only took over the count of other ones do not are above exact ones. */
RIG_TEST(what_is_not_heavy_does_not_push_exact_keys_away) {
    forget_counts();
    tw_family *family = small_family(10);
    for (uint32_t number = 0; number < 10; number++) add_number(family, number, 0, 50);
    for (uint32_t step = 0; step < 100000; step++) add_number(family, 10 + step % 15000, 0, 1);
    look(family, TW_NOW);
    check_bounds();
    assert_i64_equal(seen.used, 10);
}

RIG_TEST(few_keys_are_shown_exactly) {
    forget_counts();
    tw_family *family = small_family(1);
    for (uint32_t number = 0; number < 400; number++) add_number(family, number, 0, (int64_t)number * 2 - 201);
    look(family, TW_NOW);
    assert_i64_equal(seen.used, 400);
    for (uint32_t number = 0; number < 400; number++) {
        assert_i64_equal(seen.view[number], (int64_t)number * 2 - 201);
        assert_i64_equal(seen.error[number], 0);
    }
}

/* Goal: a key that fell below zero, lost its entry, and comes back is not shown as having had more than it had.
 * Method: it is the lightest of a full shard, a new key takes its entry, and it takes that one. */
RIG_TEST(a_key_below_zero_that_lost_its_entry_keeps_its_bounds) {
    forget_counts();
    tw_family *family = small_family(1);
    add_number(family, 1, 0, 1); /* the one key that the window has room for */
    add_number(family, 2, 0, -3);
    for (uint32_t number = 100; number < 900; number++) add_number(family, number, 0, 1000);
    add_number(family, 2, 0, 2000);
    look(family, TW_NOW);
    assert_true(seen.shown[2]);
    assert_true(seen.error[2] > 0); /* it lost its entry */
    check_bounds();
}

/* ---- where shards are held --------------------------------------------------------------------------------------- */

/* As if threads stood still inside of each shard that exists. Returns how many shards there are. */
static uint32_t hold_shards(tw_family *family, uint32_t held) {
    struct twi_arena *arena = &family->engine->arena;
    int64_t start_ms = twi_calendar_span(&family->rule, RIG_START_MS).start_ms;
    struct twi_spill *sketch = twi_spill_of(arena, twi_window_find(family, start_ms));
    uint32_t number = 0;
    struct twi_spill_shard *shard;
    for (; (shard = twi_spill_shard_of(arena, sketch, 0, number)) != NULL; number++)
        twi_store_relaxed(&shard->lock, held);
    return number;
}

/* Goal: adds go on where threads stand still with shards in hand, in shards of their own as long as there may be more;
 * then their units are in the error, of few keys only. */
RIG_TEST(adds_do_not_wait_for_shards_that_are_held) {
    forget_counts();
    tw_family *family = small_family(1);
    for (uint32_t number = 0; number < 200; number++) add_number(family, number, 0, 10);
    for (uint32_t shards = 1; shards < TWI_SPILL_SHARDS; shards++) {
        assert_i64_equal(hold_shards(family, 1), shards);
        add_number(family, shards, 0, 1);
    }
    look(family, TW_NOW);
    for (uint32_t number = 0; number < 200; number++) {
        assert_i64_equal(seen.view[number], counted[number]);
        assert_i64_equal(seen.error[number], 0);
    }
    assert_i64_equal(hold_shards(family, 1), TWI_SPILL_SHARDS);
    add_number(family, 100, 0, 7);
    add_number(family, 100, 0, -3);
    look(family, TW_NOW);
    check_bounds();
    assert_i64_equal(seen.view[100], 17);
    assert_i64_equal(seen.error[100], 10);
    uint32_t wider = 0;
    for (uint32_t number = 0; number < 200; number++) wider += seen.error[number] != 0;
    assert_true(wider < 30);
    (void)hold_shards(family, 0);
    add_number(family, 100, 0, 5);
    look(family, TW_NOW);
    check_bounds();
    assert_i64_equal(seen.error[100], 10);
}

/* ---- where room comes later, and where keys are in two generations ----------------------------------------------- */

RIG_TEST(a_key_that_gets_room_later_is_shown_once) {
    forget_counts();
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    for (uint32_t number = 0; number < 5; number++) add_number(family, number, 0, 100 + number);
    options.keys_max = 3;
    assert_status(tw_family_set(family, &options), TW_OK);
    for (uint32_t number = 1; number < 5; number++) add_number(family, number, 0, 1000 * number);
    look(family, TW_NOW);
    check_bounds();
    assert_i64_equal(seen.used, 5);
    assert_i64_equal(seen.view[1], 1101);
    assert_i64_equal(seen.view[4], 4104);
    rig_pass(&rig, TW_HOUR);
    look(family, RIG_START_MS);
    assert_i64_equal(seen.used, 5);
    assert_i64_equal(seen.view[1], 1101);
}

RIG_TEST(a_window_from_first_adds_up_both_generations) {
    forget_counts();
    tw_family_options options = rig_options("f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    add_number(family, 0, 0, 1);
    add_number(family, 7, 0, 10);
    rig_pass(&rig, 40000);
    add_number(family, 8, 0, 3);
    rig_pass(&rig, 30000);
    add_number(family, 1, 0, 1);
    add_number(family, 7, 0, 5);
    look(family, TW_NOW);
    assert_i64_equal(seen.view[7], 15);
    assert_i64_equal(seen.error[7], 0);
    assert_i64_equal(seen.view[8], 3);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool count_shown(void *ctx, const tw_count *count) {
    assert_i64_equal(count->error, 0);
    ++*(int *)ctx;
    return true;
}

static void fill_up(struct rig *full, tw_family *family) {
    forget_counts();
    for (uint32_t number = 0; number < NUMBERS; number++) add_number(family, number, 0, 1);
    assert_true(has_overflowed[NUMBERS - 1]);
    for (uint32_t step = 0; step < 400; step++) add_number(family, NUMBERS - 1, 0, 1);
    look(family, TW_NOW);
    check_bounds();
    assert_true(seen.shown[NUMBERS - 1] && seen.view[NUMBERS - 1] >= 401);
    assert_true(test_memory_bytes(full->engine) <= (int64_t)full->options.memory_bytes_max);
    assert_i64_equal(test_stat_of(full->engine, overflow_sketches_refused), 0);
}

/* Goal: a window that uses a small engine's memory up has made its sketch before; all of it is given back. */
TEST(a_window_that_uses_memory_up_has_its_sketch_before) {
    struct rig tiny;
    rig_init(&tiny);
    tiny.options.memory_bytes_max = UINT64_C(1) << 20;
    rig_start(&tiny);
    fill_up(&tiny, rig_family(&tiny, "f", TW_WINDOW_ALIGNED, TW_HOUR));
    rig_pass(&tiny, 3 * TW_HOUR);
    for (int i = 0; i < 20; i++) rig_pass(&tiny, 5);
    assert_true(test_memory_bytes(tiny.engine) < 4000);
    rig_close(&tiny);
}

/* Goal: where others have used memory up, sketches come from the reserve; when that is used up, too, the windows
 * without a sketch are counted, and their counters are shown all the same; segments go back to the reserve. */
TEST(without_memory_the_reserve_serves) {
    enum { FAMILIES = 4 };
    struct rig full;
    rig_init(&full);
    full.options.memory_bytes_max = UINT64_C(16) << 20;
    rig_start(&full);
    tw_family *families[FAMILIES];
    char name[] = "a";
    for (int i = 0; i < FAMILIES; i++, name[0]++) {
        families[i] = rig_family(&full, name, TW_WINDOW_ALIGNED, TW_HOUR);
        rig_add(families[i], "here", 1);
    }
    tw_family *greedy = rig_family(&full, "greedy", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[40];
    for (int i = 0; i < 400000; i++) {
        snprintf(key, sizeof key, "a key of 30 bytes, %012d", i);
        if (tw_add(greedy, tw_str(key), 1, NULL) == TW_OVERFLOWED && i % 100 == 99) break;
    }
    static unsigned char longest[TW_KEY_SIZE_MAX]; /* the rest of lines serves no such key, nor a sketch of it */
    for (int i = 0; i < FAMILIES; i++)
        assert_status(tw_add(families[i], tw_bytes(longest, sizeof longest), 5, NULL), TW_OVERFLOWED);
    assert_i64_equal(twi_load_relaxed(&full.engine->arena.reserve), 0);
    assert_true(test_stat_of(full.engine, overflow_sketches_refused) > 0);
    assert_true(test_memory_bytes(full.engine) <= 16 << 20);
    int shown = 0;
    for (int i = 0; i < FAMILIES; i++) assert_status(tw_top(families[i], 10, TW_NOW, count_shown, &shown), TW_OK);
    assert_i64_equal(shown, 2 * FAMILIES - test_stat_of(full.engine, overflow_sketches_refused));
    rig_pass(&full, 3 * TW_HOUR);
    for (int i = 0; i < 200; i++) rig_pass(&full, 5);
    assert_i64_equal(twi_load_relaxed(&full.engine->arena.reserve), 3);
    assert_true(test_memory_bytes(full.engine) < 8000);
    rig_close(&full);
}

/* Goal: in a share, too, the heavy ones are found, and the share is not passed. */
RIG_TEST(a_share_has_room_for_its_sketch) {
    static const uint64_t shares[] = {65536, 100000, 1000000};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        forget_counts();
        tw_family_options options = rig_options(i == 0 ? "a" : i == 1 ? "b" : "c", TW_WINDOW_ALIGNED, TW_HOUR);
        options.memory_share = shares[i];
        tw_family *family = rig_family_of(&rig, &options);
        int64_t before = test_memory_bytes(rig.engine);
        for (uint32_t number = 0; number < NUMBERS; number++) {
            add_number(family, number, 0, 1);
            if (number % 20 == 0) add_number(family, NUMBERS - 1, 0, 1);
        }
        look(family, TW_NOW);
        check_bounds();
        check_found(40);
        assert_true(seen.shown[NUMBERS - 1]);
        assert_true(test_memory_bytes(rig.engine) - before <= (int64_t)shares[i] + 128);
    }
    assert_i64_equal(test_stat_of(rig.engine, overflow_sketches_refused), 0);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct adder {
    pthread_t thread;
    tw_family *family;
    uint64_t seed;
    uint32_t adds;
};
static atomic_int adding;

static void *add_all(void *ctx) {
    struct adder *adder = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, adder->seed);
    for (uint32_t step = 0; step < adder->adds; step++) {
        unsigned char bytes[TW_KEY_SIZE_MAX];
        uint32_t number = draw(&prng, ZIPF, step, adder->adds);
        atomic_fetch_add(&begun[number], 1);
        tw_status status = tw_add(adder->family, key_of(number, number % 2, bytes), 1, NULL);
        if (status == TW_OK || status == TW_OVERFLOWED) atomic_fetch_add(&counted[number], 1);
    }
    atomic_fetch_sub(&adding, 1);
    return NULL;
}

/* Goal: while threads overflow at full speed, each look shows bounds that hold: at least what had been counted before
 * it, at most what had begun when it was over. Afterwards they hold exactly, and the heavy keys are found. */
RIG_TEST(bounds_hold_while_threads_add) {
    static int64_t before[NUMBERS];
    enum { THREADS = 4, ROOM = 20 };
    struct adder adders[THREADS];
    forget_counts();
    tw_family *family = small_family(ROOM);
    for (uint32_t i = 0; i < ROOM; i++) add_number(family, i * 7, i * 7 % 2, 1); /* who has room is settled */
    uint32_t adds = (uint32_t)test_scale(60000), looks = 0;
    atomic_store(&adding, THREADS);
    for (int i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.family = family, .seed = test_seed() ^ (uint64_t)i, .adds = adds};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_all, &adders[i]), 0);
    }
    do {
        for (uint32_t number = 0; number < NUMBERS; number++) before[number] = atomic_load(&counted[number]);
        look(family, TW_NOW);
        for (uint32_t number = 0; number < NUMBERS; number++) {
            if (!seen.shown[number]) continue;
            assert_true(seen.view[number] >= before[number]);
            assert_true(seen.view[number] - seen.error[number] <= atomic_load(&begun[number]));
        }
        looks++;
    } while (atomic_load(&adding) != 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
    look(family, TW_NOW);
    int64_t sum = 0;
    for (uint32_t number = 0; number < NUMBERS; number++) sum += counted[number];
    assert_i64_equal(sum, (int64_t)THREADS * adds + ROOM);
    for (uint32_t number = 0; number < NUMBERS; number++) {
        if (seen.shown[number])
            assert_true(counted[number] <= seen.view[number] &&
                        counted[number] >= seen.view[number] - seen.error[number]);
        else
            assert_true(counted[number] <= sum / 100);
    }
    printf("# %u looks while %lld adds were made\n", looks, (long long)sum);
}
