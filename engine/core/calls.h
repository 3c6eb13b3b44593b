/* calls.h -- calls that wait for Redis, from their start to their result: how an operation is sent, awaited and
 * answered. An asynchronous form starts its operation. A blocking form runs its operation and sleeps until it has
 * ended. A form without a request only sends its operation.
 * Always true: after its first request is under way, the thread that started an operation does not touch it or the
 * call. */
#ifndef TWI_CORE_CALLS_H
#define TWI_CORE_CALLS_H

#include "engine/core/operation.h"

/* Returns TW_OK if this thread may start calls; or TW_ERR_MEMORY, TW_ERR_FORKED or TW_ERR_CLOSED. */
tw_status twi_calls_may_start(tw_engine *engine);

/* Sends the request. Returns TW_STARTED if the result will come to the queue. Otherwise returns the result, which
 * `call` has, too. In both cases the operation no longer belongs to the caller. */
tw_status twi_call_start(struct twi_operation *operation, tw_request *call);
/* Sends the request, and sleeps until the operation has ended. Then the caller reads its result and gives it back. */
void twi_call_run(struct twi_operation *operation);
/* Sends an operation whose result no caller needs. Returns TW_STARTED. Returns TW_ERR_BUSY or TW_ERR_REDIS if it was
 * not sent. In all cases the operation no longer belongs to the caller. */
tw_status twi_call_send_off(struct twi_operation *operation);
/* Ends an operation before it has begun. Answers as twi_call_start(). */
tw_status twi_call_end_now(struct twi_operation *operation, tw_request *call, tw_status status);

/* The function answered() for the request of an operation. The operation is its ctx (port/driver.h). */
void twi_call_answered(void *ctx, struct twi_answer *answer);

/* Fills in a result that needs no operation. */
TWI_INLINE tw_status twi_call_answer(tw_request *call, tw_status status) {
    call->status = status;
    return status;
}

/* After tw_stop(): a step of the driver answers each call, and then the answers lie in their queues. A call that
 * another thread begins, drives or looks at now is met in one of the next rounds. No thread is waited for for ever. */
void twi_calls_end(tw_engine *engine);

#endif
