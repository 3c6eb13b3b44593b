/* clock_test.c -- engine time never goes back, follows no leap that does not last, and never waits.
 * Method: a fake clock tries the rules one step at a time; the cached word and the system's clocks run in real time. */
#include "tests/support/support.h"

#include "engine/base/calendar.h"
#include "engine/base/clock.h"
#include "engine/base/threads.h"

#include <pthread.h>

#define START_MS INT64_C(1700000000000)

struct setting {
    struct fake_clock fake;
    struct twi_clock clock;
};

static struct twi_clock *clock_begin(struct setting *setting) {
    fake_clock_init(&setting->fake, START_MS);
    twi_clock_init(&setting->clock, fake_clock_now_ns, &setting->fake, true);
    return &setting->clock;
}

/* Passes `ms` in steps of `step_ms`, reading at each, as a running engine does. */
static void live_through(struct setting *setting, int64_t ms, int64_t step_ms) {
    for (int64_t passed = 0; passed < ms; passed += step_ms) {
        fake_clock_advance_ms(&setting->fake, step_ms);
        twi_clock_now_ms(&setting->clock);
    }
}

static int64_t since_start(struct setting *setting) {
    return twi_clock_now_ms(&setting->clock) - START_MS;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

TEST(time_passes_with_the_wall_clock) {
    static struct setting setting;
    clock_begin(&setting);
    assert_i64_equal(since_start(&setting), 0);
    const int64_t steps_ms[] = {1, 999, 60000, TW_HOUR, 400 * TW_DAY};
    int64_t want = 0;
    for (size_t index = 0; index < sizeof steps_ms / sizeof *steps_ms; index++) {
        fake_clock_advance_ms(&setting.fake, steps_ms[index]);
        assert_i64_equal(since_start(&setting), want += steps_ms[index]);
    }
    assert_i64_equal(twi_clock_held_ms(&setting.clock), 0);
}

TEST(a_forward_step_of_up_to_5_s_is_followed_at_once) {
    static struct setting setting;
    clock_begin(&setting);
    fake_clock_step_wall_ms(&setting.fake, 5000);
    assert_i64_equal(since_start(&setting), 5000);
    fake_clock_step_wall_ms(&setting.fake, 4000);
    assert_i64_equal(since_start(&setting), 9000);
}

/* Goal: E30.
 * Method: for each size of leap, read engine time just before and just after the leap has lasted for 5 s. */
TEST(a_forward_leap_is_believed_when_it_has_stood_for_5_s) {
    const int64_t leaps_ms[] = {5021, TW_MINUTE, TW_HOUR, TW_DAY, 365 * TW_DAY, 10000 * TW_DAY};
    for (size_t index = 0; index < sizeof leaps_ms / sizeof *leaps_ms; index++) {
        static struct setting setting;
        clock_begin(&setting);
        fake_clock_step_wall_ms(&setting.fake, leaps_ms[index]);
        assert_i64_equal(since_start(&setting), 0);
        for (int64_t passed = 100; passed < 5000; passed += 100) {
            fake_clock_advance_ms(&setting.fake, 100);
            assert_i64_equal(since_start(&setting), passed); /* by the monotonic clock alone */
        }
        assert_true(twi_clock_drift_ms(&setting.clock) > TWI_CLOCK_LEAP_MS);
        fake_clock_advance_ms(&setting.fake, 99);
        assert_i64_equal(since_start(&setting), 4999);
        fake_clock_advance_ms(&setting.fake, 1);
        assert_i64_equal(since_start(&setting), 5000 + leaps_ms[index]);
        assert_i64_equal(twi_clock_drift_ms(&setting.clock), 0);
        assert_i64_equal(twi_clock_held_ms(&setting.clock), 5000);
        live_through(&setting, 1000, 10);
        assert_i64_equal(since_start(&setting), 6000 + leaps_ms[index]);
    }
}

TEST(a_leap_that_goes_away_is_forgotten) {
    static struct setting setting;
    clock_begin(&setting);
    for (int64_t round = 0; round < 20; round++) { /* twenty glitches of 4 s: together they have not stood */
        fake_clock_step_wall_ms(&setting.fake, TW_DAY);
        live_through(&setting, 4000, 50);
        fake_clock_step_wall_ms(&setting.fake, -TW_DAY);
        live_through(&setting, 50, 50);
        assert_i64_equal(since_start(&setting), (round + 1) * 4050);
    }
}

TEST(a_leap_of_another_size_begins_its_own_watch) {
    static struct setting setting;
    clock_begin(&setting);
    for (int64_t round = 1; round <= 10; round++) { /* the wall runs off by an hour every 4 s */
        fake_clock_step_wall_ms(&setting.fake, TW_HOUR);
        live_through(&setting, 4000, 100);
        assert_i64_equal(since_start(&setting), round * 4000);
    }
    live_through(&setting, 2000, 100);
    assert_i64_equal(since_start(&setting), 42000 + 10 * TW_HOUR);
}

TEST(a_leap_nobody_looked_at_waits_from_the_first_look) {
    static struct setting setting;
    clock_begin(&setting);
    fake_clock_step_wall_ms(&setting.fake, TW_HOUR);
    fake_clock_advance_ms(&setting.fake, 60000); /* no thread reads: a host that sleeps */
    assert_i64_equal(since_start(&setting), 60000);
    live_through(&setting, 5000, 5000);
    assert_i64_equal(since_start(&setting), 65000 + TW_HOUR);
}

/* ---- back -------------------------------------------------------------------------------------------------------- */

TEST(a_step_back_of_up_to_5_s_is_waited_out) {
    const int64_t steps_ms[] = {1, 500, 5000};
    for (size_t index = 0; index < sizeof steps_ms / sizeof *steps_ms; index++) {
        static struct setting setting;
        clock_begin(&setting);
        live_through(&setting, 1000, 10);
        fake_clock_step_wall_ms(&setting.fake, -steps_ms[index]);
        for (int64_t passed = 0; passed < steps_ms[index]; passed += 1 + passed / 8) {
            int64_t wall = fake_clock_wall_ms(&setting.fake), behind = START_MS + 1000 - wall;
            if (behind <= 0) break;
            assert_i64_equal(since_start(&setting), 1000);
            if (behind > 20) assert_i64_equal(twi_clock_pause_ms(&setting.clock), behind); /* less is noise */
            fake_clock_advance_ms(&setting.fake, 1 + passed / 8);
        }
        live_through(&setting, steps_ms[index], 1 + steps_ms[index] / 100);
        assert_i64_equal(twi_clock_now_ms(&setting.clock), fake_clock_wall_ms(&setting.fake));
        assert_i64_equal(twi_clock_drift_ms(&setting.clock), 0);
        assert_i64_equal(twi_clock_pause_ms(&setting.clock), 0);
    }
}

/* Goal: a wall clock that is set back by an hour neither stops engine time nor is followed. */
TEST(a_greater_step_back_is_no_step_for_engine_time) {
    const int64_t steps_ms[] = {5021, TW_MINUTE, TW_HOUR, TW_DAY, 400 * TW_DAY};
    for (size_t index = 0; index < sizeof steps_ms / sizeof *steps_ms; index++) {
        static struct setting setting;
        clock_begin(&setting);
        live_through(&setting, 1000, 10);
        fake_clock_step_wall_ms(&setting.fake, -steps_ms[index]);
        for (int64_t passed = 0; passed < 30000; passed += 37) {
            assert_i64_equal(since_start(&setting), 1000 + passed);
            assert_i64_equal(twi_clock_pause_ms(&setting.clock), 0);
            fake_clock_advance_ms(&setting.fake, 37);
        }
        fake_clock_advance_ms(&setting.fake, TW_HOUR); /* no thread reads */
        assert_i64_equal(twi_clock_drift_ms(&setting.clock), -steps_ms[index]);
        assert_true(twi_clock_held_ms(&setting.clock) >= 30000 + TW_HOUR);
    }
}

TEST(a_wall_set_right_again_is_followed_again) {
    const int64_t back_ms[] = {4000, 60000}; /* engine time never left the line, and reaches the wall at once */
    for (size_t index = 0; index < 2; index++) {
        static struct setting setting;
        clock_begin(&setting);
        fake_clock_step_wall_ms(&setting.fake, -TW_DAY);
        live_through(&setting, back_ms[index], 100);
        fake_clock_step_wall_ms(&setting.fake, TW_DAY);
        live_through(&setting, 100, 100);
        assert_i64_equal(since_start(&setting), back_ms[index] + 100);
        int64_t held = twi_clock_held_ms(&setting.clock);
        live_through(&setting, 10000, 1000);
        assert_i64_equal(since_start(&setting), back_ms[index] + 10100);
        assert_i64_equal(twi_clock_held_ms(&setting.clock), held); /* the hold is over */
        fake_clock_step_wall_ms(&setting.fake, 3000);
        assert_i64_equal(since_start(&setting), back_ms[index] + 13100);
    }
}

/* Goal: a wall clock that is set back, and then too far forward, does not mislead engine time: only what is ahead of
 * engine time is a leap. */
TEST(a_wall_set_forward_from_behind_is_a_leap_only_beyond_engine_time) {
    static struct setting setting;
    clock_begin(&setting);
    fake_clock_step_wall_ms(&setting.fake, -TW_DAY);
    live_through(&setting, 10000, 100);
    fake_clock_step_wall_ms(&setting.fake, TW_HOUR); /* still 23 hours behind */
    live_through(&setting, 10000, 100);
    assert_i64_equal(since_start(&setting), 20000);
    fake_clock_step_wall_ms(&setting.fake, TW_DAY); /* an hour ahead */
    live_through(&setting, 4900, 100);
    assert_i64_equal(since_start(&setting), 24900);
    live_through(&setting, 300, 100);
    assert_i64_equal(since_start(&setting), 25200 + TW_HOUR);
}

/* Goal: when a step back ends an observation, the same leap later starts a new one. */
TEST(a_leap_after_a_step_back_stands_for_5_s_of_its_own) {
    static struct setting setting;
    clock_begin(&setting);
    fake_clock_step_wall_ms(&setting.fake, TW_HOUR);
    live_through(&setting, 1000, 100);
    fake_clock_step_wall_ms(&setting.fake, -2 * TW_HOUR);
    live_through(&setting, 20000, 100);
    fake_clock_step_wall_ms(&setting.fake, 2 * TW_HOUR);
    live_through(&setting, 4900, 100);
    assert_i64_equal(since_start(&setting), 25900);
    live_through(&setting, 300, 100);
    assert_i64_equal(since_start(&setting), 26200 + TW_HOUR);
}

/* Goal: small steps back that add up stop engine time for no longer than their sum, and many of them not for long. */
TEST(steps_back_that_add_up_are_waited_out_one_at_a_time) {
    static struct setting setting;
    clock_begin(&setting);
    for (int step = 0; step < 100; step++) {
        fake_clock_step_wall_ms(&setting.fake, -4000);
        live_through(&setting, 1000, 100);
    }
    assert_true(since_start(&setting) >= 90000);
    assert_true(twi_clock_drift_ms(&setting.clock) < -TW_MINUTE);
}

TEST(many_steps_back_by_a_millisecond_cost_no_more_than_they_are) {
    static struct setting setting;
    clock_begin(&setting);
    int64_t before = START_MS;
    for (int step = 0; step < 10000; step++) {
        fake_clock_step_wall_ms(&setting.fake, -1);
        int64_t now = twi_clock_now_ms(&setting.clock);
        assert_true(now >= before);
        assert_true(now - fake_clock_wall_ms(&setting.fake) <= 1);
        before = now;
        fake_clock_advance_ms(&setting.fake, 2);
    }
    assert_i64_equal(since_start(&setting), 10000);
}

/* Goal: whatever the clocks do, time never goes back, is never led far astray by what has not stood for 5 s, and never
 * stands still for longer than the small steps back that it waits out.
 * Method: random steps of all sizes. `line` is the furthest ahead of the monotonic clock that engine time ever was;
 * to pass it by more than 15 s (a step of 5 s and the 7.5 s by which a leap may change and still be the same one),
 * the wall must have been beyond it for 5 s. Ahead of the wall it goes no quicker than the monotonic clock. */
TEST(random_steps_never_take_time_back) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    static struct setting setting;
    clock_begin(&setting);
    int64_t before = START_MS, mono = twi_clock_mono_ms(&setting.clock), line = START_MS - mono, beyond_ms = 0;
    int64_t still_ms = 0, waited_for_ms = 0;
    for (uint64_t step = 0; step < test_scale(200000); step++) {
        int64_t passed = test_prng_between(&prng, 0, 50);
        fake_clock_advance_ms(&setting.fake, passed);
        mono += passed;
        beyond_ms += passed;
        if (test_prng_chance(&prng, 1, 200)) {
            int64_t size = INT64_C(1) << test_prng_below(&prng, 34);
            int64_t by_ms = test_prng_between(&prng, -size, size);
            fake_clock_step_wall_ms(&setting.fake, by_ms);
            if (by_ms < 0) waited_for_ms += by_ms < -5000 ? 5000 : -by_ms;
        }
        int64_t wall = fake_clock_wall_ms(&setting.fake), now = twi_clock_now_ms(&setting.clock);
        assert_true(now >= before);
        if (now > before && now > wall) assert_true(now - before <= passed + 20);
        still_ms = now > before ? 0 : still_ms + passed;
        if (now > before) waited_for_ms = 0;
        assert_true(still_ms <= waited_for_ms + 5100);
        if (now - mono - line > 15000) assert_true(beyond_ms >= TWI_CLOCK_STAND_MS);
        if (now - mono > line) line = now - mono;
        if (wall - mono - line <= TWI_CLOCK_LEAP_MS) beyond_ms = 0;
        before = now;
    }
}

