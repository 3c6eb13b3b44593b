/* hardship.c -- what hosts do to a library: signals all the time, keys of any bytes, floods of keys, any number of
 * threads, sections that never end, calls made twice (faults 44, 49, 50, 52, 53, 54). */
#include "tests/support/fake_driver.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

struct home {
    struct fake_clock clock;
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *family;
};

static void home_init(struct home *home) {
    memset(home, 0, sizeof *home);
    fake_clock_init(&home->clock, INT64_C(1700000000000));
    tw_options_init(&home->options);
    home->options.memory_bytes_max = UINT64_C(64) << 20;
    tw_family_options_init(&home->family_options);
    home->family_options.name = "home";
    home->family_options.window = TW_WINDOW_FOREVER;
}

static void home_open(struct home *home) {
    assert_status(tw_open(&home->options, &home->engine), TW_OK);
    assert_status(tw_family_open(home->engine, &home->family_options, &home->family), TW_OK);
}

struct sums {
    int64_t counters, sum, overflow;
};
static bool sum_up(void *ctx, const tw_count *count) {
    struct sums *sums = ctx;
    if (count->key.size == 0) {
        sums->overflow += count->local;
    } else {
        sums->counters++;
        sums->sum += count->local;
    }
    return true;
}

static struct sums sums_of(struct home *home) {
    struct sums sums = {0, 0, 0};
    assert_status(tw_each(home->family, TW_NOW, sum_up, &sums), TW_OK);
    return sums;
}

/* ---- 44: signals ------------------------------------------------------------------------------------------------- */

static atomic_long signals;
static void on_alarm(int number) {
    atomic_fetch_add(&signals, 1);
}

/* Goal: no call fails and no count is lost because of a signal. Method: a timer of 1 kHz without SA_RESTART. */
TEST(signals_all_the_time_disturb_nothing) {
    struct sigaction action = {.sa_handler = on_alarm}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, &before);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    int64_t added = 0, all = 0;
    for (uint64_t round = 0; round < test_scale(20); round++) {
        struct home home;
        home_init(&home);
        fake_driver_reset(0, 0);
        fake_driver.hold_percent = 50;
        fake_driver_install(&home.options);
        home_open(&home);
        int64_t own = 0;
        for (int i = 0; i < 20000; i++) {
            uint32_t key = (uint32_t)i % FAKE_KEYS;
            assert_status(tw_add(home.family, fake_key(&key), 1, NULL), TW_OK);
            own++;
            if (i % 5000 == 0) assert_status(tw_flush(home.engine, TEST_PATIENCE_MS), TW_OK);
        }
        assert_status(tw_close(home.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(fake_driver_sum(), own);
        added += fake_driver_sum(), all += own;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_i64_equal(added, all);
    assert_true(atomic_load(&signals) > 0);
}

/* ---- 49: twice --------------------------------------------------------------------------------------------------- */

TEST(stopping_twice_is_harmless_and_families_close_as_often_as_opened) {
    struct home home;
    home_init(&home);
    home_open(&home);
    tw_family *again;
    assert_status(tw_family_open(home.engine, &home.family_options, &again), TW_OK);
    assert_ptr_equal(again, home.family);
    assert_status(tw_family_close(again), TW_OK);
    assert_status(tw_add(home.family, tw_str("k"), 1, NULL), TW_OK); /* still open once */
    assert_status(tw_stop(home.engine), TW_OK);
    assert_status(tw_stop(home.engine), TW_OK);
    assert_status(tw_add(home.family, tw_str("k"), 1, NULL), TW_ERR_CLOSED);
    assert_status(tw_flush(home.engine, 10), TW_ERR_CLOSED);
    assert_status(tw_family_open(home.engine, &home.family_options, &again), TW_ERR_CLOSED);
    assert_status(tw_close(home.engine, 100), TW_OK);
    tw_leave(NULL); /* there was no tw_enter() before it */
}

struct beside {
    struct home *home;
    int64_t counted;
    tw_status last;
};
static void *count_until_stopped(void *arg) {
    struct beside *beside = arg;
    uint64_t number = 0;
    do {
        number++;
        beside->last = tw_add(beside->home->family, tw_bytes(&number, sizeof number), 1, NULL);
        beside->counted += beside->last == TW_OK;
        if (beside->last == TW_OVERFLOWED) beside->counted++;
    } while (beside->last >= 0);
    return NULL;
}

/* Goal: tw_stop() next to running calls: each call counts or returns an error, and the hook gets all that was counted
 * at close. */
static int64_t told;
static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms, (void)flags;
    struct sums sums = {0, 0, 0};
    if (tw_each(family, start_ms, sum_up, &sums) != TW_OK) return false;
    told += sums.sum + sums.overflow;
    return true;
}
TEST(stopping_beside_running_calls_loses_nothing) {
    for (uint64_t round = 0; round < test_scale(10); round++) {
        struct home home;
        home_init(&home);
        home.family_options.window = TW_WINDOW_ALIGNED;
        home.family_options.window_ms = TW_HOUR;
        home.family_options.on_window_closed = on_closed;
        home_open(&home);
        told = 0;
        pthread_t threads[4];
        struct beside beside[4];
        for (int i = 0; i < 4; i++) {
            beside[i] = (struct beside){&home, 0, TW_OK};
            assert_int_equal(pthread_create(&threads[i], NULL, count_until_stopped, &beside[i]), 0);
        }
        test_sleep_ms(5);
        assert_status(tw_stop(home.engine), TW_OK);
        int64_t counted = 0;
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            counted += beside[i].counted;
            assert_status(beside[i].last, TW_ERR_CLOSED);
        }
        assert_status(tw_close(home.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(told, counted);
    }
}

static void *open_count_close(void *arg) {
    bool *fine = arg;
    for (int round = 0; round < 20; round++) {
        struct home home;
        home_init(&home);
        home.options.memory_bytes_max = 1 << 20;
        if (tw_open(&home.options, &home.engine) != TW_OK) return NULL;
        if (tw_family_open(home.engine, &home.family_options, &home.family) != TW_OK) return NULL;
        int64_t view = 0;
        for (int i = 0; i < 100; i++) (void)tw_add(home.family, tw_str("k"), 1, &view);
        if (tw_close(home.engine, 1000) != TW_OK || view != 100) return NULL;
    }
    *fine = true;
    return NULL;
}

/* Goal: engines open and close in parallel, and leave nothing behind. */
TEST(engines_come_and_go_in_parallel) {
    int64_t fds = test_fd_count();
    pthread_t threads[6];
    bool fine[6] = {false};
    for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_count_close, &fine[i]), 0);
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        assert_true(fine[i]);
    }
    assert_i64_equal(test_fd_count(), fds);
}

