/* threads.h -- the only file that locks mutexes, and that starts threads of the library.
 * Always true: no thread sleeps in the kernel for a robust mutex, nor tries one that it sees held (threads.c). No call
 * that counts on an existing key locks a mutex (P9). */
#ifndef TWI_BASE_THREADS_H
#define TWI_BASE_THREADS_H

#include <pthread.h>
#include <stdbool.h>

/* ---- mutexes ----
 * A thread that waits for one counts as blocked meanwhile (clock.h). So a thread that keeps a lock for long, or loses
 * the processor with it, stops no engine's time. The background thread may wait for any lock, and callers read the
 * clocks until it has it. */

/* `is_shared` means that processes share it. The next process gets it if its owner dies. */
void twi_lock_make(pthread_mutex_t *mutex, bool is_shared);
void twi_lock(pthread_mutex_t *mutex);
/* Returns false if another thread has it. Otherwise this thread has it now. */
bool twi_lock_try(pthread_mutex_t *mutex);
/* The same. *has_died shows whether its last owner ended without unlocking it, which only a robust one reports. */
bool twi_lock_try_after(pthread_mutex_t *mutex, bool *has_died);
void twi_unlock(pthread_mutex_t *mutex);

/* A mutex that a thread keeps for its life. The kernel frees it when the thread ends, however it ends, in any process
 * that maps it. The memory of the mutex must stay mapped as long as threads live that have it. */
void twi_lock_make_robust(pthread_mutex_t *mutex);
/* For a thread that has such a mutex. Returns true if the kernel frees it when this thread ends. Some kernels and
 * sandboxes refuse that. */
bool twi_lock_is_watched(void);

/* ---- threads of the library ----
 * the background thread, the auditor, the thread of the watch socket, the thread that looks up a host name.
 * These threads inherit no signals (signals belong to the host), no real-time priority and no processor mask from the
 * thread that opened the engine. If a thread inherited SCHED_FIFO and a mask of one processor, it would wait for as
 * long as its opener polls there. The threads run on the processors that the process had when the library was loaded.
 * Always true: if the system does not allow this, the thread still starts. */

/* Returns false if there is no memory, or if the system has no thread left. */
bool twi_own_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
