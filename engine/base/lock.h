/* lock.h -- the one door to mutexes: a thread that has to wait for one is away meanwhile (clock.h).
 * So whoever holds a lock for long, or loses the processor with it, stops no engine's time: the background thread may
 * wait for any lock, and callers read the clocks until it has it.
 * Always true: no call that counts on an existing key takes a lock (P9). */
#ifndef TWI_BASE_LOCK_H
#define TWI_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

void twi_lock(pthread_mutex_t *mutex);
bool twi_lock_try(pthread_mutex_t *mutex);
void twi_unlock(pthread_mutex_t *mutex);

#endif
