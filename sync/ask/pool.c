/* pool.c -- the pool: who asks over which connection, how often, and when Redis is left alone. See pool.h.
 *
 *   free --taken by a caller--> [debt settled] --> asked --> answered --> free
 *                                                   |  no answer: closed, dialled anew, asked again under the same
 * number
 *                                                   '--> time is up: its number becomes a debt of the connection -->
 * free The first try may use half of the time that is left, so does each one after it: a lost answer leaves time to ask
 * again. The breaker opens when a call ends without an answer, for a time that grows; meanwhile calls are told "away"
 * at once, and one of them tries when it is over.
 * Always true: `lock` guards who has which connection and the breaker, and is held for a few instructions; everything
 * else of a connection belongs to the caller that has taken it. */
#include "sync/ask/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/wire/breaker.h"
#include "sync/ask/connection.h"

#include "hold.lua.h"
#include "hold.lua.sha1.h"
#include "lock.lua.h"
#include "lock.lua.sha1.h"
#include "once.lua.h"
#include "once.lua.sha1.h"
#include "gcra.lua.h"
#include "gcra.lua.sha1.h"
#include "reclaim.lua.h"
#include "reclaim.lua.sha1.h"
#include "reserve.lua.h"
#include "reserve.lua.sha1.h"
#include "strict.lua.h"
#include "strict.lua.sha1.h"

#define PAUSE_MS 5 /* between two tries of one call, doubled each time */
#define ATTEMPT_MS_MIN 10

static const struct twi_script_source scripts[TWI_SCRIPTS] = {
    [TWI_SCRIPT_STRICT] = {twi_script_strict, twi_script_strict_sha1},
    [TWI_SCRIPT_GCRA] = {twi_script_gcra, twi_script_gcra_sha1},
    [TWI_SCRIPT_ONCE] = {twi_script_once, twi_script_once_sha1},
    [TWI_SCRIPT_LOCK] = {twi_script_lock, twi_script_lock_sha1},
    [TWI_SCRIPT_RESERVE] = {twi_script_reserve, twi_script_reserve_sha1},
    [TWI_SCRIPT_HOLD] = {twi_script_hold, twi_script_hold_sha1},
    [TWI_SCRIPT_RECLAIM] = {twi_script_reclaim, twi_script_reclaim_sha1},
};

enum verb { CANCEL_CALL, ASK, RETRY_CALL };

struct line {
    struct twi_pool_connection connection;
    bool taken; /* under the pool's lock */
    uint64_t serial;
    struct twi_bytes out, body;
    /* what is to be said before anything else, if any */
    struct twi_bytes debt;
    enum twi_script debt_script;
    size_t cancel_words; /* 0: nothing is owed */
    char debt_serial[24];
};

struct twi_pool {
    struct twi_pool_connection_rules rules;
    char name[17]; /* in Redis */
    pthread_mutex_t lock;
    struct line lines[TWI_POOL_MAX]; /* `taken`: under lock; the rest: whoever has taken it */
    struct twi_breaker breaker;      /* under lock */
    bool trying;                     /* somebody has been let through an open breaker. Under lock */
    uint32_t waiting;                /* for a connection. Under lock */
    int freed_fd;                    /* one up for each connection that was freed while somebody waited */
    _Atomic bool stopped;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct twi_pool *twi_pool_create(tw_engine *engine, const struct twi_url *url, const tw_options *options) {
    struct twi_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->rules = (struct twi_pool_connection_rules){
        .engine = engine,
        .url = *url,
        .password = options->redis_password,
        .password_ctx = options->redis_password_ctx,
        .timeout_ms = options->redis_timeout_ms != 0 ? options->redis_timeout_ms : 100,
        .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pool->breaker.retry_max_ms = options->retry_max_ms;
    pool->freed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    pthread_mutex_init(&pool->rules.password_lock, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) pool->lines[i].connection.rules = &pool->rules;
    uint64_t random;
    twi_port_random(engine, &random, sizeof random);
    snprintf(pool->name, sizeof pool->name, "%016" PRIx64, random);
    if (pool->freed_fd >= 0 && pool->rules.stop_fd >= 0) return pool;
    twi_pool_destroy(pool);
    return NULL;
}

static void free_pool(struct twi_pool *pool) {
    if (pool->freed_fd >= 0) close(pool->freed_fd);
    if (pool->rules.stop_fd >= 0) close(pool->rules.stop_fd);
    twi_url_wipe(&pool->rules.url);
    free(pool);
}

void twi_pool_destroy(struct twi_pool *pool) {
    if (pool == NULL) return;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        struct line *line = &pool->lines[i];
        twi_pool_connection_free(&line->connection);
        twi_bytes_free(&line->out);
        twi_bytes_free(&line->body);
        twi_bytes_free(&line->debt);
    }
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->rules.password_lock);
    free_pool(pool);
}

