/* errand.h -- a thread of the test that stands still at a race point, while others run on. A program that includes this
 * brings its own twi_race_nap() in place of engine/base/race_point.c's, so it tests something only in builds with
 * -Drace_points=true.
 * Method: a struct of the test's own begins with a struct errand. Its thread runs a function of the test and stops when
 * it comes to `stop_at`. errand_begin() returns when it is there, errand_end() lets it continue to its end. Before
 * that, errand_go_on() lets it continue to `then_stop_at`, if there is such a place. With
 * `ends` its thread ends at the last of these places (errand_die()).
 * Always true: a thread stops once at each of its two places; other threads never do. */
#ifndef TEST_ERRAND_H
#define TEST_ERRAND_H

#include "engine/base/check.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <sched.h>

static _Thread_local const char *stop_at;   /* at this race point the thread does something, once: */
static _Thread_local void (*call_at)(void); /* it calls this function, */
static _Thread_local atomic_int *gate;      /* or waits until this gate is opened, */
static _Thread_local const char *then_at;   /* and then does so once more here */
static _Thread_local bool ends_there;       /* it ends when the gate of the last place is opened */
enum { GATE_AHEAD, GATE_REACHED, GATE_OPEN };

void twi_race_nap(const char *name) {
    if (stop_at == NULL || strcmp(stop_at, name) != 0) return;
    stop_at = NULL;
    if (gate == NULL) {
        call_at();
        return;
    }
    atomic_store(gate, GATE_REACHED);
    while (atomic_load(gate) != GATE_OPEN) sched_yield();
    if (then_at == NULL && ends_there) pthread_exit(NULL);
    stop_at = then_at;
    then_at = NULL;
}

struct errand {
    const char *stop_at, *then_stop_at; /* the second may be NULL */
    bool ends;
    void (*run)(struct errand *errand);
    pthread_t thread;
    atomic_int gate;
};

static inline void *errand_run(void *arg) {
    struct errand *errand = arg;
    gate = &errand->gate;
    stop_at = errand->stop_at;
    then_at = errand->then_stop_at;
    ends_there = errand->ends;
    errand->run(errand);
    return NULL;
}

static inline void errand_await(struct errand *errand) {
    int64_t deadline = test_mono_ms() + 60000;
    while (atomic_load(&errand->gate) != GATE_REACHED && test_mono_ms() < deadline) sched_yield();
    assert_int_equal(atomic_load(&errand->gate), GATE_REACHED);
}

static inline void errand_begin(struct errand *errand, void (*run)(struct errand *errand)) {
    errand->run = run;
    assert_int_equal(pthread_create(&errand->thread, NULL, errand_run, errand), 0);
    errand_await(errand);
}

static inline void errand_go_on(struct errand *errand) {
    atomic_store(&errand->gate, GATE_OPEN);
    errand_await(errand);
}

static inline void errand_end(struct errand *errand) {
    atomic_store(&errand->gate, GATE_OPEN);
    pthread_join(errand->thread, NULL);
}

/* Its thread ends at `stop_at`. */
static inline void errand_die(struct errand *errand, void (*run)(struct errand *errand)) {
    errand->ends = true;
    errand_begin(errand, run);
    errand_end(errand);
}

#endif
