/* shapes.c -- sliding limits and GCRA compared with exact fractions.
 *
 * Goal: over random schedules of calls, limits, clock steps and turns, a sliding limit admits exactly what the fraction
 * admits, and GCRA what the exact bucket admits, except for the rounding that gcra.c states. A caller that waits as
 * long as the verdict says is admitted, and not a millisecond sooner. Method: one thread, a clock that the test
 * controls, and a twin of each key with 128-bit numerators. */
#include "tests/support/support.h"

#include "engine/count/lookup.h"

#define START_MS (INT64_C(86400000) * 7 * 2800)
#define KEYS 6u
#define STEPS 400u
#define LAG_MS 3
#define OTHERS 12u

__extension__ typedef __int128 wide;

struct twin {
    int64_t limit;
    /* sliding */
    int64_t window, before, now;
    /* GCRA: when the bucket is empty, in 1/limit ms since 1970; and how often it was charged since it was empty. */
    wide empty;
    int64_t charges, most; /* `most`: the greatest limit meanwhile */
};

struct model {
    struct test_prng prng;
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    int64_t window_ms, burst, latest_ms;
    bool is_gcra;
    struct twin twins[KEYS];
    int64_t others[OTHERS]; /* limits that replace others */
};

/* The fast way has its own code for short and for long keys, and none for very short ones. */
static tw_key key_of(uint32_t key) {
    static const char *const names[KEYS] = {
        "a", "the second", "c", "a key of 17 bytes", "e", "the sixth, which is longer than all keys that are short"};
    return tw_str(names[key]);
}

static int64_t now_ms(struct model *model) {
    int64_t wall_ms = fake_clock_wall_ms(&model->clock);
    if (wall_ms > model->latest_ms) model->latest_ms = wall_ms; /* engine time never goes back */
    return model->latest_ms;
}

/* ---- what should be ---- */

static void roll(struct model *model, struct twin *twin) {
    int64_t window = now_ms(model) / model->window_ms;
    if (window == twin->window) return;
    twin->before = window == twin->window + 1 ? twin->now : 0;
    twin->now = 0;
    twin->window = window;
}

static bool slides_in(struct model *model, const struct twin *twin, int64_t n) {
    int64_t left_ms = model->window_ms - now_ms(model) % model->window_ms;
    return (wide)(twin->now + n) * model->window_ms + (wide)twin->before * left_ms <=
           (wide)twin->limit * model->window_ms;
}

static wide bucket_from(struct model *model, const struct twin *twin) {
    wide now = (wide)now_ms(model) * twin->limit;
    return twin->empty > now ? twin->empty : now;
}

/* What is left of the burst after n more units, in 1/limit ms; negative: denied. */
static wide bucket_room(struct model *model, const struct twin *twin, int64_t n) {
    wide now = (wide)now_ms(model) * twin->limit, most = model->burst;
    if (model->burst == 0 || model->burst > twin->limit) most = twin->limit;
    return (most - n) * model->window_ms - (bucket_from(model, twin) - now);
}

/* How much less than exact a bucket may be charged. */
static wide bucket_slack(struct model *model, const struct twin *twin) {
    return (((wide)model->window_ms * twin->most * (twin->charges + 3)) >> 57) + 1;
}

/* A call names another limit. The units in the bucket stay the same. In 1/limit ms each of them is a window long, so
 * the bucket is as far ahead as before. It is at most full for a window. */
static void name(struct model *model, struct twin *twin, int64_t limit) {
    wide ahead = bucket_from(model, twin) - (wide)now_ms(model) * twin->limit, most = (wide)model->window_ms * limit;
    twin->limit = limit;
    if (limit > twin->most) twin->most = limit;
    twin->empty = (wide)now_ms(model) * limit + (ahead < most ? ahead : most);
    twin->charges += 2;
}

static bool should_admit(struct model *model, struct twin *twin, int64_t n, bool got) {
    if (!model->is_gcra) roll(model, twin);
    if (n > twin->limit || (model->is_gcra && model->burst != 0 && n > model->burst)) return false;
    if (!model->is_gcra) return slides_in(model, twin, n);
    wide room = bucket_room(model, twin, n);
    if (room >= 0) return true;
    return room >= -bucket_slack(model, twin) ? got : false;
}

static void charge(struct model *model, struct twin *twin, int64_t n) {
    if (!model->is_gcra) {
        twin->now += n;
        return;
    }
    if (twin->empty <= (wide)now_ms(model) * twin->limit) {
        twin->charges = 0;
        twin->most = twin->limit;
    }
    twin->empty = bucket_from(model, twin) + (wide)n * model->window_ms;
    twin->charges++;
}

/* ---- what is ---- */

