/* strict_gcra.c -- TW_LIMIT_STRICT with TW_SHAPE_GCRA and Redis: a rate and a burst for all processes together. It
 * makes one request for each call (gcra.lua). Redis keeps one moment for each key and decides by its own clock.
 *
 *   request ──OK, DENIED──▶ that is the answer, and the local bucket becomes as full as Redis's, for a later outage
 *     └──refused, away, unknown──▶ LOCAL: the local bucket decides (gcra.c)                 (decided_by TW_BY_OUTAGE)
 *                                  FAIL_OPEN: admitted, and put into the local bucket as far as it holds that
 *                                  FAIL_CLOSED: denied; within outage_grace_ms: LOCAL
 * Moments cannot be added, so two buckets are merged by taking the later moment. For one window after the last call
 * that was admitted without Redis, each request says how full the local bucket is. Redis adopts that value if it is
 * greater. If two engines admitted calls in the same outage, the greater of both is known afterwards, and not the sum.
 * During that window the engine adopts no value from Redis. A value that came from this engine would come back later
 * each time, by the time that the messages need.
 * A request of unknown outcome, and one whose caller has gone, is cancelled before its lane is used again (sync/ask/).
 * Always true: the family is not synced. Its cells are words of gcra.c, and only this file sends these words to
 * Redis. The verdict is filled, whatever the result. */
#include "engine/ask/strict.h"

#include "engine/base/check.h"
#include "engine/limit/gcra.h"
#include "engine/limit/decision.h"

/* ---- verdicts ---- */

/* Fills the verdict for a bucket whose content is unknown, as if it were empty or full. */
static void fill_undecided(const struct twi_strict_request *request, tw_verdict *verdict) {
    int64_t start_ms = twi_calendar_span(&request->family->rule, request->now_ms).start_ms;
    *verdict = (tw_verdict){
        .limit = request->limit, .error_bound = TW_UNBOUNDED, .window_start_ms = start_ms, .decided_by = TW_BY_OUTAGE};
}

static tw_status fill_answered(const struct twi_strict_request *request, const struct twi_result *result,
                               tw_verdict *verdict) {
    bool admitted = twi_result_is(result, "OK");
    twi_check(result->outcome == TWI_REQUEST_DONE);
    verdict->remaining = twi_result_number(result, 2);
    verdict->used = request->burst - verdict->remaining;
    verdict->reset_after_ms = twi_result_number(result, 3);
    verdict->error_bound = 0;
    verdict->decided_by = TW_BY_REDIS;
    verdict->allowed = admitted;
    int64_t retry_ms = twi_result_number(result, 4);
    if (!admitted) twi_verdict_deny(verdict, retry_ms < 0 ? TW_CAUSE_NEVER : TW_CAUSE_LIMIT, retry_ms);
    return admitted ? TW_OK : TW_DENIED;
}

/* ---- when Redis does not decide ---- */

static int64_t full_ms(const struct twi_strict_request *request) {
    twi_check(request->burst <= request->limit);
    if (request->limit == 0) return 0;
    return twi_share_up(request->burst, request->family->rule.window_ms, request->limit);
}

/* From now on requests contain the state of the local buckets, until their present content has run out. */
static void note_bridged(const struct twi_strict_request *request) {
    _Atomic int64_t *until_ms = &request->family->outage.bridged_until_ms;
    int64_t wanted_ms = request->now_ms + request->family->rule.window_ms, known_ms = twi_load_relaxed(until_ms);
    while (known_ms < wanted_ms && !twi_cas_relaxed(until_ms, &known_ms, wanted_ms)) {}
}

static tw_status admit_open(const struct twi_strict_request *request, int64_t *taken, tw_verdict *verdict) {
    twi_check(*taken == 0);
    struct twi_why before = twi_why_now();
    tw_status status = twi_gcra_acquire(request->family, request->key, request->n, request->limit, verdict);
    if (status == TW_DENIED)
        twi_gcra_raise(request->family, request->key, request->limit, full_ms(request)); /* it cannot hold more */
    if (status < 0 && status != TW_ERR_FULL) return status;
    twi_why_restore(before); /* without room the call is admitted uncounted, so it was not refused */
    twi_verdict_admit(verdict);
    *taken = request->n;
    return TW_OK;
}

/* If `some` is set, tries n units or the burst, then the number that the verdict shows as left, then one unit, so that
 * the verdict shows when one unit may come. A call for more than the burst would not look at the exact clock. */
