/* ready.c -- tw_ready() waits until an engine has the data that it needs to decide well.
 * It waits until Redis has replied, the number of live engines is known (share.h, the first seconds), and the units
 * requested by tw_lease_warm() are here.
 * Always true: it changes no state. A caller that waits here is in no section and in no hook. */
#include "engine/core/state.h"
#include "engine/flush.h"
#include "engine/core/call_guard.h"
#include "engine/core/calls.h"
#include "engine/core/waiters.h"
#include "engine/core/peers.h"

/* Returns the name of the missing part; NULL means that no part is missing. */
static const char *missing(tw_engine *engine) {
    if (!twi_load_relaxed(&engine->peers.is_connected)) return "timeout_ms: Redis does not reply yet";
    if (!twi_peers_are_known(engine)) return "timeout_ms: the number of live engines is not known yet";
    /* A hint, like the others, because a caller that spends looks at the units themselves. */
    if (twi_load_relaxed(&engine->leases.awaiting_first_grant) != 0)
        return "timeout_ms: leases requested by tw_lease_warm() are not here yet";
    return NULL;
}

tw_status tw_ready(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(engine != NULL);
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK || !engine->life.has_redis) return status;
    uint32_t turns = twi_event_count_value(&engine->turn.ended);
    for (uint32_t waits = 0;; waits++) {
        const char *what = missing(engine);
        if (what == NULL) return TW_OK;
        bool is_late = twi_clock_mono_ms(&engine->clock) >= deadline_ms;
        if (is_late && twi_flush_has_no_leader(engine, turns)) return twi_refuse(TW_ERR_TIMEOUT, TWI_FLUSH_NO_LEADER);
        if (is_late) return twi_refuse(TW_ERR_TIMEOUT, what);
        if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
        twi_flush_wait_for_turn(engine, waits);
    }
}

/* ---- answered later ---- */

/* A waiter (waiters.h). */
struct readying {
    struct twi_operation operation;
    const char *missing;
};
static_assert(sizeof(struct readying) <= TWI_OPERATION_BYTES, "operation.h");

static enum twi_look look(struct twi_operation *operation) {
    struct readying *readying = (struct readying *)operation;
    int64_t now_ms = twi_clock_mono_ms(&operation->engine->clock);
    readying->missing = missing(operation->engine);
    operation->wait.look_ms = now_ms + TWI_TICK_MS;
    return readying->missing != NULL && now_ms < operation->deadline_ms ? TWI_LOOK_WAITS : TWI_LOOK_OVER;
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    const char *what = ((struct readying *)operation)->missing;
    (void)call;
    if (what == NULL) return TW_OK;
    return twi_load_acquire(&operation->engine->life.stopped) ? twi_refuse(TW_ERR_CLOSED, NULL)
                                                              : twi_refuse(TW_ERR_TIMEOUT, what);
}

static const struct twi_operation_kind kind = {.finish = finish};

tw_status tw_ready_async(tw_request *request, tw_engine *engine) {
    twi_check(request != NULL && engine != NULL);
    tw_status status = twi_calls_may_start(engine);
    if (status != TW_OK || !engine->life.has_redis || missing(engine) == NULL) return twi_call_answer(request, status);
    struct readying *readying = (struct readying *)twi_operation_make(engine, &kind, NULL, request, &status);
    if (readying == NULL) return twi_call_answer(request, status);
    uint32_t timeout_ms = request->timeout_ms != 0 ? request->timeout_ms : twi_port_timeout_ms(engine);
    readying->operation.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    readying->missing = "timeout_ms: Redis does not reply yet";
    readying->operation.wait.look_ms = INT64_MIN;
    readying->operation.wait.each_turn = true;
    twi_waiter_add(&readying->operation, look);
    return TW_STARTED;
}