static void pass(struct model *model, int64_t ms) {
    fake_clock_advance_ms(&model->clock, ms);
    if (test_prng_chance(&model->prng, 1, 2))
        for (uint64_t turns = test_prng_below(&model->prng, 12); turns > 0; turns--)
            assert_status(tw_turn(model->engine), TW_OK);
}

/* Time passes that calls do not see, because they rely on a thread that keeps the clock and is late. A bucket is
 * decided by the exact clock all the same. */
static void lag(struct model *model) {
    int64_t left_ms = model->window_ms - now_ms(model) % model->window_ms;
    if (!model->is_gcra || left_ms <= LAG_MS) return;
    assert_status(tw_turn(model->engine), TW_OK);
    fake_clock_advance_ms(&model->clock, test_prng_between(&model->prng, 1, LAG_MS));
    (void)twi_and_acqrel(&model->engine->clock.word, ~TWI_CLOCK_STATE);
}

/* The wall clock is set back by so little that engine time waits for it, and by more than the noise of clocks. */
static void set_back(struct model *model) {
    if (fake_clock_wall_ms(&model->clock) < now_ms(model)) return; /* it is behind already */
    assert_status(tw_turn(model->engine), TW_OK);
    fake_clock_step_wall_ms(&model->clock, -test_prng_between(&model->prng, 21, 4900));
}

static void check_verdict(struct model *model, const struct twin *twin, const tw_verdict *verdict, tw_status status) {
    assert_i64_equal(verdict->limit, twin->limit);
    assert_i64_equal(verdict->allowed, status == TW_OK);
    assert_i64_equal(verdict->window_start_ms, now_ms(model) / model->window_ms * model->window_ms);
    if (model->is_gcra) assert_i64_equal(verdict->error_bound, 0);
    if (model->is_gcra) return;
    int64_t left_ms = model->window_ms - now_ms(model) % model->window_ms;
    int64_t part = (int64_t)(((wide)twin->before * left_ms + model->window_ms - 1) / model->window_ms);
    int64_t used = twin->now + part, rest = twin->before - part; /* nobody knows when `before` came */
    assert_i64_equal(verdict->error_bound, part > rest ? part : rest);
    assert_i64_equal(verdict->used, used);
    assert_i64_equal(verdict->remaining, used < twin->limit ? twin->limit - used : 0);
    assert_i64_equal(verdict->reset_after_ms, twin->now > 0      ? left_ms + model->window_ms
                                              : twin->before > 0 ? left_ms
                                                                 : 0);
}

static tw_status call(struct model *model, uint32_t key, int64_t n, tw_verdict *verdict) {
    struct twin *twin = &model->twins[key];
    memset(verdict, 0x55, sizeof *verdict);
    tw_status status = tw_acquire(model->family, key_of(key), n, twin->limit, verdict);
    assert_true(status == TW_OK || status == TW_DENIED);
    bool want = should_admit(model, twin, n, status == TW_OK);
    assert_i64_equal(status == TW_OK, want);
    if (status == TW_OK && n != 0) charge(model, twin, n);
    check_verdict(model, twin, verdict, status);
    return status;
}

/* Waits as long as the verdict says, and checks that a millisecond less does not suffice. */
static void wait_for(struct model *model, uint32_t key, int64_t n, int64_t retry_after_ms) {
    tw_verdict verdict;
    assert_true(retry_after_ms > 0);
    if (test_prng_chance(&model->prng, 1, 4)) { /* after a step back, engine time stands still until it is caught up */
        set_back(model);
        assert_status(call(model, key, n, &verdict), TW_DENIED);
        retry_after_ms = verdict.retry_after_ms;
    }
    pass(model, retry_after_ms - 1);
    assert_status(call(model, key, n, &verdict), TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 1);
    pass(model, 1);
    assert_status(call(model, key, n, &verdict), TW_OK);
}

/* All that a verdict reports as left can be acquired, and no more. */
static void take_the_rest(struct model *model, uint32_t key, int64_t left) {
    tw_verdict verdict;
    assert_status(call(model, key, left + 1, &verdict), TW_DENIED);
    assert_i64_equal(verdict.remaining, left);
    if (left == 0) return;
    assert_status(call(model, key, left, &verdict), TW_OK);
    assert_i64_equal(verdict.remaining, 0);
}

/* tw_acquire_some() takes all that is left, whatever it asks for. Shadow mode is off. */
static void take_some(struct model *model, uint32_t key) {
    struct twin *twin = &model->twins[key];
    tw_verdict verdict;
    int64_t n_max = test_prng_between(&model->prng, 1, 2 * twin->limit), taken = -1;
    if (test_prng_chance(&model->prng, 1, 2)) lag(model);
    tw_status status = tw_acquire_some(model->family, key_of(key), n_max, twin->limit, &taken, &verdict);
    assert_i64_equal(status, taken > 0 ? TW_OK : TW_DENIED);
    assert_true(taken <= n_max);
    if (taken > 0) {
        assert_true(should_admit(model, twin, taken, true));
        charge(model, twin, taken);
    }
    check_verdict(model, twin, &verdict, status);
    if (taken < n_max) assert_status(call(model, key, 1, &verdict), TW_DENIED);
    (void)twi_or_acqrel(&model->engine->clock.word, TWI_CLOCK_READ); /* calls read the clock again */
}

