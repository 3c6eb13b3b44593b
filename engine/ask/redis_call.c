/* redis_call.c -- see redis_call.h. */
#include "engine/ask/redis_call.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"
#include "engine/core/operation.h"
#include "engine/core/queue.h"
#include "engine/core/report.h"
#include "engine/core/store_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

tw_status twi_redis_call_may(tw_engine *engine, const tw_request *call) {
    bool blocks = twi_call_is_by_thread(call);
    tw_status status = blocks ? twi_guard_may_wait(engine) : TW_OK;
    if (blocks && status == TW_OK) status = twi_guard_engine(engine);
    if (status == TW_OK) status = twi_calls_may_start(engine);
    if (status != TW_OK) return status;
    bool had_sync = twi_driving_sync(engine) != NULL;
    status = twi_driving_begin(engine);
    if (status == TW_OK && !had_sync) twi_queue_wake_own(engine); /* the second thread has another descriptor now */
    return status;
}

static void forget_answer(struct twi_redis_call *redis_call) {
    redis_call->answer.value_count = 0;
    redis_call->answer.long_text = NULL;
    redis_call->answer.long_size = 0;
}

void twi_redis_call_begin(struct twi_redis_call *redis_call, enum twi_script script) {
    twi_check(script < TWI_SCRIPTS);
    redis_call->used = 0;
    forget_answer(redis_call);
    redis_call->request =
        (struct twi_request){.script = script, .keys = redis_call->keys, .args = redis_call->args, .units = 1};
}

static char *room(struct twi_redis_call *redis_call, size_t size) {
    twi_check(redis_call->used + size <= sizeof redis_call->text);
    return redis_call->text + redis_call->used;
}

void twi_redis_call_key(struct twi_redis_call *redis_call, const tw_family *family, const char *what, tw_key key,
                        int64_t start_ms) {
    twi_check(key.size <= TW_KEY_SIZE_MAX);
    char name[TWI_REDIS_KEY_MAX], *out = room(redis_call, TWI_REDIS_CALL_NAME_MAX);
    twi_check(redis_call->request.key_count < sizeof redis_call->keys / sizeof *redis_call->keys);
    size_t size = twi_key_template_render(&family->template, key, start_ms, what != NULL ? name : out);
    if (what != NULL) size = twi_key_template_own(&family->template, what, name, size, out);
    twi_check(size != 0 && size <= TWI_REDIS_CALL_NAME_MAX);
    redis_call->keys[redis_call->request.key_count++] = tw_bytes(out, size);
    redis_call->used += size;
}

void twi_redis_call_text(struct twi_redis_call *redis_call, const char *text) {
    twi_check(redis_call->request.arg_count < sizeof redis_call->args / sizeof *redis_call->args);
    size_t size = strlen(text) + 1;
    char *out = room(redis_call, size);
    memcpy(out, text, size);
    redis_call->used += size;
    redis_call->args[redis_call->request.arg_count++] = tw_bytes(out, size - 1);
}

void twi_redis_call_number(struct twi_redis_call *redis_call, int64_t number) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    twi_redis_call_text(redis_call, text);
}

/* ---- sending ---- */

bool twi_redis_call_send(struct twi_redis_call *redis_call, struct twi_operation *operation) {
    struct twi_sync *sync = twi_driving_sync(operation->engine);
    const struct twi_remote *remote = &operation->engine->here->remote;
    twi_check(sync != NULL && remote->driver->ask != NULL);
    twi_check(redis_call->request.key_count != 0 && operation->deadline_ms != 0);
    struct twi_request *request = &redis_call->request;
    request->answered = twi_call_answered;
    request->ctx = operation;
    request->number = &operation->number;
    request->deadline_ms = operation->deadline_ms;
    request->waits_for_room = operation->waits_for_room;
    request->settles = operation->kind->settles;
    request->keeps = request->numbered && !request->settles && !operation->blocks;
    operation->sync = sync;
    enum twi_request_outcome why = TWI_REQUEST_UNSENT;
    if (remote->driver->ask(sync, request, &why) != 0) return true;
    operation->result = (struct twi_result){.outcome = why};
    return false;
}

/* The operation of a thread that waits for one reply, and reads all of it. */
struct plain {
    struct twi_operation operation;
    struct twi_redis_call *redis_call;
};

static bool ask_plain(struct twi_operation *operation) {
    twi_check(((struct plain *)operation)->redis_call != NULL);
    return twi_redis_call_send(((struct plain *)operation)->redis_call, operation);
}

static bool read_plain(struct twi_operation *operation, struct twi_answer *answer) {
    struct twi_redis_call *redis_call = ((struct plain *)operation)->redis_call;
    redis_call->answer = *answer;
    answer->long_text = NULL; /* it is taken */
    return false;
}

static tw_status finish_plain(struct twi_operation *operation, tw_request *call) {
    (void)call;
    ((struct plain *)operation)->redis_call->result = operation->result;
    return TW_OK;
}

