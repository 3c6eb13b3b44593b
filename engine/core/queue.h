/* queue.h -- a queue of answers on their way to their callers. Any thread pushes them. They are delivered by
 * tw_queue_run(), by the turn of a host-driven engine, or by the second thread.
 * Always true: `done` is called once for each call that was started and not cancelled, by one thread at a time for each
 * queue, without any lock. A queue is readable while answers wait in it. */
#ifndef TWI_CORE_QUEUE_H
#define TWI_CORE_QUEUE_H

#include "engine/core/operation.h"

/* Takes an ended operation to its queue or its waiting thread, or gives it up if its caller has gone. Any thread. */
void twi_queue_push(struct twi_operation *operation);
/* Delivers at most so many answers of calls that name no queue. True if there are more. Called by the driver. */
bool twi_queue_run_own(tw_engine *engine, size_t most);
/* Delivers the answers of the library's own tries (twi_operation_own_request()), which no caller sees. Any thread. */
void twi_queue_run_tries(tw_engine *engine);
/* Returns true if a call of this process was begun and has no answer in its queue yet. Any thread. */
bool twi_queue_awaits_answers(tw_engine *engine);
/* Returns true if answers of such calls wait. Any thread. */
bool twi_queue_has_own(tw_engine *engine);
/* Wakes the second thread, if there is one. Any thread. */
void twi_queue_wake_own(tw_engine *engine);
/* Some queue is open. */
bool twi_queue_is_open(tw_engine *engine);
/* When the engine is opened, and in a forked child: no answer waits, and each open queue gets a separate descriptor.
 * Returns false if the system has no descriptor left. */
bool twi_queue_begin(tw_engine *engine);
/* No `done` of the parent runs in the child. */
void twi_queue_renew_running(void);

#endif
