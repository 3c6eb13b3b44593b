/* keeping_test.c -- the thread that keeps an engine's time: how it is started, that it rests, and what callers do when
 * it does not run.
 * Method: engines with threads of their own, by the system's clocks. */
#include "tests/unit/rig.h"

#include "engine/base/threads.h"
#include "engine/turn/turn.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#define PATIENCE_MS TEST_PATIENCE_MS
#define WINDOW_MS 1000
#define LIMIT 10

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static tw_engine *own_engine(void) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = 4 << 20;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static tw_family *family_of(tw_engine *engine, const char *name) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = WINDOW_MS;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static bool callers_read(void *ctx) {
    return twi_clock_peek_ms(&((tw_engine *)ctx)->clock) < 0;
}

/* ---- resting ----------------------------------------------------------------------------------------------------- */

/* Goal: an engine that nobody calls rests, callers see the time meanwhile, and many calls end the rest, also those that
 * no counter of the thread's sees: acquires.
 * Method: the flag of the clock, which is set while the thread sleeps for long. */
TEST(an_engine_that_nobody_calls_rests) {
    tw_engine *engine = own_engine();
    tw_family *family = family_of(engine, "f");
    assert_true(test_wait(callers_read, engine, PATIENCE_MS));
    for (int call = 0; call < 10; call++) {
        tw_verdict verdict;
        bool rests = callers_read(engine);
        int64_t from_ms = wall_ms();
        assert_status(tw_acquire(family, tw_str("a"), 1, 1000, &verdict), TW_OK);
        int64_t late_ms = from_ms - (verdict.window_start_ms + WINDOW_MS - verdict.reset_after_ms);
        assert_true(late_ms <= 20 || !rests || !callers_read(engine));
        test_sleep_ms(60);
    }
    int64_t end_ms = test_mono_ms() + PATIENCE_MS, relied_on = 0;
    while (relied_on < 100 && test_mono_ms() < end_ms) {
        for (int call = 0; call < 1000; call++) assert_status(tw_acquire(family, tw_str("b"), 0, 1000, NULL), TW_OK);
        relied_on += !callers_read(engine);
    }
    assert_i64_equal(relied_on, 100);
    assert_status(tw_close(engine, 1000), TW_OK);
}

/* ---- a thread that does not run ---------------------------------------------------------------------------------- */

/* The engine's thread has ended, and callers rely on it all the same, as if the system gave it no time. */
static tw_engine *starved_engine(void) {
    tw_engine *engine = own_engine();
    twi_turn_stop_thread(engine);
    (void)twi_and_acqrel(&engine->clock.word, ~TWI_CLOCK_STATE);
    return engine;
}

/* Goal: nobody is denied by a window that is over, however long the thread does not run.
 * Method: a caller that calls once in some milliseconds, so no sample finds it out; it is denied, and asks again. */
TEST(nobody_is_denied_by_a_window_that_is_over) {
    tw_engine *engine = starved_engine();
    tw_family *family = family_of(engine, "f");
    tw_verdict verdict;
    for (int window = 0; window < 2; window++) {
        while (tw_acquire(family, tw_str("user"), 1, LIMIT, &verdict) == TW_OK) continue;
        int64_t start_ms = verdict.window_start_ms;
        test_sleep_ms(WINDOW_MS + 20);                               /* the window ends */
        (void)twi_and_acqrel(&engine->clock.word, ~TWI_CLOCK_STATE); /* callers rely on it again */
        int64_t from_ms = wall_ms();
        assert_status(tw_acquire(family, tw_str("user"), 1, LIMIT, &verdict), TW_OK);
        assert_true(verdict.window_start_ms > start_ms);
        assert_true(verdict.window_start_ms + WINDOW_MS - verdict.reset_after_ms >= from_ms - 20);
    }
    assert_status(tw_close(engine, 1000), TW_OK);
}

/* Goal: the first units of a key go to the window that is open. */
TEST(a_new_key_begins_in_the_window_that_is_open) {
    tw_engine *engine = starved_engine();
    tw_family *family = family_of(engine, "f");
    assert_status(tw_acquire(family, tw_str("user"), 1, LIMIT, NULL), TW_OK);
    test_sleep_ms(2 * WINDOW_MS);
    (void)twi_and_acqrel(&engine->clock.word, ~TWI_CLOCK_STATE);
    tw_verdict verdict;
    int64_t from_ms = wall_ms();
    assert_status(tw_acquire(family, tw_str("another"), 1, LIMIT, &verdict), TW_OK);
    assert_true(verdict.window_start_ms > from_ms - WINDOW_MS - 20);
    assert_status(tw_close(engine, 1000), TW_OK);
}

