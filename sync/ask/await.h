/* await.h -- the form of a request in which the caller waits, and a thread that drives the dispatcher for it.
 * Always true: the thread is made by the first call that waits, and ends with twi_await_end(). */
#ifndef TWI_SYNC_ASK_AWAIT_H
#define TWI_SYNC_ASK_AWAIT_H

#include "sync/ask/dispatcher.h"

#include <pthread.h>

struct twi_await {
    struct twi_dispatcher *dispatcher;
    pthread_mutex_t lock;
    pthread_t thread;
    bool runs;          /* under the lock */
    _Atomic bool stops; /* the thread */
};

void twi_await_begin(struct twi_await *await, struct twi_dispatcher *dispatcher);
/* Nobody waits any more. */
void twi_await_end(struct twi_await *await);
/* Any thread; waits until the request's deadline. */
enum twi_request_outcome twi_await_request(struct twi_await *await, struct twi_request *request);

#endif