static int64_t extreme_wall_ns;
static int64_t extreme_clock_now_ns(void *ctx, int kind) {
    return kind == TW_CLOCK_WALL ? extreme_wall_ns : INT64_C(0);
}

TEST(a_hook_that_answers_nonsense_does_no_harm) {
    const int64_t walls_ns[] = {INT64_MIN, -1, 0, 1, INT64_MAX, -999999, INT64_MIN, INT64_MAX};
    static struct twi_clock clock;
    extreme_wall_ns = INT64_MIN;
    twi_clock_init(&clock, extreme_clock_now_ns, NULL, false);
    assert_i64_equal(twi_clock_now_ms(&clock), INT64_MIN / 1000000 - 1); /* floor */
    int64_t before = twi_clock_now_ms(&clock);
    for (size_t index = 0; index < sizeof walls_ns / sizeof *walls_ns; index++) {
        extreme_wall_ns = walls_ns[index];
        int64_t now = twi_clock_now_ms(&clock);
        assert_true(now >= before);
        before = now;
        twi_clock_refresh(&clock);
        assert_true(twi_clock_held_ms(&clock) >= 0);
    }
}

TEST(time_before_1970_is_time) {
    static struct setting setting;
    fake_clock_init(&setting.fake, -1500);
    twi_clock_init(&setting.clock, fake_clock_now_ns, &setting.fake, false);
    assert_i64_equal(twi_clock_now_ms(&setting.clock), -1500);
    fake_clock_advance_ms(&setting.fake, 1000);
    assert_i64_equal(twi_clock_now_ms(&setting.clock), -500);
    fake_clock_advance_ms(&setting.fake, 1000);
    assert_i64_equal(twi_clock_now_ms(&setting.clock), 500);
}

