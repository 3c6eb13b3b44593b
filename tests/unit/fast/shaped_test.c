/* shaped_test.c -- the fast ways of GCRA and of sliding limits (shapes_fast.h) answer as the complete
 * ones (gcra.c, sliding.c) do, field by field.
 * Always true: the same calls are made in two families of one engine, whose clock stands between the two. The fast
 * way begins when the caller has a line for the statistics of limits, which is checked before. A call has taken it
 * if it did not count in `looks`, which each complete decision does.
 * Covers: engine/fast/shapes_fast.h, engine/limit/gcra.h, engine/limit/sliding.h. */
#include "tests/unit/rig.h"

#include "engine/limit/gcra.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/acquire.h"

#define KEYS 12u
#define STEPS 4000u

static struct rig rig;

struct pair {
    struct test_prng prng;
    tw_family *fast, *complete;
    struct twi_limit_kind whole; /* of `complete`: its `acquire` is the complete decision */
    bool is_gcra;
    uint64_t calls, fast_calls, denied, admitted;
};

static tw_family *family_with(const char *name, uint32_t shape, const tw_family_options *like) {
    tw_family_options options = *like;
    options.name = name;
    options.limit_shape = shape;
    options.on_full = TW_ON_FULL_REJECT;
    return rig_family_of(&rig, &options);
}

static tw_family *family_of(uint32_t shape) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    return family_with("f", shape, &options);
}

/* Until this thread has a line of its own in the family. */
static void warm(tw_family *family) {
    for (uint32_t i = 0; i < 2500; i++) (void)tw_acquire(family, tw_str("warm"), 1, 100000, NULL);
    rig_settle(&rig);
    assert_non_null(twi_load_acquire(&family->limit_lines));
    assert_true(twi_section_may_be_short());
}

static bool is_fast(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict, tw_status *status) {
    uint32_t looks = twi_thread_self->looks;
    *status = tw_acquire(family, key, n, limit, verdict);
    return twi_thread_self->looks == looks;
}

/* The calls of both families. One in four wants no verdict, one in eight is inside of a section. */
static void call(struct pair *pair, tw_key key, int64_t n, int64_t limit) {
    tw_verdict verdicts[2];
    tw_status got, want;
    bool silent = test_prng_chance(&pair->prng, 1, 4), inside = test_prng_chance(&pair->prng, 1, 8);
    memset(verdicts, 0xa5, sizeof verdicts);
    if (inside) tw_enter(rig.engine);
    pair->fast_calls += is_fast(pair->fast, key, n, limit, silent ? NULL : &verdicts[0], &got);
    if (inside) tw_leave(rig.engine);
    bool answered = twi_load_relaxed(&pair->complete->policy.shadow) || !pair->whole.is_counted;
    twi_hot_acquire *complete = answered ? twi_shadow_acquire : pair->whole.acquire;
    want = complete(pair->complete, key, n, limit, silent ? NULL : &verdicts[1]);
    assert_status(got, want);
    if (!silent) assert_memory_equal(&verdicts[0], &verdicts[1], sizeof verdicts[0]);
    pair->calls++;
    pair->denied += want == TW_DENIED;
    pair->admitted += want == TW_OK;
}

/* Counts change by other calls, too: they fall below 0, in this window and in the one before. */
static void add(struct pair *pair, tw_key key, int64_t window_ms) {
    int64_t delta = test_prng_between(&pair->prng, -30, 30), views[2], start_ms = rig_now(&rig) - window_ms;
    bool late = test_prng_chance(&pair->prng, 1, 2);
    tw_family *families[] = {pair->fast, pair->complete};
    tw_status status[2];
    for (size_t i = 0; i < 2; i++)
        status[i] =
            late ? tw_add_at(families[i], key, start_ms, delta, &views[i]) : tw_add(families[i], key, delta, &views[i]);
    assert_status(status[0], status[1]);
    if (status[0] == TW_OK) assert_i64_equal(views[0], views[1]);
}

/* The next calls rely on a word that lags; the exact clock does not. A denial of a sliding limit has the time of
 * the word or a later one, so that word does not lag here. */
static void lag(struct pair *pair) {
    rig_turn(&rig);
    if (pair->is_gcra) fake_clock_advance_ms(&rig.clock, test_prng_between(&pair->prng, 1, 9));
    (void)twi_and_acqrel(&rig.engine->clock.word, ~TWI_CLOCK_STATE);
}

static void set_both(struct pair *pair, int64_t burst, bool shadow) {
    tw_family *families[] = {pair->fast, pair->complete};
    for (size_t i = 0; i < 2; i++) {
        tw_family_options options = families[i]->options;
        options.burst = burst;
        options.shadow = shadow;
        assert_status(tw_family_set(families[i], &options), TW_OK);
    }
}

