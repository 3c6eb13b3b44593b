/* own_thread.h -- the only file that starts threads of the library: the background thread, the auditor, the thread of
 * the watch socket, the thread that looks up a host name.
 * These threads inherit no signals (signals belong to the host), no real-time priority and no processor mask from the
 * thread that opened the engine. If a thread inherited SCHED_FIFO and a mask of one processor, it would wait for as
 * long as its opener polls there. The threads run on the processors that the process had when the library was loaded.
 * Always true: if the system does not allow this, the thread still starts. */
#ifndef TWI_BASE_OWN_THREAD_H
#define TWI_BASE_OWN_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Returns false if there is no memory, or if the system has no thread left. */
bool twi_own_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
