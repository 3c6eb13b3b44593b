/* calls.c -- see calls.h. */
#include "engine/core/calls.h"

#include "engine/core/driving.h"
#include "engine/core/family.h"
#include "engine/core/queue.h"
#include "engine/core/second.h"
#include "engine/core/waiters.h"

#define LOOK_MS 1000 /* no event is missed; this is only a bound */
#define STOP_MS 1000 /* for threads that are in the middle of a step */

tw_status twi_calls_may_start(tw_engine *engine) {
    twi_check(engine != NULL);
    if (twi_thread_here() == NULL) return twi_refuse_for(twi_thread_why());
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    return twi_second_start(engine);
}

/* ---- starting ---- */

static void part(struct twi_operation *operation) {
    twi_check(!operation->blocks);
    twi_calls_lock();
    twi_operation_part(operation);
    twi_calls_unlock();
}

tw_status twi_call_end_now(struct twi_operation *operation, tw_request *call, tw_status status) {
    twi_check(status != TW_STARTED);
    twi_check(call != NULL);
    part(operation);
    twi_operation_give(operation);
    return twi_call_answer(call, status);
}

tw_status twi_call_start(struct twi_operation *operation, tw_request *call) {
    twi_check(call != NULL && !operation->blocks);
    twi_check(operation->kind->send != NULL && operation->kind->finish != NULL);
    /* when it is sent, the call may have its result and be gone by now */
    if (operation->result.outcome != TWI_REQUEST_BUSY && operation->kind->send(operation)) return TW_STARTED;
    part(operation);
    call->status = operation->kind->finish(operation, call);
    twi_operation_give(operation);
    return call->status;
}

void twi_call_run(struct twi_operation *operation) {
    twi_check(operation->call == NULL);
    twi_check(!twi_load_relaxed(&operation->is_over));
    twi_check(operation->list == NULL);
    operation->blocks = operation->waits_for_room = true;
    if (!operation->kind->send(operation)) return;
    for (;;) {
        uint32_t seen = twi_event_count_value(&operation->over);
        if (twi_load_acquire(&operation->is_over)) return; /* AN4, pairs with AN3 */
        twi_event_count_wait(&operation->over, seen, LOOK_MS);
    }
}

tw_status twi_call_send_off(struct twi_operation *operation) {
    twi_check(operation->call == NULL);
    twi_check(operation->kind->send != NULL);
    tw_engine *engine = operation->engine;
    if (operation->kind->send(operation)) return TW_STARTED;
    bool is_busy = operation->result.outcome == TWI_REQUEST_BUSY;
    twi_operation_give(operation);
    if (is_busy) twi_port_count(engine, asks_forgotten, 1);
    return is_busy ? twi_operation_refuse_busy(engine)
                   : twi_refuse(TW_ERR_REDIS, "Redis: it does not reply; nothing was sent");
}

/* ---- answers ---- */

static bool is_given_up(struct twi_operation *operation) {
    twi_calls_lock();
    bool is = operation->is_given_up;
    twi_calls_unlock();
    return is;
}

void twi_call_answered(void *ctx, struct twi_answer *answer) {
    twi_check(ctx != NULL);
    twi_check(answer->value_count <= TWI_SCRIPT_VALUES_MAX);
    struct twi_operation *operation = ctx;
    operation->waits_for_room = false; /* from now on the driving thread looks at the operation */
    twi_result_read(&operation->result, answer);
    if (operation->kind->reply != NULL && !is_given_up(operation) && operation->kind->reply(operation, answer)) return;
    twi_queue_push(operation);
}

/* ---- the end ---- */

void twi_calls_end(tw_engine *engine) {
    twi_check(twi_load_acquire(&engine->life.stopped));
    int64_t by_ms = twi_clock_system_ms() + STOP_MS;
    for (;;) {
        twi_driving_step(engine);
        twi_queue_run_tries(engine);
        if (!twi_queue_awaits_answers(engine) || twi_clock_system_ms() >= by_ms) return;
        twi_event_count_wait(&engine->turn.ended, twi_event_count_value(&engine->turn.ended), 1);
        twi_waiters_stop(engine);
    }
}
