/* pool.c -- the pool: who asks over which connection, how often, and when Redis is left alone. See pool.h.
 *
 *   free --taken by a caller--> [debt settled] --> asked --> answered --> free
 *                                                   |  no answer: closed, dialled anew, asked again under the same number
 *                                                   '--> time is up: its number becomes a debt of the connection --> free
 * The first try may use half of the time that is left, so does each one after it: a lost answer leaves time to ask again.
 * The breaker opens when a call ends without an answer, for a time that grows; meanwhile calls are told "away" at once, and
 * one of them tries when it is over.
 * Always true: `lock` guards who has which connection and the breaker, and is held for a few instructions; everything else of
 * a connection belongs to the caller that has taken it. */
#include "sync/ask/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "sync/batch/reply.h"
#include "sync/wire/breaker.h"
#include "sync/ask/connection.h"

#include "hold.lua.h"
#include "hold.lua.sha1.h"
#include "lock.lua.h"
#include "lock.lua.sha1.h"
#include "once.lua.h"
#include "once.lua.sha1.h"
#include "paced.lua.h"
#include "paced.lua.sha1.h"
#include "reclaim.lua.h"
#include "reclaim.lua.sha1.h"
#include "stock.lua.h"
#include "stock.lua.sha1.h"
#include "strict.lua.h"
#include "strict.lua.sha1.h"

#define PAUSE_MS 5 /* between two tries of one call, doubled each time */
#define ATTEMPT_MS_MIN 10

static const struct {
    const char *text, *sha1;
} scripts[TWI_SCRIPTS] = {
    [TWI_SCRIPT_STRICT] = {twi_script_strict, twi_script_strict_sha1},
    [TWI_SCRIPT_PACED] = {twi_script_paced, twi_script_paced_sha1},
    [TWI_SCRIPT_ONCE] = {twi_script_once, twi_script_once_sha1},
    [TWI_SCRIPT_LOCK] = {twi_script_lock, twi_script_lock_sha1},
    [TWI_SCRIPT_STOCK] = {twi_script_stock, twi_script_stock_sha1},
    [TWI_SCRIPT_HOLD] = {twi_script_hold, twi_script_hold_sha1},
    [TWI_SCRIPT_RECLAIM] = {twi_script_reclaim, twi_script_reclaim_sha1},
};

enum verb { NEVER_MIND, ASK, ASK_AGAIN };

struct line {
    struct twi_talk talk;
    bool taken; /* under the pool's lock */
    uint64_t serial;
    struct twi_bytes out, body;
    /* what is to be said before anything else, if any */
    struct twi_bytes debt;
    enum twi_script debt_script;
    size_t debt_words; /* 0: nothing is owed */
    char debt_serial[24];
};

