/* threads.c -- see threads.h. */
#include "engine/base/threads.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- mutexes ---- */

#define NAP_NS 50000
#define NAP_NS_MAX (16 * NAP_NS)

void twi_lock_make(pthread_mutex_t *mutex, bool is_shared) {
    if (is_shared)
        twi_lock_make_robust(mutex);
    else
        pthread_mutex_init(mutex, NULL);
}

#ifdef __GLIBC__
#define OWNER_BITS 0x3fffffff /* FUTEX_TID_MASK: the number of the thread that has it; 1 or 2 if it is not robust */
#define KIND_ROBUST 0x10

static bool is_held(const pthread_mutex_t *mutex) {
    return (__atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) & OWNER_BITS) != 0;
}
static bool is_robust(const pthread_mutex_t *mutex) {
    return (mutex->__data.__kind & KIND_ROBUST) != 0;
}
#else /* others share no mutexes between processes (twi_epoch_share) */
static bool is_held(const pthread_mutex_t *mutex) {
    (void)mutex;
    return false;
}
static bool is_robust(const pthread_mutex_t *mutex) {
    (void)mutex;
    return false;
}
#endif

/* A thread that locks a robust mutex names it to the kernel before. If it is killed then, the kernel gives the mutex
 * free if its owner has the number of that thread. In another namespace of process ids that may be another thread,
 * which lives. So a robust mutex that is held is only looked at. One case is left: such a thread locks the mutex after
 * this one has looked, and this one is killed in the few instructions until it has its answer. */
bool twi_lock_try_after(pthread_mutex_t *mutex, bool *has_died) {
    *has_died = false;
    if (is_held(mutex)) return false;
    int error = pthread_mutex_trylock(mutex);
    *has_died = error == EOWNERDEAD;
    if (*has_died) pthread_mutex_consistent(mutex);
    return error == 0 || *has_died;
}

bool twi_lock_try(pthread_mutex_t *mutex) {
    bool has_died;
    return twi_lock_try_after(mutex, &has_died);
}

/* These mutexes are for figures, families and log lines, so a waiter may sleep a little too long. */
static void await_robust(pthread_mutex_t *mutex) {
    struct timespec nap = {.tv_nsec = NAP_NS};
    while (!twi_lock_try(mutex)) {
        (void)nanosleep(&nap, NULL);
        if (nap.tv_nsec < NAP_NS_MAX) nap.tv_nsec *= 2;
    }
}

void twi_lock(pthread_mutex_t *mutex) {
    if (twi_lock_try(mutex)) return;
    twi_clock_away();
    int error = 0;
    if (is_robust(mutex))
        await_robust(mutex);
    else
        error = pthread_mutex_lock(mutex);
    twi_clock_back();
    twi_check(error == 0);
}

void twi_unlock(pthread_mutex_t *mutex) {
    int error = pthread_mutex_unlock(mutex);
    twi_check(error == 0);
}

void twi_lock_make_robust(pthread_mutex_t *mutex) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    bool made = pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) == 0 && pthread_mutex_init(mutex, &kind) == 0;
    if (!made) pthread_mutex_init(mutex, NULL); /* twi_lock_is_watched() returns false then */
    pthread_mutexattr_destroy(&kind);
}

bool twi_lock_is_watched(void) {
    void *list = NULL;
    size_t size = 0;
    return syscall(SYS_get_robust_list, 0, &list, &size) == 0 && list != NULL;
}

/* ---- threads of the library ---- */

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
