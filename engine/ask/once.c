/* once.c -- tw_once() and tw_once_cancel() decide which call comes first. Without Redis, and in soft families, the
 * key's counter in this process decides. In strict families Redis decides (once.lua).
 * Always true: a counter of 1 or more means that some call was first, whichever engine counted it. So all ways leave
 * the same state. */
#include "engine/ask/redis_call.h"
#include "engine/base/check.h"
#include "engine/count/lookup.h"
#include "engine/limit/decision.h"
#include "engine/limit/acquire.h"

static tw_status check(const tw_family *family) {
    const tw_family_options *options = &family->options;
    const char *why = NULL;
    if (options->kind != TW_KIND_COUNTER) why = "kind: tw_once() is for TW_KIND_COUNTER families";
    if (options->limit_shape != TW_SHAPE_FIXED) why = "limit_shape: tw_once() is for TW_SHAPE_FIXED families";
    if (options->limit_mode == TW_LIMIT_HARD && family->kind.synced)
        why = "limit_mode: with Redis tw_once() is not for TW_LIMIT_HARD families; take soft or strict ones";
    if (family->kind.takes_guests)
        why = "on_full: tw_once() is not for families with windows and TW_ON_FULL_EVICT_IDLE, which forget keys";
    return why == NULL ? TW_OK : twi_refuse(TW_ERR_MODE, why);
}

/* ---- here ---- */

static tw_status once_here(tw_family *family, tw_key key, bool *first) {
    tw_verdict verdict;
    tw_status status = twi_acquire_slow(family, key, 1, 1, &verdict);
    if (status < 0) return status;
    *first = verdict.allowed != 0;
    return TW_OK;
}

/* A compare-and-swap sets a positive count to 0, so only one of several concurrent cancels does it. A striped counter
 * has no single word. There each cancel would subtract. That needs adds by many threads to a key of this kind. */
static enum twi_added clear_cell(const struct twi_call *call, const struct twi_place *place) {
    twi_check(call->family != NULL && place->cell != NULL);
    uint64_t word = twi_load_acquire(&place->cell->local), after; /* C2 */
    int64_t base = call->family->kind.synced ? twi_load_relaxed(&place->cell->base) : 0, local;
    do {
        if ((word & TWI_FROZEN) != 0) {
            uint64_t meta = twi_load_acquire(&place->cell->meta); /* S2 */
            struct twi_place striped = *place;
            int64_t view = twi_cell_view(place->cell, meta);
            striped.meta = meta;
            return view > 0 ? twi_place_add(call, &striped, -view, &local) : TWI_ADDED;
        }
        int64_t view = twi_saturated_sum(twi_word_value(word), base);
        if (view <= 0) return TWI_ADDED;
        after = (uint64_t)(twi_word_value(word) - view) << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
    } while (!twi_cas_weak_acqrel(&place->cell->local, &word, after));
    twi_place_mark(call, place, word);
    return TWI_ADDED;
}

static tw_status cancel_here(tw_family *family, tw_key key) {
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        struct twi_place place;
        status = twi_call_now(&call);
        if (status != TW_OK || !twi_place_find(&call, &place)) break;
        enum twi_added added = clear_cell(&call, &place);
        status = added == TWI_ADDED ? TW_OK : added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_refuse_for(TWI_WHY_SUM);
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    return status;
}

/* ---- by Redis ---- */

struct asking {
    struct twi_operation operation;
    tw_key key;
    struct twi_span span;
    bool cancels;
};
static_assert(sizeof(struct asking) <= TWI_OPERATION_BYTES, "operation.h");

static bool ask(struct twi_operation *operation) {
    const struct asking *asking = (const struct asking *)operation;
    tw_family *family = operation->family;
    unsigned char random[16];
    char token[TWI_TOKEN_ID_DIGITS + 1];
    struct twi_redis_call redis_call;
    int64_t start_ms = asking->span.start_ms;
    twi_check(asking->span.start_ms < asking->span.end_ms);
    bool endless = family->options.window == TW_WINDOW_FOREVER;
    int64_t expiry_ms = endless || family->kind.from_first
                            ? 0
                            : twi_time_add(asking->span.end_ms, twi_load_relaxed(&family->policy.retention_ms));
    twi_port_random(family->engine, random, sizeof random);
    twi_token_id(random, token);
    twi_redis_call_begin(&redis_call, TWI_SCRIPT_ONCE);
    redis_call.request.numbered = true;
    twi_redis_call_key(&redis_call, family, "calls", asking->key, start_ms);
    twi_redis_call_key(&redis_call, family, "once", asking->key, start_ms);
    twi_redis_call_key(&redis_call, family, NULL, asking->key, start_ms);
    twi_redis_call_text(&redis_call, asking->cancels ? "C" : "O");
    twi_redis_call_text(&redis_call, token);
    twi_redis_call_number(&redis_call, expiry_ms);
    twi_redis_call_number(&redis_call, family->kind.from_first ? family->rule.window_ms : 0);
    return twi_redis_call_send(&redis_call, operation);
}

