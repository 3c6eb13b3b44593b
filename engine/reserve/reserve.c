/* reserve.c -- the calls tw_reserve(), tw_reserve_confirm() and tw_reserve_cancel() (reserve.h). They use
 * reserve_local.c without Redis, and reserve_redis.c with Redis. */
#include "engine/reserve/reserve.h"

#include "engine/count/lookup.h"
#include "engine/reserve/reserve_redis.h"

#include <string.h>

static tw_status check_family(const tw_family *family) {
    const tw_family_options *options = &family->options;
    const char *why = NULL;
    if (family->kind.from_first) why = "window: tw_reserve() is not for TW_WINDOW_FROM_FIRST families";
    if (family->kind.evicts_idle) why = "on_full: tw_reserve() is not for TW_ON_FULL_EVICT_IDLE families";
    if (options->kind != TW_KIND_COUNTER) why = "kind: tw_reserve() is for TW_KIND_COUNTER families";
    if (options->limit_mode == TW_LIMIT_HARD)
        why = "limit_mode: tw_reserve() is not for TW_LIMIT_HARD families; soft and strict ones are as exact";
    if (options->limit_shape != TW_SHAPE_FIXED) why = "limit_shape: tw_reserve() is for TW_SHAPE_FIXED families";
    if (twi_load_relaxed(&family->policy.shadow)) why = "shadow: tw_reserve() is not for families in shadow mode";
    if (options->redis_shape != TW_REDIS_STRING) why = "redis_shape: tw_reserve() is for TW_REDIS_STRING families";
    if (family->engine->life.is_shared && !family->kind.synced)
        why = "shared: without Redis, tw_reserve() is not for shared engines";
    return why == NULL ? TW_OK : twi_refuse(TW_ERR_MODE, why);
}

void twi_reserve_verdict(tw_verdict *verdict, const tw_family *family, int64_t limit) {
    twi_check(verdict != NULL);
    /* nothing is known to remain */
    *verdict = (tw_verdict){.limit = limit, .decided_by = family->kind.synced ? TW_BY_OUTAGE : TW_BY_LOCAL};
    int64_t now_ms = twi_clock_now_ms(&family->engine->clock);
    struct twi_span span = twi_calendar_span(&family->rule, now_ms);
    verdict->window_start_ms = span.start_ms;
    verdict->reset_after_ms = span.end_ms == INT64_MAX ? TW_UNBOUNDED : span.end_ms - now_ms;
    verdict->error_bound = TW_UNBOUNDED;
}

static tw_status check_request(const struct twi_reserve_request *request) {
    twi_check(request->family != NULL);
    tw_status status = check_family(request->family);
    if (status != TW_OK) return status;
    if (request->n <= 0 || request->n > TW_DELTA_MAX) return twi_refuse(TW_ERR_RANGE, "n: not within 1..TW_DELTA_MAX");
    if (request->limit < 0 || request->limit > TW_DELTA_MAX)
        return twi_refuse(TW_ERR_RANGE, "limit: not within 0..TW_DELTA_MAX");
    if (request->ttl_ms == 0) return twi_refuse(TW_ERR_RANGE, "ttl_ms: 0");
    if (request->buyer.size > TW_KEY_SIZE_MAX || (request->buyer.size != 0 && request->buyer.data == NULL))
        return twi_refuse(TW_ERR_KEY, "buyer: longer than 1024 bytes, or its data is NULL");
    return twi_call_check_key(request->family, request->key);
}

tw_status tw_reserve(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t ttl_ms, tw_key buyer,
                     char token[TW_TOKEN_SIZE], tw_verdict *verdict) {
    twi_check(family != NULL && token != NULL);
    struct twi_reserve_request request = {family, key, buyer, n, limit, ttl_ms};
    struct twi_token made;
    tw_verdict unasked;
    token[0] = '\0';
    if (verdict == NULL) verdict = &unasked;
    twi_reserve_verdict(verdict, family, limit);
    tw_status status = check_request(&request);
    if (status != TW_OK) return status;
    status = family->kind.synced ? twi_reserve_redis_take(&request, &made, verdict)
                                 : twi_reserve_local_take(&request, &made, verdict);
    if (status == TW_OK || status == TW_ERR_TIMEOUT) twi_token_write(&made, token);
    return status;
}

/* Returns whether the token is of this engine's kind of store, which is no Redis, one Redis, or a cluster. */
static bool fits(const tw_engine *engine, const struct twi_token *token) {
    return token->local != engine->life.has_redis && token->has_slot == (engine->here->remote.shorts != NULL);
}

tw_status tw_reserve_confirm(tw_engine *engine, const char *token) {
    struct twi_token read;
    twi_check(engine != NULL);
    if (!twi_token_read(token, &read) || !fits(engine, &read)) return twi_refuse_for(TWI_WHY_TOKEN);
    return read.local ? twi_reserve_local_confirm(engine, &read) : twi_reserve_redis_confirm(engine, &read);
}

tw_status tw_reserve_cancel(tw_engine *engine, const char *token) {
    struct twi_token read;
    twi_check(engine != NULL);
    if (!twi_token_read(token, &read) || !fits(engine, &read)) return twi_refuse_for(TWI_WHY_TOKEN);
    return read.local ? twi_reserve_local_cancel(engine, &read) : twi_reserve_redis_cancel(engine, &read);
}

/* ---- answered later, with Redis ---- */

tw_status tw_reserve_async(tw_request *call, tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t ttl_ms,
                           tw_key buyer) {
    twi_check(call != NULL && family != NULL);
    struct twi_reserve_request request = {family, key, buyer, n, limit, ttl_ms};
    if (!family->kind.synced) {
        call->status = tw_reserve(family, key, n, limit, ttl_ms, buyer, call->token, &call->verdict);
        return call->status;
    }
    call->token[0] = '\0';
    twi_reserve_verdict(&call->verdict, family, limit);
    tw_status status = check_request(&request);
    return status == TW_OK ? twi_reserve_redis_start(call, &request) : (call->status = status);
}

static tw_status settle_async(tw_request *call, tw_engine *engine, const char *token, bool confirms) {
    struct twi_token read;
    tw_status status = TW_OK;
    twi_check(engine != NULL);
    if (!twi_token_read(token, &read) || !fits(engine, &read)) status = twi_refuse_for(TWI_WHY_TOKEN);
    if (status == TW_OK && !read.local) return twi_reserve_redis_settle(call, engine, &read, confirms);
    if (status == TW_OK)
        status = confirms ? twi_reserve_local_confirm(engine, &read) : twi_reserve_local_cancel(engine, &read);
    if (call != NULL) call->status = status;
    return status;
}

tw_status tw_reserve_confirm_async(tw_request *request, tw_engine *engine, const char *token) {
    twi_check(request != NULL);
    return settle_async(request, engine, token, true);
}

tw_status tw_reserve_cancel_async(tw_request *request, tw_engine *engine, const char *token) {
    return settle_async(request, engine, token, false);
}
