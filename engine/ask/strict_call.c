/* strict_call.c -- see strict_call.h. */
#include "engine/ask/strict_call.h"
#include "engine/base/check.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/shadow.h"
#include "engine/limit/shape.h"

struct asking {
    struct twi_operation operation;
    struct twi_strict_request request;
};
static_assert(sizeof(struct asking) <= TWI_OPERATION_BYTES, "operation.h");

static const struct twi_strict_kind *kind_of(const struct twi_operation *operation) {
    twi_check(operation->kind->send == twi_strict_send);
    return (const struct twi_strict_kind *)operation->kind; /* its first field */
}

const struct twi_strict_request *twi_strict_request_of(const struct twi_operation *operation) {
    twi_check(operation->kind->send == twi_strict_send);
    return &((const struct asking *)operation)->request;
}

bool twi_strict_send(struct twi_operation *operation) {
    struct twi_redis_call redis_call;
    kind_of(operation)->write(twi_strict_request_of(operation), &redis_call);
    return twi_redis_call_send(&redis_call, operation);
}

static bool is_decided(const struct twi_result *result) {
    return twi_result_is(result, "OK") || twi_result_is(result, "DENIED");
}

static bool refuses_when_busy(const struct twi_strict_request *request, enum twi_request_outcome outcome) {
    return outcome == TWI_REQUEST_BUSY && !twi_load_relaxed(&request->family->policy.busy_is_outage);
}

/* Fills the answer. By the thread that is answered. */
static tw_status conclude(const struct twi_operation *operation, int64_t *taken, tw_verdict *verdict) {
    const struct twi_strict_kind *kind = kind_of(operation);
    const struct twi_strict_request *request = twi_strict_request_of(operation);
    const struct twi_result *result = &operation->result;
    tw_engine *engine = request->family->engine;
    kind->fill_undecided(request, verdict);
    *taken = 0;
    if (is_decided(result)) {
        *taken = twi_result_number(result, 1);
        twi_redis_call_answered(request->family);
        return kind->conclude(request, result, verdict);
    }
    enum twi_request_outcome why = twi_result_why(result);
    if (twi_load_acquire(&engine->life.stopped) || refuses_when_busy(request, why)) {
        if (why == TWI_REQUEST_BUSY) verdict->cause = TW_CAUSE_BUSY; /* also of a call whose outcome is unknown */
        tw_status status = twi_redis_call_refuse(engine, result->outcome);
        return twi_limit_stats_answered(request->family, request->n, status, verdict);
    }
    return kind->fall_back(request, why, taken, verdict);
}

tw_status twi_strict_finish(struct twi_operation *operation, tw_request *call) {
    const struct twi_strict_request *request = twi_strict_request_of(operation);
    struct twi_why before = twi_why_now();
    tw_status status = conclude(operation, &call->taken, &call->verdict);
    if (request->some && !twi_load_relaxed(&request->family->policy.shadow))
        return twi_shadow_some_answered(request->family, status, &call->verdict);
    status = twi_shadow_answered(request->family, request->n, status, before, &call->verdict);
    if (status == TW_OK && !call->verdict.allowed)
        call->taken = request->n; /* shadow mode admits all units and does not count them */
    return status;
}

/* Completes the request. Returns TW_OK if it may be sent. The verdict is filled either way. */
static tw_status begin(struct twi_strict_request *request, tw_verdict *verdict) {
    const struct twi_strict_kind *kind = request->family->kind.limit->strict;
    request->now_ms = twi_clock_now_ms(&request->family->engine->clock);
    request->began_ms = twi_clock_mono_ms(&request->family->engine->clock);
    kind->complete(request);
    kind->fill_undecided(request, verdict);
    if (!twi_limit_is_in_range(request->n, request->limit)) return twi_units_refuse(request->n);
    return twi_call_check_key(request->family, request->key);
}

/* Returns NULL if there cannot be one; then *status is the reason. */
static struct asking *make(const struct twi_strict_request *request, tw_request *call, uint32_t timeout_ms,
                           tw_status *status) {
    tw_family *family = request->family;
    struct asking *asking = (struct asking *)twi_operation_make(family->engine, &family->kind.limit->strict->operation,
                                                                family, call, status);
    if (asking == NULL) return NULL;
    asking->request = *request;
    asking->operation.deadline_ms = twi_redis_call_deadline_ms(family->engine, timeout_ms);
    return asking;
}

/* For a thread that waits. `verdict` may be NULL. */
static tw_status decide(struct twi_strict_request *request, int64_t *taken, tw_verdict *verdict) {
    tw_verdict unasked;
    if (verdict == NULL) verdict = &unasked;
    tw_status status = begin(request, verdict);
    if (status == TW_OK) status = twi_redis_call_may(request->family->engine);
    struct asking *asking = status == TW_OK ? make(request, NULL, 0, &status) : NULL;
    if (asking == NULL) return twi_limit_stats_answered(request->family, request->n, status, verdict);
    twi_call_run(&asking->operation);
    status = conclude(&asking->operation, taken, verdict);
    twi_operation_give(&asking->operation);
    return status;
}

tw_status twi_strict_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct twi_strict_request request = {.family = family, .key = key, .n = n, .limit = limit};
    int64_t taken = 0;
    return decide(&request, &taken, verdict);
}

tw_status twi_strict_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                          tw_verdict *verdict) {
    struct twi_strict_request request = {.family = family, .key = key, .n = n_max, .limit = limit, .some = true};
    return decide(&request, taken, verdict);
}

tw_status twi_strict_start(tw_request *call, tw_family *family, tw_key key, int64_t n, int64_t limit, bool some) {
    struct twi_strict_request request = {.family = family, .key = key, .n = n, .limit = limit, .some = some};
    call->taken = 0;
    tw_status status = begin(&request, &call->verdict);
    if (status == TW_OK) status = twi_redis_call_may_start(family->engine);
    struct asking *asking = status == TW_OK ? make(&request, call, call->timeout_ms, &status) : NULL;
    if (asking != NULL && !twi_operation_keep(&asking->operation, key, &asking->request.key)) {
        status = twi_call_end_now(&asking->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
        asking = NULL;
    }
    if (asking == NULL) return twi_call_answer(call, twi_limit_stats_answered(family, n, status, &call->verdict));
    return twi_call_start(&asking->operation, call);
}
