/* acquire_wait.c -- tw_acquire_wait() and its form that answers later repeat tw_acquire() until it is admitted or the
 * time is up. A caller that waits sleeps until `retry_after_ms`, until a local refund, or 100 ms, whichever is first.
 * The sleep is at most 100 ms, because processes with engines of their own return units, too, and because the clock
 * may be set. A `final` denial ends the wait, because all units are sold, and only a refund could return some before
 * `retry_after_ms`. A `final` that is older than a second does not end the wait, because another process may have
 * refunded since.
 * Always true: the caller is in no section and in no hook while it sleeps. No units are taken in advance. */
#include "engine/count/lookup.h"

#include "engine/core/call_guard.h"
#include "engine/core/calls.h"
#include "engine/core/queue.h"
#include "engine/core/waiters.h"
#include "engine/limit/limit_stats.h"

#include <stdlib.h>

#define LOOK_MS 100

static uint32_t nap_ms(int64_t wish_ms, int64_t left_ms) {
    twi_check(left_ms > 0);
    int64_t ms = wish_ms < left_ms ? wish_ms : left_ms;
    return ms < 1 ? 1 : ms > LOOK_MS ? LOOK_MS : (uint32_t)ms;
}

/* Returns true if units, or the end of the window, may come within the time that is left. */
static bool may_come(tw_family *family, tw_key key, const tw_verdict *verdict, int64_t left_ms) {
    twi_check(left_ms > 0);
    if (verdict->retry_after_ms < 0) return false;
    if (!verdict->final || verdict->retry_after_ms <= left_ms) return true;
    return family->kind.limit->is_fresh != NULL && !family->kind.limit->is_fresh(family, key);
}

/* Returns true if the result may change within the time that is left. */
static bool waits(tw_family *family, tw_key key, tw_status status, const tw_verdict *verdict, int64_t left_ms) {
    return (status == TW_DENIED || status == TW_PENDING) && left_ms > 0 && may_come(family, key, verdict, left_ms);
}

static void fill_unasked(tw_family *family, tw_status status, int64_t n, int64_t limit, tw_verdict *verdict) {
    twi_check(verdict != NULL);
    struct twi_decision nothing = {0};
    twi_verdict_fill(verdict, family->kind.synced, status, n, limit, &nothing);
}

tw_status tw_acquire_wait(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t timeout_ms,
                          tw_verdict *verdict) {
    tw_verdict unasked;
    twi_check(family != NULL);
    tw_engine *engine = family->engine;
    if (verdict == NULL) verdict = &unasked;
    tw_status status = twi_guard_may_wait(engine);
    if (status == TW_OK) status = twi_guard_engine(engine);
    if (status != TW_OK) {
        fill_unasked(family, status, n, limit, verdict);
        return status;
    }
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    for (;;) {
        uint32_t given = twi_event_count_value(&engine->given_back),
                 turned = twi_event_count_value(&engine->turn.ended);
        status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
        int64_t left_ms = deadline_ms - twi_clock_mono_ms(&engine->clock);
        if (!waits(family, key, status, verdict, left_ms)) return status;
        uint32_t ms = nap_ms(verdict->retry_after_ms, left_ms);
        if (status == TW_PENDING)
            twi_event_count_wait(&engine->turn.ended, turned,
                                 ms); /* a turn of the engine brings the units that were requested */
        else
            twi_event_count_wait(&engine->given_back, given, ms);
    }
}

/* ---- the form that answers later ---- */

/* A waiter (waiters.h). Each try is a tw_acquire(). If tw_acquire() waits for Redis, each try is a separate request. */
struct waiting {
    struct twi_operation operation;
    int64_t n, limit;
    tw_status status; /* the status of the last try */
    tw_verdict verdict;
    tw_request *tries; /* the request of the tries; NULL: tries answer at once */
};
static_assert(sizeof(struct waiting) <= TWI_OPERATION_BYTES, "operation.h");

/* Decides what to do after a try that has its result. */
static enum twi_look plan(struct waiting *waiting) {
    twi_check(waiting->operation.family != NULL);
    struct twi_operation *operation = &waiting->operation;
    int64_t now_ms = twi_clock_mono_ms(&operation->engine->clock), left_ms = operation->deadline_ms - now_ms;
    if (waiting->status == TW_ERR_BUSY && left_ms > 0) { /* it may also wait until fewer calls are under way */
        operation->wait.look_ms = now_ms + TWI_TICK_MS;
        return TWI_LOOK_WAITS;
    }
    if (!waits(operation->family, operation->key, waiting->status, &waiting->verdict, left_ms)) return TWI_LOOK_OVER;
    operation->wait.look_ms = now_ms + nap_ms(waiting->verdict.retry_after_ms, left_ms);
    operation->wait.wakes = waiting->status == TW_DENIED;
    operation->wait.each_turn = waiting->status == TW_PENDING; /* a turn brings the units that were requested */
    return TWI_LOOK_WAITS;
}

