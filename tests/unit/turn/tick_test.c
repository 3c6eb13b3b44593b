/* tick_test.c -- the time of a host-driven engine: calls use the time that the last tick, turn or call has read, as
 * long as it is young, and no call counts in a window that ended more than a second ago, whatever the host does.
 * Method: the system's clocks. Where a test must know which time a call has used, it sets the word of the clock back by
 * five seconds, and says by its stamp that it is young, or not.
 * Covers: engine/turn/turn.c, engine/base/clock.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/family.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define BACK_MS 5000
#define TRIES 200 /* a busy machine takes the processor away between two steps */
#define LIMIT TW_DELTA_MAX

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static tw_engine *engine_of(uint32_t threads, uint32_t shared) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(32) << 20;
    options.threads = threads;
    options.shared = shared;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static tw_family *family_of(tw_engine *engine, int64_t window_ms) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = "f";
    options.window_ms = window_ms;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Fast functions decide when the thread has a line for the statistics of limits. */
static void warm(tw_engine *engine, tw_family *family) {
    for (int i = 0; i < 3000; i++) assert_status(tw_acquire(family, tw_str("a key"), 1, LIMIT, NULL), TW_OK);
    assert_status(tw_turn(engine), TW_OK);
    assert_non_null(twi_load_acquire(&family->limit_lines));
}

static void set_back(tw_engine *engine) {
    twi_store_relaxed(&engine->clock.word, TWI_CLOCK_WORD(wall_ms() - BACK_MS) + TWI_CLOCK_READ);
}

/* As if no time had passed since the clocks were read. */
static void make_young(tw_engine *engine) {
    twi_store_release(&engine->clock.stamp, twi_clock_stamp());
}

/* Returns true if the call used the time that was set back. */
static bool uses_old_time(tw_family *family) {
    tw_verdict verdict;
    int64_t from_ms = wall_ms();
    assert_status(tw_acquire(family, tw_str("a key"), 1, LIMIT, &verdict), TW_OK);
    int64_t used_ms = verdict.window_start_ms + family->rule.window_ms - verdict.reset_after_ms;
    return used_ms < from_ms - BACK_MS / 2;
}

static bool is_set_back(const tw_engine *engine) {
    return twi_clock_time_of(twi_load_relaxed(&engine->clock.word)) < wall_ms() - BACK_MS / 2;
}

/* A window in whose middle the time is, with a key that is there. */
static tw_engine *begin(tw_family **family) {
    tw_engine *engine = engine_of(TW_HOST_DRIVEN, TW_SHARED_NO);
    *family = family_of(engine, 1000 * TW_DAY);
    warm(engine, *family);
    return engine;
}

#define NEEDS_STAMPS "no steady time stamp counter, or not x86-64: run it on another machine"

/* ---- which time a call uses -------------------------------------------------------------------------------------- */

/* Goal: calls use the word while it is young, but at most 64 of a thread in a row, and no call uses one that is not.
 * Method: the stamp is renewed before each call, as if no time passed, and is then left alone. */