static const struct twi_operation_kind plain_kind = {.send = ask_plain, .reply = read_plain, .finish = finish_plain};

enum twi_request_outcome twi_redis_call_run(struct twi_redis_call *redis_call, tw_engine *engine) {
    twi_check(redis_call->request.key_count != 0);
    tw_status status;
    tw_request call;
    twi_call_by_thread(&call, 0);
    forget_answer(redis_call);
    struct plain *plain = (struct plain *)twi_operation_make(engine, &plain_kind, NULL, &call, &status);
    if (plain == NULL) return TWI_REQUEST_UNSENT;
    plain->redis_call = redis_call;
    (void)twi_call_start(&plain->operation, &call);
    return redis_call->result.outcome;
}

/* ---- outages ---- */

void twi_redis_call_answered(tw_family *family) {
    twi_check(family->engine != NULL);
    if (twi_load_relaxed(&family->outage.silent_since_ms) != 0) twi_store_relaxed(&family->outage.silent_since_ms, 0);
}

/* How long the family has had no reply, since its first unanswered request, or since the key's store has not replied to
 * the engine's own connection, whichever is longer. So one clock counts a whole outage, also for callers that rarely
 * send a request. It is a hint, because one late reply ends the outage for all. */
static int64_t silent_for_ms(tw_family *family, tw_key key) {
    twi_check(family->kind.synced || family->engine->life.has_redis);
    int64_t now_ms = twi_clock_mono_ms(&family->engine->clock),
            since_ms = twi_load_relaxed(&family->outage.silent_since_ms);
    if (since_ms == 0)
        twi_store_relaxed(&family->outage.silent_since_ms,
                          since_ms = now_ms); /* if two threads store at once, either value will do */
    int64_t away_since_ms = twi_store_away_since_now(family, key);
    if (away_since_ms != 0 && away_since_ms < since_ms) since_ms = away_since_ms;
    return now_ms - since_ms;
}

uint32_t twi_redis_call_policy(tw_family *family, tw_key key, enum twi_request_outcome outcome) {
    uint32_t policy = twi_load_relaxed(&family->policy.on_outage),
             grace_ms = twi_load_relaxed(&family->policy.outage_grace_ms);
    if (outcome == TWI_REQUEST_DONE) twi_redis_call_answered(family); /* no outage, only trouble with this key */
    bool is_outage = outcome != TWI_REQUEST_DONE && outcome != TWI_REQUEST_BUSY;
    if (grace_ms == 0 || policy == TW_OUTAGE_SHARE || !is_outage) return policy;
    return silent_for_ms(family, key) < grace_ms ? TW_OUTAGE_LOCAL : policy;
}

bool twi_redis_call_falls_back_here(tw_family *family) {
    uint32_t policy = twi_load_relaxed(&family->policy.on_outage);
    return policy == TW_OUTAGE_LOCAL || policy == TW_OUTAGE_SHARE ||
           twi_load_relaxed(&family->policy.outage_grace_ms) != 0;
}

uint32_t twi_redis_call_cause(enum twi_request_outcome outcome) {
    return outcome == TWI_REQUEST_BUSY ? TW_CAUSE_BUSY : TW_CAUSE_OUTAGE;
}

tw_status twi_redis_call_refuse(tw_engine *engine, enum twi_request_outcome outcome) {
    if (outcome == TWI_REQUEST_BUSY) return twi_operation_refuse_busy(engine);
    bool is_stopped = twi_load_acquire(&engine->life.stopped);
    if (is_stopped && outcome != TWI_REQUEST_UNKNOWN) return twi_refuse(TW_ERR_CLOSED, NULL);
    if (is_stopped)
        return twi_refuse(TW_ERR_TIMEOUT, "tw_stop() came before Redis's reply; it may have executed the request");
    if (outcome == TWI_REQUEST_UNKNOWN)
        return twi_refuse(TW_ERR_TIMEOUT,
                          "redis_timeout_ms: Redis did not reply in time; it may have executed the request");
    char error[TWI_REPORT_ERROR_MAX];
    twi_report_error_text(&engine->report, error);
    const char *what = outcome == TWI_REQUEST_DONE      ? "its reply decides nothing (does the key hold another type?)"
                       : outcome == TWI_REQUEST_REFUSED ? "it refuses"
                                                        : "it does not reply";
    return twi_refuse_with(TW_ERR_REDIS, "Redis: %s%s%s", what, error[0] != '\0' ? "; its last error: " : "", error);
}

bool twi_redis_call_next_text(const char *page, size_t size, size_t *at, tw_key *text) {
    twi_check(*at <= size);
    size_t length = 0;
    for (; *at < size && page[*at] >= '0' && page[*at] <= '9' && length <= size; ++*at)
        length = length * 10 + (size_t)(page[*at] - '0');
    if (*at >= size || page[*at] != ':' || length > size - *at - 1) return false;
    *text = tw_bytes(page + *at + 1, length);
    *at += 1 + length;
    twi_check(*at <= size);
    return true;
}

/* ---- token ---- */