void twi_pool_abandon(struct twi_pool *pool) {
    if (pool == NULL) return;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        struct line *line = &pool->lines[i];
        twi_pool_connection_abandon(&line->connection, line->taken);
        if (line->taken) continue;
        twi_bytes_free(&line->out);
        twi_bytes_free(&line->body);
        twi_bytes_free(&line->debt);
    }
    free_pool(pool);
}

void twi_pool_stop(struct twi_pool *pool) {
    uint64_t one = 1;
    twi_store_relaxed(&pool->stopped, true); /* who does not see it yet meets the descriptor */
    (void)!write(pool->rules.stop_fd, &one, sizeof one);
}

/* ---- who may ask, and over which connection ---------------------------------------------------------------------- */

/* Under the lock: may this call go out? One at a time while the breaker is not closed. */
static bool breaker_lets(struct twi_pool *pool, bool *tries) {
    *tries = false;
    if (pool->breaker.state == TWI_BREAKER_CLOSED) return true;
    if (pool->trying || !twi_breaker_may_try(&pool->breaker, twi_port_mono_ms(pool->rules.engine))) return false;
    return *tries = pool->trying = true;
}

/* Under the lock: a free connection, those with debts first, then those that stand. */
static struct line *choose(struct twi_pool *pool) {
    struct line *best = NULL;
    int best_rank = -1;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        struct line *line = &pool->lines[i];
        if (line->taken) continue;
        int rank = line->cancel_words != 0 ? 2 : line->connection.up ? 1 : 0;
        if (rank > best_rank) best = line, best_rank = rank;
    }
    return best;
}

/* NULL: Redis is left alone, or none was free in time. */
static struct line *take(struct twi_pool *pool, struct twi_wait *wait, bool *tries) {
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        struct line *line = choose(pool);
        bool let = line != NULL ? breaker_lets(pool, tries) : pool->breaker.state == TWI_BREAKER_CLOSED;
        if (let && line != NULL) line->taken = true;
        if (let && line == NULL) pool->waiting++;
        pthread_mutex_unlock(&pool->lock);
        if (!let || line != NULL) return let ? line : NULL;
        bool goes_on = twi_wait_for(wait, &pool->rules, pool->freed_fd, false, INT32_MAX);
        uint64_t one;
        (void)!read(pool->freed_fd, &one, sizeof one);
        pthread_mutex_lock(&pool->lock);
        pool->waiting--;
        pthread_mutex_unlock(&pool->lock);
        if (!goes_on || twi_wait_left_ms(wait, pool->rules.engine) <= 0) return NULL;
    }
}

