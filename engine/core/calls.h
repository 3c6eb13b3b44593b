/* calls.h -- calls that wait for Redis, from their start to their result: how an operation is sent, awaited and
 * answered. Each call has one form, which starts its operation. A thread that waits starts it with a request on its
 * stack (twi_call_by_thread()), and sleeps until it has ended. Without a request it is only sent.
 * Always true: after its first request is under way, the thread that started an operation does not touch it or the
 * call, unless it waits for it. */
#ifndef TWI_CORE_CALLS_H
#define TWI_CORE_CALLS_H

#include "engine/core/operation.h"
#include "tallywheel.h"

/* ---- waiters ----
 * operations that wait for units, a flush or a statement, which the turn brings. The turn looks at them.
 * In a shared engine each process looks at its own ones by its second thread or by tw_turn(), also if it does not
 * lead.
 *
 * At most TWI_WAITERS_TURN looks a turn, round robin. A waiter whose key had too few units for the previous waiter is
 * not looked at in that turn: ten thousand waiters of one key cost one look.
 * Always true: one thread at a time looks. A look runs without the lock, and the waiter is in no list meanwhile. */

#define TWI_WAITERS_TURN 256u

/* The operation waits from now on, according to its look_ms, wakes, each_turn and shares_units. Its caller does not
 * touch it any more. */
void twi_waiter_add(struct twi_operation *operation, enum twi_look (*look)(struct twi_operation *operation));
/* The operation waits, and is looked at at once and in each turn. Returns TW_STARTED, unless a thread waits with
 * `call`. That thread looks itself, and gets the result. */
tw_status twi_waiter_start_in_turns(struct twi_operation *operation, tw_request *call,
                                    enum twi_look (*look)(struct twi_operation *operation));
/* Looks at those that are due. Does nothing if another thread does that. */
void twi_waiters_turn(tw_engine *engine);
/* Called when the engine stops. Each waiter is looked at again, and then ends. Any thread. */
void twi_waiters_stop(tw_engine *engine);

/* ---- second ----
 * the second thread of an engine that has its own threads. It drives the calls that wait for Redis, and
 * calls `done` of those that name no queue, one after the other. In a shared engine it also looks at the waiters of its
 * process.
 * Always true: an engine that never waits has none, nor has one that its host drives. It runs from the first call that
 * waits until the engine closes. Its signals are blocked. */

/* Starts the thread if there is none. TW_ERR_MEMORY: there is no thread or descriptor. Any thread. */
tw_status twi_second_start(tw_engine *engine);
/* Called when there is an answer for the thread. Any thread. */
void twi_second_wake(tw_engine *engine);
/* Ends it. Only tw_close() calls it, when no call can follow. */
void twi_second_stop(tw_engine *engine);
/* When the engine is opened, and in a forked child: there is no such thread. */
void twi_second_begin(tw_engine *engine);
void twi_second_end(tw_engine *engine);

/* Returns TW_OK if this thread may start calls; or TW_ERR_MEMORY, TW_ERR_FORKED or TW_ERR_CLOSED. */
tw_status twi_calls_may_start(tw_engine *engine);

/* Sends the request. Returns TW_STARTED if the result will come to the queue. Otherwise returns the result, which
 * `call` has, too. A thread that waits gets it here. If `call` is NULL, no caller needs the result: it returns
 * TW_STARTED, or TW_ERR_BUSY or TW_ERR_REDIS if it was not sent. In all cases the operation no longer belongs to the
 * caller. */
tw_status twi_call_start(struct twi_operation *operation, tw_request *call);
/* Keeps a copy of the key before that. */
tw_status twi_call_start_with(struct twi_operation *operation, tw_request *call, tw_key key, tw_key *kept);
/* Ends an operation before it has begun. Answers as twi_call_start(). */
tw_status twi_call_end_now(struct twi_operation *operation, tw_request *call, tw_status status);

/* The function answered() for the request of an operation. The operation is its ctx (port/driver.h). */
void twi_call_answered(void *ctx, struct twi_answer *answer);

/* Fills in a result that needs no operation. `call` may be NULL. */
TWI_INLINE tw_status twi_call_answer(tw_request *call, tw_status status) {
    if (call != NULL) call->status = status;
    return status;
}

/* After tw_stop(): a step of the driver answers each call, and then the answers lie in their queues. A call that
 * another thread begins, drives or looks at now is met in one of the next rounds. No thread is waited for for ever. */
void twi_calls_end(tw_engine *engine);

#endif
