/* strict.c -- see strict.h. Each call sends one request (strict.lua). If Redis does not decide it, the family's
 * on_outage does.
 *
 *   request ──OK, DENIED──▶ that is the answer
 *     └──refused, away, unknown──▶ LOCAL: as a soft limit; FAIL_OPEN: admitted; FAIL_CLOSED: denied
 *                                  (decided_by TW_BY_OUTAGE)
 *                                  within outage_grace_ms: LOCAL, whatever is set
 * Units that a fallback admits are counted here and are sent to Redis like any count, exactly once. A request of
 * unknown outcome may have been charged in Redis as well. Therefore a cancel follows before its lane is used again
 * (sync/ask/), and takes that charge back. So admitted units are charged once in the end. Meanwhile Redis counts too
 * much rather than too little (trap L11).
 * Always true: the verdict is filled, whatever the answer. */
#include "engine/ask/strict.h"

#include "engine/base/check.h"
#include "engine/count/lookup.h"
#include "engine/limit/acquire.h"
#include "engine/limit/counted.h"
#include "engine/limit/decision.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/share.h"
#include "engine/limit/sliding.h"

/* ---- strict call ---- */

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
static tw_status conclude_call(const struct twi_operation *operation, int64_t *taken, tw_verdict *verdict) {
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
    tw_status status = conclude_call(operation, &call->taken, &call->verdict);
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

tw_status twi_strict_start(tw_request *call, tw_family *family, tw_key key, int64_t n, int64_t limit, bool some) {
    struct twi_strict_request request = {.family = family, .key = key, .n = n, .limit = limit, .some = some};
    const struct twi_operation_kind *kind = &family->kind.limit->strict->operation;
    call->taken = 0;
    tw_status status = begin(&request, &call->verdict);
    if (status == TW_OK) status = twi_redis_call_may(family->engine, call);
    struct asking *asking =
        status == TW_OK ? (struct asking *)twi_operation_make(family->engine, kind, family, call, &status) : NULL;
    if (asking != NULL) asking->request = request;
    if (asking != NULL && !twi_operation_keep(&asking->operation, key, &asking->request.key)) {
        status = twi_call_end_now(&asking->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
        asking = NULL;
    }
    if (asking == NULL) return twi_call_answer(call, twi_limit_stats_answered(family, n, status, &call->verdict));
    return twi_call_start(&asking->operation, call);
}

tw_status twi_strict_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    tw_status status = twi_strict_start(&call, family, key, n, limit, false);
    if (verdict != NULL) *verdict = call.verdict;
    return status;
}

/* ---- verdicts ---- */

static void fill_undecided(const struct twi_strict_request *request, tw_verdict *verdict) {
    int64_t left_ms = request->span.end_ms == INT64_MAX ? TW_UNBOUNDED
                                                        : request->span.end_ms - request->now_ms +
                                                              twi_clock_pause_ms(&request->family->engine->clock);
    *verdict = (tw_verdict){.limit = request->limit,
                            .reset_after_ms = left_ms,
                            .error_bound = TW_UNBOUNDED,
                            .window_start_ms = request->span.start_ms,
                            .decided_by = TW_BY_OUTAGE};
}

/* The fewest units that count as admitted. */
static int64_t least_of(const struct twi_strict_request *request) {
    return request->some && request->n > 1 ? 1 : request->n;
}

static tw_status fill_answered(const struct twi_strict_request *request, const struct twi_result *result,
                               tw_verdict *verdict) {
    bool admitted = twi_result_is(result, "OK");
    twi_check(result->outcome == TWI_REQUEST_DONE);
    int64_t used = twi_result_number(result, 2), reset_ms = twi_result_number(result, 3);
    verdict->used = used;
    verdict->remaining = used < request->limit ? request->limit - used : 0;
    if (request->family->kind.from_first || request->family->options.limit_shape == TW_SHAPE_SLIDING)
        verdict->reset_after_ms = reset_ms;
    if (request->family->kind.from_first) /* when the key's window began */
        verdict->window_start_ms = request->now_ms + reset_ms - request->family->rule.window_ms;
    int64_t retry_ms = twi_result_number(result, 4) > 0 ? twi_result_number(result, 4) : verdict->reset_after_ms;
    if (used <= 0) verdict->reset_after_ms = 0;
    verdict->error_bound = 0;
    verdict->decided_by = TW_BY_REDIS;
    verdict->allowed = admitted;
    verdict->final = !admitted && used >= request->limit;
    if (!admitted)
        twi_verdict_deny(verdict, least_of(request) > request->limit ? TW_CAUSE_NEVER : TW_CAUSE_LIMIT, retry_ms);
    return admitted ? TW_OK : TW_DENIED;
}

/* ---- when Redis does not decide ---- */

/* Admits without deciding; the units are counted all the same. */
static tw_status admit_open(const struct twi_strict_request *request, int64_t *taken, tw_verdict *verdict) {
    twi_check(*taken == 0 && verdict->decided_by == TW_BY_OUTAGE);
    struct twi_why before = twi_why_now();
    tw_status status = request->n != 0 ? tw_add(request->family, request->key, request->n, &verdict->used) : TW_OK;
    verdict->allowed = 1;
    if (status < 0 && status != TW_ERR_FULL) return status;
    twi_why_restore(before); /* without room the call is admitted uncounted, so it was not refused */
    verdict->remaining = verdict->used < request->limit ? request->limit - verdict->used : 0;
    *taken = request->n;
    return TW_OK;
}

/* With `some`, tries n units, then the units that are left by the verdict. */
static tw_status decide_here(const struct twi_strict_request *request, enum twi_request_outcome outcome, int64_t *taken,
                             tw_verdict *verdict) {
    twi_check(*taken == 0);
    tw_status status = TW_DENIED;
    int64_t n = request->n;
    while (status == TW_DENIED) {
        status = twi_acquire_slow(request->family, request->key, n, request->limit, verdict);
        *taken = status == TW_OK ? n : 0;
        bool is_known =
            verdict->cause == TW_CAUSE_LIMIT; /* or a share is spent, and a smaller part of it may be left */
        if (!request->some || n <= 1 || (is_known && verdict->remaining == 0)) break;
        n = is_known && verdict->remaining < n ? verdict->remaining : n / 2;
    }
    if (status == TW_DENIED && verdict->cause == TW_CAUSE_OUTAGE)
        twi_verdict_deny_unknown(verdict, request->family->engine, twi_redis_call_cause(outcome));
    verdict->error_bound = TW_UNBOUNDED;
    if (verdict->decided_by != TW_BY_FULL) verdict->decided_by = TW_BY_OUTAGE;
    return status;
}

static tw_status deny(const struct twi_strict_request *request, enum twi_request_outcome outcome, tw_verdict *verdict) {
    if (least_of(request) > request->limit)
        twi_verdict_deny(verdict, TW_CAUSE_NEVER, -1);
    else
        twi_verdict_deny_unknown(verdict, request->family->engine, twi_redis_call_cause(outcome));
    return twi_limit_stats_answered(request->family, request->n, TW_DENIED, verdict); /* acquire.c does not count it */
}

static tw_status fall_back(const struct twi_strict_request *request, enum twi_request_outcome outcome, int64_t *taken,
                           tw_verdict *verdict) {
    twi_port_count(request->family->engine, strict_fallbacks, 1);
    switch (twi_redis_call_policy(request->family, request->key, outcome)) {
    case TW_OUTAGE_FAIL_OPEN: return admit_open(request, taken, verdict);
    case TW_OUTAGE_FAIL_CLOSED: return deny(request, outcome, verdict);
    default: return decide_here(request, outcome, taken, verdict);
    }
}

/* ---- the request ---- */

static void write_question(const struct twi_strict_request *request, struct twi_redis_call *redis_call) {
    tw_family *family = request->family;
    bool slides = family->options.limit_shape == TW_SHAPE_SLIDING;
    twi_check(request->n >= 0 && request->span.start_ms <= request->now_ms);
    int64_t start_ms = request->span.start_ms, expiry_ms = 0;
    if (!family->kind.from_first && request->span.end_ms != INT64_MAX)
        expiry_ms = twi_time_add(request->span.end_ms, twi_load_relaxed(&family->policy.retention_ms));
    twi_redis_call_begin(redis_call, TWI_SCRIPT_STRICT);
    redis_call->request.numbered = true;
    redis_call->request.units = request->n;
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

/* Keeps local knowledge fresh, for the time when Redis is unreachable. The answer contains the total of a fixed window.
 * Otherwise a batch requests it, also for TW_OUTAGE_SHARE, which measures the pace of the others by batches. */
static void learn(const struct twi_strict_request *request, const struct twi_result *result) {
    tw_family *family = request->family;
    bool is_total = !family->kind.slides && !family->kind.from_first && !family->kind.evicts_idle &&
                    twi_load_relaxed(&family->policy.on_outage) != TW_OUTAGE_SHARE;
    struct twi_learnt learnt = {request->span.start_ms, twi_result_number(result, 2), request->began_ms};
    if (is_total && twi_learn_total(family, request->key, &learnt)) return;
    (void)tw_get(family, request->key, NULL);
    if (family->kind.slides) twi_sliding_request_total(family, request->key);
}

static tw_status conclude(const struct twi_strict_request *request, const struct twi_result *result,
                          tw_verdict *verdict) {
    if (twi_redis_call_falls_back_here(request->family)) learn(request, result);
    return fill_answered(request, result, verdict);
}

static void complete(struct twi_strict_request *request) {
    tw_family *family = request->family;
    request->span = twi_calendar_span(&family->rule, request->now_ms);
    if (family->kind.evicts_idle) request->span = (struct twi_span){0, INT64_MAX};
}

static const struct twi_strict_kind kind = {
    .operation = {.send = twi_strict_send, .finish = twi_strict_finish, .may_be_unsent = true},
    .complete = complete,
    .write = write_question,
    .fill_undecided = fill_undecided,
    .conclude = conclude,
    .fall_back = fall_back,
};

/* While Redis does not reply, the limit is decided here as a soft one. */
static tw_status by_counter(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    return family->kind.slides ? twi_sliding_acquire(family, key, n, limit, verdict)
                               : twi_share_acquire(family, key, n, limit, verdict);
}

/* A refund goes to Redis once, as any count does. A log holds calls and not their sum, so it learns of refunds from the
 * counter beside it (strict.lua). */
const struct twi_limit_kind twi_limit_strict = {.acquire = twi_strict_acquire,
                                                .by_counter = by_counter,
                                                .refund = twi_refund_count,
                                                .undo = twi_undo_count,
                                                .start = twi_strict_start,
                                                .strict = &kind};
