/* lock.c -- tw_lock(), tw_lock_extend() and tw_lock_release(), for one holder at a time among all processes (lock.lua).
 * Always true: a token is given only with TW_OK. A lock of unknown outcome is released when Redis replies again, or it
 * ends with its lease time. A fencing token is above each that this engine was given or has learned of, and above the
 * last known time of Redis's clock, whichever server decides. A lock has no window. Its name is the counter's name with
 * a time stamp of 0. */
#include "engine/ask/redis_call.h"
#include "engine/base/check.h"
#include "engine/count/lookup.h"
#include "engine/core/peers.h"

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
    twi_redis_call_begin(&redis_call, family->engine, TWI_SCRIPT_LOCK, 0);
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

/* Computes the result, in the thread that is answered. */
static tw_status conclude(const struct asking *asking) {
    const struct twi_result *result = &asking->operation.result;
    if (result->outcome == TWI_REQUEST_DONE) note_fence(asking->operation.engine, result);
    if (twi_result_is(result, "OK")) return TW_OK;
    if (twi_result_is(result, "HELD")) return TW_DENIED;
    if (twi_result_is(result, "GONE")) return twi_refuse(TW_ERR_LATE, "token: it does not hold the lock any more");
    return twi_redis_call_refuse(asking->operation.engine, result->outcome);
}

static tw_status finish_lock(struct twi_operation *operation, tw_request *call) {
    twi_check(((const struct asking *)operation)->what[0] == 'L');
    const struct asking *asking = (const struct asking *)operation;
    tw_status status = conclude(asking);
    if (status != TW_OK) return status;
    twi_token_write(&asking->token, call->token);
    call->fence = (uint64_t)twi_result_number(&operation->result, 1);
    return TW_OK;
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    (void)call;
    return conclude((const struct asking *)operation);
}

static const struct twi_operation_kind token_kind = {.send = ask, .finish = finish, .settles = true};

/* If it returns NULL, *status is the reason. */
static struct asking *make(tw_family *family, const struct twi_operation_kind *kind, tw_request *call,
                           tw_status *status) {
    struct asking *asking = (struct asking *)twi_operation_make(family->engine, kind, family, call, status);
    if (asking == NULL) return NULL;
    asking->operation.deadline_ms = twi_redis_call_deadline_ms(family->engine, call != NULL ? call->timeout_ms : 0);
    return asking;
}

static const struct twi_operation_kind lock_kind = {.send = ask, .finish = finish_lock};

/* ---- the calls ---- */

static tw_status check_token(const char *token, struct twi_token *read) {
    return twi_token_read(token, read) && !read->local ? TW_OK : twi_refuse_for(TWI_WHY_TOKEN);
}

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

/* If it returns NULL, *status is the reason. */
static struct asking *make_for(tw_family *family, const struct wish *wish, tw_request *call, tw_status *status) {
    twi_check(wish->token.id[0] != '\0' && wish->ttl_ms != 0);
    struct asking *asking = make(family, wish->what[0] == 'L' ? &lock_kind : &token_kind, call, status);
    if (asking == NULL) return NULL;
    asking->key = wish->key;
    asking->what = wish->what;
    asking->ttl_ms = wish->ttl_ms;
    asking->token = wish->token;
    return asking;
}

tw_status tw_lock(tw_family *family, tw_key key, uint32_t ttl_ms, char token[TW_TOKEN_SIZE], uint64_t *fence) {
    struct wish wish = {.key = key, .what = "L", .ttl_ms = ttl_ms};
    TWI_NEED(family);
    TWI_NEED(token);
    token[0] = '\0';
    tw_status status = check(family, key, ttl_ms);
    if (status == TW_OK) status = twi_redis_call_may(family->engine);
    if (status != TW_OK) return status;
    draw_token(family->engine, &wish.token);
    struct asking *asking = make_for(family, &wish, NULL, &status);
    if (asking == NULL) return status;
    twi_call_run(&asking->operation);
    status = conclude(asking);
    if (status == TW_OK) twi_token_write(&asking->token, token);
    if (status == TW_OK && fence != NULL) *fence = (uint64_t)twi_result_number(&asking->operation.result, 1);
    twi_operation_give(&asking->operation);
    return status;
}

static tw_status with_token(tw_family *family, tw_key key, const char *what, const char *token, uint32_t ttl_ms) {
    twi_check(what[0] == 'E' || what[0] == 'U');
    struct wish wish = {.key = key, .what = what, .ttl_ms = ttl_ms};
    TWI_NEED(family);
    TWI_NEED(token);
    tw_status status = check(family, key, ttl_ms);
    if (status == TW_OK) status = twi_redis_call_may(family->engine);
    if (status == TW_OK) status = check_token(token, &wish.token);
    struct asking *asking = status == TW_OK ? make_for(family, &wish, NULL, &status) : NULL;
    if (asking == NULL) return status;
    twi_call_run(&asking->operation);
    status = conclude(asking);
    twi_operation_give(&asking->operation);
    return status;
}

tw_status tw_lock_extend(tw_family *family, tw_key key, const char *token, uint32_t ttl_ms) {
    return with_token(family, key, "E", token, ttl_ms);
}

tw_status tw_lock_release(tw_family *family, tw_key key, const char *token) {
    return with_token(family, key, "U", token, 1);
}

/* ---- answered later ---- */

/* If `call` is NULL, no caller gets the answer. */
static tw_status start(tw_request *call, tw_family *family, const struct wish *wish) {
    tw_status status;
    struct asking *asking = make_for(family, wish, call, &status);
    if (asking != NULL && twi_operation_keep(&asking->operation, wish->key, &asking->key))
        return call != NULL ? twi_call_start(&asking->operation, call) : twi_call_send_off(&asking->operation);
    if (asking != NULL) status = twi_refuse(TW_ERR_MEMORY, NULL);
    if (asking != NULL && call != NULL) return twi_call_end_now(&asking->operation, call, status);
    if (asking != NULL) twi_operation_give(&asking->operation);
    return call != NULL ? twi_call_answer(call, status) : status;
}

static tw_status start_with_token(tw_request *call, tw_family *family, struct wish wish, const char *token) {
    twi_check(wish.what[0] == 'E' || wish.what[0] == 'U');
    TWI_NEED(family);
    TWI_NEED(token);
    tw_status status = check(family, wish.key, wish.ttl_ms);
    if (status == TW_OK) status = twi_redis_call_may_start(family->engine);
    if (status == TW_OK) status = check_token(token, &wish.token);
    if (status == TW_OK) return start(call, family, &wish);
    return call != NULL ? twi_call_answer(call, status) : status;
}

tw_status tw_lock_async(tw_request *request, tw_family *family, tw_key key, uint32_t ttl_ms) {
    struct wish wish = {.key = key, .what = "L", .ttl_ms = ttl_ms};
    TWI_NEED(request);
    TWI_NEED(family);
    request->token[0] = '\0';
    request->fence = 0;
    tw_status status = check(family, key, ttl_ms);
    if (status == TW_OK) status = twi_redis_call_may_start(family->engine);
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