static void pass_time(struct pair *pair, int64_t window_ms) {
    (void)twi_or_acqrel(&rig.engine->clock.word, TWI_CLOCK_READ); /* calls read the clock again */
    switch (test_prng_below(&pair->prng, 12)) {
    case 0: rig_pass(&rig, test_prng_between(&pair->prng, 0, 3 * window_ms)); break;
    case 1: fake_clock_advance_ms(&rig.clock, test_prng_between(&pair->prng, 0, window_ms)); break;
    case 2: fake_clock_step_wall_ms(&rig.clock, -test_prng_between(&pair->prng, 1, 4900)); break;
    case 3: fake_clock_step_wall_ms(&rig.clock, test_prng_between(&pair->prng, 1, 4900)); break;
    case 4:
    case 5: lag(pair); break;
    case 6:
    case 7:
    case 8: fake_clock_advance_ms(&rig.clock, test_prng_between(&pair->prng, 0, window_ms / 50)); break;
    default: break; /* it stands */
    }
}

static void check_statistics(const struct pair *pair) {
    struct twi_limit_stats sums[2];
    memset(sums, 0, sizeof sums);
    twi_limit_stats_add(pair->fast, &sums[0]);
    twi_limit_stats_add(pair->complete, &sums[1]);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
}

static void begin(struct pair *pair, uint64_t seed, bool is_gcra, tw_family_options *options) {
    *pair = (struct pair){.is_gcra = is_gcra};
    test_prng_seed(&pair->prng, seed);
    *options = rig_options(NULL, TW_WINDOW_ALIGNED, 0);
    options->window_ms = TEST_PRNG_PICK(&pair->prng, TW_SECOND, 7000, TW_MINUTE, TW_HOUR, TW_DAY);
    if (is_gcra) options->burst = TEST_PRNG_PICK(&pair->prng, 0, 0, 1, 7, 100);
    if (!is_gcra) options->lateness_ms = TEST_PRNG_PICK(&pair->prng, 0, 0, options->window_ms);
    options->history_ms = TEST_PRNG_PICK(&pair->prng, 0, 4 * options->window_ms);
    options->keys_max = (uint64_t)TEST_PRNG_PICK(&pair->prng, 0, 0, 6);
    uint32_t shape = is_gcra ? TW_SHAPE_GCRA : TW_SHAPE_SLIDING;
    pair->fast = family_with("fast", shape, options);
    pair->complete = family_with("complete", shape, options);
    pair->whole = *pair->complete->kind.limit;
    if (!is_gcra) pair->whole.acquire = pair->whole.by_counter;
    pair->complete->kind.limit = &pair->whole;
    warm(pair->fast);
    warm(pair->complete);
}

static void play(uint64_t seed, bool is_gcra) {
    static const char *const names[KEYS] = {"a",
                                            "abc",
                                            "four",
                                            "key-of-17-bytes-1",
                                            "key-of-17-bytes-2",
                                            "eight888",
                                            "a key of 29 bytes, as natural",
                                            "another key",
                                            "a key of more than thirty-two bytes, which is compared at length",
                                            "another one of more than thirty-two bytes",
                                            "k4",
                                            "key5"};
    struct pair pair;
    tw_family_options options;
    begin(&pair, seed, is_gcra, &options);
    int64_t limits[3], window_ms = options.window_ms, burst = options.burst;
    for (size_t i = 0; i < 3; i++) limits[i] = TEST_PRNG_PICK(&pair.prng, 1, 2, 10, 60, 1000, 99991, TW_DELTA_MAX);
    for (uint32_t i = 0; i < STEPS; i++) {
        const char *name = names[test_prng_below(&pair.prng, KEYS)];
        int64_t limit = limits[test_prng_chance(&pair.prng, 1, 16) ? test_prng_below(&pair.prng, 3) : 0];
        int64_t n = TEST_PRNG_PICK(&pair.prng, 1, 1, 1, 1, 1, 2, 3, 0, limit / 4 + 1, limit, limit + 1, -1);
        if (test_prng_chance(&pair.prng, 1, 200)) limit = TEST_PRNG_PICK(&pair.prng, 0, -1, TW_DELTA_MAX + 1);
        call(&pair, tw_str(name), n, limit);
        if (!is_gcra && test_prng_chance(&pair.prng, 1, 8)) add(&pair, tw_str(name), window_ms);
        pass_time(&pair, window_ms);
        if (test_prng_chance(&pair.prng, 1, 100))
            set_both(&pair, is_gcra ? TEST_PRNG_PICK(&pair.prng, 0, burst, 3) : 0, test_prng_chance(&pair.prng, 1, 4));
    }
    check_statistics(&pair);
    assert_true(pair.admitted > STEPS / 50 && pair.fast_calls > STEPS / 50);
}

