/* lock.c -- tw_lock(), tw_lock_extend() and tw_lock_release(), for one holder at a time among all processes (lock.lua).
 * Always true: a token is given only with TW_OK. A lock of unknown outcome is released when Redis replies again, or it
 * ends with its lease time. A fencing token is above each that this engine was given or has learned of, and above the
 * last known time of Redis's clock, whichever server decides. A lock has no window. Its name is the counter's name with
 * a time stamp of 0. */
#include "engine/ask/redis_call.h"
#include "engine/base/check.h"
#include "engine/count/lookup.h"
#include "engine/core/peers.h"

#include <string.h>

static tw_status check(tw_family *family, tw_key key, uint32_t ttl_ms) {
    if (ttl_ms == 0) return twi_refuse(TW_ERR_RANGE, "ttl_ms: 0");
    if (family->options.redis_shape != TW_REDIS_STRING) /* many keys have one name */
        return twi_refuse(TW_ERR_MODE, "redis_shape: tw_lock() is for TW_REDIS_STRING families");
    return twi_call_check_key(family, key);
}

struct asking {
    struct twi_operation operation;
    tw_key key;
    const char *what; /* L means lock, E extend, and U release */
    uint32_t ttl_ms;
    struct twi_token token;
};
static_assert(sizeof(struct asking) <= TWI_OPERATION_BYTES, "operation.h");

static bool ask(struct twi_operation *operation) {
    const struct asking *asking = (const struct asking *)operation;
    tw_family *family = operation->family;
    twi_check(asking->token.id[0] != '\0' && !asking->token.local && asking->ttl_ms != 0);
    struct twi_redis_call redis_call;
    twi_redis_call_begin(&redis_call, TWI_SCRIPT_LOCK);
    redis_call.request.numbered = asking->what[0] != 'U';
    twi_redis_call_key(&redis_call, family, "calls", asking->key, 0);
    twi_redis_call_key(&redis_call, family, "lock", asking->key, 0);
    twi_redis_call_key(&redis_call, family, "fence", asking->key, 0);
    twi_redis_call_text(&redis_call, asking->what);
    twi_redis_call_text(&redis_call, asking->token.id);
    twi_redis_call_number(&redis_call, asking->ttl_ms);
    twi_redis_call_number(&redis_call, twi_peers_redis_ms(family->engine) * 1000);
    redis_call.request.repeats = asking->what[0] == 'U';
    return twi_redis_call_send(&redis_call, operation);
}

/* The next fencing token has to be above this one, though a server may lead by then that does not have it. */
static void note_fence(tw_engine *engine, const struct twi_result *result) {
    twi_check(result->outcome == TWI_REQUEST_DONE);
    int64_t fence = twi_result_number(result, 1);
    if (fence > 0) twi_peers_note_redis_ms(engine, fence / 1000 + 1);
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    const struct twi_result *result = &operation->result;
    (void)call;
    if (result->outcome == TWI_REQUEST_DONE) note_fence(operation->engine, result);
    if (twi_result_is(result, "OK")) return TW_OK;
    if (twi_result_is(result, "HELD")) return TW_DENIED;
    if (twi_result_is(result, "GONE")) return twi_refuse(TW_ERR_LATE, "token: it does not hold the lock any more");
    return twi_redis_call_refuse(operation->engine, result->outcome);
}

static tw_status finish_lock(struct twi_operation *operation, tw_request *call) {
    twi_check(((const struct asking *)operation)->what[0] == 'L');
    const struct asking *asking = (const struct asking *)operation;
    tw_status status = finish(operation, call);
    if (status != TW_OK) return status;
    twi_token_write(&asking->token, call->token);
    call->fence = (uint64_t)twi_result_number(&operation->result, 1);
    return TW_OK;
}

static const struct twi_operation_kind token_kind = {.send = ask, .finish = finish, .settles = true};
static const struct twi_operation_kind lock_kind = {.send = ask, .finish = finish_lock};

/* ---- the calls ---- */

static void draw_token(tw_engine *engine, struct twi_token *token) {
    unsigned char random[16];
    twi_port_random(engine, random, sizeof random);
    *token = (struct twi_token){0};
    twi_token_id(random, token->id);
}

/* The action to be done. */
struct wish {
    tw_key key;
    const char *what;
    uint32_t ttl_ms;
    struct twi_token token;
};

/* If `call` is NULL, no caller gets the answer. */
static tw_status start(tw_request *call, tw_family *family, const struct wish *wish) {
    twi_check(wish->token.id[0] != '\0' && wish->ttl_ms != 0);
    tw_status status;
    const struct twi_operation_kind *kind = wish->what[0] == 'L' ? &lock_kind : &token_kind;
    struct asking *asking = (struct asking *)twi_operation_make(family->engine, kind, family, call, &status);
    if (asking == NULL) return twi_call_answer(call, status);
    asking->what = wish->what;
    asking->ttl_ms = wish->ttl_ms;
    asking->token = wish->token;
    return twi_call_start_with(&asking->operation, call, wish->key, &asking->key);
}

static tw_status start_with_token(tw_request *call, tw_family *family, struct wish wish, const char *token) {
    twi_check(wish.what[0] == 'E' || wish.what[0] == 'U');
    TWI_NEED(family);
    TWI_NEED(token);
    tw_status status = check(family, wish.key, wish.ttl_ms);
    if (status == TW_OK) status = twi_redis_call_may(family->engine, call);
    if (status == TW_OK && (!twi_token_read(token, &wish.token) || wish.token.local))
        status = twi_refuse_for(TWI_WHY_TOKEN);
    return status == TW_OK ? start(call, family, &wish) : twi_call_answer(call, status);
}

tw_status tw_lock_async(tw_request *request, tw_family *family, tw_key key, uint32_t ttl_ms) {
    struct wish wish = {.key = key, .what = "L", .ttl_ms = ttl_ms};
    TWI_NEED(request);
    TWI_NEED(family);
    request->token[0] = '\0';
    request->fence = 0;
    tw_status status = check(family, key, ttl_ms);
    if (status == TW_OK) status = twi_redis_call_may(family->engine, request);
    if (status != TW_OK) return twi_call_answer(request, status);
    draw_token(family->engine, &wish.token);
    return start(request, family, &wish);
}

tw_status tw_lock_extend_async(tw_request *request, tw_family *family, tw_key key, const char *token, uint32_t ttl_ms) {
    TWI_NEED(request);
    return start_with_token(request, family, (struct wish){.key = key, .what = "E", .ttl_ms = ttl_ms}, token);
}

tw_status tw_lock_release_async(tw_request *request, tw_family *family, tw_key key, const char *token) {
    return start_with_token(request, family, (struct wish){.key = key, .what = "U", .ttl_ms = 1}, token);
}

tw_status tw_lock(tw_family *family, tw_key key, uint32_t ttl_ms, char token[TW_TOKEN_SIZE], uint64_t *fence) {
    tw_request call;
    TWI_NEED(family);
    TWI_NEED(token);
    twi_call_by_thread(&call, 0);
    tw_status status = tw_lock_async(&call, family, key, ttl_ms);
    memcpy(token, call.token, strlen(call.token) + 1);
    if (status == TW_OK && fence != NULL) *fence = call.fence;
    return status;
}

tw_status tw_lock_extend(tw_family *family, tw_key key, const char *token, uint32_t ttl_ms) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    return tw_lock_extend_async(&call, family, key, token, ttl_ms);
}

tw_status tw_lock_release(tw_family *family, tw_key key, const char *token) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    return tw_lock_release_async(&call, family, key, token);
}
