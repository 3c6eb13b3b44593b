/* strict.c -- see strict.h. One request per call (strict.lua). If Redis does not decide it, the family's on_outage
 * does.
 *
 *   request ──OK, DENIED──▶ that is the answer
 *     └──refused, away, unknown──▶ LOCAL: as a soft limit; FAIL_OPEN: admitted; FAIL_CLOSED: denied
 *                                  (decided_by TW_BY_OUTAGE)
 *                                  within outage_grace_ms: LOCAL, whatever is set
 * What a fallback admits is counted here and goes to Redis as any count does, exactly once. A request of unknown
 * outcome may have been charged in Redis as well. Therefore a cancel is sent before its connection is used again, and
 * takes that charge back. So what was admitted is charged once in the end. Meanwhile Redis counts too much rather than
 * too little (trap L11).
 * Always true: the verdict is filled, whatever the answer. */
#include "engine/ask/strict.h"

#include "engine/ask/redis_call.h"
#include "engine/count/lookup.h"
#include "engine/limit/acquire.h"
#include "engine/limit/refund.h"
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

static tw_status fill_answered(const struct request *request, const struct twi_redis_call *redis_call,
                               tw_verdict *verdict) {
    bool admitted = twi_redis_call_is(redis_call, "OK");
    int64_t used = twi_redis_call_number_at(redis_call, 2), reset_ms = twi_redis_call_number_at(redis_call, 3);
    int64_t least = request->some && request->n > 1 ? 1 : request->n; /* the fewest units that count as admitted */
    verdict->used = used;
    verdict->remaining = used < request->limit ? request->limit - used : 0;
    if (request->family->kind.from_first || request->family->options.limit_shape == TW_SHAPE_SLIDING)
        verdict->reset_after_ms = reset_ms;
    if (request->family->kind.from_first) /* when the key's window began */
        verdict->window_start_ms = request->now_ms + reset_ms - request->family->rule.window_ms;
    verdict->retry_after_ms = admitted                                      ? 0
                              : least > request->limit                      ? -1
                              : twi_redis_call_number_at(redis_call, 4) > 0 ? twi_redis_call_number_at(redis_call, 4)
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
    twi_why_retry(before); /* without room the call is admitted uncounted: nothing was refused */
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
    twi_redis_call_number(redis_call, slides ? family->rule.window_ms : 0);
    twi_redis_call_number(redis_call, start_ms);
}

/* Keeps local knowledge fresh, for the time when Redis is away. */
static void learn(const struct request *request) {
    (void)tw_get(request->family, request->key, NULL);
    if (request->family->kind.slides) twi_sliding_request_total(request->family, request->key);
}

static tw_status run(const struct request *request, int64_t *taken, tw_verdict *verdict) {
    tw_engine *engine = request->family->engine;
    struct twi_redis_call redis_call;
    write_question(request, &redis_call);
    enum twi_request_outcome outcome = twi_redis_call_run(&redis_call, engine);
    if (outcome == TWI_REQUEST_DONE &&
        (twi_redis_call_is(&redis_call, "OK") || twi_redis_call_is(&redis_call, "DENIED"))) {
        *taken = twi_redis_call_number_at(&redis_call, 1);
        twi_redis_call_answered(request->family);
        if (twi_redis_call_falls_back_here(request->family)) learn(request);
        return fill_answered(request, &redis_call, verdict);
    }
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    return fall_back(request, outcome, taken, verdict);
}

static tw_status decide(struct request *request, int64_t *taken, tw_verdict *verdict) {
    tw_family *family = request->family;
    request->now_ms = twi_clock_now_ms(&family->engine->clock);
    request->span = twi_calendar_span(&family->rule, request->now_ms);
    if (family->kind.evicts_idle) request->span = (struct twi_span){0, INT64_MAX};
    fill_undecided(request, verdict);
    tw_status status = twi_limit_is_in_range(request->n, request->limit) ? twi_call_check_key(family, request->key)
                                                                         : twi_units_refuse(request->n);
    if (status == TW_OK) status = twi_redis_call_may(family->engine);
    return status == TW_OK ? run(request, taken, verdict) : status;
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

/* A refund goes to Redis once, as any count does. A log holds calls and not their sum, so it learns of refunds from the
 * counter beside it (strict.lua). */
const struct twi_limit_kind twi_limit_strict = {
    .acquire = twi_strict_acquire, .some = some, .put_back = twi_refund_count, .waits = true};