static void give_back(struct twi_pool *pool, struct line *line, bool tried, enum twi_request_outcome outcome,
                      bool slowly) {
    uint64_t one = 1, random;
    twi_port_random(pool->rules.engine, &random, sizeof random);
    int64_t now_ms = twi_port_mono_ms(pool->rules.engine);
    pthread_mutex_lock(&pool->lock);
    line->taken = false;
    if (tried) pool->trying = false;
    if (outcome == TWI_REQUEST_DONE)
        twi_breaker_succeed(&pool->breaker);
    else if (slowly)
        twi_breaker_fail_slowly(&pool->breaker, now_ms, random);
    else if (outcome != TWI_REQUEST_REFUSED && (tried || pool->breaker.state == TWI_BREAKER_CLOSED))
        twi_breaker_fail(&pool->breaker, now_ms, random); /* of those that fail together the first one counts */
    else if (tried)
        twi_breaker_succeed(&pool->breaker); /* it answers, if not as one would like */
    bool wake = pool->waiting != 0;
    pthread_mutex_unlock(&pool->lock);
    if (wake) (void)!write(pool->freed_fd, &one, sizeof one);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* All of a command but its first two words. Returns how many words. */
static size_t put_body(struct twi_bytes *body, const struct twi_pool *pool, const struct line *line,
                       const struct twi_request *request, enum verb verb) {
    char who[40];
    snprintf(who, sizeof who, "%s:%zu", pool->name, (size_t)(line - pool->lines));
    body->size = 0;
    body->failed = false;
    twi_wire_put_u64(body, request->key_count);
    for (size_t i = 0; i < request->key_count; i++) twi_wire_put(body, request->keys[i].data, request->keys[i].size);
    twi_wire_put_text(body, who);
    twi_wire_put_u64(body, line->serial);
    twi_wire_put_u64(body, verb);
    for (size_t i = 0; i < request->arg_count; i++) twi_wire_put(body, request->args[i].data, request->args[i].size);
    return 1 + request->key_count + 3 + request->arg_count;
}

static void put_command(struct twi_bytes *out, enum twi_script script, bool whole, const struct twi_bytes *body,
                        size_t words) {
    out->size = 0;
    out->failed = body->failed;
    twi_wire_begin_script(out, &scripts[script], whole, words);
    twi_bytes_add(out, body->data, body->size);
}

/* False: none, or no memory. */
static bool keep_long(const struct twi_node *node, struct twi_request *request) {
    char *text = node->type == TWI_NODE_STRING ? malloc(node->size + 1) : NULL;
    if (text == NULL) return false;
    memcpy(text, node->text, node->size);
    free(request->long_text); /* of a try before */
    request->long_text = text;
    request->long_size = node->size;
    return true;
}

/* One element. False: none of ours. */
static bool read_script_value(const struct twi_node *node, struct twi_script_value *values) {
    *values = (struct twi_script_value){0};
    if (node->depth != 1 || node->type == TWI_NODE_ARRAY || node->type == TWI_NODE_ERROR) return false;
    values->is_nil = node->type == TWI_NODE_NIL;
    values->is_number = twi_node_i64(node, &values->number);
    if (node->type == TWI_NODE_INTEGER || node->type == TWI_NODE_NIL) return true;
    if (node->size >= sizeof values->text) return false;
    memcpy(values->text, node->text, node->size);
    values->size = node->size;
    return true;
}

/* Everything behind the number of the call. False: not an answer to it. */
static bool read_answer(const struct twi_node *nodes, size_t count, const char *serial, struct twi_request *request) {
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || count > 2 + TWI_SCRIPT_VALUES_MAX ||
        !twi_node_is(&nodes[1], serial))
        return false;
    for (size_t i = 2; i < count; i++) {
        bool is_long = request->wants_long && i + 1 == count;
        if (is_long && (nodes[i].depth != 1 || !keep_long(&nodes[i], request))) return false;
        if (!read_script_value(&nodes[i], &request->values[i - 2]) && !is_long) return false;
    }
    request->value_count = count - 2;
    return true;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* One command, with its script where Redis does not know it; the answer goes into `ask`. */
static enum twi_pool_connection_outcome send_call(struct line *line, enum twi_script script,
                                                  const struct twi_bytes *body, size_t words, const char *serial,
                                                  struct twi_wait *wait, struct twi_request *request) {
    const struct twi_node *nodes = NULL;
    size_t count = 0;
    put_command(&line->out, script, false, body, words);
    enum twi_pool_connection_outcome done =
        twi_pool_connection_exchange(&line->connection, &line->out, wait, &nodes, &count);
    if (done == TWI_POOL_CONNECTION_REFUSED && twi_reply_needs_script(nodes)) {
        put_command(&line->out, script, true, body, words);
        done = twi_pool_connection_exchange(&line->connection, &line->out, wait, &nodes, &count);
    }
    if (done != TWI_POOL_CONNECTION_DONE || read_answer(nodes, count, serial, request)) return done;
    twi_pool_connection_close(&line->connection);
    twi_port_last_error(line->connection.rules->engine, "an answer to something else");
    return TWI_POOL_CONNECTION_BROKEN;
}

static enum twi_pool_connection_outcome settle_debt(struct line *line, struct twi_wait *wait) {
    struct twi_request unheard = {0};
    if (line->cancel_words == 0) return TWI_POOL_CONNECTION_DONE;
    enum twi_pool_connection_outcome done =
        send_call(line, line->debt_script, &line->debt, line->cancel_words, line->debt_serial, wait, &unheard);
    if (done != TWI_POOL_CONNECTION_DONE)
        return done == TWI_POOL_CONNECTION_BROKEN ? TWI_POOL_CONNECTION_UNSENT : done; /* of ours nothing went out */
    line->cancel_words = 0;
    twi_port_count(line->connection.rules->engine, asks_settled, 1);
    return TWI_POOL_CONNECTION_DONE;
}

static enum twi_pool_connection_outcome try_once(struct twi_pool *pool, struct line *line, struct twi_request *request,
                                                 bool again, struct twi_wait *wait) {
    char serial[24];
    enum twi_pool_connection_outcome done = twi_pool_connection_open(&line->connection, wait);
    if (done == TWI_POOL_CONNECTION_DONE) done = settle_debt(line, wait);
    if (done != TWI_POOL_CONNECTION_DONE) return done;
    snprintf(serial, sizeof serial, "%" PRIu64, line->serial);
    size_t words = put_body(&line->body, pool, line, request, again ? RETRY_CALL : ASK);
    return send_call(line, request->script, &line->body, words, serial, wait, request);
}

/* The call may have been executed, and nobody waits for it any more. */
static void owe(struct twi_pool *pool, struct line *line, const struct twi_request *request) {
    twi_port_count(pool->rules.engine, asks_unknown, 1);
    if (!request->numbered) return;
    line->cancel_words = put_body(&line->debt, pool, line, request, CANCEL_CALL);
    if (line->debt.failed) line->cancel_words = 0; /* no memory: what it charged stays charged */
    line->debt_script = request->script;
    snprintf(line->debt_serial, sizeof line->debt_serial, "%" PRIu64, line->serial);
}

static void count_error(struct twi_pool *pool, enum twi_pool_connection_outcome done, bool in_time) {
    if (done == TWI_POOL_CONNECTION_REFUSED || done == TWI_POOL_CONNECTION_TURNED_AWAY)
        twi_port_count(pool->rules.engine, ask_refused, 1);
    else if (!in_time)
        twi_port_count(pool->rules.engine, ask_timeouts, 1);
    else
        twi_port_count(pool->rules.engine, ask_dropped, 1);
}

/* Half of what is left, as long as that is long enough for an answer. */
static struct twi_wait part_of(struct twi_wait *wait, tw_engine *engine) {
    int64_t left_ms = twi_wait_left_ms(wait, engine), part_ms = left_ms / 2;
    if (part_ms < ATTEMPT_MS_MIN) part_ms = left_ms;
    return (struct twi_wait){.deadline_ms = wait->deadline_ms - left_ms + part_ms, .budget_ms = part_ms};
}

static enum twi_request_outcome go(struct twi_pool *pool, struct line *line, struct twi_request *request,
                                   struct twi_wait *wait, bool *slowly) {
    tw_engine *engine = pool->rules.engine;
    bool perhaps = false;
    line->serial++;
    for (int64_t pause_ms = 0;; pause_ms = pause_ms != 0 ? pause_ms * 2 : PAUSE_MS) {
        if (pause_ms != 0) twi_wait_for(wait, &pool->rules, -1, false, pause_ms);
        struct twi_wait part = part_of(wait, engine);
        int64_t budget_ms = part.budget_ms;
        if (perhaps) twi_port_count(engine, asked_again, 1);
        enum twi_pool_connection_outcome done = try_once(pool, line, request, perhaps, &part);
        wait->budget_ms -= budget_ms - part.budget_ms;
        if (done == TWI_POOL_CONNECTION_DONE) return TWI_REQUEST_DONE;
        count_error(pool, done, twi_wait_left_ms(&part, engine) > 0);
        perhaps = perhaps || done == TWI_POOL_CONNECTION_BROKEN;
        *slowly = done == TWI_POOL_CONNECTION_TURNED_AWAY;
        bool over = done == TWI_POOL_CONNECTION_REFUSED || done == TWI_POOL_CONNECTION_TURNED_AWAY ||
                    twi_wait_left_ms(wait, engine) <= 0 || twi_load_relaxed(&pool->stopped);
        if (!over) continue;
        if (perhaps) owe(pool, line, request);
        if (perhaps) return TWI_REQUEST_UNKNOWN;
        return done == TWI_POOL_CONNECTION_UNSENT ? TWI_REQUEST_UNSENT : TWI_REQUEST_REFUSED;
    }
}

enum twi_request_outcome twi_pool_request(struct twi_pool *pool, struct twi_request *request) {
    tw_engine *engine = pool->rules.engine;
    int64_t began_ms = twi_port_mono_ms(engine);
    struct twi_wait wait = {.deadline_ms = request->deadline_ms, .budget_ms = request->deadline_ms - began_ms};
    bool tries, slowly = false;
    twi_port_count(engine, ask_calls, 1);
    struct line *line = twi_load_relaxed(&pool->stopped) ? NULL : take(pool, &wait, &tries);
    if (line == NULL) {
        twi_port_count(engine, ask_away, 1);
        return TWI_REQUEST_UNSENT;
    }
    twi_port_count(engine, ask_active, 1);
    enum twi_request_outcome outcome = go(pool, line, request, &wait, &slowly);
    give_back(pool, line, tries, outcome, slowly);
    twi_port_count(engine, ask_active, -1);
    twi_port_count(engine, ask_ms, twi_port_mono_ms(engine) - began_ms);
    return outcome;
}