static enum twi_look look(struct twi_operation *operation) {
    twi_check(operation->family != NULL && operation->list == NULL);
    struct waiting *waiting = (struct waiting *)operation;
    tw_family *family = operation->family;
    if (waiting->tries != NULL) {
        int64_t left_ms = operation->deadline_ms - twi_clock_mono_ms(&operation->engine->clock);
        bool is_short = left_ms < twi_port_timeout_ms(operation->engine);
        waiting->tries->timeout_ms = !is_short ? 0 : left_ms > 1 ? (uint32_t)left_ms : 1;
        tw_status status = tw_acquire_async(waiting->tries, family, operation->key, waiting->n, waiting->limit);
        if (status == TW_STARTED) return TWI_LOOK_ASKED;
        waiting->status = status;
        waiting->verdict = waiting->tries->verdict;
    } else {
        waiting->status = twi_load_relaxed(&family->kind.hot_acquire)(family, operation->key, waiting->n,
                                                                      waiting->limit, &waiting->verdict);
    }
    return plan(waiting);
}

/* `done` of a try that waited for Redis. */
static void try_done(tw_request *try) {
    twi_check(try->status != TW_STARTED);
    struct waiting *waiting = try->ctx; /* its first field */
    waiting->status = try->status;
    waiting->verdict = try->verdict;
    if (plan(waiting) == TWI_LOOK_WAITS)
        twi_waiter_add(&waiting->operation, look);
    else
        twi_queue_push(&waiting->operation);
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    twi_check(((const struct waiting *)operation)->status != TW_STARTED);
    const struct waiting *waiting = (const struct waiting *)operation;
    call->verdict = waiting->verdict;
    bool was_waiting = waiting->status == TW_DENIED || waiting->status == TW_PENDING;
    if (was_waiting && twi_load_acquire(&operation->engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    return waiting->status < 0 ? twi_refuse(waiting->status, NULL) : waiting->status;
}

/* Called when the caller no longer waits. Units that were admitted here meanwhile are returned. */
static void undo(struct twi_operation *operation) {
    const struct waiting *waiting = (const struct waiting *)operation;
    bool took = waiting->status == TW_OK && waiting->n != 0 && waiting->verdict.allowed != 0 &&
                waiting->verdict.decided_by != TW_BY_FULL;
    if (!took) return;
    (void)operation->family->kind.limit->undo(operation->family, operation->key, waiting->n, waiting->limit,
                                              waiting->verdict.window_start_ms);
}

static void drop(struct twi_operation *operation) {
    free(((struct waiting *)operation)->tries);
}

static const struct twi_operation_kind kind = {.finish = finish, .undo = undo, .drop = drop};
static const struct twi_operation_kind strict_kind = {.finish = finish, .undo = undo, .drop = drop, .gives_way = true};

/* Returns NULL if there is none; *status is then the reason. */
static struct waiting *make(tw_request *call, tw_family *family, tw_key key, uint32_t timeout_ms, tw_status *status) {
    twi_check(timeout_ms != 0);
    tw_engine *engine = family->engine;
    bool is_strict = family->kind.limit->start != NULL;
    struct waiting *waiting =
        (struct waiting *)twi_operation_make(engine, is_strict ? &strict_kind : &kind, family, call, status);
    if (waiting == NULL) return NULL;
    waiting->tries = NULL;
    waiting->operation.wait.shares_units = !is_strict;
    waiting->operation.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    bool is_kept = twi_operation_keep(&waiting->operation, key, &waiting->operation.key);
    if (is_kept && is_strict) {
        waiting->tries = malloc(sizeof *waiting->tries);
        is_kept = waiting->tries != NULL;
    }
    if (is_kept) return waiting;
    *status = twi_call_end_now(&waiting->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
    return NULL;
}

/* A strict family decides without Redis when calls_max calls are under way. A waiter would be one more. */
static bool decides_when_busy(const tw_family *family) {
    return family->kind.limit->start != NULL && twi_load_relaxed(&family->policy.busy_is_outage);
}

tw_status tw_acquire_wait_async(tw_request *request, tw_family *family, tw_key key, int64_t n, int64_t limit) {
    twi_check(request != NULL && family != NULL);
    uint32_t timeout_ms = request->timeout_ms != 0 ? request->timeout_ms : twi_port_timeout_ms(family->engine);
    tw_status status = twi_calls_may_start(family->engine);
    if (status == TW_OK && !twi_limit_is_in_range(n, limit)) status = twi_units_refuse(n);
    if (status == TW_OK) status = twi_call_check_key(family, key);
    fill_unasked(family, status, n, limit, &request->verdict);
    if (status != TW_OK) return twi_call_answer(request, status);
    if (family->kind.limit->start == NULL) {
        status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, &request->verdict);
        if (!waits(family, key, status, &request->verdict, timeout_ms)) return twi_call_answer(request, status);
    }
    struct waiting *waiting = make(request, family, key, timeout_ms, &status);
    if (status == TW_ERR_BUSY && decides_when_busy(family)) return tw_acquire_async(request, family, key, n, limit);
    if (waiting == NULL)
        return twi_call_answer(request, twi_limit_stats_answered(family, n, status, &request->verdict));
    waiting->n = n;
    waiting->limit = limit;
    waiting->status = TW_DENIED;
    waiting->verdict = request->verdict;
    waiting->verdict.allowed = 0; /* of a strict limit: no try has been made */
    waiting->operation.wait.look_ms = INT64_MIN;
    if (waiting->tries != NULL) twi_operation_own_request(waiting->tries, try_done, &waiting->operation);
    twi_waiter_add(&waiting->operation, look);
    return TW_STARTED;
}
