/* lock.c -- see lock.h. */
#include "engine/base/lock.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"

bool twi_lock_try(pthread_mutex_t *mutex) {
    return pthread_mutex_trylock(mutex) == 0;
}

void twi_lock(pthread_mutex_t *mutex) {
    if (twi_lock_try(mutex)) return;
    twi_clock_away();
    int error = pthread_mutex_lock(mutex);
    twi_clock_back();
    twi_check(error == 0);
}

void twi_unlock(pthread_mutex_t *mutex) {
    int error = pthread_mutex_unlock(mutex);
    twi_check(error == 0);
}
