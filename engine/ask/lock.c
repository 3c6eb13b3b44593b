/* lock.c -- tw_lock(), tw_lock_extend(), tw_lock_release(): one holder at a time among all processes (lock.lua).
 * Always true: a token is given only with TW_OK. A lock of unknown outcome is released when Redis replies again, or it
 * ends with its lease time. A fencing token is above each that this engine was given or told, and above Redis's clock
 * as this engine knows it, whichever server decides. A lock has no window: its name is the counter's name with a time
 * stamp of 0. */
#include "engine/ask/redis_call.h"
#include "engine/count/lookup.h"
#include "engine/ask/token.h"
#include "engine/core/peers.h"

static tw_status check(tw_family *family, tw_key key, uint32_t ttl_ms) {
    if (ttl_ms == 0) return twi_refuse(TW_ERR_RANGE, "ttl_ms: 0");
    if (family->options.redis_shape != TW_REDIS_STRING) /* many keys have one name */
        return twi_refuse(TW_ERR_MODE, "redis_shape: tw_lock() is for TW_REDIS_STRING families");
    tw_status status = twi_call_check_key(family, key);
    return status == TW_OK ? twi_redis_call_may(family->engine) : status;
}

static enum twi_request_outcome run(tw_family *family, tw_key key, const char *what, const char *token, uint32_t ttl_ms,
                                    struct twi_redis_call *redis_call) {
    twi_redis_call_begin(redis_call, family->engine, TWI_SCRIPT_LOCK, 0);
    redis_call->request.numbered = true;
    twi_redis_call_key(redis_call, family, "calls", key, 0);
    twi_redis_call_key(redis_call, family, "lock", key, 0);
    twi_redis_call_key(redis_call, family, "fence", key, 0);
    twi_redis_call_text(redis_call, what);
    twi_redis_call_text(redis_call, token);
    twi_redis_call_number(redis_call, ttl_ms);
    twi_redis_call_number(redis_call, twi_peers_redis_ms(family->engine) * 1000);
    return twi_redis_call_run(redis_call, family->engine);
}

/* The next fencing token has to be above this one, though a server may lead by then that does not know it. */
static void note_fence(tw_engine *engine, const struct twi_redis_call *redis_call) {
    int64_t fence = twi_redis_call_number_at(redis_call, 1);
    if (fence > 0) twi_peers_note_redis_ms(engine, fence / 1000 + 1);
}

static tw_status answer_of(const tw_family *family, enum twi_request_outcome outcome,
                           const struct twi_redis_call *redis_call) {
    if (outcome == TWI_REQUEST_DONE) note_fence(family->engine, redis_call);
    if (outcome == TWI_REQUEST_DONE && twi_redis_call_is(redis_call, "OK")) return TW_OK;
    if (outcome == TWI_REQUEST_DONE && twi_redis_call_is(redis_call, "HELD")) return TW_DENIED;
    if (outcome == TWI_REQUEST_DONE && twi_redis_call_is(redis_call, "GONE"))
        return twi_refuse(TW_ERR_LATE, "token: it does not hold the lock any more");
    return twi_redis_call_refuse(family->engine, outcome);
}

tw_status tw_lock(tw_family *family, tw_key key, uint32_t ttl_ms, char token[TW_TOKEN_SIZE], uint64_t *fence) {
    struct twi_redis_call redis_call;
    struct twi_token made = {0};
    unsigned char random[16];
    twi_check(family != NULL && token != NULL);
    token[0] = '\0';
    tw_status status = check(family, key, ttl_ms);
    if (status != TW_OK) return status;
    twi_port_random(family->engine, random, sizeof random);
    twi_token_id(random, made.id);
    status = answer_of(family, run(family, key, "L", made.id, ttl_ms, &redis_call), &redis_call);
    if (status != TW_OK) return status;
    twi_token_write(&made, token);
    if (fence != NULL) *fence = (uint64_t)twi_redis_call_number_at(&redis_call, 1);
    return TW_OK;
}

static tw_status with_token(tw_family *family, tw_key key, const char *what, const char *token, uint32_t ttl_ms) {
    struct twi_redis_call redis_call;
    struct twi_token read;
    twi_check(family != NULL);
    tw_status status = check(family, key, ttl_ms);
    if (status != TW_OK) return status;
    if (!twi_token_read(token, &read) || read.local) return twi_token_refuse();
    return answer_of(family, run(family, key, what, read.id, ttl_ms, &redis_call), &redis_call);
}

tw_status tw_lock_extend(tw_family *family, tw_key key, const char *token, uint32_t ttl_ms) {
    return with_token(family, key, "E", token, ttl_ms);
}

tw_status tw_lock_release(tw_family *family, tw_key key, const char *token) {
    return with_token(family, key, "U", token, 1);
}
