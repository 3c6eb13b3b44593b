/* strict.c -- see strict.h. One request per call (strict.lua). If Redis does not decide it, the family's on_outage
 * does.
 *
 *   request ──OK, DENIED──▶ that is the answer
 *     └──refused, away, unknown──▶ LOCAL: as a soft limit; FAIL_OPEN: admitted; FAIL_CLOSED: denied
 *                                  (decided_by TW_BY_OUTAGE)
 *                                  within outage_grace_ms: LOCAL, whatever is set
 * What a fallback admits is counted here and goes to Redis as any count does, exactly once. A request of unknown
 * outcome may have been charged in Redis as well. Therefore a cancel follows before its lane is used again (sync/ask/),
 * and takes that charge back. So what was admitted is charged once in the end. Meanwhile Redis counts too much rather
 * than too little (trap L11).
 * Always true: the verdict is filled, whatever the answer. */
#include "engine/ask/strict.h"

#include "engine/ask/redis_call.h"
#include "engine/count/lookup.h"
#include "engine/limit/acquire.h"
#include "engine/limit/refund.h"
#include "engine/limit/shadow.h"
#include "engine/limit/share.h"
#include "engine/limit/shape.h"
#include "engine/limit/sliding.h"

struct request {
    tw_family *family;
    tw_key key;
    int64_t n, limit;
    bool some; /* take as many as are left */
    int64_t now_ms;
    struct twi_span span;
};

struct asking {
    struct twi_operation operation;
    struct request request;
};
static_assert(sizeof(struct asking) <= TWI_OPERATION_BYTES, "operation.h");

/* ---- verdicts ---- */

static void fill_undecided(const struct request *request, tw_verdict *verdict) {
    int64_t left_ms = request->span.end_ms == INT64_MAX ? TW_UNBOUNDED : request->span.end_ms - request->now_ms;
    *verdict = (tw_verdict){.limit = request->limit,
                            .remaining = request->limit > 0 ? request->limit : 0,
                            .reset_after_ms = left_ms,
                            .error_bound = TW_UNBOUNDED,
                            .window_start_ms = request->span.start_ms,
                            .decided_by = TW_BY_OUTAGE};
}

static tw_status fill_answered(const struct request *request, const struct twi_result *result, tw_verdict *verdict) {
    bool admitted = twi_result_is(result, "OK");
    int64_t used = twi_result_number(result, 2), reset_ms = twi_result_number(result, 3);
    int64_t least = request->some && request->n > 1 ? 1 : request->n; /* the fewest units that count as admitted */
    verdict->used = used;
    verdict->remaining = used < request->limit ? request->limit - used : 0;
    if (request->family->kind.from_first || request->family->options.limit_shape == TW_SHAPE_SLIDING)
        verdict->reset_after_ms = reset_ms;
    if (request->family->kind.from_first) /* when the key's window began */
        verdict->window_start_ms = request->now_ms + reset_ms - request->family->rule.window_ms;
    verdict->retry_after_ms = admitted                           ? 0
                              : least > request->limit           ? -1
                              : twi_result_number(result, 4) > 0 ? twi_result_number(result, 4)
                                                                 : verdict->reset_after_ms;
    if (used <= 0) verdict->reset_after_ms = 0;
    verdict->error_bound = 0;
    verdict->decided_by = TW_BY_REDIS;
    verdict->allowed = admitted;
    verdict->final = !admitted && used >= request->limit;
    return admitted ? TW_OK : TW_DENIED;
}

/* ---- when Redis does not decide ---- */

/* Admits without deciding; the units are counted all the same. */
static tw_status admit_open(const struct request *request, int64_t *taken, tw_verdict *verdict) {
    struct twi_why before = twi_why_now();
    tw_status status = request->n != 0 ? tw_add(request->family, request->key, request->n, &verdict->used) : TW_OK;
    verdict->allowed = 1;
    if (status < 0 && status != TW_ERR_FULL) return status;
    twi_why_restore(before); /* without room the call is admitted uncounted: nothing was refused */
    verdict->remaining = verdict->used < request->limit ? request->limit - verdict->used : 0;
    *taken = request->n;
    return TW_OK;
}

