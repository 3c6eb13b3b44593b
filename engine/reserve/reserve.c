/* reserve.c -- the calls tw_reserve(), tw_reserve_confirm() and tw_reserve_cancel() (reserve.h). They use
 * reserve_local.c without Redis, and reserve.c with Redis. */
#include "engine/reserve/reserve.h"

#include "engine/ask/redis_call.h"
#include "engine/base/key_slot.h"
#include "engine/count/lookup.h"
#include "engine/limit/limit_stats.h"
#include "engine/reserve/reserve_local.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- reserve redis ----
 * reservations that Redis keeps, with one request per reservation (reserve.lua). Confirm and cancel
 * send two requests in one lane. The first finds the counter, the second acts on all of its keys.
 * Always true: the id in the token is chosen at random before the first request. So a repeated request, and the cancel
 * of a request whose caller has gone or whose time is over, meet the same reservation (reserve.lua). This file makes no
 * decision. */

#define TOKEN_NAME "tw:token:"

/* Writes the name of a token's key in Redis. In a cluster it lies in the slot of the token's counter. */
static tw_key name_token(const tw_engine *engine, const struct twi_token *token, char out[TWI_REDIS_CALL_NAME_MAX]) {
    twi_check(token->id[0] != '\0');
    twi_check(!token->has_slot || engine->here->remote.shorts != NULL);
    char brace[16] = "";
    if (token->has_slot) (void)snprintf(brace, sizeof brace, "{%" PRIu32 "}", engine->here->remote.shorts[token->slot]);
    int size =
        snprintf(out, TWI_REDIS_CALL_NAME_MAX, "%s" TOKEN_NAME "%s%s", twi_port_prefix(engine), brace, token->id);
    return tw_bytes(out, (size_t)size);
}

/* ---- reserving ---- */