/* Goal: a caller that only peeks takes the word for a moment if it may rely on it, and else, or before 1970, for one
 * that lies in no window from 1970 on.
 * Method: words with the flag and without, around 1970 and at the ends of the calendar. */
TEST(a_peek_is_the_time_or_in_no_window) {
    static const int64_t times_ms[] = {0, 1, 1500000000000, TWI_CALENDAR_MAX_MS, -1, -1500, TWI_CALENDAR_MIN_MS};
    static struct setting setting;
    fake_clock_init(&setting.fake, 0);
    twi_clock_init(&setting.clock, fake_clock_now_ns, &setting.fake, false);
    for (size_t i = 0; i < sizeof times_ms / sizeof times_ms[0]; i++) {
        twi_store_relaxed(&setting.clock.word, TWI_CLOCK_WORD(times_ms[i]) + TWI_CLOCK_READ);
        assert_true(twi_clock_peek_ms(&setting.clock) < 0);
        twi_store_relaxed(&setting.clock.word, TWI_CLOCK_WORD(times_ms[i]) + TWI_CLOCK_ASKED);
        assert_true(twi_clock_peek_ms(&setting.clock) < 0);
        twi_store_relaxed(&setting.clock.word, TWI_CLOCK_WORD(times_ms[i]));
        if (times_ms[i] >= 0)
            assert_i64_equal(twi_clock_peek_ms(&setting.clock), times_ms[i]);
        else
            assert_true(twi_clock_peek_ms(&setting.clock) > TWI_CALENDAR_MAX_MS + 31 * TW_DAY);
    }
}

