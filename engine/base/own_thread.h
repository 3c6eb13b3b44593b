/* own_thread.h -- the one door to threads of the library's own: the background thread, the one that audits, the one
 * that answers on the watch socket, the one that looks up a host name.
 * They take nothing of the thread that opened the engine: no signals, which belong to the host, no real-time priority,
 * and no processor. A thread that inherited SCHED_FIFO and a mask of one processor would wait for as long as its opener
 * polls there. They run on the processors that the process had when the library was loaded.
 * Always true: where the system allows none of this, the thread starts all the same. */
#ifndef TWI_BASE_OWN_THREAD_H
#define TWI_BASE_OWN_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* False: there is no memory, or no thread is left. */
bool twi_own_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
