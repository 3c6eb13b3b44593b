/* lock.c -- see lock.h. */
#include "engine/base/lock.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

void twi_lock_make(pthread_mutex_t *mutex, bool is_shared) {
    if (is_shared)
        twi_lock_make_robust(mutex);
    else
        pthread_mutex_init(mutex, NULL);
}

bool twi_lock_try_after(pthread_mutex_t *mutex, bool *has_died) {
    int error = pthread_mutex_trylock(mutex);
    *has_died = error == EOWNERDEAD;
    if (*has_died) pthread_mutex_consistent(mutex);
    return error == 0 || *has_died;
}

bool twi_lock_try(pthread_mutex_t *mutex) {
    bool has_died;
    return twi_lock_try_after(mutex, &has_died);
}

void twi_lock(pthread_mutex_t *mutex) {
    if (twi_lock_try(mutex)) return;
    twi_clock_away();
    int error = pthread_mutex_lock(mutex);
    twi_clock_back();
    if (error == EOWNERDEAD) error = pthread_mutex_consistent(mutex);
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