/* ---- who reads --------------------------------------------------------------------------------------------------- */

static int hook_calls[2];
static int64_t counting_clock_now_ns(void *ctx, int kind) {
    hook_calls[kind]++;
    return fake_clock_now_ns(ctx, kind);
}

TEST(every_call_asks_the_hook_for_both_clocks) {
    struct fake_clock fake;
    static struct twi_clock clock;
    fake_clock_init(&fake, START_MS);
    twi_clock_init(&clock, counting_clock_now_ns, &fake, true);
    twi_clock_keep(&clock); /* must not make it cached */
    twi_clock_keep(NULL);
    hook_calls[0] = hook_calls[1] = 0;
    for (int call = 0; call < 10; call++) twi_clock_now_ms(&clock);
    assert_i64_equal(hook_calls[TW_CLOCK_WALL], 10);
    assert_i64_equal(hook_calls[TW_CLOCK_MONOTONIC], 10);
    assert_i64_equal(twi_clock_mono_ms(&clock), 1000000);
}

static int64_t wall_ms(void) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return wall.tv_sec * INT64_C(1000) + wall.tv_nsec / 1000000;
}

static bool callers_read(const struct twi_clock *clock) {
    return twi_clock_peek_ms(clock) < 0;
}

/* So many calls that the next ones rely on the word. Another program may take the processor meanwhile. */
static void rely_on(struct twi_clock *clock) {
    for (int round = 0; callers_read(clock); round++) {
        assert_true(round < 1000);
        twi_clock_round();
        for (int call = 0; call < TWI_CLOCK_READINGS; call++) (void)twi_clock_now_ms(clock);
    }
}

