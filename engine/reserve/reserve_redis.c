/* reserve_redis.c -- reservations that Redis keeps: one request per reservation (reserve.lua).
 * Confirm and cancel send two requests: the first finds the counter, the second acts on all of its keys.
 * Always true: the id in the token is drawn before the first request. So a repeated request, by the pool after a lost
 * reply or by the caller, meets the same reservation (reserve.lua). Nothing is decided here. */
#include "engine/reserve/reserve_redis.h"

#include "engine/ask/redis_call.h"
#include "engine/base/key_slot.h"
#include "engine/reserve/reserve_local.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_NAME "tw:token:"

/* The name of a token's key in Redis. In a cluster it lies in the slot of the token's counter. */
static tw_key name_token(const tw_engine *engine, const struct twi_token *token, char out[TWI_REDIS_CALL_NAME_MAX]) {
    char brace[16] = "";
    if (token->has_slot) (void)snprintf(brace, sizeof brace, "{%" PRIu32 "}", engine->remote.shorts[token->slot]);
    int size =
        snprintf(out, TWI_REDIS_CALL_NAME_MAX, "%s" TOKEN_NAME "%s%s", twi_port_prefix(engine), brace, token->id);
    return tw_bytes(out, (size_t)size);
}

/* ---- reserving ---- */

static void write_order(const struct twi_reserve_request *request, const struct twi_token *token, int64_t start_ms,
                        int64_t expiry_ms, char token_name[TWI_REDIS_CALL_NAME_MAX],
                        struct twi_redis_call *redis_call) {
    tw_family *family = request->family;
    twi_redis_call_key(redis_call, family, NULL, request->key, start_ms);
    twi_redis_call_key(redis_call, family, "stock", request->key, start_ms);
    twi_redis_call_key(redis_call, family, "due", request->key, start_ms);
    redis_call->keys[redis_call->request.key_count++] = name_token(family->engine, token, token_name);
    twi_redis_call_text(redis_call, "reserve");
    twi_redis_call_text(redis_call, token->id);
    twi_redis_call_number(redis_call, request->n);
    twi_redis_call_number(redis_call, request->limit);
    twi_redis_call_number(redis_call, request->ttl_ms);
    redis_call->args[redis_call->request.arg_count++] = request->buyer;
    twi_redis_call_number(redis_call, expiry_ms);
    twi_redis_call_number(redis_call, TWI_TOKEN_KEEP_MS);
}

static void report_stock(const struct twi_reserve_request *request, const struct twi_redis_call *redis_call,
                         tw_status status, tw_verdict *verdict) {
    int64_t wait_ms = twi_redis_call_number_at(redis_call, 3);
    bool by_buyer = twi_redis_call_is(redis_call, "BUYER");
    verdict->used = twi_redis_call_number_at(redis_call, 1);
    verdict->remaining = verdict->used < request->limit ? request->limit - verdict->used : 0;
    verdict->error_bound = 0;
    verdict->decided_by = by_buyer ? TW_BY_BUYER : TW_BY_REDIS;
    verdict->allowed = status == TW_OK;
    if (status != TW_DENIED) return;
    bool nothing_held = twi_redis_call_number_at(redis_call, 2) == 0;
    verdict->final = !by_buyer && nothing_held && verdict->remaining == 0;
    verdict->retry_after_ms = by_buyer || (request->n <= request->limit && !nothing_held) ? wait_ms
                              : request->n > request->limit                               ? -1
                                                                                          : verdict->reset_after_ms;
}

static tw_status read_answer(const struct twi_reserve_request *request, const struct twi_redis_call *redis_call,
                             tw_verdict *verdict) {
    if (twi_redis_call_is(redis_call, "LATE")) return twi_refuse(TW_ERR_LATE, "window: it is over in Redis");
    tw_status status = TW_DENIED;
    if (twi_redis_call_is(redis_call, "OK"))
        status = TW_OK;
    else if (twi_redis_call_is(redis_call, "MORE"))
        status = TW_PENDING;
    else if (!twi_redis_call_is(redis_call, "DENIED") && !twi_redis_call_is(redis_call, "BUYER"))
        return twi_redis_call_refuse(request->family->engine, TWI_REQUEST_DONE);
    report_stock(request, redis_call, status, verdict);
    return status;
}

static void make_token(const struct twi_reserve_request *request, int64_t start_ms, struct twi_token *token) {
    const tw_family *family = request->family;
    tw_engine *engine = family->engine;
    unsigned char random[16];
    char name[TWI_REDIS_KEY_MAX];
    *token = (struct twi_token){.has_slot = engine->remote.shorts != NULL};
    if (token->has_slot)
        token->slot = twi_key_slot_of(name, twi_key_template_render(&family->template, request->key, start_ms, name));
    twi_port_random(engine, random, sizeof random);
    twi_token_id(random, token->id);
}

