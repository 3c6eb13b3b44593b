/* reserve_redis.c -- reservations that Redis keeps: one question for each (stock.lua).
 * A confirm and a cancel are two: which counter, and then the act, on all of its keys.
 * Always true: the id in the token is drawn before the first question, so asking again, by the pool after a lost answer or by the
 * caller, meets the same reservation (stock.lua); nothing is decided here. */
#include "engine/reserve/reserve_redis.h"

#include "engine/ask/redis_call.h"
#include "engine/reserve/reserve_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_NAME "tw:token:"

/* The name of a token in Redis. */
static tw_key name_token(const tw_engine *engine, const struct twi_token *token, char out[TWI_ASK_NAME_MAX]) {
    int size = snprintf(out, TWI_ASK_NAME_MAX, "%s" TOKEN_NAME "%s", twi_port_prefix((tw_engine *)engine), token->id);
    return tw_bytes(out, (size_t)size);
}

/* ---- reserving ---- */

static void write_order(const struct twi_order *order, const struct twi_token *token, int64_t start_ms,
                        int64_t expiry_ms, char token_name[TWI_ASK_NAME_MAX], struct twi_asking *asking) {
    tw_family *family = order->family;
    twi_asking_key(asking, family, NULL, order->key, start_ms);
    twi_asking_key(asking, family, "stock", order->key, start_ms);
    twi_asking_key(asking, family, "due", order->key, start_ms);
    asking->keys[asking->ask.key_count++] = name_token(family->engine, token, token_name);
    twi_asking_text(asking, "reserve");
    twi_asking_text(asking, token->id);
    twi_asking_number(asking, order->n);
    twi_asking_number(asking, order->limit);
    twi_asking_number(asking, order->ttl_ms);
    asking->args[asking->ask.arg_count++] = order->buyer;
    twi_asking_number(asking, expiry_ms);
    twi_asking_number(asking, TWI_TOKEN_KEEP_MS);
}

static void tell_stock(const struct twi_order *order, const struct twi_asking *asking, tw_status status,
                       tw_verdict *verdict) {
    int64_t wait_ms = twi_asking_told(asking, 3);
    bool by_buyer = twi_asking_said(asking, "BUYER");
    verdict->used = twi_asking_told(asking, 1);
    verdict->remaining = verdict->used < order->limit ? order->limit - verdict->used : 0;
    verdict->error_bound = 0;
    verdict->decided_by = by_buyer ? TW_BY_BUYER : TW_BY_REDIS;
    verdict->allowed = status == TW_OK;
    if (status != TW_DENIED) return;
    bool nothing_held = twi_asking_told(asking, 2) == 0;
    verdict->final = !by_buyer && nothing_held && verdict->remaining == 0;
    verdict->retry_after_ms = by_buyer || (order->n <= order->limit && !nothing_held) ? wait_ms
                              : order->n > order->limit                               ? -1
                                                                                      : verdict->reset_after_ms;
}

static tw_status read_answer(const struct twi_order *order, const struct twi_asking *asking, tw_verdict *verdict) {
    if (twi_asking_said(asking, "LATE")) return twi_refuse(TW_ERR_LATE, "window: it is over in Redis");
    tw_status status = TW_DENIED;
    if (twi_asking_said(asking, "OK"))
        status = TW_OK;
    else if (twi_asking_said(asking, "MORE"))
        status = TW_PENDING;
    else if (!twi_asking_said(asking, "DENIED") && !twi_asking_said(asking, "BUYER"))
        return twi_asking_refuse(order->family->engine, TWI_ASKED_DONE);
    tell_stock(order, asking, status, verdict);
    return status;
}

static void make_token(tw_engine *engine, struct twi_token *token) {
    unsigned char random[16];
    *token = (struct twi_token){.local = false};
    twi_port_random(engine, random, sizeof random);
    twi_token_id(random, token->id);
}

tw_status twi_stock_reserve(const struct twi_order *order, struct twi_token *token, tw_verdict *verdict) {
    tw_family *family = order->family;
    tw_engine *engine = family->engine;
    tw_status status = twi_ask_may(engine);
    if (status != TW_OK) return status;
    struct twi_span span = twi_calendar_span(&family->rule, twi_clock_now_ms(&engine->clock));
    int64_t expiry_ms =
        span.end_ms != INT64_MAX ? twi_time_add(span.end_ms, twi_load_relaxed(&family->retention_ms)) : 0;
    struct twi_asking asking;
    char token_name[TWI_ASK_NAME_MAX];
    make_token(engine, token);
    twi_asking_begin(&asking, engine, TWI_SCRIPT_STOCK, 0);
    write_order(order, token, span.start_ms, expiry_ms, token_name, &asking);
    do { /* so much is over that it takes several calls */
        enum twi_asked asked = twi_asking_do(&asking, engine);
        status = asked == TWI_ASKED_DONE ? read_answer(order, &asking, verdict) : twi_asking_refuse(engine, asked);
    } while (status == TW_PENDING && twi_clock_mono_ms(&engine->clock) < asking.ask.deadline_ms);
    if (status == TW_PENDING)
        status =
            twi_refuse(TW_ERR_REDIS, "Redis: so much is over that its clearing takes longer than redis_timeout_ms");
    if (status == TW_OK || status == TW_ERR_TIMEOUT) twi_book_await(order, span.start_ms);
    return status;
}

