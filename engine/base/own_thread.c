/* own_thread.c -- see own_thread.h. */
#include "engine/base/own_thread.h"

#include <sched.h>
#include <signal.h>

#ifdef __GLIBC__
/* The processors that the process had when the library was loaded, as set by taskset or by a service manager. Later
 * the thread that opens the engine may have reserved one of them. */
static cpu_set_t process_cpus;
static bool knows_cpus;

__attribute__((constructor)) static void note_cpus(void) {
    knows_cpus = sched_getaffinity(0, sizeof process_cpus, &process_cpus) == 0;
}

/* The handle is made before the thread exists, because the thread could not run while its opener polls. */
static void take_cpus(pthread_attr_t *attributes) {
    if (knows_cpus) (void)pthread_attr_setaffinity_np(attributes, sizeof process_cpus, &process_cpus);
}
#else
/* musl has no such attribute, so the thread has the processors of its opener. */
static void take_cpus(pthread_attr_t *attributes) {
    (void)attributes;
}
#endif

static bool is_real_time(void) {
    int policy = SCHED_OTHER;
    struct sched_param param;
    if (pthread_getschedparam(pthread_self(), &policy, &param) != 0) return false;
    return policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE;
}

/* An opener that is not real-time may have another policy for a reason (SCHED_IDLE, SCHED_BATCH). That stays. */
static void set_attributes(pthread_attr_t *attributes) {
    if (is_real_time()) {
        (void)pthread_attr_setschedpolicy(attributes, SCHED_OTHER);
        (void)pthread_attr_setschedparam(attributes, &(struct sched_param){.sched_priority = 0});
        (void)pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
    }
    take_cpus(attributes);
}

static bool create(pthread_t *thread, void *(*run)(void *arg), void *arg, bool is_plain) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    if (!is_plain) set_attributes(&attributes);
    int error = pthread_create(thread, &attributes, run, arg);
    (void)pthread_attr_destroy(&attributes);
    return error == 0;
}

bool twi_own_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = create(thread, run, arg, false) || create(thread, run, arg, true);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}