tw_status twi_reserve_redis_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict) {
    tw_family *family = request->family;
    tw_engine *engine = family->engine;
    tw_status status = twi_redis_call_may(engine);
    if (status != TW_OK) return status;
    struct twi_span span = twi_calendar_span(&family->rule, twi_clock_now_ms(&engine->clock));
    int64_t expiry_ms =
        span.end_ms != INT64_MAX ? twi_time_add(span.end_ms, twi_load_relaxed(&family->policy.retention_ms)) : 0;
    struct twi_redis_call redis_call;
    char token_name[TWI_REDIS_CALL_NAME_MAX];
    make_token(request, span.start_ms, token);
    twi_redis_call_begin(&redis_call, engine, TWI_SCRIPT_RESERVE, 0);
    write_order(request, token, span.start_ms, expiry_ms, token_name, &redis_call);
    do { /* one call clears a portion of the expired reservations; several may be needed */
        enum twi_request_outcome outcome = twi_redis_call_run(&redis_call, engine);
        status = outcome == TWI_REQUEST_DONE ? read_answer(request, &redis_call, verdict)
                                             : twi_redis_call_refuse(engine, outcome);
    } while (status == TW_PENDING && twi_clock_mono_ms(&engine->clock) < redis_call.request.deadline_ms);
    if (status == TW_PENDING)
        status =
            twi_refuse(TW_ERR_REDIS, "Redis: clearing the expired reservations takes longer than redis_timeout_ms");
    if (status == TW_OK || status == TW_ERR_TIMEOUT) twi_reserve_local_await(request, span.start_ms);
    return status;
}

/* ---- confirming, cancelling ---- */

static tw_status run(struct twi_redis_call *redis_call, tw_engine *engine, const char *what,
                     const struct twi_token *token) {
    twi_redis_call_text(redis_call, what);
    twi_redis_call_text(redis_call, token->id);
    enum twi_request_outcome outcome = twi_redis_call_run(redis_call, engine);
    if (outcome != TWI_REQUEST_DONE) return twi_redis_call_refuse(engine, outcome);
    if (twi_redis_call_is(redis_call, "OK")) return TW_OK;
    if (twi_redis_call_is(redis_call, "LATE"))
        return twi_refuse(TW_ERR_LATE, "token: its units have returned: it was cancelled, or it expired");
    if (twi_redis_call_is(redis_call, "SOLD"))
        return twi_refuse(TW_ERR_LATE, "token: its units are sold; they go back by tw_add() of a negative delta");
    if (twi_redis_call_is(redis_call, "UNKNOWN"))
        return twi_refuse(TW_ERR_UNKNOWN_TOKEN, "token: Redis does not know it, or not any more");
    return twi_redis_call_refuse(engine, outcome);
}

/* Finds the name of the token's counter by one request: a script must name all of its keys before it runs, and only the
 * token knows them. The caller frees the name. */
static tw_status find_counter(tw_engine *engine, const struct twi_token *token, int64_t *deadline_ms, tw_key *counter) {
    struct twi_redis_call redis_call;
    char token_name[TWI_REDIS_CALL_NAME_MAX];
    twi_redis_call_begin(&redis_call, engine, TWI_SCRIPT_RESERVE, 0);
    redis_call.keys[redis_call.request.key_count++] = name_token(engine, token, token_name);
    redis_call.request.wants_long = true;
    *deadline_ms = redis_call.request.deadline_ms;
    tw_status status = run(&redis_call, engine, "where", token);
    *counter = tw_bytes(redis_call.request.long_text, redis_call.request.long_size);
    return status;
}

/* As twi_key_template_own() does it: the counter's family may not be open here. */
static void put_key(struct twi_redis_call *redis_call, const tw_engine *engine, const char *what, tw_key counter) {
    const char *prefix = twi_port_prefix(engine);
    size_t prefix_size = strlen(prefix);
    const char *rest = (const char *)counter.data + prefix_size;
    char *name = redis_call->text + redis_call->used;
    size_t size = (size_t)snprintf(name, TWI_REDIS_CALL_NAME_MAX, "%stw:%s:", prefix, what);
    size += twi_key_slot_brace(engine->remote.shorts, counter.data, counter.size, name + size);
    memcpy(name + size, rest, counter.size - prefix_size);
    size += counter.size - prefix_size;
    redis_call->keys[redis_call->request.key_count++] = tw_bytes(name, size);
    redis_call->used += size;
}

static tw_status settle_at(tw_engine *engine, const struct twi_token *token, const char *what, tw_key counter,
                           int64_t deadline_ms) {
    struct twi_redis_call redis_call;
    char token_name[TWI_REDIS_CALL_NAME_MAX];
    const char *prefix = twi_port_prefix(engine);
    size_t prefix_size = strlen(prefix);
    if (counter.size < prefix_size || counter.size > TWI_REDIS_KEY_MAX ||
        memcmp(counter.data, prefix, prefix_size) != 0)
        return twi_redis_call_refuse(
            engine, TWI_REQUEST_DONE); /* the hash belongs to another program: the name lacks the prefix */
    twi_redis_call_begin(&redis_call, engine, TWI_SCRIPT_RESERVE, 0);
    redis_call.request.deadline_ms = deadline_ms; /* both requests share one deadline */
    redis_call.keys[redis_call.request.key_count++] = counter;
    put_key(&redis_call, engine, "stock", counter);
    put_key(&redis_call, engine, "due", counter);
    redis_call.keys[redis_call.request.key_count++] = name_token(engine, token, token_name);
    return run(&redis_call, engine, what, token);
}

static tw_status settle(tw_engine *engine, const struct twi_token *token, const char *what) {
    tw_key counter;
    int64_t deadline_ms;
    tw_status status = twi_redis_call_may(engine);
    if (status != TW_OK) return status;
    status = find_counter(engine, token, &deadline_ms, &counter);
    if (status == TW_OK) status = settle_at(engine, token, what, counter, deadline_ms);
    free((void *)counter.data);
    return status;
}

tw_status twi_reserve_redis_confirm(tw_engine *engine, const struct twi_token *token) {
    return settle(engine, token, "confirm");
}

tw_status twi_reserve_redis_cancel(tw_engine *engine, const struct twi_token *token) {
    return settle(engine, token, "cancel");
}