TEST(a_clock_with_many_calls_moves_by_its_keeper_only) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    rely_on(&clock);
    int64_t before = twi_clock_now_ms(&clock);
    test_sleep_ms(30);
    assert_i64_equal(twi_clock_now_ms(&clock), before);
    twi_clock_round();
    assert_true(callers_read(&clock));
    int64_t after = twi_clock_now_ms(&clock);
    assert_true(after >= before + 20);
    assert_true(twi_clock_lag_max_ms(&clock) >= 20);
    assert_i64_equal(twi_clock_held_ms(&clock), 0);
    twi_clock_keep(NULL);
}

TEST(a_keeper_that_is_away_leaves_no_lag) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    twi_clock_away();
    int64_t lag = twi_clock_lag_max_ms(&clock), before = twi_clock_now_ms(&clock);
    test_sleep_ms(30);
    assert_true(twi_clock_now_ms(&clock) >= before + 20);
    twi_clock_away(); /* a lock that is waited for inside a hook */
    twi_clock_back();
    assert_true(callers_read(&clock));
    twi_clock_back();
    assert_i64_equal(twi_clock_lag_max_ms(&clock), lag);
    rely_on(&clock);
    before = twi_clock_now_ms(&clock);
    test_sleep_ms(20);
    assert_i64_equal(twi_clock_now_ms(&clock), before);
    twi_clock_keep(NULL);
}