/* With `some`: tries n units, then the units that the verdict says are left. */
static tw_status decide_here(const struct request *request, int64_t *taken, tw_verdict *verdict) {
    tw_status status = TW_DENIED;
    int64_t n = request->n;
    while (status == TW_DENIED) {
        status = twi_acquire_slow(request->family, request->key, n, request->limit, verdict);
        *taken = status == TW_OK ? n : 0;
        if (!request->some || verdict->remaining == 0 || n <= 1) break;
        n = verdict->remaining < n ? verdict->remaining : n / 2;
    }
    verdict->error_bound = TW_UNBOUNDED;
    if (verdict->decided_by != TW_BY_FULL) verdict->decided_by = TW_BY_OUTAGE;
    return status;
}

static tw_status fall_back(const struct request *request, enum twi_request_outcome outcome, int64_t *taken,
                           tw_verdict *verdict) {
    twi_port_count(request->family->engine, strict_fallbacks, 1);
    switch (twi_redis_call_policy(request->family, request->key, outcome)) {
    case TW_OUTAGE_FAIL_OPEN: return admit_open(request, taken, verdict);
    case TW_OUTAGE_FAIL_CLOSED: verdict->retry_after_ms = verdict->reset_after_ms; return TW_DENIED;
    default: return decide_here(request, taken, verdict);
    }
}

/* ---- the request ---- */

static void write_question(const struct request *request, struct twi_redis_call *redis_call) {
    tw_family *family = request->family;
    bool slides = family->options.limit_shape == TW_SHAPE_SLIDING;
    int64_t start_ms = request->span.start_ms, expiry_ms = 0;
    if (!family->kind.from_first && request->span.end_ms != INT64_MAX)
        expiry_ms = twi_time_add(request->span.end_ms, twi_load_relaxed(&family->policy.retention_ms));
    twi_redis_call_begin(redis_call, family->engine, TWI_SCRIPT_STRICT, 0);
    redis_call->request.numbered = true;
    twi_redis_call_key(redis_call, family, "calls", request->key, start_ms);
    twi_redis_call_key(redis_call, family, NULL, request->key, start_ms);
    if (slides) twi_redis_call_key(redis_call, family, "log", request->key, 0); /* one log for all windows */
    twi_redis_call_number(redis_call, request->n);
    twi_redis_call_number(redis_call, request->limit);
    twi_redis_call_number(redis_call, request->some);
    twi_redis_call_number(redis_call, expiry_ms);
    twi_redis_call_number(redis_call, family->kind.from_first ? family->rule.window_ms : 0);
    if (!slides) return; /* each argument costs Redis time */
    twi_redis_call_number(redis_call, family->rule.window_ms);
    twi_redis_call_number(redis_call, start_ms);
}

/* Keeps local knowledge fresh, for the time when Redis is away. */
static void learn(const struct request *request) {
    (void)tw_get(request->family, request->key, NULL);
    if (request->family->kind.slides) twi_sliding_request_total(request->family, request->key);
}

static bool ask(struct twi_operation *operation) {
    struct twi_redis_call redis_call;
    write_question(&((struct asking *)operation)->request, &redis_call);
    return twi_redis_call_send(&redis_call, operation);
}

static bool is_decided(const struct twi_result *result) {
    return twi_result_is(result, "OK") || twi_result_is(result, "DENIED");
}

static bool refuses_when_busy(const struct request *request, enum twi_request_outcome outcome) {
    return outcome == TWI_REQUEST_BUSY && !twi_load_relaxed(&request->family->policy.busy_is_outage);
}

/* What came of it. By the thread that is answered. */
static tw_status conclude(const struct asking *asking, int64_t *taken, tw_verdict *verdict) {
    const struct request *request = &asking->request;
    const struct twi_result *result = &asking->operation.result;
    tw_engine *engine = request->family->engine;
    fill_undecided(request, verdict);
    *taken = 0;
    if (is_decided(result)) {
        *taken = twi_result_number(result, 1);
        twi_redis_call_answered(request->family);
        if (twi_redis_call_falls_back_here(request->family)) learn(request);
        return fill_answered(request, result, verdict);
    }
    if (twi_load_acquire(&engine->life.stopped) || refuses_when_busy(request, result->outcome))
        return twi_redis_call_refuse(engine, result->outcome);
    return fall_back(request, result->outcome, taken, verdict);
}

/* The caller has gone: units that Redis gave return as a refund does. Of a request that is not answered the lane takes
 * back what was charged. */