/* ---- confirming, cancelling ---- */

static tw_status ask(struct twi_asking *asking, tw_engine *engine, const char *what, const struct twi_token *token) {
    twi_asking_text(asking, what);
    twi_asking_text(asking, token->id);
    enum twi_asked asked = twi_asking_do(asking, engine);
    if (asked != TWI_ASKED_DONE) return twi_asking_refuse(engine, asked);
    if (twi_asking_said(asking, "OK")) return TW_OK;
    if (twi_asking_said(asking, "LATE"))
        return twi_refuse(TW_ERR_LATE, "token: its units have returned: it was cancelled, or its time was over");
    if (twi_asking_said(asking, "SOLD"))
        return twi_refuse(TW_ERR_LATE, "token: its units are sold; they go back by tw_add() of a negative delta");
    if (twi_asking_said(asking, "UNKNOWN"))
        return twi_refuse(TW_ERR_UNKNOWN_TOKEN, "token: Redis does not know it (any more)");
    return twi_asking_refuse(engine, asked);
}

/* A script names all of its keys before it runs, and the token alone says which they are: one question for their names. The name of
 * the counter is to be freed. */
static tw_status find_counter(tw_engine *engine, const struct twi_token *token, int64_t *deadline_ms, tw_key *counter) {
    struct twi_asking asking;
    char token_name[TWI_ASK_NAME_MAX];
    twi_asking_begin(&asking, engine, TWI_SCRIPT_STOCK, 0);
    asking.keys[asking.ask.key_count++] = name_token(engine, token, token_name);
    asking.ask.wants_long = true;
    *deadline_ms = asking.ask.deadline_ms;
    tw_status status = ask(&asking, engine, "where", token);
    *counter = tw_bytes(asking.ask.long_text, asking.ask.long_size);
    return status;
}

static void put_key(struct twi_asking *asking, const char *prefix, const char *what, tw_key counter) {
    size_t prefix_size = strlen(prefix);
    const char *rest = (const char *)counter.data + prefix_size;
    int size = snprintf(asking->text + asking->used, TWI_ASK_NAME_MAX, "%stw:%s:", prefix, what);
    char *name = asking->text + asking->used;
    memcpy(name + size, rest, counter.size - prefix_size);
    asking->keys[asking->ask.key_count++] = tw_bytes(name, (size_t)size + counter.size - prefix_size);
    asking->used += (size_t)size + counter.size - prefix_size;
}

static tw_status settle_at(tw_engine *engine, const struct twi_token *token, const char *what, tw_key counter,
                           int64_t deadline_ms) {
    struct twi_asking asking;
    char token_name[TWI_ASK_NAME_MAX];
    const char *prefix = twi_port_prefix(engine);
    size_t prefix_size = strlen(prefix);
    if (counter.size < prefix_size || counter.size > TWI_REDIS_KEY_MAX ||
        memcmp(counter.data, prefix, prefix_size) != 0)
        return twi_asking_refuse(engine, TWI_ASKED_DONE); /* no name of ours: somebody else's hash */
    twi_asking_begin(&asking, engine, TWI_SCRIPT_STOCK, 0);
    asking.ask.deadline_ms = deadline_ms; /* one for both questions */
    asking.keys[asking.ask.key_count++] = counter;
    put_key(&asking, prefix, "stock", counter);
    put_key(&asking, prefix, "due", counter);
    asking.keys[asking.ask.key_count++] = name_token(engine, token, token_name);
    return ask(&asking, engine, what, token);
}

static tw_status settle(tw_engine *engine, const struct twi_token *token, const char *what) {
    tw_key counter;
    int64_t deadline_ms;
    tw_status status = twi_ask_may(engine);
    if (status != TW_OK) return status;
    status = find_counter(engine, token, &deadline_ms, &counter);
    if (status == TW_OK) status = settle_at(engine, token, what, counter, deadline_ms);
    free((void *)counter.data);
    return status;
}

tw_status twi_stock_confirm(tw_engine *engine, const struct twi_token *token) {
    return settle(engine, token, "confirm");
}

tw_status twi_stock_cancel(tw_engine *engine, const struct twi_token *token) {
    return settle(engine, token, "cancel");
}