static tw_status decide_here(const struct twi_strict_request *request, int64_t *taken, tw_verdict *verdict) {
    twi_check(*taken == 0);
    int64_t n = request->some && request->n > request->burst && request->burst > 0 ? request->burst : request->n;
    for (;;) {
        tw_status status = twi_gcra_acquire(request->family, request->key, n, request->limit, verdict);
        *taken = status == TW_OK ? n : 0;
        if (status != TW_DENIED || !request->some || n <= 1) return status;
        n = verdict->remaining > 0 && verdict->remaining < n ? verdict->remaining : 1;
    }
}

/* The state is unknown. The bucket is surely empty when its time has passed. */
static tw_status deny(const struct twi_strict_request *request, enum twi_request_outcome outcome, tw_verdict *verdict) {
    twi_check(request->family->options.limit_shape == TW_SHAPE_GCRA);
    int64_t least = request->some && request->n > 1 ? 1 : request->n;
    verdict->reset_after_ms = full_ms(request);
    if (least > request->burst)
        twi_verdict_deny(verdict, TW_CAUSE_NEVER, -1);
    else
        twi_verdict_deny_unknown(verdict, request->family->engine, twi_redis_call_cause(outcome));
    return TW_DENIED;
}

static tw_status fall_back(const struct twi_strict_request *request, enum twi_request_outcome outcome, int64_t *taken,
                           tw_verdict *verdict) {
    twi_port_count(request->family->engine, strict_fallbacks, 1);
    uint32_t policy = twi_redis_call_policy(request->family, request->key, outcome);
    if (policy == TW_OUTAGE_FAIL_CLOSED) return deny(request, outcome, verdict);
    tw_status status =
        policy == TW_OUTAGE_FAIL_OPEN ? admit_open(request, taken, verdict) : decide_here(request, taken, verdict);
    if (status == TW_OK && request->n != 0) note_bridged(request);
    verdict->error_bound = TW_UNBOUNDED;
    if (verdict->decided_by != TW_BY_FULL) verdict->decided_by = TW_BY_OUTAGE;
    return status;
}

/* Returns true if the local bucket may have to decide or to be filled. */
static bool is_used_here(tw_family *family) {
    return twi_redis_call_falls_back_here(family) || twi_load_relaxed(&family->policy.on_outage) == TW_OUTAGE_FAIL_OPEN;
}

/* ---- the request ---- */

static bool is_bridged(const struct twi_strict_request *request) {
    return request->now_ms < twi_load_relaxed(&request->family->outage.bridged_until_ms);
}

/* Returns how full the local bucket is, if Redis may not have that value. */
static int64_t ahead_ms(const struct twi_strict_request *request) {
    tw_verdict here;
    if (!is_bridged(request)) return 0;
    tw_status status = twi_gcra_acquire(request->family, request->key, 0, request->limit, &here);
    return status == TW_OK ? here.reset_after_ms : 0;
}

static void write_question(const struct twi_strict_request *request, struct twi_redis_call *redis_call) {
    tw_family *family = request->family;
    twi_redis_call_begin(redis_call, TWI_SCRIPT_GCRA);
    redis_call->request.numbered = true;
    redis_call->request.units = request->n;
    twi_redis_call_key(redis_call, family, "calls", request->key, 0); /* both keys are used for all windows */
    twi_redis_call_key(redis_call, family, "bucket", request->key, 0);
    twi_redis_call_number(redis_call, request->n);
    twi_redis_call_number(redis_call, request->limit);
    twi_redis_call_number(redis_call, request->some);
    twi_redis_call_number(redis_call, request->burst);
    twi_redis_call_number(redis_call, family->rule.window_ms);
    twi_redis_call_number(redis_call, ahead_ms(request));
}

static tw_status conclude(const struct twi_strict_request *request, const struct twi_result *result,
                          tw_verdict *verdict) {
    tw_status status = fill_answered(request, result, verdict);
    if (is_used_here(request->family) && !is_bridged(request))
        twi_gcra_raise(request->family, request->key, request->limit, verdict->reset_after_ms);
    return status;
}

static void complete(struct twi_strict_request *request) {
    request->burst = twi_limit_most_at_once(request->family, request->limit);
}

static const struct twi_strict_kind kind = {
    .operation = {.send = twi_strict_send, .finish = twi_strict_finish, .may_be_unsent = true},
    .complete = complete,
    .write = write_question,
    .fill_undecided = fill_undecided,
    .conclude = conclude,
    .fall_back = fall_back,
};

/* How far a unit moved the moment depends on the limit, and tw_refund() has no argument for the limit. */
static tw_status refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    (void)family, (void)key, (void)n, (void)window_start_ms;
    return twi_refuse_for(TWI_WHY_GCRA);
}

static tw_status undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    (void)limit;
    return refund(family, key, n, window_start_ms);
}

const struct twi_limit_kind twi_limit_strict_gcra = {
    .acquire = twi_strict_acquire, .refund = refund, .undo = undo, .start = twi_strict_start, .strict = &kind};
