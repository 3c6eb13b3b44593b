/* deciding_test.c -- the fast ways of tw_acquire() (acquire_fast.h) answer as twi_acquire_slow() does.
 * Always true: the fast ways begin when the caller has a line for the statistics of limits. In an engine with a thread
 * of its own the time is written down. Both are checked before the comparison begins. */
#include "tests/support/support.h"

#include "engine/core/family.h"
#include "engine/limit/acquire.h"
#include "engine/limit/limit_stats.h"

#include <unistd.h>

#define KEYS 300u

static uint64_t state_of_random;
static uint64_t draw(uint64_t end) {
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state_of_random >> 33) % end;
}

static tw_family *family_of(tw_engine *engine, const char *name, uint64_t keys_expected, bool endless) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window = endless ? TW_WINDOW_FOREVER : TW_WINDOW_ALIGNED;
    options.window_ms = endless ? 0 : 7 * TW_DAY;
    options.keys_expected = keys_expected;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Families whose callers read the clocks when they were warm; the answers are the same. */
static uint32_t warm_without_word;

/* Until this thread has a line of its own there. */
static void warm(tw_family *family, bool hosted) {
    for (uint32_t i = 0; i < 3000; i++) assert_status(tw_acquire(family, tw_str("warm"), 1, 3000, NULL), TW_OK);
    if (hosted) assert_status(tw_turn(family->engine), TW_OK);
    for (uint32_t i = 0; i < 1000 && twi_load_acquire(&family->limit_lines) == NULL; i++) usleep(10000);
    assert_non_null(twi_load_acquire(&family->limit_lines));
    assert_true(twi_section_may_be_short());
    if (hosted) return; /* nobody keeps the time for the callers */
    /* Callers rely on the word after many readings between two refreshes. */
    for (int32_t reads = 0; reads < 10000000 && twi_clock_peek_ms(&family->engine->clock) <= 0; reads++)
        (void)twi_clock_now_ms(&family->engine->clock);
    if (twi_clock_peek_ms(&family->engine->clock) <= 0) warm_without_word++;
}

/* The two calls are made one after the other, so their times may differ. */
static void compare(const tw_verdict *fast, const tw_verdict *slow) {
    tw_verdict same = *slow;
    assert_in_range(slow->reset_after_ms - fast->reset_after_ms + 60000, 0, 120000);
    assert_int_equal(slow->retry_after_ms > 0, fast->retry_after_ms > 0);
    /* Without a clock that is read quickly (valgrind, qemu-user) a tick of the coarse one is added. */
    int64_t grain_ms = test_is_slow() ? 100 : 0;
    if (test_is_emulated()) grain_ms = 100;
    if (fast->retry_after_ms > 0) assert_in_range(fast->retry_after_ms - fast->reset_after_ms, 0, grain_ms);
    if (fast->retry_after_ms > 0) same.retry_after_ms = fast->retry_after_ms;
    same.reset_after_ms = fast->reset_after_ms;
    assert_memory_equal(fast, &same, sizeof same);
}