struct twi_asks {
    struct twi_talk_rules rules;
    char name[17]; /* in Redis */
    pthread_mutex_t lock;
    struct line lines[TWI_ASKS_MAX]; /* `taken`: under lock; the rest: whoever has taken it */
    struct twi_breaker breaker;      /* under lock */
    bool trying;                     /* somebody has been let through an open breaker. Under lock */
    uint32_t waiting;                /* for a connection. Under lock */
    int freed_fd;                    /* one up for each connection that was freed while somebody waited */
    _Atomic bool stopped;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct twi_asks *twi_asks_create(tw_engine *engine, const struct twi_url *url, const tw_options *options) {
    struct twi_asks *asks = calloc(1, sizeof *asks);
    if (asks == NULL) return NULL;
    asks->rules =
        (struct twi_talk_rules){.engine = engine,
                                .url = *url,
                                .password = options->redis_password,
                                .password_ctx = options->redis_password_ctx,
                                .timeout_ms = options->redis_timeout_ms != 0 ? options->redis_timeout_ms : 100,
                                .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    asks->breaker.retry_max_ms = options->retry_max_ms;
    asks->freed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    pthread_mutex_init(&asks->rules.password_lock, NULL);
    pthread_mutex_init(&asks->lock, NULL);
    for (uint32_t i = 0; i < TWI_ASKS_MAX; i++) asks->lines[i].talk.rules = &asks->rules;
    uint64_t random;
    twi_port_random(engine, &random, sizeof random);
    snprintf(asks->name, sizeof asks->name, "%016" PRIx64, random);
    if (asks->freed_fd >= 0 && asks->rules.stop_fd >= 0) return asks;
    twi_asks_destroy(asks);
    return NULL;
}

static void free_pool(struct twi_asks *asks) {
    if (asks->freed_fd >= 0) close(asks->freed_fd);
    if (asks->rules.stop_fd >= 0) close(asks->rules.stop_fd);
    twi_url_wipe(&asks->rules.url);
    free(asks);
}

void twi_asks_destroy(struct twi_asks *asks) {
    if (asks == NULL) return;
    for (uint32_t i = 0; i < TWI_ASKS_MAX; i++) {
        struct line *line = &asks->lines[i];
        twi_talk_free(&line->talk);
        twi_bytes_free(&line->out);
        twi_bytes_free(&line->body);
        twi_bytes_free(&line->debt);
    }
    pthread_mutex_destroy(&asks->lock);
    pthread_mutex_destroy(&asks->rules.password_lock);
    free_pool(asks);
}

void twi_asks_abandon(struct twi_asks *asks) {
    if (asks == NULL) return;
    for (uint32_t i = 0; i < TWI_ASKS_MAX; i++) {
        struct line *line = &asks->lines[i];
        twi_talk_abandon(&line->talk, line->taken);
        if (line->taken) continue;
        twi_bytes_free(&line->out);
        twi_bytes_free(&line->body);
        twi_bytes_free(&line->debt);
    }
    free_pool(asks);
}

void twi_asks_stop(struct twi_asks *asks) {
    uint64_t one = 1;
    twi_store_relaxed(&asks->stopped, true); /* who does not see it yet meets the descriptor */
    (void)!write(asks->rules.stop_fd, &one, sizeof one);
}

/* ---- who may ask, and over which connection ---------------------------------------------------------------------- */

/* Under the lock: may this call go out? One at a time while the breaker is not closed. */
static bool breaker_lets(struct twi_asks *asks, bool *tries) {
    *tries = false;
    if (asks->breaker.state == TWI_BREAKER_CLOSED) return true;
    if (asks->trying || !twi_breaker_may_try(&asks->breaker, twi_port_mono_ms(asks->rules.engine))) return false;
    return *tries = asks->trying = true;
}

/* Under the lock: a free connection, those with debts first, then those that stand. */
static struct line *choose(struct twi_asks *asks) {
    struct line *best = NULL;
    int best_rank = -1;
    for (uint32_t i = 0; i < TWI_ASKS_MAX; i++) {
        struct line *line = &asks->lines[i];
        if (line->taken) continue;
        int rank = line->debt_words != 0 ? 2 : line->talk.up ? 1 : 0;
        if (rank > best_rank) best = line, best_rank = rank;
    }
    return best;
}

/* NULL: Redis is left alone, or none was free in time. */
static struct line *take(struct twi_asks *asks, struct twi_wait *wait, bool *tries) {
    for (;;) {
        pthread_mutex_lock(&asks->lock);
        struct line *line = choose(asks);
        bool let = line != NULL ? breaker_lets(asks, tries) : asks->breaker.state == TWI_BREAKER_CLOSED;
        if (let && line != NULL) line->taken = true;
        if (let && line == NULL) asks->waiting++;
        pthread_mutex_unlock(&asks->lock);
        if (!let || line != NULL) return let ? line : NULL;
        bool goes_on = twi_wait_for(wait, &asks->rules, asks->freed_fd, false, INT32_MAX);
        uint64_t one;
        (void)!read(asks->freed_fd, &one, sizeof one);
        pthread_mutex_lock(&asks->lock);
        asks->waiting--;
        pthread_mutex_unlock(&asks->lock);
        if (!goes_on || twi_wait_left_ms(wait, asks->rules.engine) <= 0) return NULL;
    }
}

static void give_back(struct twi_asks *asks, struct line *line, bool tried, enum twi_asked outcome, bool slowly) {
    uint64_t one = 1, random;
    twi_port_random(asks->rules.engine, &random, sizeof random);
    int64_t now_ms = twi_port_mono_ms(asks->rules.engine);
    pthread_mutex_lock(&asks->lock);
    line->taken = false;
    if (tried) asks->trying = false;
    if (outcome == TWI_ASKED_DONE)
        twi_breaker_succeed(&asks->breaker);
    else if (slowly)
        twi_breaker_fail_slowly(&asks->breaker, now_ms, random);
    else if (outcome != TWI_ASKED_REFUSED && (tried || asks->breaker.state == TWI_BREAKER_CLOSED))
        twi_breaker_fail(&asks->breaker, now_ms, random); /* of those that fail together the first one counts */
    else if (tried)
        twi_breaker_succeed(&asks->breaker); /* it answers, if not as one would like */
    bool wake = asks->waiting != 0;
    pthread_mutex_unlock(&asks->lock);
    if (wake) (void)!write(asks->freed_fd, &one, sizeof one);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* All of a command but its first two words. Returns how many words. */
static size_t put_body(struct twi_bytes *body, const struct twi_asks *asks, const struct line *line,
                       const struct twi_ask *ask, enum verb verb) {
    char who[40];
    snprintf(who, sizeof who, "%s:%zu", asks->name, (size_t)(line - asks->lines));
    body->size = 0;
    body->failed = false;
    twi_wire_put_u64(body, ask->key_count);
    for (size_t i = 0; i < ask->key_count; i++) twi_wire_put(body, ask->keys[i].data, ask->keys[i].size);
    twi_wire_put_text(body, who);
    twi_wire_put_u64(body, line->serial);
    twi_wire_put_u64(body, verb);
    for (size_t i = 0; i < ask->arg_count; i++) twi_wire_put(body, ask->args[i].data, ask->args[i].size);
    return 1 + ask->key_count + 3 + ask->arg_count;
}

static void put_command(struct twi_bytes *out, enum twi_script script, bool whole, const struct twi_bytes *body,
                        size_t words) {
    out->size = 0;
    out->failed = body->failed;
    twi_wire_begin(out, 2 + words);
    twi_wire_put_text(out, whole ? "EVAL" : "EVALSHA");
    twi_wire_put_text(out, whole ? scripts[script].text : scripts[script].sha1);
    twi_bytes_add(out, body->data, body->size);
}

/* False: none, or no memory. */
static bool keep_long(const struct twi_node *node, struct twi_ask *ask) {
    char *text = node->type == TWI_NODE_STRING ? malloc(node->size + 1) : NULL;
    if (text == NULL) return false;
    memcpy(text, node->text, node->size);
    free(ask->long_text); /* of a try before */
    ask->long_text = text;
    ask->long_size = node->size;
    return true;
}

/* One element. False: none of ours. */
static bool read_said(const struct twi_node *node, struct twi_said *said) {
    *said = (struct twi_said){0};
    if (node->depth != 1 || node->type == TWI_NODE_ARRAY || node->type == TWI_NODE_ERROR) return false;
    said->is_nil = node->type == TWI_NODE_NIL;
    said->is_number = twi_node_i64(node, &said->number);
    if (node->type == TWI_NODE_INTEGER || node->type == TWI_NODE_NIL) return true;
    if (node->size >= sizeof said->text) return false;
    memcpy(said->text, node->text, node->size);
    said->size = node->size;
    return true;
}

/* Everything behind the number of the call. False: not an answer to it. */
static bool read_answer(const struct twi_node *nodes, size_t count, const char *serial, struct twi_ask *ask) {
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || count > 2 + TWI_SAID_MAX || !twi_node_is(&nodes[1], serial))
        return false;
    for (size_t i = 2; i < count; i++) {
        bool is_long = ask->wants_long && i + 1 == count;
        if (is_long && (nodes[i].depth != 1 || !keep_long(&nodes[i], ask))) return false;
        if (!read_said(&nodes[i], &ask->said[i - 2]) && !is_long) return false;
    }
    ask->said_count = count - 2;
    return true;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* One command, with its script where Redis does not know it; the answer goes into `ask`. */
static enum twi_talked say(struct line *line, enum twi_script script, const struct twi_bytes *body, size_t words,
                           const char *serial, struct twi_wait *wait, struct twi_ask *ask) {
    const struct twi_node *nodes = NULL;
    size_t count = 0;
    put_command(&line->out, script, false, body, words);
    enum twi_talked done = twi_talk_exchange(&line->talk, &line->out, wait, &nodes, &count);
    if (done == TWI_TALK_REFUSED && twi_answer_error(nodes) == TWI_ANSWER_NOSCRIPT) {
        put_command(&line->out, script, true, body, words);
        done = twi_talk_exchange(&line->talk, &line->out, wait, &nodes, &count);
    }
    if (done != TWI_TALK_DONE || read_answer(nodes, count, serial, ask)) return done;
    twi_talk_close(&line->talk);
    twi_port_last_error(line->talk.rules->engine, "an answer to something else");
    return TWI_TALK_BROKEN;
}

static enum twi_talked settle_debt(struct line *line, struct twi_wait *wait) {
    struct twi_ask unheard = {0};
    if (line->debt_words == 0) return TWI_TALK_DONE;
    enum twi_talked done =
        say(line, line->debt_script, &line->debt, line->debt_words, line->debt_serial, wait, &unheard);
    if (done != TWI_TALK_DONE) return done == TWI_TALK_BROKEN ? TWI_TALK_UNSENT : done; /* of ours nothing went out */
    line->debt_words = 0;
    twi_port_count(line->talk.rules->engine, asks_settled, 1);
    return TWI_TALK_DONE;
}

static enum twi_talked try_once(struct twi_asks *asks, struct line *line, struct twi_ask *ask, bool again,
                                struct twi_wait *wait) {
    char serial[24];
    enum twi_talked done = twi_talk_open(&line->talk, wait);
    if (done == TWI_TALK_DONE) done = settle_debt(line, wait);
    if (done != TWI_TALK_DONE) return done;
    snprintf(serial, sizeof serial, "%" PRIu64, line->serial);
    size_t words = put_body(&line->body, asks, line, ask, again ? ASK_AGAIN : ASK);
    return say(line, ask->script, &line->body, words, serial, wait, ask);
}

/* The call may have been executed, and nobody waits for it any more. */
static void owe(struct twi_asks *asks, struct line *line, const struct twi_ask *ask) {
    twi_port_count(asks->rules.engine, asks_unknown, 1);
    if (!ask->numbered) return;
    line->debt_words = put_body(&line->debt, asks, line, ask, NEVER_MIND);
    if (line->debt.failed) line->debt_words = 0; /* no memory: what it charged stays charged */
    line->debt_script = ask->script;
    snprintf(line->debt_serial, sizeof line->debt_serial, "%" PRIu64, line->serial);
}

static void count_error(struct twi_asks *asks, enum twi_talked done, bool in_time) {
    if (done == TWI_TALK_REFUSED || done == TWI_TALK_TURNED_AWAY)
        twi_port_count(asks->rules.engine, ask_refused, 1);
    else if (!in_time)
        twi_port_count(asks->rules.engine, ask_timeouts, 1);
    else
        twi_port_count(asks->rules.engine, ask_dropped, 1);
}

/* Half of what is left, as long as that is long enough for an answer. */
static struct twi_wait part_of(struct twi_wait *wait, tw_engine *engine) {
    int64_t left_ms = twi_wait_left_ms(wait, engine), part_ms = left_ms / 2;
    if (part_ms < ATTEMPT_MS_MIN) part_ms = left_ms;
    return (struct twi_wait){.deadline_ms = wait->deadline_ms - left_ms + part_ms, .budget_ms = part_ms};
}

static enum twi_asked go(struct twi_asks *asks, struct line *line, struct twi_ask *ask, struct twi_wait *wait,
                         bool *slowly) {
    tw_engine *engine = asks->rules.engine;
    bool perhaps = false;
    line->serial++;
    for (int64_t pause_ms = 0;; pause_ms = pause_ms != 0 ? pause_ms * 2 : PAUSE_MS) {
        if (pause_ms != 0) twi_wait_for(wait, &asks->rules, -1, false, pause_ms);
        struct twi_wait part = part_of(wait, engine);
        int64_t budget_ms = part.budget_ms;
        if (perhaps) twi_port_count(engine, asked_again, 1);
        enum twi_talked done = try_once(asks, line, ask, perhaps, &part);
        wait->budget_ms -= budget_ms - part.budget_ms;
        if (done == TWI_TALK_DONE) return TWI_ASKED_DONE;
        count_error(asks, done, twi_wait_left_ms(&part, engine) > 0);
        perhaps = perhaps || done == TWI_TALK_BROKEN;
        *slowly = done == TWI_TALK_TURNED_AWAY;
        bool over = done == TWI_TALK_REFUSED || done == TWI_TALK_TURNED_AWAY || twi_wait_left_ms(wait, engine) <= 0 ||
                    twi_load_relaxed(&asks->stopped);
        if (!over) continue;
        if (perhaps) owe(asks, line, ask);
        if (perhaps) return TWI_ASKED_UNKNOWN;
        return done == TWI_TALK_UNSENT ? TWI_ASKED_AWAY : TWI_ASKED_REFUSED;
    }
}

enum twi_asked twi_asks_ask(struct twi_asks *asks, struct twi_ask *ask) {
    tw_engine *engine = asks->rules.engine;
    int64_t began_ms = twi_port_mono_ms(engine);
    struct twi_wait wait = {.deadline_ms = ask->deadline_ms, .budget_ms = ask->deadline_ms - began_ms};
    bool tries, slowly = false;
    twi_port_count(engine, ask_calls, 1);
    struct line *line = twi_load_relaxed(&asks->stopped) ? NULL : take(asks, &wait, &tries);
    if (line == NULL) {
        twi_port_count(engine, ask_away, 1);
        return TWI_ASKED_AWAY;
    }
    twi_port_count(engine, ask_active, 1);
    enum twi_asked outcome = go(asks, line, ask, &wait, &slowly);
    give_back(asks, line, tries, outcome, slowly);
    twi_port_count(engine, ask_active, -1);
    twi_port_count(engine, ask_ms, twi_port_mono_ms(engine) - began_ms);
    return outcome;
}