/* Goal: status, each field of the verdict and each statistic are those of the complete decision. Method: the same
 * calls, drawn from a seed, in two families: known keys and new ones, a full table, limits and bursts that change,
 * amounts out of range, shadow mode, sections, windows that end, a wall clock that is set, and a word of time that
 * lags. */
static void play_all(bool is_gcra) {
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 16; i++) {
        rig_open(&rig);
        play(seed + i, is_gcra);
        rig_close(&rig);
    }
}

/* Goal: how many units are left, and the time until a moment, are the shares that divisions of 128 bits give.
 * Method: edges of room, limit and window, and drawn ones. The room is that of a bucket that is empty now. */
TEST(shares_are_exact) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint32_t i = 0; i < 200000; i++) {
        int64_t limit = TEST_PRNG_PICK(&prng, 1, 2, 3, 1000000, TW_DELTA_MAX - 1, TW_DELTA_MAX,
                                       1 + (int64_t)(test_prng_next(&prng) >> (11 + test_prng_below(&prng, 53))));
        int64_t drawn = (int64_t)(test_prng_next(&prng) >> (7 + test_prng_below(&prng, 57)));
        int64_t room = TEST_PRNG_PICK(&prng, 0, 1, TWI_GCRA_PACE_WINDOW, TWI_GCRA_PACE_WINDOW - 1,
                                      TWI_GCRA_PACE_WINDOW / limit, TWI_GCRA_PACE_WINDOW / limit - 1, drawn);
        struct twi_gcra_pace pace = {.limit = limit, .burst = limit, .most = room};
        twi_wide units = ((twi_wide)(room + 1) * limit + TWI_GCRA_PACE_WINDOW - 1) / TWI_GCRA_PACE_WINDOW - 1;
        assert_i64_equal(twi_gcra_pace_left(&pace), units > limit ? limit : (int64_t)units);
        pace.window_us =
            1000 * TEST_PRNG_PICK(&prng, 1, 1000, 366 * TW_DAY, 1 + (int64_t)test_prng_below(&prng, TW_DAY));
        twi_gcra_pace_set_since(&pace, (int64_t)test_prng_below(&prng, (uint64_t)pace.window_us), true);
        int64_t moment = pace.now + 1 + room;
        twi_wide until_us = ((twi_wide)moment * pace.window_us + TWI_GCRA_PACE_WINDOW - 1) / TWI_GCRA_PACE_WINDOW;
        assert_i64_equal(twi_gcra_pace_until_ms(&pace, moment), (int64_t)((until_us - pace.since_us + 999) / 1000));
    }
}

TEST(gcra_decides_as_the_complete_way) {
    play_all(true);
}

/* Also counts that fall, counts by event time in the window before, and windows before that are packed or not there. */
TEST(sliding_decides_as_the_complete_way) {
    play_all(false);
}

/* Goal: a known key takes the fast way, admitted and denied; a new one, one of another limit, and one whose word is not
 * set in this window do not. */
RIG_TEST(known_keys_of_gcra_take_the_fast_way) {
    tw_family *family = family_of(TW_SHAPE_GCRA);
    tw_verdict verdict;
    tw_status status;
    warm(family);
    assert_false(is_fast(family, tw_str("some key"), 1, 3, &verdict, &status));
    for (int i = 0; i < 2; i++) {
        assert_true(is_fast(family, tw_str("some key"), 1, 3, &verdict, &status));
        assert_status(status, TW_OK);
    }
    assert_true(is_fast(family, tw_str("some key"), 1, 3, &verdict, &status));
    assert_status(status, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 20000);
    assert_false(is_fast(family, tw_str("some key"), 1, 6, &verdict, &status)); /* of another limit */
    assert_status(status, TW_OK);
    rig_pass(&rig, TW_MINUTE);
    assert_false(is_fast(family, tw_str("some key"), 1, 6, &verdict, &status)); /* it continues the window before */
    assert_status(status, TW_OK);
    (void)is_fast(family, tw_str("some key"), 1, 6, &verdict, &status); /* the window becomes `current` */
    assert_true(is_fast(family, tw_str("some key"), 1, 6, &verdict, &status));
}

/* Goal: the same for a sliding limit, in the next window, too. A denial that may end in a moment is the exact
 * clock's. */