static void undo(struct twi_operation *operation) {
    const struct request *request = &((struct asking *)operation)->request;
    int64_t taken = twi_result_is(&operation->result, "OK") ? twi_result_number(&operation->result, 1) : 0;
    tw_verdict verdict;
    fill_undecided(request, &verdict);
    if (taken <= 0) return;
    (void)fill_answered(request, &operation->result, &verdict);
    (void)twi_refund_count(request->family, request->key, taken, request->limit, verdict.window_start_ms);
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    const struct asking *asking = (const struct asking *)operation;
    const struct request *request = &asking->request;
    struct twi_why before = twi_why_now();
    tw_status status = conclude(asking, &call->taken, &call->verdict);
    if (request->some && !twi_load_relaxed(&request->family->policy.shadow))
        return twi_shadow_some_answered(request->family, status, &call->verdict);
    status = twi_shadow_answered(request->family, request->n, status, before, &call->verdict);
    if (status == TW_OK && !call->verdict.allowed)
        call->taken = request->n; /* shadow mode admits all units and counts none */
    return status;
}

static const struct twi_operation_kind kind = {.send = ask, .finish = finish, .undo = undo};

/* ---- the calls ---- */

/* TW_OK: it may be asked. The verdict is filled either way. */
static tw_status begin(struct request *request, tw_verdict *verdict) {
    tw_family *family = request->family;
    request->now_ms = twi_clock_now_ms(&family->engine->clock);
    request->span = twi_calendar_span(&family->rule, request->now_ms);
    if (family->kind.evicts_idle) request->span = (struct twi_span){0, INT64_MAX};
    fill_undecided(request, verdict);
    if (!twi_limit_is_in_range(request->n, request->limit)) return twi_units_refuse(request->n);
    return twi_call_check_key(family, request->key);
}

/* NULL: *status says why not. */
static struct asking *make(const struct request *request, tw_request *call, uint32_t timeout_ms, tw_status *status) {
    tw_engine *engine = request->family->engine;
    struct asking *asking = (struct asking *)twi_operation_make(engine, &kind, request->family, call, status);
    if (asking == NULL) return NULL;
    asking->request = *request;
    asking->operation.deadline_ms = twi_redis_call_deadline_ms(engine, timeout_ms);
    return asking;
}

/* A thread waits for the answer. */
static tw_status decide(struct request *request, int64_t *taken, tw_verdict *verdict) {
    tw_status status = begin(request, verdict);
    if (status == TW_OK) status = twi_redis_call_may(request->family->engine);
    struct asking *asking = status == TW_OK ? make(request, NULL, 0, &status) : NULL;
    if (asking == NULL) return status;
    twi_call_run(&asking->operation);
    status = conclude(asking, taken, verdict);
    twi_operation_give(&asking->operation);
    return status;
}

tw_status twi_strict_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct request request = {.family = family, .key = key, .n = n, .limit = limit};
    tw_verdict unasked;
    int64_t taken = 0;
    return decide(&request, &taken, verdict != NULL ? verdict : &unasked);
}

static tw_status some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                      tw_verdict *verdict) {
    struct request request = {.family = family, .key = key, .n = n_max, .limit = limit, .some = true};
    return decide(&request, taken, verdict);
}

/* The answer comes later. */
static tw_status start(tw_request *call, tw_family *family, tw_key key, int64_t n, int64_t limit, bool is_some) {
    struct request request = {.family = family, .key = key, .n = n, .limit = limit, .some = is_some};
    call->taken = 0;
    tw_status status = begin(&request, &call->verdict);
    if (status == TW_OK) status = twi_redis_call_may_start(family->engine);
    struct asking *asking = status == TW_OK ? make(&request, call, call->timeout_ms, &status) : NULL;
    if (asking == NULL) return twi_call_answer(call, status);
    if (!twi_operation_keep(&asking->operation, key, &asking->request.key))
        return twi_call_end_now(&asking->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
    return twi_call_start(&asking->operation, call);
}

/* While Redis does not reply, the limit is decided here as a soft one. */
static tw_status try_once(struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision) {
    return call->family->kind.slides ? twi_sliding_try(call, n, limit, decision)
                                     : twi_share_try(call, n, limit, decision);
}

/* A refund goes to Redis once, as any count does. A log holds calls and not their sum, so it learns of refunds from the
 * counter beside it (strict.lua). */
const struct twi_limit_kind twi_limit_strict = {
    .acquire = twi_strict_acquire, .try_once = try_once, .some = some, .put_back = twi_refund_count, .start = start};