TEST(a_call_uses_a_young_word_and_no_other) {
    tw_family *family;
    tw_engine *engine = begin(&family);
    if (!engine->clock.has_stamps) {
        test_leave_out(NEEDS_STAMPS);
    } else {
        int used = 0, most = 0;
        for (int tries = 0; tries < TRIES; tries++) {
            set_back(engine);
            int in_row = 0;
            for (bool is_old = true; is_old; in_row += is_old) {
                make_young(engine);
                is_old = uses_old_time(family);
            }
            assert_true(in_row <= 64);
            if (in_row > most) most = in_row;
            used += in_row != 0;
        }
        assert_true(used > TRIES / 2 && most > 32);
    }
    for (int tries = 0; tries < TRIES; tries++) {
        set_back(engine);
        twi_store_release(&engine->clock.stamp, twi_clock_stamp() - 1);
        assert_false(uses_old_time(family));
    }
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: calls of the other kinds use it, too.
 * Method: adds and distinct adds end with the word still set back. A call that reads the clock moves it. */
TEST(every_fast_call_uses_a_young_word) {
    tw_family *family;
    tw_engine *engine = begin(&family);
    if (!engine->clock.has_stamps) {
        test_leave_out(NEEDS_STAMPS);
    } else {
        static const char *const keys[] = {"a key", "a key of more than thirty-two bytes: fast",
                                           "a key of 20 bytes..."};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            int64_t view;
            int used[2] = {0};
            assert_status(tw_acquire(family, tw_str(keys[i]), 1, LIMIT, NULL), TW_OK);
            assert_status(tw_add(family, tw_str(keys[i]), 1, &view), TW_OK);
            for (int tries = 0; tries < TRIES; tries++) {
                set_back(engine);
                make_young(engine);
                assert_status(tw_add(family, tw_str(keys[i]), 1, &view), TW_OK);
                used[0] += is_set_back(engine);
                set_back(engine);
                make_young(engine);
                assert_status(tw_acquire(family, tw_str(keys[i]), 1, LIMIT, NULL), TW_OK);
                used[1] += is_set_back(engine);
            }
            assert_true(used[0] > TRIES / 2 && used[1] > TRIES / 2);
        }
    }
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: a tick and a turn read the time, and calls use it. Nothing of this counts as a lag of the clock, however long
 * the host was idle. */
TEST(a_tick_and_a_turn_read_the_time) {
    tw_family *family;
    tw_engine *engine = begin(&family);
    for (int turns = 0; turns < 2; turns++) {
        int young = 0;
        for (int tries = 0; tries < TRIES; tries++) {
            int64_t now_ms;
            twi_store_release(&engine->clock.stamp, TWI_CLOCK_NO_STAMP);
            set_back(engine);
            if (turns == 1)
                assert_status(tw_turn(engine), TW_OK);
            else
                tw_tick(engine);
            young += twi_clock_is_young(&engine->clock, &now_ms) && now_ms > wall_ms() - BACK_MS / 2;
            assert_false(is_set_back(engine));
        }
        if (engine->clock.has_stamps) assert_true(young > TRIES / 2);
    }
    test_sleep_ms(100);
    tw_tick(engine);
    assert_status(tw_acquire(family, tw_str("a key"), 1, LIMIT, NULL), TW_OK);
    assert_i64_equal(twi_clock_lag_max_ms(&engine->clock), 0);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- where a tick does nothing ----------------------------------------------------------------------------------- */

static bool tick_does_nothing(tw_engine *engine) {
    const int64_t word = twi_load_relaxed(&engine->clock.word);
    twi_store_release(&engine->clock.stamp, TWI_CLOCK_NO_STAMP);
    test_sleep_ms(20);
    tw_tick(engine);
    return twi_load_relaxed(&engine->clock.stamp) == TWI_CLOCK_NO_STAMP &&
           twi_load_relaxed(&engine->clock.word) == word;
}

TEST(a_tick_does_nothing_where_it_has_no_meaning) {
    tw_tick(NULL);
    tw_options options;
    tw_engine *engine;
    struct fake_clock fake;
    fake_clock_init(&fake, INT64_C(1700000000000));
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(32) << 20;
    options.threads = TW_HOST_DRIVEN;
    fake_clock_install(&fake, &options);
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, TW_SECOND);
    int64_t view;
    assert_status(tw_add(family, tw_str("a key"), 1, &view), TW_OK);
    fake_clock_advance_ms(&fake, 5000);
    assert_true(tick_does_nothing(engine));
    fake_clock_advance_ms(&fake, 5000);
    for (int64_t i = 1; i <= 200; i++, fake_clock_advance_ms(&fake, 1000)) { /* every call asks the hook */
        assert_status(tw_add(family, tw_str("a key"), 1, &view), TW_OK);
        assert_i64_equal(view, 1);
        tw_tick(engine);
    }
    assert_status(tw_close(engine, 0), TW_OK);

    engine = engine_of(TW_HOST_DRIVEN, TW_SHARED_NO);
    assert_status(tw_stop(engine), TW_OK);
    assert_true(tick_does_nothing(engine));
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: in a child the engine is the parent's until the child calls, and the first tick after that works.
 * Method: the parent's word is in memory that the child shares, or has a copy of. */
TEST(a_tick_in_a_forked_child_waits_for_its_first_call) {
    if (test_misses_wiped_pages()) return;
    tw_family *family;
    tw_engine *engine = begin(&family);
    pid_t pid = child_fork(60);
    if (pid == 0) {
        int64_t view;
        if (!tick_does_nothing(engine)) _exit(1);
        if (tw_add(family, tw_str("a key"), 1, &view) != TW_OK || view != 1) _exit(2);
        set_back(engine);
        tw_tick(engine);
        _exit(is_set_back(engine) ? 3 : 0);
    }
    child_expect_end(pid);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- no call is late --------------------------------------------------------------------------------------------- */

/* How a host ticks and calls: again and again so many calls, and then a pause. */
struct pace {
    enum { NEVER, ONCE, BEFORE, AFTER } ticks; /* once: at the start; the others: each burst */
    int burst;
    int64_t pause_ms;
};
static const struct pace paces[] = {{NEVER, 1, 1000}, {ONCE, 1, 1000}, {ONCE, 500, 1300}, {BEFORE, 500, 700},
                                    {ONCE, 1, 30},    {AFTER, 1, 1},   {AFTER, 100, 40},  {ONCE, 1, 0}};
#define PACES (sizeof paces / sizeof *paces)
#define LAST_MS 3500

struct caller {
    tw_engine *engine;
    tw_family *family;
    struct pace pace;
    int64_t calls, late_ms;
};

static void call_once(struct caller *caller) {
    tw_verdict verdict;
    int64_t from_ms = wall_ms();
    if (tw_acquire(caller->family, tw_str("a key"), 1, LIMIT, &verdict) != TW_OK) abort();
    int64_t late_ms = from_ms - (verdict.window_start_ms + caller->family->rule.window_ms);
    if (late_ms > caller->late_ms) caller->late_ms = late_ms;
    caller->calls++;
}

/* Until this thread has a line for the statistics of limits. */
static void warm_thread(struct caller *caller) {
    for (;; (void)tw_turn(caller->engine)) {
        for (int i = 0; i < 1100; i++) call_once(caller);
        const struct twi_limit_lines *lines = twi_load_acquire(&caller->family->limit_lines);
        if (lines != NULL && twi_thread_self->shard < lines->count) break;
    }
    caller->calls = 0;
}

static void *call(void *ctx) {
    struct caller *caller = ctx;
    warm_thread(caller);
    int64_t end_ms = test_mono_ms() + LAST_MS;
    if (caller->pace.ticks != NEVER) tw_tick(caller->engine);
    while (test_mono_ms() < end_ms || caller->calls < 3) {
        if (caller->pace.ticks == BEFORE) tw_tick(caller->engine);
        for (int i = 0; i < caller->pace.burst; i++) call_once(caller);
        if (caller->pace.ticks == AFTER) tw_tick(caller->engine); /* before it sleeps, which is the wrong moment */
        if (caller->pace.pause_ms != 0) test_sleep_ms((uint32_t)caller->pace.pause_ms);
    }
    return NULL;
}

/* Goal: no call counts in a window that ended more than a second ago: whenever the host ticks or stops to tick, at any
 * rate of calls, with threads that tick and threads that do not, in one engine and in several.
 * Method: each pace is that of a thread with an engine of its own, and of a thread of an engine that all share. */
TEST(no_call_is_late) {
    static struct caller callers[2 * PACES]; /* threads still run if one of them is late */
    pthread_t threads[2 * PACES];
    tw_engine *common = engine_of(TW_HOST_DRIVEN, TW_SHARED_NO);
    tw_family *family = family_of(common, TW_SECOND);
    for (size_t i = 0; i < 2 * PACES; i++) {
        callers[i] = (struct caller){.engine = common, .family = family, .pace = paces[i / 2]};
        if (i % 2 == 1) callers[i].engine = engine_of(TW_HOST_DRIVEN, TW_SHARED_NO);
        if (i % 2 == 1) callers[i].family = family_of(callers[i].engine, TW_SECOND);
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < 2 * PACES; i++) {
        pthread_join(threads[i], NULL);
        if (callers[i].late_ms > 1000) fail_msg("pace %zu: late by %lld ms", i / 2, (long long)callers[i].late_ms);
        if (i % 2 == 1) assert_status(tw_close(callers[i].engine, 0), TW_OK);
    }
    assert_status(tw_close(common, 0), TW_OK);
}