/* `many_long`: two of three keys have 33 to 96 bytes, else most are short. */
static void play_by(uint64_t keys_expected, bool endless, bool many_long, bool portable, bool hosted) {
    static const int64_t limits[] = {0, 1, 2, 10, 50, 1000, TW_DELTA_MAX, -1, TW_DELTA_MAX + 1};
    static const int64_t amounts[] = {1, 1, 1, 1, 2, 3, 7, 0, 60, TW_DELTA_MAX, -1, TW_DELTA_MAX + 1};
    static const size_t sizes[] = {1, 3, 4, 7, 8, 16, 17, 29, 32, 33, 48, 64, 65, 100, 200};
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(256) << 20;
    options.threads = hosted ? TW_HOST_DRIVEN : TW_OWN_THREAD;
    assert_status(tw_open(&options, &engine), TW_OK);
    if (portable) engine->hashing.fn = twi_hash_sip; /* families choose their fast paths by it */
    tw_family *fast = family_of(engine, "fast", keys_expected, endless);
    tw_family *slow = family_of(engine, "slow", keys_expected, endless);
    warm(fast, hosted);
    warm(slow, hosted);
    uint64_t answers[3] = {0};
    const uint32_t calls = test_is_slow() ? 15000 : 60000;
    for (uint32_t i = 0; i < calls; i++) {
        char key[256];
        uint32_t number = (uint32_t)draw(KEYS);
        size_t size = sizes[number % (sizeof sizes / sizeof *sizes)];
        if (many_long && number % 3 != 0) size = 33 + number % 64;
        memset(key, 'a' + (int)(number % 26), sizeof key);
        memcpy(key + (size > 4 ? size - 4 : 0), &number, size > 4 ? 4 : size);
        int64_t n = amounts[draw(sizeof amounts / sizeof *amounts)],
                limit = limits[draw(sizeof limits / sizeof *limits)];
        if (draw(8) == 0) { /* some counts fall, below 0 too */
            int64_t views[2], delta = (int64_t)draw(30) - 20;
            assert_status(tw_add(fast, tw_bytes(key, size), delta, &views[0]), TW_OK);
            assert_status(tw_add(slow, tw_bytes(key, size), delta, &views[1]), TW_OK);
            assert_i64_equal(views[0], views[1]);
        }
        tw_verdict verdicts[2];
        memset(verdicts, 0xa5, sizeof verdicts);
        bool silent = draw(4) == 0;
        bool inside = draw(8) == 0;
        if (inside) tw_enter(engine);
        tw_status status = tw_acquire(fast, tw_bytes(key, size), n, limit, silent ? NULL : &verdicts[0]);
        if (inside) tw_leave(engine);
        assert_status(twi_acquire_slow(slow, tw_bytes(key, size), n, limit, silent ? NULL : &verdicts[1]), status);
        if (!silent) compare(&verdicts[0], &verdicts[1]);
        answers[status < 0 ? 2 : status]++;
    }
    for (int i = 0; i < 3; i++) assert_true(answers[i] > calls / 100);
    struct twi_limit_stats sums[2];
    memset(sums, 0, sizeof sums);
    twi_limit_stats_add(fast, &sums[0]);
    twi_limit_stats_add(slow, &sums[1]);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
    assert_true(sums[0].near > 100 && sums[0].admitted_here > 1000 && twi_limit_stats_denied(&sums[0]) > 1000);
    assert_status(tw_close(engine, 0), TW_OK);
}

static void play(uint64_t keys_expected, bool endless, bool many_long) {
    for (int hosted = 0; hosted < 2; hosted++) {
        play_by(keys_expected, endless, many_long, false, hosted == 1);
        play_by(keys_expected, endless, many_long, true, hosted == 1);
    }
}

/* Goal: status, each field of the verdict and each statistic are those of the slow path. Method: the same calls, drawn
 * from a seed, on two families: known keys and new ones of every size, near limits, above them, and out of range; also
 * inside a section; by both hashes; in an engine with a thread of its own and in a host-driven one. */
TEST(it_decides_as_the_slow_path) {
    state_of_random = test_seed();
    play(KEYS, false, false);
    play(KEYS, true, false);
    if (test_is_slow()) /* valgrind: the background thread hardly runs */
        test_leave_out(
            "under valgrind and sanitizers the thread that keeps time hardly runs: a build without them runs this");
    else
        assert_int_equal(warm_without_word, 0);
}
TEST(so_it_does_without_an_area) {
    state_of_random = test_seed();
    play(0, false, false);
    play(0, false, true);
}
TEST(so_it_does_in_a_large_window) {
    state_of_random = test_seed();
    play(140000, false, false);
    play(140000, false, true);
}
TEST(so_it_does_where_most_keys_are_long) {
    state_of_random = test_seed();
    play(KEYS, false, true);
}