/* Goal: a keeper that does not run is found out by whoever looks, for all callers; when it is back, they rely on it
 * again.
 * Method: a clock that nobody refreshes for 30 ms, and one look at it. Only the look costs a reading. */
TEST(whoever_finds_the_word_late_makes_all_callers_read) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    rely_on(&clock);
    twi_clock_keep(NULL);
    int64_t before = twi_clock_now_ms(&clock);
    test_sleep_ms(30);
    assert_i64_equal(twi_clock_now_ms(&clock), before);
    twi_clock_look(&clock);
    assert_true(callers_read(&clock));
    assert_true(twi_clock_now_ms(&clock) >= before + 20);
    assert_true(twi_clock_lag_max_ms(&clock) >= 20);
    test_sleep_ms(30);
    assert_true(twi_clock_now_ms(&clock) >= before + 50);
    twi_clock_keep(&clock);
    rely_on(&clock);
    twi_clock_keep(NULL);
}

/* Goal: callers rely on the word after many readings in a short time, never after as many that were rare. So a call
 * needs no keeper if few calls came before it.
 * Method: a keeper that does not run after a refresh, and readings that take longer than its next one would. */
TEST(rare_readings_rely_on_nobody) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    twi_clock_keep(NULL);
    for (int call = 0; call < 4 * TWI_CLOCK_READINGS; call++) {
        if (call % (TWI_CLOCK_READINGS / 4) == 0) test_sleep_ms(30);
        int64_t before_ms = wall_ms();
        assert_true(twi_clock_now_ms(&clock) >= before_ms - 20);
    }
    assert_true(callers_read(&clock));
}

/* Goal: whoever knows that the keeper may have ended says so, and callers read the clocks until there is one. */
TEST(a_distrusted_word_is_read) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    rely_on(&clock);
    twi_clock_distrust(&clock);
    for (int call = 0; call < 4 * TWI_CLOCK_READINGS; call++) (void)twi_clock_now_ms(&clock);
    assert_true(callers_read(&clock));
    rely_on(&clock);
    twi_clock_keep(NULL);
}

/* Goal: an iteration that lasts is noticed while it lasts, and callers read the clocks until it has ended, whatever it
 * does meanwhile.
 * Method: a keeper works and ticks, then continues without a tick for 30 ms. */
TEST(callers_read_while_an_iteration_is_long) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    rely_on(&clock);
    for (int64_t end_ms = test_mono_ms() + 5000; !callers_read(&clock) && test_mono_ms() < end_ms;) twi_clock_tick();
    assert_true(callers_read(&clock));
    int64_t before = twi_clock_now_ms(&clock);
    test_sleep_ms(30);
    assert_true(twi_clock_now_ms(&clock) >= before + 20);
    for (int call = 0; call < 2 * TWI_CLOCK_READINGS; call++) (void)twi_clock_now_ms(&clock);
    assert_true(callers_read(&clock));
    rely_on(&clock);
    twi_clock_keep(NULL);
}

TEST(a_clock_that_is_abandoned_is_read) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_abandon(&clock);
    int64_t before = twi_clock_now_ms(&clock);
    test_sleep_ms(30);
    assert_true(twi_clock_now_ms(&clock) >= before + 20);
    twi_clock_refresh(&clock); /* a turn of tw_close() */
    assert_true(callers_read(&clock));
}

/* Goal: a thread that waits for a lock is unreachable.
 * Method: another thread holds the lock until the clock of the one that wants it says so. */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_held, is_relied_on;