RIG_TEST(known_keys_of_a_sliding_limit_take_the_fast_way) {
    tw_family *family = family_of(TW_SHAPE_SLIDING);
    tw_verdict verdict;
    tw_status status;
    warm(family);
    assert_false(is_fast(family, tw_str("some key"), 1, 2, &verdict, &status));
    assert_true(is_fast(family, tw_str("some key"), 1, 2, &verdict, &status));
    assert_status(status, TW_OK);
    assert_true(is_fast(family, tw_str("some key"), 1, 2, &verdict, &status));
    assert_status(status, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, TW_MINUTE + TW_MINUTE / 2);
    rig_pass(&rig, TW_MINUTE + TW_MINUTE / 2);
    assert_false(is_fast(family, tw_str("some key"), 1, 2, &verdict, &status)); /* it is new in this window */
    assert_status(status, TW_OK);
    (void)is_fast(family, tw_str("some key"), 1, 2, &verdict, &status); /* the window becomes `current` */
    assert_status(status, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, TW_MINUTE / 2);
    assert_true(is_fast(family, tw_str("some key"), 1, 2, &verdict, &status));
    assert_status(status, TW_DENIED);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE / 2 - 30);
    assert_false(is_fast(family, tw_str("some key"), 1, 2, &verdict, &status));
    assert_i64_equal(verdict.retry_after_ms, 30);
}

/* Goal: a word of time that nobody keeps denies no call that the clock admits, and shows no time that is over.
 * Method: the limit has been reached in the window before, and calls rely on the word while time passes. */
RIG_TEST(a_late_word_does_not_deny) {
    tw_family *family = family_of(TW_SHAPE_SLIDING);
    tw_verdict verdict;
    tw_status status;
    warm(family);
    assert_status(tw_acquire(family, tw_str("some key"), 2, 2, &verdict), TW_OK);
    rig_pass(&rig, TW_MINUTE + 1000);
    assert_status(tw_acquire(family, tw_str("some key"), 2, 4, &verdict), TW_OK); /* 2 * 59 / 60, rounded up, and 2 */
    for (int i = 0; i < 2; i++) assert_status(tw_acquire(family, tw_str("some key"), 1, 4, &verdict), TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 29000);
    (void)twi_and_acqrel(&rig.engine->clock.word, ~TWI_CLOCK_STATE);
    fake_clock_advance_ms(&rig.clock, 20000);
    assert_true(is_fast(family, tw_str("some key"), 1, 4, &verdict, &status));
    assert_status(status, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 9000);
    (void)twi_and_acqrel(&rig.engine->clock.word, ~TWI_CLOCK_STATE);
    fake_clock_advance_ms(&rig.clock, 9000);
    assert_true(is_fast(family, tw_str("some key"), 1, 4, &verdict, &status));
    assert_status(status, TW_OK);
}

/* Goal: a thread whose last add inserted a key, or that adds to one counter again and again, finds the fast way. */
RIG_TEST(adds_before_it_do_not_matter) {
    tw_family *family = family_of(TW_SHAPE_GCRA), *counts = rig_family(&rig, "counts", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_verdict verdict;
    tw_status status;
    warm(family);
    assert_status(tw_acquire(family, tw_str("some key"), 1, 100, &verdict), TW_OK);
    (void)rig_add(counts, "a new key", 1);
    assert_true(is_fast(family, tw_str("some key"), 1, 100, &verdict, &status));
    for (int i = 0; i < 3000; i++) (void)rig_add(counts, "a new key", 1);
    assert_true(is_fast(family, tw_str("some key"), 1, 100, &verdict, &status));
}

/* Goal: a word that a call in the next window has closed is not changed. Method: the state that such a call leaves is
 * made by hand, while the clock still shows this window. */
RIG_TEST(a_closed_word_does_not_change) {
    tw_family *family = family_of(TW_SHAPE_GCRA);
    tw_verdict verdict;
    warm(family);
    assert_status(tw_acquire(family, tw_str("some key"), 1, 100, &verdict), TW_OK);
    struct twi_call lookup;
    struct twi_place place;
    assert_status(twi_call_begin(&lookup, family, tw_str("some key")), TW_OK);
    assert_status(twi_call_now(&lookup), TW_OK);
    assert_true(twi_place_find(&lookup, &place));
    uint64_t word = twi_or_acqrel(&place.cell->local, TWI_DIRTY) | TWI_DIRTY;
    twi_call_end(&lookup);
    /* The complete decision begins again until the clock has moved. It finds the key in the next window. */
    fake_clock_go(&rig.clock);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE - 50 - rig_now(&rig) % TW_MINUTE);
    assert_status(tw_acquire(family, tw_str("some key"), 1, 100, &verdict), TW_OK);
    assert_i64_equal(verdict.window_start_ms, RIG_START_MS + TW_MINUTE);
    assert_i64_equal(twi_load_relaxed(&place.cell->local), word);
}