static void write_order(const struct twi_reserve_request *request, const struct twi_token *token, int64_t start_ms,
                        int64_t expiry_ms, char token_name[TWI_REDIS_CALL_NAME_MAX],
                        struct twi_redis_call *redis_call) {
    twi_check(request->n > 0);
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

static void report_stock(const struct twi_reserve_request *request, const struct twi_result *result, tw_status status,
                         tw_verdict *verdict) {
    int64_t wait_ms = twi_result_number(result, 3);
    bool by_buyer = twi_result_is(result, "BUYER");
    verdict->used = twi_result_number(result, 1);
    verdict->remaining = verdict->used < request->limit ? request->limit - verdict->used : 0;
    verdict->error_bound = 0;
    verdict->decided_by = by_buyer ? TW_BY_BUYER : TW_BY_REDIS;
    verdict->allowed = status == TW_OK;
    if (status != TW_DENIED) return;
    bool nothing_held = twi_result_number(result, 2) == 0;
    verdict->final = !by_buyer && nothing_held && verdict->remaining == 0;
    int64_t left_ms = twi_time_add(verdict->reset_after_ms, twi_clock_pause_ms(&request->family->engine->clock));
    if (by_buyer)
        twi_verdict_deny(verdict, TW_CAUSE_BUYER, wait_ms);
    else
        twi_verdict_deny(verdict, request->n > request->limit ? TW_CAUSE_NEVER : TW_CAUSE_LIMIT,
                         nothing_held || wait_ms < 0 ? left_ms : wait_ms);
}

static tw_status read_answer(const struct twi_reserve_request *request, const struct twi_result *result,
                             tw_verdict *verdict) {
    if (twi_result_is(result, "LATE")) return twi_refuse(TW_ERR_LATE, "window: it is over in Redis");
    tw_status status = TW_DENIED;
    if (twi_result_is(result, "OK"))
        status = TW_OK;
    else if (twi_result_is(result, "MORE"))
        status = TW_PENDING;
    else if (!twi_result_is(result, "DENIED") && !twi_result_is(result, "BUYER"))
        return twi_redis_call_refuse(request->family->engine, TWI_REQUEST_DONE);
    report_stock(request, result, status, verdict);
    return status;
}

static void make_token(const struct twi_reserve_request *request, int64_t start_ms, struct twi_token *token) {
    twi_check(request->family->kind.synced);
    const tw_family *family = request->family;
    tw_engine *engine = family->engine;
    unsigned char random[16];
    char name[TWI_REDIS_KEY_MAX];
    *token = (struct twi_token){.has_slot = engine->here->remote.shorts != NULL};
    if (token->has_slot)
        token->slot = twi_key_slot_of(name, twi_key_template_render(&family->template, request->key, start_ms, name));
    twi_port_random(engine, random, sizeof random);
    twi_token_id(random, token->id);
}

struct taking {
    struct twi_operation operation;
    struct twi_reserve_request request;
    struct twi_token token;
    int64_t start_ms, expiry_ms;
};
static_assert(sizeof(struct taking) <= TWI_OPERATION_BYTES, "operation.h");

static bool ask_take(struct twi_operation *operation) {
    const struct taking *taking = (const struct taking *)operation;
    struct twi_redis_call redis_call;
    char token_name[TWI_REDIS_CALL_NAME_MAX];
    twi_redis_call_begin(&redis_call, TWI_SCRIPT_RESERVE);
    redis_call.request.numbered = true;
    redis_call.request.units = taking->request.n;
    write_order(&taking->request, &taking->token, taking->start_ms, taking->expiry_ms, token_name, &redis_call);
    return twi_redis_call_send(&redis_call, operation);
}

/* One request clears a portion of the expired reservations; several may be needed. Each has an id of its own, because
 * a copy of the last one may still come. */
static bool read_take(struct twi_operation *operation, struct twi_answer *answer) {
    struct taking *taking = (struct taking *)operation;
    (void)answer;
    if (!twi_result_is(&operation->result, "MORE")) return false;
    if (twi_clock_mono_ms(&operation->engine->clock) >= operation->deadline_ms) return false;
    make_token(&taking->request, taking->start_ms, &taking->token);
    return ask_take(operation);
}

static tw_status read_result(const struct taking *taking, tw_verdict *verdict) {
    twi_check(verdict != NULL);
    const struct twi_result *result = &taking->operation.result;
    tw_status status = result->outcome == TWI_REQUEST_DONE
                           ? read_answer(&taking->request, result, verdict)
                           : twi_redis_call_refuse(taking->operation.engine, result->outcome);
    if (status == TW_PENDING)
        status =
            twi_refuse(TW_ERR_REDIS, "Redis: clearing the expired reservations takes longer than redis_timeout_ms");
    if (status == TW_OK || status == TW_ERR_TIMEOUT) twi_reserve_local_await(&taking->request, taking->start_ms);
    return status;
}

static tw_status finish_take(struct twi_operation *operation, tw_request *call) {
    const struct taking *taking = (const struct taking *)operation;
    tw_status status = read_result(taking, &call->verdict);
    status = twi_limit_stats_answered(operation->family, taking->request.n, status, &call->verdict);
    if (status == TW_OK || status == TW_ERR_TIMEOUT) twi_token_write(&taking->token, call->token);
    return status;
}

static const struct twi_operation_kind take_kind = {.send = ask_take, .reply = read_take, .finish = finish_take};

/* If it returns NULL, *status is the reason. */
static struct taking *make_take(const struct twi_reserve_request *request, tw_request *call, tw_status *status) {
    twi_check(request->family->kind.synced && request->ttl_ms != 0);
    tw_family *family = request->family;
    tw_engine *engine = family->engine;
    *status = twi_redis_call_may(engine, call);
    if (*status != TW_OK) return NULL;
    struct taking *taking = (struct taking *)twi_operation_make(engine, &take_kind, family, call, status);
    if (taking == NULL) return NULL;
    struct twi_span span = twi_calendar_span(&family->rule, twi_clock_now_ms(&engine->clock));
    taking->request = *request;
    taking->start_ms = span.start_ms;
    taking->expiry_ms =
        span.end_ms != INT64_MAX ? twi_time_add(span.end_ms, twi_load_relaxed(&family->policy.retention_ms)) : 0;
    make_token(request, span.start_ms, &taking->token);
    if (twi_operation_keep(&taking->operation, request->key, &taking->request.key) &&
        twi_operation_keep(&taking->operation, request->buyer, &taking->request.buyer))
        return taking;
    *status = twi_call_end_now(&taking->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
    return NULL;
}

static tw_status take(tw_request *call, const struct twi_reserve_request *request) {
    tw_status status;
    struct taking *taking = make_take(request, call, &status);
    if (taking != NULL) return twi_call_start(&taking->operation, call);
    return twi_call_answer(call, twi_limit_stats_answered(request->family, request->n, status, &call->verdict));
}

/* ---- confirming, cancelling ---- */

/* Two requests in one lane: the first finds the counter, and the second does the work there. */
struct settling {
    struct twi_operation operation;
    struct twi_token token;
    const char *what; /* confirm, cancel */
};
static_assert(sizeof(struct settling) <= TWI_OPERATION_BYTES, "operation.h");

static tw_status finish_settling(struct twi_operation *operation, tw_request *call) {
    const struct twi_result *result = &operation->result;
    (void)call;
    bool was_there = result->count > 2; /* else it is a counter of another program */
    if (was_there && twi_result_is(result, "OK")) return TW_OK;
    if (twi_result_is(result, "LATE"))
        return twi_refuse(TW_ERR_LATE, "token: its units have returned: it was cancelled, or it expired");
    if (twi_result_is(result, "SOLD"))
        return twi_refuse(TW_ERR_LATE, "token: its units are sold; they go back by tw_add() of a negative delta");
    if (twi_result_is(result, "UNKNOWN"))
        return twi_refuse(TW_ERR_UNKNOWN_TOKEN, "token: Redis does not know it, or not any more");
    return twi_redis_call_refuse(operation->engine, result->outcome);
}

static bool is_cancel(const char *what) {
    return what[1] == 'a';
}

/* Like twi_key_template_own(), because the counter's family may not be open here. */
static void put_key(struct twi_redis_call *redis_call, const tw_engine *engine, const char *what, tw_key counter) {
    twi_check(counter.size >= strlen(twi_port_prefix(engine)) && counter.size <= TWI_REDIS_KEY_MAX);
    const char *prefix = twi_port_prefix(engine);
    size_t prefix_size = strlen(prefix);
    const char *rest = (const char *)counter.data + prefix_size;
    char *name = redis_call->text + redis_call->used;
    size_t size = (size_t)snprintf(name, TWI_REDIS_CALL_NAME_MAX, "%stw:%s:", prefix, what);
    size += twi_key_slot_brace(engine->here->remote.shorts, counter.data, counter.size, name + size);
    memcpy(name + size, rest, counter.size - prefix_size);
    size += counter.size - prefix_size;
    redis_call->keys[redis_call->request.key_count++] = tw_bytes(name, size);
    redis_call->used += size;
}

/* Returns false if the hash belongs to another program, because the name lacks the prefix. */
static bool is_counter(const tw_engine *engine, tw_key name) {
    const char *prefix = twi_port_prefix(engine);
    size_t prefix_size = strlen(prefix);
    return name.data != NULL && name.size >= prefix_size && name.size <= TWI_REDIS_KEY_MAX &&
           memcmp(name.data, prefix, prefix_size) == 0;
}

/* Writes the request that names all keys. The token's key is copied. */
static void write_there(tw_engine *engine, const char *what, tw_key counter, tw_key token_name,
                        struct twi_redis_call *redis_call) {
    twi_check(token_name.size > TWI_TOKEN_ID_DIGITS && token_name.size < TWI_REDIS_CALL_NAME_MAX);
    twi_redis_call_begin(redis_call, TWI_SCRIPT_RESERVE);
    redis_call->keys[redis_call->request.key_count++] = counter;
    put_key(redis_call, engine, "stock", counter);
    put_key(redis_call, engine, "due", counter);
    char *name = redis_call->text + redis_call->used;
    memcpy(name, token_name.data, token_name.size);
    redis_call->used += token_name.size;
    redis_call->keys[redis_call->request.key_count++] = tw_bytes(name, token_name.size);
    twi_redis_call_text(redis_call, what);
    char id[TWI_TOKEN_ID_DIGITS + 1];
    memcpy(id, name + token_name.size - TWI_TOKEN_ID_DIGITS, TWI_TOKEN_ID_DIGITS);
    id[TWI_TOKEN_ID_DIGITS] = '\0';
    twi_redis_call_text(redis_call, id);
    redis_call->request.repeats = is_cancel(what);
}

/* The answer names the counter: the same lane goes there. */
static void go_there(tw_engine *engine, const char *what, tw_key token_name, const struct twi_answer *answer,
                     const struct twi_next *next) {
    struct twi_redis_call redis_call;
    tw_key counter = tw_bytes(answer->long_text, answer->long_size);
    bool is_found = answer->value_count != 0 && strcmp(answer->values[0].text, "OK") == 0;
    if (!is_found || !is_counter(engine, counter)) return;
    write_there(engine, what, counter, token_name, &redis_call);
    next->put(next->ctx, &redis_call.request);
}

static void confirm_there(tw_engine *engine, tw_key token_name, const struct twi_answer *answer,
                          const struct twi_next *next) {
    go_there(engine, "confirm", token_name, answer, next);
}

static void cancel_there(tw_engine *engine, tw_key token_name, const struct twi_answer *answer,
                         const struct twi_next *next) {
    go_there(engine, "cancel", token_name, answer, next);
}

/* A script must name all of its keys before it runs, and only the token has them. */
static bool ask_where(struct twi_operation *operation) {
    const struct settling *settling = (const struct settling *)operation;
    struct twi_redis_call redis_call;
    char token_name[TWI_REDIS_CALL_NAME_MAX];
    twi_redis_call_begin(&redis_call, TWI_SCRIPT_RESERVE);
    redis_call.keys[redis_call.request.key_count++] = name_token(operation->engine, &settling->token, token_name);
    redis_call.request.wants_long = true;
    twi_redis_call_text(&redis_call, "where");
    twi_redis_call_text(&redis_call, settling->token.id);
    twi_redis_call_text(&redis_call, settling->what);
    redis_call.request.repeats = is_cancel(settling->what);
    redis_call.request.then = redis_call.request.repeats ? cancel_there : confirm_there;
    return twi_redis_call_send(&redis_call, operation);
}

static const struct twi_operation_kind settle_kind = {.send = ask_where, .finish = finish_settling, .settles = true};

/* If `call` is NULL, no caller gets the answer. */
static tw_status settle_there(tw_request *call, tw_engine *engine, const struct twi_token *token, bool confirms) {
    twi_check(!token->local);
    tw_status status = twi_redis_call_may(engine, call);
    struct settling *settling =
        status == TW_OK ? (struct settling *)twi_operation_make(engine, &settle_kind, NULL, call, &status) : NULL;
    if (settling == NULL) return twi_call_answer(call, status);
    settling->token = *token;
    settling->what = confirms ? "confirm" : "cancel";
    return twi_call_start(&settling->operation, call);
}

static tw_status check_family(const tw_family *family) {
    const tw_family_options *options = &family->options;
    const char *why = NULL;
    if (family->kind.from_first) why = "window: tw_reserve() is not for TW_WINDOW_FROM_FIRST families";
    if (family->kind.evicts_idle || family->kind.takes_guests)
        why = "on_full: tw_reserve() is not for TW_ON_FULL_EVICT_IDLE families";
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

tw_status tw_reserve_async(tw_request *call, tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t ttl_ms,
                           tw_key buyer) {
    TWI_NEED_AS(call, "request");
    TWI_NEED(family);
    struct twi_reserve_request request = {family, key, buyer, n, limit, ttl_ms};
    struct twi_token made;
    call->token[0] = '\0';
    twi_reserve_verdict(&call->verdict, family, limit);
    tw_status status = check_request(&request);
    if (status == TW_OK && family->kind.synced) return take(call, &request);
    if (status == TW_OK) status = twi_reserve_local_take(&request, &made, &call->verdict);
    if (status == TW_OK) twi_token_write(&made, call->token);
    return twi_call_answer(call, status);
}

tw_status tw_reserve(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t ttl_ms, tw_key buyer,
                     char token[TW_TOKEN_SIZE], tw_verdict *verdict) {
    tw_request call;
    TWI_NEED(family);
    TWI_NEED(token);
    twi_call_by_thread(&call, 0);
    tw_status status = tw_reserve_async(&call, family, key, n, limit, ttl_ms, buyer);
    memcpy(token, call.token, strlen(call.token) + 1);
    if (verdict != NULL) *verdict = call.verdict;
    return status;
}

/* Returns whether the token is of this engine's kind of store, which is no Redis, one Redis, or a cluster. */
static bool fits(const tw_engine *engine, const struct twi_token *token) {
    return token->local != engine->life.has_redis && token->has_slot == (engine->here->remote.shorts != NULL);
}

static tw_status settle(tw_request *call, tw_engine *engine, const char *token, bool confirms) {
    struct twi_token read;
    TWI_NEED(engine);
    TWI_NEED(token);
    if (!twi_token_read(token, &read) || !fits(engine, &read))
        return twi_call_answer(call, twi_refuse_for(TWI_WHY_TOKEN));
    if (!read.local) return settle_there(call, engine, &read, confirms);
    return twi_call_answer(call, confirms ? twi_reserve_local_confirm(engine, &read)
                                          : twi_reserve_local_cancel(engine, &read));
}

tw_status tw_reserve_confirm_async(tw_request *request, tw_engine *engine, const char *token) {
    TWI_NEED(request);
    return settle(request, engine, token, true);
}

tw_status tw_reserve_cancel_async(tw_request *request, tw_engine *engine, const char *token) {
    return settle(request, engine, token, false);
}

tw_status tw_reserve_confirm(tw_engine *engine, const char *token) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    return settle(&call, engine, token, true);
}

tw_status tw_reserve_cancel(tw_engine *engine, const char *token) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    return settle(&call, engine, token, false);
}
