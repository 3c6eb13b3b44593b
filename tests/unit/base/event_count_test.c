/* event_count_test.c -- a thread sleeps until another thread signals a change. Compiled twice: with libck's event
 * counts and with our own (event_count_own_test). */
#include "engine/base/clock.h"
#include "engine/base/event_count.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LONG_MS 60000u /* far longer than the machine is ever busy: a wait that lasts so long was not woken */

static int64_t now_ms(void) {
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Goal: who looked before the raise does not sleep, however late it begins to wait. */
TEST(a_count_that_was_raised_is_not_waited_for) {
    struct twi_event_count event;
    twi_event_count_make(&event);
    uint32_t seen = twi_event_count_value(&event);
    twi_event_count_raise(&event);
    assert_true(twi_event_count_value(&event) != seen);
    int64_t began_ms = now_ms();
    twi_event_count_wait(&event, seen, LONG_MS);
    assert_true(now_ms() - began_ms < LONG_MS);
}

/* Goal: without a raise the wait ends at its deadline, not before, and leaves the count as it was. */
TEST(a_wait_without_a_raise_ends_at_its_deadline) {
    struct twi_event_count event;
    twi_event_count_make(&event);
    uint32_t seen = twi_event_count_value(&event);
    int64_t began_ms = now_ms();
    twi_event_count_wait(&event, seen, 30);
    assert_true(now_ms() - began_ms >= 29);
    twi_event_count_wait(&event, seen, 0);
    assert_int_equal(twi_event_count_value(&event), seen);
}

static struct twi_event_count asked, answered;

static void *answer(void *ctx) {
    uint32_t seen = 0;
    for (uint64_t i = 0, rounds = *(const uint64_t *)ctx; i < rounds; i++) {
        while (twi_event_count_value(&asked) == seen) twi_event_count_wait(&asked, seen, LONG_MS);
        seen = twi_event_count_value(&asked);
        twi_event_count_raise(&answered);
    }
    return NULL;
}

/* Goal: no raise is missed. Method: two threads ask and answer; a raise that wakes nobody costs LONG_MS. */
TEST(two_threads_that_ask_and_answer_miss_no_raise) {
    pthread_t thread;
    uint64_t rounds = test_scale(5000);
    twi_event_count_make(&asked);
    twi_event_count_make(&answered);
    assert_int_equal(pthread_create(&thread, NULL, answer, &rounds), 0);
    for (uint64_t i = 0; i < rounds; i++) {
        uint32_t seen = twi_event_count_value(&answered);
        int64_t began_ms = now_ms();
        twi_event_count_raise(&asked);
        twi_event_count_wait(&answered, seen, LONG_MS);
        assert_true(now_ms() - began_ms < LONG_MS);
        assert_true(twi_event_count_value(&answered) != seen);
    }
    pthread_join(thread, NULL);
}

/* Goal: an event in shared memory wakes threads of another process. */
TEST(two_processes_that_ask_and_answer_miss_no_raise) {
    struct twi_event_count *events =
        mmap(NULL, 2 * sizeof *events, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t rounds = test_scale(500);
    assert_true(events != MAP_FAILED);
    twi_event_count_make(&events[0]);
    twi_event_count_make(&events[1]);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) alarm(120); /* it ends also if the parent fails */
    for (uint64_t i = 0; child == 0 && i < rounds; i++) {
        while (twi_event_count_value(&events[0]) <= i) twi_event_count_wait(&events[0], (uint32_t)i, LONG_MS);
        twi_event_count_raise(&events[1]);
    }
    if (child == 0) _exit(0);
    assert_true(child > 0);
    for (uint64_t i = 0; i < rounds; i++) {
        int64_t began_ms = now_ms();
        twi_event_count_raise(&events[0]);
        twi_event_count_wait(&events[1], (uint32_t)i, LONG_MS);
        assert_true(now_ms() - began_ms < LONG_MS);
        assert_int_equal(twi_event_count_value(&events[1]), i + 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap(events, 2 * sizeof *events);
}

#define SLEEPERS 4
static struct twi_event_count woken;
static atomic_int begun;

static void *sleep_long(void *ctx) {
    int64_t began_ms = now_ms();
    atomic_fetch_add(&begun, 1);
    twi_event_count_wait(&woken, 0, LONG_MS);
    *(int64_t *)ctx = now_ms() - began_ms;
    return NULL;
}

/* Goal: one raise wakes every thread that sleeps, and those that are just about to. */
TEST(one_raise_wakes_all) {
    pthread_t threads[SLEEPERS];
    int64_t slept_ms[SLEEPERS];
    twi_event_count_make(&woken);
    atomic_store(&begun, 0);
    for (int i = 0; i < SLEEPERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, sleep_long, &slept_ms[i]), 0);
    while (atomic_load(&begun) != SLEEPERS) sched_yield();
    usleep(10000); /* most of them sleep by now; the test says the same for those that do not */
    twi_event_count_raise(&woken);
    for (int i = 0; i < SLEEPERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(slept_ms[i] < LONG_MS);
    }
}