static void *hold_until_waited_for(void *ctx) {
    const struct twi_clock *clock = ctx;
    twi_lock(&held);
    while (!atomic_load(&is_relied_on)) test_sleep_ms(1);
    atomic_store(&is_held, true);
    for (int64_t end_ms = test_mono_ms() + 5000; !callers_read(clock) && test_mono_ms() < end_ms;) test_sleep_ms(1);
    bool was_away = callers_read(clock);
    twi_unlock(&held);
    return was_away ? ctx : NULL;
}
TEST(a_keeper_that_waits_for_a_lock_is_away) {
    static struct twi_clock clock;
    pthread_t thread;
    void *was_away;
    twi_clock_init(&clock, NULL, NULL, true);
    twi_clock_keep(&clock);
    pthread_create(&thread, NULL, hold_until_waited_for, &clock);
    rely_on(&clock);
    atomic_store(&is_relied_on, true);
    while (!atomic_load(&is_held)) test_sleep_ms(1);
    twi_lock(&held);
    rely_on(&clock);
    twi_unlock(&held);
    pthread_join(thread, &was_away);
    assert_non_null(was_away);
    twi_clock_keep(NULL);
}

/* Goal: the exact clock shows what the caller can see, to the microsecond, and engine time is then no earlier. */
TEST(the_exact_clock_is_now_and_moves_engine_time) {
    for (int cached = 0; cached < 2; cached++) {
        static struct twi_clock clock;
        twi_clock_init(&clock, NULL, NULL, cached == 1);
        for (int look = 0; look < 2000; look++) {
            struct timespec from, to;
            clock_gettime(CLOCK_REALTIME, &from);
            int64_t exact_us = twi_clock_exact_us(&clock);
            clock_gettime(CLOCK_REALTIME, &to);
            int64_t grain_us = 4 * clock.grain_ms * 1000; /* ticks are late on a busy machine */
            assert_true(exact_us >= (int64_t)from.tv_sec * 1000000 + from.tv_nsec / 1000 - grain_us);
            assert_true(exact_us <= (int64_t)to.tv_sec * 1000000 + to.tv_nsec / 1000);
            assert_true(twi_clock_now_ms(&clock) >= exact_us / 1000);
            if (look % 100 == 0) test_sleep_ms(1);
        }
    }
}

/* Goal: with a hook, and while the wall clock is not followed, the exact clock runs as engine time does. */
TEST(the_exact_clock_follows_engine_time) {
    static struct setting setting;
    clock_begin(&setting);
    assert_i64_equal(setting.clock.grain_ms, 0);
    fake_clock_advance_ms(&setting.fake, 7);
    assert_i64_equal(twi_clock_exact_us(&setting.clock), (START_MS + 7) * 1000);
    atomic_fetch_add(&setting.fake.wall_ns, 1500);
    atomic_fetch_add(&setting.fake.mono_ns, 1500);
    assert_i64_equal(twi_clock_exact_us(&setting.clock), (START_MS + 7) * 1000 + 1);
    fake_clock_step_wall_ms(&setting.fake, -TW_HOUR);
    atomic_fetch_add(&setting.fake.mono_ns, 998000);
    assert_i64_equal(twi_clock_exact_us(&setting.clock), (START_MS + 7) * 1000 + 999);
    fake_clock_step_wall_ms(&setting.fake, TW_HOUR + TW_DAY); /* a leap is not followed at once either */
    fake_clock_advance_ms(&setting.fake, 3);
    assert_i64_equal(twi_clock_exact_ms(&setting.clock), START_MS + 10);
    assert_i64_equal(twi_clock_now_ms(&setting.clock), START_MS + 10);
}

/* Goal: without a quick fine clock the coarse one serves, and the grain says so. */
TEST(without_a_fine_clock_the_coarse_one_serves) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, false);
    clock.grain_ms = 5;
    for (int look = 0; look < 50; look++, test_sleep_ms(1)) {
        int64_t before_ms = wall_ms(), exact_us = twi_clock_exact_us(&clock);
        assert_i64_equal(exact_us % 1000, 0);
        assert_true(exact_us / 1000 >= before_ms - 11 && exact_us / 1000 <= wall_ms() + 1);
    }
}