enum call { ADD, ADD_WITH_VIEW, ADD_NEW, ACQUIRE, GET, PIN, PIN_BLIND, DISTINCT, ADD_MANY, CALLS };

static void call_by(enum call call, tw_family *family, tw_pin *pin) {
    static const tw_key many[8] = {{"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}};
    static uint32_t number;
    int64_t view;
    tw_status status = TW_OK;
    number++;
    switch (call) {
    case ADD: status = tw_add(family, tw_str("a"), 1, NULL); break;
    case ADD_WITH_VIEW: status = tw_add(family, tw_str("a"), 1, &view); break;
    case ADD_NEW: status = tw_add(family, tw_bytes(&number, sizeof number), 1, &view); break;
    case ACQUIRE: status = tw_acquire(family, tw_str("a"), 1, INT64_C(1) << 40, NULL); break;
    case GET: status = tw_get(family, tw_str("a"), &view); break;
    case PIN: status = tw_pin_add(pin, 1, &view); break;
    case PIN_BLIND: status = tw_pin_add(pin, 1, NULL); break;
    case DISTINCT: status = tw_distinct_add(family, tw_str("a"), tw_str("x"), NULL); break;
    case ADD_MANY: status = tw_add_many(family, many, NULL, 8, NULL, NULL); break;
    default: fail();
    }
    assert_status(status, TW_OK);
}

/* Goal: of any kind of call, some thousands find out that nobody keeps the time; all callers read the clocks then.
 * Method: each kind alone, in a window that does not end. */
TEST(calls_of_every_kind_find_out) {
    for (enum call call = ADD; call < CALLS; call++) {
        tw_engine *engine = own_engine();
        tw_family_options options;
        tw_family *family;
        tw_family_options_init(&options);
        options.name = "f";
        options.window = TW_WINDOW_FOREVER;
        options.kind = call == DISTINCT ? TW_KIND_DISTINCT : TW_KIND_COUNTER;
        assert_status(tw_family_open(engine, &options, &family), TW_OK);
        tw_pin *pin = NULL;
        if (call == PIN || call == PIN_BLIND) assert_status(tw_pin_open(family, tw_str("a"), &pin), TW_OK);
        call_by(call, family, pin);
        twi_turn_stop_thread(engine);
        (void)twi_and_acqrel(&engine->clock.word, ~TWI_CLOCK_STATE);
        test_sleep_ms(50);
        for (uint32_t i = 0; i < 2 * TWI_CLOCK_LOOK_EVERY && !callers_read(engine); i++) call_by(call, family, pin);
        if (!callers_read(engine)) fail_msg("calls of kind %d did not look", (int)call);
        if (pin != NULL) tw_pin_close(pin);
        assert_status(tw_close(engine, 1000), TW_OK);
    }
}

/* ---- how threads are started ------------------------------------------------------------------------------------- */

struct seen {
    int policy;
    int processors;
};

static void *see(void *ctx) {
    struct seen *seen = ctx;
    struct sched_param param;
    cpu_set_t set;
    pthread_getschedparam(pthread_self(), &seen->policy, &param);
    if (sched_getaffinity(0, sizeof set, &set) == 0) seen->processors = CPU_COUNT(&set);
    return NULL;
}

static void *start_another(void *ctx) {
    pthread_t thread;
    cpu_set_t set, one;
    struct seen mine = {0};
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set) && CPU_COUNT(&one) == 0) CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &(struct sched_param){.sched_priority = 1}); /* may fail */
    see(&mine);
    assert_int_equal(mine.processors, 1);
    assert_true(twi_own_thread_start(&thread, see, ctx));
    pthread_join(thread, NULL);
    return NULL;
}

/* Goal: a thread of the library's own has neither the real-time priority nor the one processor of who opened it. */
TEST(a_thread_of_our_own_inherits_no_priority_and_no_processor) {
    pthread_t thread;
    struct seen all = {0}, own = {0};
    see(&all);
    pthread_create(&thread, NULL, start_another, &own);
    pthread_join(thread, NULL);
    assert_int_equal(own.policy, all.policy);
#ifdef __GLIBC__
    assert_int_equal(own.processors, all.processors);
#endif
}