/* ---- 50: a flood of keys ----------------------------------------------------------------------------------------- */

static void check_flood(uint32_t on_full, uint64_t keys_max, uint64_t flood) {
    struct home home;
    home_init(&home);
    home.family_options.on_full = on_full;
    home.family_options.keys_max = keys_max;
    home_open(&home);
    int64_t over = 0, counted = 0, refused = 0, memory = 0;
    for (uint64_t number = 0; number < flood; number++) {
        switch (tw_add(home.family, tw_bytes(&number, sizeof number), 2, NULL)) {
        case TW_OK: counted += 2; break;
        case TW_OVERFLOWED: over += 2; break;
        case TW_ERR_FULL: refused++; break;
        default: fail_msg("neither counted nor refused");
        }
        if (number == 2 * keys_max) memory = test_memory_bytes(home.engine);
    }
    struct sums sums = sums_of(&home);
    assert_i64_equal(sums.counters, keys_max);
    assert_i64_equal(sums.sum, counted);
    assert_i64_equal(sums.overflow, over);
    assert_i64_equal(counted + over + 2 * refused, 2 * (int64_t)flood);
    assert_true(test_memory_bytes(home.engine) == memory);
    assert_i64_equal(test_stat_of(home.engine, rejected_increments), refused);
    assert_status(tw_close(home.engine, 100), TW_OK);
}

/* Goal: memory stays flat and the figures stay right when far more keys come than may be held (P6). */
TEST(a_flood_of_keys_is_counted_or_refused) {
    uint64_t keys_max = test_scale(10000);
    if (keys_max > 100000) keys_max = 100000;
    check_flood(TW_ON_FULL_OVERFLOW, keys_max, keys_max * 100);
    check_flood(TW_ON_FULL_REJECT, keys_max, keys_max * 100);
}

/* ---- 52: keys ---------------------------------------------------------------------------------------------------- */

/* Goal: keys of every length and of any bytes stay apart from keys that differ in one byte or in length. */
TEST(keys_are_any_bytes_of_any_length) {
    struct home home;
    home_init(&home);
    home_open(&home);
    static const unsigned char fills[] = {0x00, 0xff, '\r', '\n', ' ', '{', 'a'};
    unsigned char key[TW_KEY_SIZE_MAX + 1], copy[TW_KEY_SIZE_MAX + 1];
    int64_t view, expected = 0;
    for (size_t fill = 0; fill < sizeof fills; fill++) {
        memset(key, fills[fill], sizeof key);
        for (size_t size = 1; size <= TW_KEY_SIZE_MAX; size++) {
            assert_status(tw_add(home.family, tw_bytes(key, size), (int64_t)size, &view), TW_OK);
            assert_i64_equal(view, size);
            expected += (int64_t)size;
            memcpy(copy, key, size);
            copy[size / 2] ^= 1;
            assert_status(tw_get(home.family, tw_bytes(copy, size), &view), TW_OK);
            assert_i64_equal(view, 0);
        }
        assert_status(tw_add(home.family, tw_bytes(key, 0), 1, NULL), TW_ERR_KEY);
        assert_status(tw_add(home.family, tw_bytes(key, TW_KEY_SIZE_MAX + 1), 1, NULL), TW_ERR_KEY);
        assert_status(tw_get(home.family, tw_bytes(NULL, 5), &view), TW_ERR_KEY);
        bool first;
        assert_status(tw_once(home.family, tw_bytes(key, 0), &first), TW_ERR_KEY);
    }
    struct sums sums = sums_of(&home);
    assert_i64_equal(sums.counters, sizeof fills * TW_KEY_SIZE_MAX);
    assert_i64_equal(sums.sum, expected);
    assert_status(tw_close(home.engine, 100), TW_OK);
}