TEST(a_host_driven_clock_always_reads) {
    static struct twi_clock clock;
    twi_clock_init(&clock, NULL, NULL, false);
    int64_t before = twi_clock_now_ms(&clock), mono = twi_clock_mono_ms(&clock);
    test_sleep_ms(30);
    int64_t passed = twi_clock_now_ms(&clock) - before;
    assert_true(passed >= 20);
    assert_true(twi_clock_mono_ms(&clock) - mono >= 20);
    /* between two readings of the wall, however long the processor was elsewhere */
    int64_t from_ms = wall_ms(), now_ms = twi_clock_now_ms(&clock), to_ms = wall_ms();
    assert_true(now_ms > from_ms - 1000 && now_ms <= to_ms + 1);
}

/* ---- many threads ------------------------------------------------------------------------------------------------ */

struct watchers {
    struct twi_clock clock;
    struct fake_clock fake;
    _Atomic int64_t last_ms; /* the greatest time any thread has returned with */
    _Atomic bool stop;
    _Atomic int64_t went_back;
    _Atomic int64_t reads;
};

/* No thread has read a greater time before this read began. */
static void *watch_time(void *ctx) {
    struct watchers *watchers = ctx;
    while (!atomic_load(&watchers->stop)) {
        int64_t seen = atomic_load(&watchers->last_ms);
        int64_t now = twi_clock_now_ms(&watchers->clock);
        if (now < seen) atomic_fetch_add(&watchers->went_back, 1);
        while (seen < now && !atomic_compare_exchange_weak(&watchers->last_ms, &seen, now)) continue;
        atomic_fetch_add(&watchers->reads, 1);
    }
    return NULL;
}

static void watchers_begin(struct watchers *watchers, pthread_t threads[2]) {
    atomic_init(&watchers->last_ms, INT64_MIN);
    atomic_init(&watchers->stop, false);
    atomic_init(&watchers->went_back, 0);
    atomic_init(&watchers->reads, 0);
    for (int index = 0; index < 2; index++) pthread_create(&threads[index], NULL, watch_time, watchers);
    while (atomic_load(&watchers->reads) == 0) continue;
}

static void watchers_end(struct watchers *watchers, pthread_t threads[2]) {
    atomic_store(&watchers->stop, true);
    for (int index = 0; index < 2; index++) pthread_join(threads[index], NULL);
    assert_i64_equal(atomic_load(&watchers->went_back), 0);
}

TEST(no_thread_sees_time_go_back_while_the_wall_leaps) {
    static struct watchers watchers;
    struct test_prng prng;
    pthread_t threads[2];
    test_prng_seed(&prng, test_seed());
    fake_clock_init(&watchers.fake, START_MS);
    twi_clock_init(&watchers.clock, fake_clock_now_ns, &watchers.fake, false);
    watchers_begin(&watchers, threads);
    for (uint64_t step = 0; step < test_scale(200000); step++) {
        fake_clock_advance_ms(&watchers.fake, test_prng_between(&prng, 0, 20));
        if (test_prng_chance(&prng, 1, 50)) {
            fake_clock_step_wall_ms(&watchers.fake, test_prng_between(&prng, -TW_HOUR, TW_HOUR));
        }
    }
    watchers_end(&watchers, threads);
    assert_true(atomic_load(&watchers.last_ms) >= START_MS);
}

/* Goal: switching between cached and direct reading takes no thread back in time. */
TEST(no_thread_sees_time_go_back_while_the_cache_is_switched) {
    static struct watchers watchers;
    pthread_t threads[2];
    twi_clock_init(&watchers.clock, NULL, NULL, true);
    twi_clock_keep(&watchers.clock);
    watchers_begin(&watchers, threads);
    int64_t end = test_mono_ms() + 300;
    for (bool on = true; test_mono_ms() < end; on = !on) {
        if (on) twi_clock_away();
        for (int turn = 0; turn < 50; turn++) twi_clock_refresh(&watchers.clock);
        if (on) twi_clock_back();
    }
    twi_clock_keep(NULL);
    watchers_end(&watchers, threads);
}