static void step(struct model *model) {
    uint32_t key = (uint32_t)test_prng_below(&model->prng, KEYS);
    struct twin *twin = &model->twins[key];
    tw_verdict verdict;
    if (model->is_gcra && test_prng_chance(&model->prng, 1, 8)) { /* from this call on, which takes a unit */
        name(model, twin, model->others[test_prng_below(&model->prng, OTHERS)]);
        (void)call(model, key, 1, &verdict);
    }
    int64_t most = test_prng_chance(&model->prng, 1, 4) ? twin->limit + 1 : twin->limit / 8 + 2;
    int64_t n = test_prng_chance(&model->prng, 1, 10) ? 0 : test_prng_between(&model->prng, 1, most);
    tw_status status = call(model, key, n, &verdict);
    if (status == TW_DENIED && verdict.retry_after_ms > 0 && test_prng_chance(&model->prng, 1, 3))
        wait_for(model, key, n, verdict.retry_after_ms);
    else if (verdict.remaining >= 0 && test_prng_chance(&model->prng, 1, 6))
        take_the_rest(model, key, verdict.remaining);
    else if (test_prng_chance(&model->prng, 1, 4))
        take_some(model, key);
    if (test_prng_chance(&model->prng, 1, 3)) return;
    int64_t longest = test_prng_chance(&model->prng, 1, 20) ? 3 * model->window_ms : model->window_ms / 6;
    pass(model, test_prng_between(&model->prng, 0, longest));
}

static int64_t draw_limit(struct model *model) {
    static const int64_t limits[] = {1, 2, 3, 7, 10, 60, 97, 1000, 99991, 10000000};
    if (test_prng_chance(&model->prng, 1, 2)) return limits[test_prng_below(&model->prng, 10)];
    return test_prng_between(&model->prng, 1, test_prng_chance(&model->prng, 1, 2) ? 100 : 10000000);
}

/* Until this thread has a line of its own for the statistics of the limit, and known keys take the fast way. */
static void warm(struct model *model) {
    for (uint32_t i = 0; i < 3000; i++) (void)tw_acquire(model->family, tw_str("warm"), 1, 10000000, NULL);
    test_turn(model->engine, 10000);
    assert_non_null(twi_load_acquire(&model->family->limit_lines));
}

static void play(uint64_t seed, bool is_gcra) {
    static const int64_t windows[] = {TW_SECOND, 7000, TW_MINUTE, TW_HOUR, TW_DAY};
    struct model model = {.is_gcra = is_gcra};
    tw_options options;
    tw_family_options family;
    test_prng_seed(&model.prng, seed);
    fake_clock_init(&model.clock, START_MS);
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(32) << 20;
    fake_clock_install(&model.clock, &options);
    assert_status(tw_open(&options, &model.engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "f";
    family.window_ms = windows[test_prng_below(&model.prng, 5)];
    if (test_prng_chance(&model.prng, 1, 2)) family.window_ms = 1000 * test_prng_between(&model.prng, 1, 100000);
    model.window_ms = family.window_ms;
    family.limit_shape = is_gcra ? TW_SHAPE_GCRA : TW_SHAPE_SLIDING;
    if (is_gcra && test_prng_chance(&model.prng, 1, 2)) model.burst = draw_limit(&model);
    family.burst = model.burst;
    assert_status(tw_family_open(model.engine, &family, &model.family), TW_OK);
    for (uint32_t key = 0; key < KEYS; key++) model.twins[key] = (struct twin){.limit = draw_limit(&model)};
    for (uint32_t key = 0; key < KEYS; key++) model.twins[key].most = model.twins[key].limit;
    for (uint32_t i = 0; i < OTHERS; i++) model.others[i] = draw_limit(&model);
    if (test_prng_chance(&model.prng, 1, 2)) warm(&model);
    for (uint32_t i = 0; i < STEPS; i++) step(&model);
    assert_status(tw_close(model.engine, 0), TW_OK);
}

static void play_seeds(const char *name, bool is_gcra) {
    uint64_t seeds[512];
    size_t count = test_seeds(name, test_scale(40), seeds, 512);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins(name, seeds[i]);
        play(seeds[i], is_gcra);
        test_seed_ends();
    }
}

TEST(sliding_limits_agree_with_exact_fractions) {
    play_seeds("shapes_sliding", false);
}

TEST(gcra_limits_agree_with_an_exact_bucket) {
    play_seeds("shapes_gcra", true);
}