/* If the request wrote in Redis, that write is taken back (sync/ask/), so the answer given here stays valid. */
static tw_status once_without_redis(tw_family *family, tw_key key, enum twi_request_outcome outcome, bool *first) {
    twi_port_count(family->engine, strict_fallbacks, 1);
    switch (twi_redis_call_policy(family, key, outcome)) {
    case TW_OUTAGE_FAIL_OPEN: {
        struct twi_why before = twi_why_now();
        tw_status status = tw_add(family, key, 1, NULL);
        *first = true;
        if (status < 0 && status != TW_ERR_FULL) return status;
        twi_why_restore(before); /* without room the call is still first, so it was not refused */
        return TW_OK;
    }
    case TW_OUTAGE_FAIL_CLOSED: return twi_redis_call_refuse(family->engine, outcome);
    default: return once_here(family, key, first);
    }
}

static tw_status finish_once(struct twi_operation *operation, tw_request *call) {
    const struct asking *asking = (const struct asking *)operation;
    twi_check(!asking->cancels);
    tw_family *family = operation->family;
    const struct twi_result *result = &operation->result;
    call->first = twi_result_is(result, "FIRST");
    if (call->first || twi_result_is(result, "SECOND")) {
        twi_redis_call_answered(family);
        if (twi_redis_call_falls_back_here(family)) (void)tw_get(family, asking->key, NULL);
        return TW_OK;
    }
    bool refuses = twi_result_why(result) == TWI_REQUEST_BUSY && !twi_load_relaxed(&family->policy.busy_is_outage);
    if (refuses || twi_load_acquire(&family->engine->life.stopped))
        return twi_redis_call_refuse(family->engine, result->outcome);
    tw_status status = once_without_redis(family, asking->key, twi_result_why(result), &call->first);
    if (status != TW_OK) call->first = false;
    return status;
}

static tw_status finish_cancel(struct twi_operation *operation, tw_request *call) {
    const struct twi_result *result = &operation->result;
    (void)call;
    return twi_result_is(result, "OK") ? TW_OK : twi_redis_call_refuse(operation->engine, result->outcome);
}

static const struct twi_operation_kind cancel_kind = {.send = ask, .finish = finish_cancel, .settles = true};
static const struct twi_operation_kind once_kind = {.send = ask, .finish = finish_once, .may_be_unsent = true};

static tw_status start(tw_request *call, tw_family *family, const struct twi_operation_kind *kind, tw_key key) {
    tw_engine *engine = family->engine;
    tw_status status = twi_call_check_key(family, key);
    if (status == TW_OK) status = twi_redis_call_may(engine, call);
    struct asking *asking =
        status == TW_OK ? (struct asking *)twi_operation_make(engine, kind, family, call, &status) : NULL;
    if (asking == NULL) return twi_call_answer(call, status);
    asking->span = twi_calendar_span(&family->rule, twi_clock_now_ms(&engine->clock));
    asking->cancels = kind == &cancel_kind;
    return twi_call_start_with(&asking->operation, call, key, &asking->key);
}

/* ---- the calls ---- */

static bool is_by_redis(const tw_family *family) {
    twi_check(family->options.kind == TW_KIND_COUNTER);
    return family->kind.is_strict && family->kind.synced;
}

tw_status tw_once_async(tw_request *request, tw_family *family, tw_key key) {
    TWI_NEED(request);
    TWI_NEED(family);
    request->first = false;
    tw_status status = check(family);
    if (status == TW_OK && is_by_redis(family)) return start(request, family, &once_kind, key);
    if (status == TW_OK) status = once_here(family, key, &request->first);
    return twi_call_answer(request, status);
}

tw_status tw_once_cancel_async(tw_request *request, tw_family *family, tw_key key) {
    TWI_NEED(request);
    TWI_NEED(family);
    tw_status status = check(family);
    if (status == TW_OK && is_by_redis(family)) return start(request, family, &cancel_kind, key);
    return twi_call_answer(request, status == TW_OK ? cancel_here(family, key) : status);
}

/* A function of its own, because tw_once() without Redis needs no request. */
TWI_COLD static tw_status ask_and_wait(tw_family *family, tw_key key, bool *first) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    tw_status status = start(&call, family, &once_kind, key);
    *first = status == TW_OK && call.first;
    return status;
}

tw_status tw_once(tw_family *family, tw_key key, bool *first) {
    bool is_first = false;
    TWI_NEED(family);
    tw_status status = check(family);
    if (status != TW_OK) return status;
    status = is_by_redis(family) ? ask_and_wait(family, key, &is_first) : once_here(family, key, &is_first);
    if (status == TW_OK && first != NULL) *first = is_first;
    return status;
}

tw_status tw_once_cancel(tw_family *family, tw_key key) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    return tw_once_cancel_async(&call, family, key);
}