#define PREFIX_SIZE 4u /* "twl-" */
#define TAG_DIGITS 16u
#define SERIAL_DIGITS 16u
#define DUE_DIGITS 12u
#define CHECK_DIGITS 8u
#define SLOT_DIGITS 4u
#define LOCAL_DIGITS (TAG_DIGITS + SERIAL_DIGITS + DUE_DIGITS)

_Static_assert(PREFIX_SIZE + LOCAL_DIGITS + 1 + CHECK_DIGITS < TW_TOKEN_SIZE, "a token and its NUL fit");

/* This is FNV-1a. Any single wrong letter changes the result. */
static uint32_t check_of(const char *text, size_t size) {
    twi_check(text != NULL);
    uint32_t check = 2166136261u;
    for (size_t i = 0; i < size; i++) check = (check ^ (unsigned char)text[i]) * 16777619u;
    return check;
}

void twi_token_id(const unsigned char random[16], char out[TWI_TOKEN_ID_DIGITS + 1]) {
    for (size_t i = 0; i < 16; i++) (void)snprintf(out + 2 * i, 3, "%02x", random[i]);
}

void twi_token_write(const struct twi_token *token, char out[TW_TOKEN_SIZE]) {
    twi_check(token->local || token->id[0] != '\0');
    int size = token->local ? snprintf(out, TW_TOKEN_SIZE, "twl-%016" PRIx64 "%016" PRIx64 "%012" PRIx64, token->tag,
                                       token->serial, (uint64_t)token->due_ms & ((UINT64_C(1) << 48) - 1))
               : token->has_slot ? snprintf(out, TW_TOKEN_SIZE, "twr-%s%04" PRIx32, token->id, token->slot)
                                 : snprintf(out, TW_TOKEN_SIZE, "twr-%s", token->id);
    (void)snprintf(out + size, TW_TOKEN_SIZE - (size_t)size, "-%08" PRIx32, check_of(out, (size_t)size));
}

/* Reads exactly `count` digits. */
static bool read_digits(const char *text, size_t count, uint64_t *value) {
    twi_check(count <= 16); /* 64 bits */
    *value = 0;
    for (size_t i = 0; i < count; i++) {
        const char *digits = "0123456789abcdef", *at = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (at == NULL) return false;
        *value = *value << 4 | (uint64_t)(at - digits);
    }
    return true;
}

static bool check_is_right(const char *text, size_t digits) {
    twi_check(PREFIX_SIZE + digits + 1 + CHECK_DIGITS < TW_TOKEN_SIZE);
    size_t size = PREFIX_SIZE + digits;
    uint64_t check;
    return text[size] == '-' && read_digits(text + size + 1, CHECK_DIGITS, &check) && check == check_of(text, size);
}

static bool read_local(const char *text, struct twi_token *token) {
    const char *at = text + PREFIX_SIZE;
    uint64_t due;
    token->local = true;
    if (!read_digits(at, TAG_DIGITS, &token->tag) || !read_digits(at + TAG_DIGITS, SERIAL_DIGITS, &token->serial) ||
        !read_digits(at + TAG_DIGITS + SERIAL_DIGITS, DUE_DIGITS, &due))
        return false;
    token->due_ms = (int64_t)due;
    return check_is_right(text, LOCAL_DIGITS);
}

static bool read_of_redis(const char *text, size_t digits, struct twi_token *token) {
    twi_check(digits == TWI_TOKEN_ID_DIGITS || digits == TWI_TOKEN_ID_DIGITS + SLOT_DIGITS);
    uint64_t half, slot = 0;
    const char *at = text + PREFIX_SIZE;
    if (!read_digits(at, 16, &half) || !read_digits(at + 16, 16, &half)) return false;
    if (!read_digits(at + TWI_TOKEN_ID_DIGITS, digits - TWI_TOKEN_ID_DIGITS, &slot) || slot >= TWI_KEY_SLOTS)
        return false;
    memcpy(token->id, at, TWI_TOKEN_ID_DIGITS);
    token->has_slot = digits > TWI_TOKEN_ID_DIGITS;
    token->slot = (uint32_t)slot;
    return check_is_right(text, digits);
}

bool twi_token_read(const char *text, struct twi_token *token) {
    *token = (struct twi_token){0};
    size_t size = text != NULL ? strnlen(text, TW_TOKEN_SIZE) : 0;
    if (size == PREFIX_SIZE + LOCAL_DIGITS + 1 + CHECK_DIGITS && memcmp(text, "twl-", PREFIX_SIZE) == 0)
        return read_local(text, token);
    if (size < PREFIX_SIZE || memcmp(text, "twr-", PREFIX_SIZE) != 0) return false;
    size_t digits = size - PREFIX_SIZE - 1 - CHECK_DIGITS; /* the number is very large if the text is too short */
    return (digits == TWI_TOKEN_ID_DIGITS || digits == TWI_TOKEN_ID_DIGITS + SLOT_DIGITS) &&
           read_of_redis(text, digits, token);
}