/* ---- 53: threads ------------------------------------------------------------------------------------------------- */

static void *live_briefly(void *arg) {
    struct home *home = arg;
    (void)tw_add(home->family, tw_str("k"), 1, NULL);
    uint64_t own = (uint64_t)(uintptr_t)&own % 1000;
    (void)tw_add(home->family, tw_bytes(&own, sizeof own), 1, NULL);
    return NULL;
}

/* Goal: any number of threads come and go; each one's counts are kept, and its memory is used again. */
TEST(threads_come_and_go_without_growth) {
    if (test_is_emulated()) {
        test_leave_out("qemu-user holds memory for each thread that ends: run it on an ARM64 machine");
        return;
    }
    struct home home;
    home_init(&home);
    home_open(&home);
    uint64_t rounds = test_scale(3000);
    int64_t resident = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, live_briefly, &home), 0);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        if (round == rounds / 4) resident = test_rss_bytes();
    }
    if (test_is_slow())
        test_leave_out("what a sanitizer holds for threads is counted with ours: a build without one runs this");
    else
        assert_true(test_rss_bytes() < resident + (1 << 20));
    assert_i64_equal(test_stat_of(home.engine, increments), 8 * (int64_t)rounds);
    assert_i64_equal(sums_of(&home).sum, 8 * (int64_t)rounds);
    assert_status(tw_close(home.engine, 100), TW_OK);
}

/* ---- 54: a section without end ----------------------------------------------------------------------------------- */

struct stall {
    struct home *home;
    atomic_int entered, leave;
};
static void *stall_inside(void *arg) {
    struct stall *stall = arg;
    tw_enter(stall->home->engine);
    (void)tw_add(stall->home->family, tw_str("k"), 1, NULL);
    atomic_store(&stall->entered, 1);
    while (!atomic_load(&stall->leave)) test_sleep_ms(1);
    (void)tw_add(stall->home->family, tw_str("late"), 1, NULL); /* time has gone on for this thread, too */
    tw_leave(stall->home->engine);
    return NULL;
}

/* Goal: a section held for 10 s delays the reuse of memory, shows in the gauge, and delays nothing else (E18, E19,
 * E21). */
TEST(a_thread_that_stalls_in_a_section_delays_nothing_but_reuse) {
    struct home home;
    home_init(&home);
    home.options.threads = TW_HOST_DRIVEN;
    fake_clock_install(&home.clock, &home.options);
    home.family_options.window = TW_WINDOW_ALIGNED;
    home.family_options.window_ms = TW_SECOND;
    home.family_options.history_ms = TW_NONE;
    home.family_options.on_window_closed = on_closed;
    home_open(&home);
    told = 0;
    struct stall stall = {.home = &home};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stall_inside, &stall), 0);
    while (!atomic_load(&stall.entered)) test_sleep_ms(1);
    int64_t added = 1;
    int64_t before = 0;
    for (int tenth = 0; tenth < 100; tenth++) { /* ten windows */
        for (uint64_t number = 0; number < 500; number++) {
            assert_status(tw_add(home.family, tw_bytes(&number, sizeof number), 1, NULL), TW_OK);
            added++;
        }
        fake_clock_advance_ms(&home.clock, 100);
        for (int turn = 0; turn < 3; turn++) assert_status(tw_turn(home.engine), TW_OK);
        if (tenth == 15) before = test_memory_bytes(home.engine);
    }
    assert_i64_equal(told, added); /* the hook was called for all ten in time */
    assert_true(test_stat_of(home.engine, sections_oldest_ms) >= 9000);
    int64_t during = test_memory_bytes(home.engine);
    assert_true(during > 2 * before);
    atomic_store(&stall.leave, 1);
    pthread_join(thread, NULL);
    for (int turn = 0; turn < 100; turn++) {
        fake_clock_advance_ms(&home.clock, 30);
        assert_status(tw_turn(home.engine), TW_OK);
    }
    assert_i64_equal(told, added + 1);
    assert_i64_equal(test_stat_of(home.engine, sections_oldest_ms), 0);
    assert_true(test_memory_bytes(home.engine) < during / 2);
    assert_status(tw_close(home.engine, 100), TW_OK);
}
