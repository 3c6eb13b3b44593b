/* calls.h -- calls that wait for Redis, from their start to their answer: how an operation is sent, awaited and
 * answered. An asynchronous form starts its operation; a blocking form runs it, and sleeps until it is over; a form
 * without a request sends it off.
 * Always true: after its first request is under way, the thread that started an operation does not touch it or the
 * call. */
#ifndef TWI_CORE_CALLS_H
#define TWI_CORE_CALLS_H

#include "engine/core/operation.h"

/* TW_OK means that this thread may start calls of this engine. TW_ERR_MEMORY, TW_ERR_FORKED, TW_ERR_CLOSED. */
tw_status twi_calls_may_start(tw_engine *engine);

/* Asks. TW_STARTED means that the answer comes to the queue. Otherwise the answer, which `call` shows too. The
 * operation is gone either way. */
tw_status twi_call_start(struct twi_operation *operation, tw_request *call);
/* Asks, and sleeps until it is over. The operation stays the caller's, who reads its result and gives it back. */
void twi_call_run(struct twi_operation *operation);
/* Sends an operation whose answer no caller needs. Returns TW_STARTED, or TW_ERR_BUSY or TW_ERR_REDIS if it was not
 * sent. The operation is gone afterwards. */
tw_status twi_call_send_off(struct twi_operation *operation);
/* The operation is over before it has begun. Answers as twi_call_start(). */
tw_status twi_call_end_now(struct twi_operation *operation, tw_request *call, tw_status status);

/* answered() of the request of an operation, which is its ctx (port/driver.h). */
void twi_call_answered(void *ctx, struct twi_answer *answer);

/* An answer that needs no operation. */
TWI_INLINE tw_status twi_call_answer(tw_request *call, tw_status status) {
    call->status = status;
    return status;
}

#endif
