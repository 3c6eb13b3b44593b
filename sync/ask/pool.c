/* pool.c -- the pool: which call uses which line and which connection, how often it tries, and when Redis is left
 * alone. See pool.h.
 *
 *   free --a caller takes it--> [debt settled] --> request sent --> reply --> free
 *                                                   | no reply: closed, dialled anew, sent again under the same number
 *                                                   '--> the time is over: the number becomes a debt --> free
 *
 * Each try may use half of the time that is left, so a lost reply leaves time to repeat the request. The breaker opens
 * when a call ends without a reply, for a time that grows. While it is open, calls return UNSENT at once. When that
 * time is over, one call tries.
 * A line is a name, a serial number, and debts. With one Redis each line has a connection of its own. In a cluster a
 * line takes, for each try, a connection to whoever has the slot: one that is up there, else the one that was used
 * longest ago. A call that was redirected waits without a line, unless it may have been executed.
 * Always true: `lock` guards `taken` of lines and connections and the places, and is held for a few instructions. The
 * rest of a line or connection belongs to the caller that has taken it. */
#include "sync/ask/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "engine/base/key_slot.h"
#include "engine/base/lock.h"
#include "engine/port/services.h"
#include "sync/ask/call_text.h"
#include "sync/ask/connection.h"
#include "sync/ask/places.h"
#include "sync/ask/spoilt.h"
#include "sync/batch/reply.h"
#include "sync/wire/cluster_directory.h"
#include "sync/wire/tls.h"

#define PAUSE_MS 5        /* between two tries of one call; it doubles each time */
#define ATTEMPT_MS_MIN 10 /* a try that would be shorter gets all the time that is left */
#define DEBTS_MAX 4u      /* of one line, in a cluster: each of another slot */

/* A cancel that goes out before any other call of its slot. */
struct debt {
    struct twi_bytes body;
    enum twi_script script;
    size_t words;
    char serial[24];
    uint32_t slot;
};

/* A connection, and who has it. */
struct plug {
    struct twi_pool_connection connection;
    bool taken;    /* in a cluster. Under the pool's lock */
    uint64_t used; /* when, as a number that rises. Under the pool's lock */
};

struct line {
    bool taken; /* under the pool's lock */
    uint64_t serial;
    struct plug *plug; /* with one Redis always the same; in a cluster that of the last try, or NULL */
    struct twi_bytes out, body;
    struct debt debts[DEBTS_MAX];
    uint32_t debt_count; /* with one Redis: at most 1 */
};

struct twi_pool {
    struct twi_pool_connection_rules rules;
    struct twi_directory *directory; /* NULL: one Redis */
    char name[17];                   /* in ARGV[1] of each call */
    pthread_mutex_t lock;
    struct line lines[TWI_POOL_MAX]; /* `taken`: under lock; the rest: the caller that has taken it */
    struct plug plugs[TWI_POOL_MAX]; /* the same */
    uint64_t uses;                   /* of plugs. Under lock */
    struct twi_places places;        /* under lock */
    uint32_t waiting;                /* calls that wait for a line. Under lock */
    struct twi_spoilt spoilt;
    int freed_fd; /* an eventfd: plus one for each line that was freed while a call waited */
    _Atomic bool stopped;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int ask_alone(void *ctx, char *password, size_t size) {
    const struct twi_pool_secret *secret = ctx;
    twi_lock(secret->lock);
    int length = secret->ask(secret->ctx, password, size);
    twi_unlock(secret->lock);
    return length;
}

static void set_logins(struct twi_pool_connection_rules *rules, const tw_options *options) {
    rules->password = (struct twi_pool_secret){
        .ask = options->redis_password, .ctx = options->redis_password_ctx, .lock = &rules->password_lock};
    rules->sentinel_password = (struct twi_pool_secret){
        .ask = options->sentinel_password, .ctx = options->sentinel_password_ctx, .lock = &rules->password_lock};
    rules->login = (struct twi_login){.user = rules->url.user,
                                      .password = rules->url.password,
                                      .ask = rules->password.ask ? ask_alone : NULL,
                                      .ask_ctx = &rules->password};
    rules->sentinel_login = (struct twi_login){.user = options->sentinel_user,
                                               .ask = rules->sentinel_password.ask ? ask_alone : NULL,
                                               .ask_ctx = &rules->sentinel_password};
}

struct twi_pool *twi_pool_create(tw_engine *engine, const struct twi_url *url, struct twi_tls *tls,
                                 const tw_options *options) {
    struct twi_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->rules = (struct twi_pool_connection_rules){
        .engine = engine,
        .transport = twi_transport_of(tls),
        .tls = tls,
        .url = *url,
        .timeout_ms = options->redis_timeout_ms != 0 ? options->redis_timeout_ms : 100,
        .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pool->places.retry_max_ms = options->retry_max_ms;
    pool->freed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    set_logins(&pool->rules, options);
    pthread_mutex_init(&pool->rules.password_lock, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    twi_spoilt_begin(&pool->spoilt);
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        pool->plugs[i].connection.rules = &pool->rules;
        pool->lines[i].plug = &pool->plugs[i];
    }
    uint64_t random;
    twi_port_random(engine, &random, sizeof random);
    snprintf(pool->name, sizeof pool->name, "%016" PRIx64, random);
    if (pool->freed_fd >= 0 && pool->rules.stop_fd >= 0) return pool;
    twi_pool_destroy(pool);
    return NULL;
}

void twi_pool_follow(struct twi_pool *pool, struct twi_directory *directory) {
    pool->directory = directory;
    pool->rules.is_cluster = true;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) pool->lines[i].plug = NULL;
}

static void free_line(struct line *line) {
    twi_bytes_free(&line->out);
    twi_bytes_free(&line->body);
    for (uint32_t i = 0; i < DEBTS_MAX; i++) twi_bytes_free(&line->debts[i].body);
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
        twi_pool_connection_free(&pool->plugs[i].connection);
        free_line(&pool->lines[i]);
    }
    pthread_mutex_destroy(&pool->lock);
    twi_spoilt_end(&pool->spoilt);
    pthread_mutex_destroy(&pool->rules.password_lock);
    free_pool(pool);
}

void twi_pool_abandon(struct twi_pool *pool) {
    if (pool == NULL) return;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        bool is_used = pool->directory != NULL ? pool->plugs[i].taken : pool->lines[i].taken;
        twi_pool_connection_abandon(&pool->plugs[i].connection, is_used);
        if (!pool->lines[i].taken) free_line(&pool->lines[i]);
    }
    free_pool(pool);
}

void twi_pool_log(struct twi_pool *pool) {
    twi_spoilt_log(&pool->spoilt, pool->rules.engine);
}

void twi_pool_leave(struct twi_pool *pool) {
    (void)twi_add_relaxed(&pool->rules.moves, 1); /* a hint: who reads it late is told by the server, or next time */
}

void twi_pool_stop(struct twi_pool *pool) {
    uint64_t one = 1;
    twi_store_relaxed(&pool->stopped, true); /* a thread that does not see it yet is woken by the descriptor */
    (void)!write(pool->rules.stop_fd, &one, sizeof one);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

struct call {
    struct twi_pool *pool;
    struct twi_request *request;
    struct twi_wait wait;
    struct line *line; /* NULL: none is held now */
    bool has_begun;    /* it has had a line */
    bool perhaps;      /* Redis may have executed it */
    bool is_away;      /* the breaker is open, or no line was free in time */
    bool in_time;      /* the last try ended within its time */

    /* the place of the last try, for its breaker */
    bool is_there, tries;
    uint64_t place;
    enum twi_place_result result;

    /* in a cluster */
    uint32_t slot;
    struct twi_endpoint where; /* of the next try */
    bool is_asking;            /* the next try goes to `where` behind ASKING; else to the slot's owner */
    struct twi_detour detour;
};

static bool is_cluster(const struct call *call) {
    return call->pool->directory != NULL;
}

static uint64_t random_of(const struct call *call) {
    uint64_t random;
    twi_port_random(call->pool->rules.engine, &random, sizeof random);
    return random;
}

/* ---- which call may go out, over which line and connection ------------------------------------------------------- */

static bool is_owner(struct twi_pool *pool, uint32_t slot, const struct twi_endpoint *endpoint) {
    struct twi_endpoint owner;
    return twi_directory_find(pool->directory, slot, &owner) && twi_endpoint_equals(&owner, endpoint);
}

/* With one Redis, those with a debt come first, then those that are up. In a cluster, those with a debt that can be
 * paid on this way; then those without debts. -1: the line has no room for another debt. */
static int rank_of(const struct call *call, const struct line *line) {
    if (!is_cluster(call)) return line->debt_count != 0 ? 2 : line->plug->connection.up ? 1 : 0;
    for (uint32_t i = 0; i < line->debt_count; i++)
        if (line->debts[i].slot == call->slot || is_owner(call->pool, line->debts[i].slot, &call->where)) return 2;
    return line->debt_count == 0 ? 1 : line->debt_count < DEBTS_MAX ? 0 : -1;
}

/* Under the lock: returns a free line. */
static struct line *choose_line(const struct call *call) {
    struct line *best = NULL;
    int best_rank = -1;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        struct line *line = &call->pool->lines[i];
        if (line->taken) continue;
        int rank = rank_of(call, line);
        if (rank > best_rank) best = line, best_rank = rank;
    }
    return best;
}

/* Under the lock, in a cluster: gives the line a connection. One is free, for a line takes no more than one. */
static void choose_plug(struct call *call) {
    struct twi_pool *pool = call->pool;
    struct plug *best = NULL;
    int best_rank = -1;
    if (call->line->plug != NULL) call->line->plug->taken = false;
    for (uint32_t i = 0; i < TWI_POOL_MAX; i++) {
        struct plug *plug = &pool->plugs[i];
        if (plug->taken) continue;
        bool is_at = twi_pool_connection_is_at(&plug->connection, &call->where);
        int rank = is_at ? 2 + plug->connection.up : !plug->connection.up;
        if (rank > best_rank || (rank == best_rank && plug->used < best->used)) best = plug, best_rank = rank;
    }
    best->taken = true;
    best->used = ++pool->uses;
    call->line->plug = best;
}

/* Under the lock: the call goes from the place where it was. */
static void leave_place(struct call *call, int64_t now_ms, uint64_t random) {
    if (call->is_there) twi_places_note(&call->pool->places, call->place, call->tries, call->result, now_ms, random);
    call->is_there = call->tries = false;
    call->result = TWI_PLACE_UNTRIED;
}

/* Under the lock: may the call go to the place? */
static bool enter_place(struct call *call, uint64_t place, int64_t now_ms, uint64_t random) {
    if (call->is_there && call->place == place) return true;
    leave_place(call, now_ms, random);
    call->place = place;
    return call->is_there = twi_places_let(&call->pool->places, place, now_ms, &call->tries);
}

/* Takes a line, if the call has none, and a connection. False: the breaker is open, or no line was free in time. */
static bool enter(struct call *call) {
    struct twi_pool *pool = call->pool;
    uint64_t place = twi_place_name(is_cluster(call) ? &call->where : NULL), random = random_of(call);
    for (;;) {
        int64_t now_ms = twi_port_mono_ms(pool->rules.engine);
        twi_lock(&pool->lock);
        struct line *line = call->line != NULL ? call->line : choose_line(call);
        bool let = line != NULL ? enter_place(call, place, now_ms, random) : twi_places_is_closed(&pool->places, place);
        bool is_new = let && line != NULL && call->line == NULL;
        if (is_new) line->taken = true, call->line = line;
        if (let && line != NULL && is_cluster(call)) choose_plug(call);
        if (let && line == NULL) pool->waiting++;
        twi_unlock(&pool->lock);
        if (is_new) line->serial++;
        if (is_new && !call->has_begun) twi_port_count(pool->rules.engine, ask_active, 1);
        call->has_begun = call->has_begun || is_new;
        if (!let || line != NULL) return let;
        bool goes_on = twi_wait_for(&call->wait, &pool->rules, pool->freed_fd, false, INT32_MAX);
        uint64_t one;
        (void)!read(pool->freed_fd, &one, sizeof one);
        twi_lock(&pool->lock);
        pool->waiting--;
        twi_unlock(&pool->lock);
        if (!goes_on || twi_wait_left_ms(&call->wait, pool->rules.engine) <= 0) return false;
    }
}

/* Gives the line and its connection back. `ends`: the call has ended, too. */
static void give_back(struct call *call, bool ends) {
    struct twi_pool *pool = call->pool;
    uint64_t one = 1, random = random_of(call);
    int64_t now_ms = twi_port_mono_ms(pool->rules.engine);
    twi_lock(&pool->lock);
    if (ends) leave_place(call, now_ms, random);
    bool wake = call->line != NULL && pool->waiting != 0;
    if (call->line != NULL && is_cluster(call) && call->line->plug != NULL) {
        call->line->plug->taken = false;
        call->line->plug = NULL;
    }
    if (call->line != NULL) call->line->taken = false;
    call->line = NULL;
    twi_unlock(&pool->lock);
    if (wake) (void)!write(pool->freed_fd, &one, sizeof one);
}

/* ---- one try ----------------------------------------------------------------------------------------------------- */

/* Sends one command, and again with the script's text if Redis does not know it. The reply goes into `request`. */
static enum twi_pool_connection_outcome send_call(struct call *call, enum twi_script script,
                                                  const struct twi_bytes *body, size_t words, const char *serial,
                                                  struct twi_wait *wait, struct twi_request *request) {
    struct line *line = call->line;
    struct twi_pool_connection *connection = &line->plug->connection;
    size_t replies = 1 + call->is_asking, count = 0; /* ASKING is valid for one command */
    const struct twi_node *nodes = NULL;
    twi_call_put(&line->out, script, false, call->is_asking, body, words);
    enum twi_pool_connection_outcome done =
        twi_pool_connection_exchange(connection, &line->out, replies, wait, &nodes, &count);
    if (done == TWI_POOL_CONNECTION_REFUSED && twi_reply_needs_script(nodes)) {
        twi_call_put(&line->out, script, true, call->is_asking, body, words);
        done = twi_pool_connection_exchange(connection, &line->out, replies, wait, &nodes, &count);
    }
    if (done == TWI_POOL_CONNECTION_SPOILT && request == call->request)
        twi_spoilt_note(&call->pool->spoilt, request, nodes->text);
    if (done != TWI_POOL_CONNECTION_DONE || twi_call_read(nodes, count, serial, request)) return done;
    twi_pool_connection_close(connection);
    twi_port_last_error(call->pool->rules.engine, "an answer to something else");
    return TWI_POOL_CONNECTION_BROKEN;
}

static void forget_debt(struct line *line, uint32_t i) {
    struct debt paid = line->debts[i];
    line->debts[i] = line->debts[--line->debt_count];
    line->debts[line->debt_count] = paid; /* its memory is used again */
}

static void note_moved(struct call *call, const struct twi_redirect *redirect) {
    if (redirect->has_endpoint)
        twi_directory_note_moved(call->pool->directory, redirect->slot, &redirect->to);
    else
        twi_directory_want(call->pool->directory);
}

static enum twi_pool_connection_outcome settle_debt(struct call *call, const struct debt *debt, struct twi_wait *wait) {
    struct twi_request unheard = {0};
    enum twi_pool_connection_outcome done =
        send_call(call, debt->script, &debt->body, debt->words, debt->serial, wait, &unheard);
    return done == TWI_POOL_CONNECTION_BROKEN ? TWI_POOL_CONNECTION_UNSENT : done; /* the call was not sent */
}

/* Pays the debts that can be paid here. That of the call's own slot must be paid; others can wait. */
static enum twi_pool_connection_outcome settle_debts(struct call *call, struct twi_wait *wait) {
    struct line *line = call->line;
    for (uint32_t i = 0; i < line->debt_count;) {
        const struct debt *debt = &line->debts[i];
        bool must = !is_cluster(call) || debt->slot == call->slot;
        if (!must && (call->is_asking || !is_owner(call->pool, debt->slot, &call->where))) {
            i++;
            continue;
        }
        enum twi_pool_connection_outcome done = settle_debt(call, debt, wait);
        /* A key that holds something else would refuse the cancel for ever. */
        if (done == TWI_POOL_CONNECTION_DONE || done == TWI_POOL_CONNECTION_SPOILT) {
            forget_debt(line, i);
            twi_port_count(call->pool->rules.engine, asks_settled, 1);
            continue;
        }
        const struct twi_pool_connection *connection = &line->plug->connection;
        if (must || !connection->up) return done;
        bool has_moved = done == TWI_POOL_CONNECTION_REDIRECTED && connection->redirect.kind == TWI_REDIRECT_MOVED;
        if (has_moved) note_moved(call, &connection->redirect);
        i++;
    }
    if (line->debt_count == DEBTS_MAX) return TWI_POOL_CONNECTION_UNSENT; /* there would be no room for its own */
    return TWI_POOL_CONNECTION_DONE;
}

static size_t put_body(struct call *call, struct twi_bytes *body, enum twi_call_verb verb) {
    char who[40];
    snprintf(who, sizeof who, "%s:%zu", call->pool->name, (size_t)(call->line - call->pool->lines));
    return twi_call_put_body(body, who, call->line->serial, verb, call->request);
}

static enum twi_pool_connection_outcome try_once(struct call *call, struct twi_wait *wait) {
    struct line *line = call->line;
    struct twi_pool_connection *connection = &line->plug->connection;
    char serial[24];
    if (is_cluster(call)) twi_pool_connection_lead(connection, &call->where);
    enum twi_pool_connection_outcome done = twi_pool_connection_open(connection, wait);
    if (done == TWI_POOL_CONNECTION_DONE) done = settle_debts(call, wait);
    if (done != TWI_POOL_CONNECTION_DONE) return done;
    snprintf(serial, sizeof serial, "%" PRIu64, line->serial);
    size_t words = put_body(call, &line->body, call->perhaps ? TWI_CALL_RETRY : TWI_CALL_ASK);
    return send_call(call, call->request->script, &line->body, words, serial, wait, call->request);
}

/* The call may have been executed, and nobody waits for it any more: a cancel is owed. */
static void owe(struct call *call) {
    struct line *line = call->line;
    twi_port_count(call->pool->rules.engine, asks_unknown, 1);
    if (!call->request->numbered) return;
    struct debt *debt = &line->debts[line->debt_count];
    debt->words = put_body(call, &debt->body, TWI_CALL_CANCEL);
    debt->script = call->request->script;
    debt->slot = call->slot;
    snprintf(debt->serial, sizeof debt->serial, "%" PRIu64, line->serial);
    if (!debt->body.failed) line->debt_count++; /* else no memory: what it charged stays charged */
}

static void count_error(const struct call *call, enum twi_pool_connection_outcome done) {
    tw_engine *engine = call->pool->rules.engine;
    if (done == TWI_POOL_CONNECTION_REFUSED || done == TWI_POOL_CONNECTION_TURNED_AWAY ||
        done == TWI_POOL_CONNECTION_SPOILT)
        twi_port_count(engine, ask_refused, 1);
    else if (!call->in_time)
        twi_port_count(engine, ask_timeouts, 1);
    else
        twi_port_count(engine, ask_dropped, 1);
}

/* Returns half of the time that is left, or all of it if half is too short for a reply. */
static struct twi_wait part_of(struct twi_wait *wait, tw_engine *engine) {
    int64_t left_ms = twi_wait_left_ms(wait, engine), part_ms = left_ms / 2;
    if (part_ms < ATTEMPT_MS_MIN) part_ms = left_ms;
    return (struct twi_wait){.deadline_ms = wait->deadline_ms - left_ms + part_ms, .budget_ms = part_ms};
}

/* ---- many tries -------------------------------------------------------------------------------------------------- */

static void note_result(struct call *call, enum twi_pool_connection_outcome done) {
    switch (done) {
    case TWI_POOL_CONNECTION_SPOILT:
    case TWI_POOL_CONNECTION_DONE: call->result = TWI_PLACE_DONE; return;
    case TWI_POOL_CONNECTION_TURNED_AWAY: call->result = TWI_PLACE_FAILED_SLOWLY; return;
    case TWI_POOL_CONNECTION_REDIRECTED: call->result = TWI_PLACE_REPLIED; return;
    case TWI_POOL_CONNECTION_REFUSED:
        call->result = call->perhaps ? TWI_PLACE_FAILED : TWI_PLACE_REPLIED; /* no reply that ends the call */
        return;
    case TWI_POOL_CONNECTION_UNSENT:
    case TWI_POOL_CONNECTION_BROKEN:
        call->result = call->line->plug->connection.up ? TWI_PLACE_REPLIED : TWI_PLACE_FAILED;
    }
}

/* Finds where the next try goes. False: nobody is known to have the slot. */
static bool locate(struct call *call) {
    struct twi_pool *pool = call->pool;
    if (!is_cluster(call) || call->is_asking || twi_directory_find(pool->directory, call->slot, &call->where))
        return true;
    twi_directory_want(pool->directory);
    twi_port_last_error(pool->rules.engine, "no node of the cluster is known to serve the key's slot");
    twi_detour_hold(&call->detour, twi_port_mono_ms(pool->rules.engine), random_of(call));
    return false;
}

static enum twi_pool_connection_outcome attempt(struct call *call) {
    tw_engine *engine = call->pool->rules.engine;
    call->is_away = !enter(call);
    if (call->is_away) return TWI_POOL_CONNECTION_UNSENT;
    struct twi_wait part = part_of(&call->wait, engine);
    int64_t budget_ms = part.budget_ms;
    if (call->perhaps) twi_port_count(engine, asked_again, 1);
    enum twi_pool_connection_outcome done = try_once(call, &part);
    call->wait.budget_ms -= budget_ms - part.budget_ms;
    call->in_time = twi_wait_left_ms(&part, engine) > 0;
    call->perhaps = call->perhaps || done == TWI_POOL_CONNECTION_BROKEN;
    note_result(call, done);
    if (done != TWI_POOL_CONNECTION_DONE && done != TWI_POOL_CONNECTION_REDIRECTED) count_error(call, done);
    return done;
}

static void count_redirect(tw_engine *engine, enum twi_redirect_kind kind) {
    if (kind == TWI_REDIRECT_MOVED) twi_port_count(engine, moved, 1);
    if (kind == TWI_REDIRECT_ASK) twi_port_count(engine, asked, 1);
    if (kind == TWI_REDIRECT_TRYAGAIN) twi_port_count(engine, tryagain, 1);
}

/* In a cluster: what a try says of where the next one goes, and when. */
static void find_way(struct call *call, enum twi_pool_connection_outcome done) {
    struct twi_pool *pool = call->pool;
    const struct twi_pool_connection *connection = &call->line->plug->connection;
    const struct twi_redirect *redirect = &connection->redirect;
    call->is_asking = false; /* ASK is for one try */
    if (done != TWI_POOL_CONNECTION_REDIRECTED) {
        if (!connection->up) twi_directory_want(pool->directory);
        return;
    }
    count_redirect(pool->rules.engine, redirect->kind);
    if (redirect->kind == TWI_REDIRECT_MOVED) note_moved(call, redirect);
    if (redirect->kind == TWI_REDIRECT_UNSERVED || redirect->kind == TWI_REDIRECT_DOWN)
        twi_directory_want(pool->directory);
    if (redirect->kind == TWI_REDIRECT_ASK && redirect->has_endpoint) {
        call->where = redirect->to;
        call->is_asking = true;
    }
    twi_detour_note(&call->detour, redirect->kind, twi_port_mono_ms(pool->rules.engine), random_of(call));
}

/* Waits before the next try. False: the time is over. */
static bool rest(struct call *call, enum twi_pool_connection_outcome done, int64_t *pause_ms) {
    struct twi_pool *pool = call->pool;
    tw_engine *engine = pool->rules.engine;
    int64_t wait_ms = *pause_ms;
    if (done == TWI_POOL_CONNECTION_REDIRECTED)
        wait_ms = call->detour.again_ms - twi_port_mono_ms(engine);
    else
        *pause_ms *= 2;
    if (!is_cluster(call)) {
        twi_wait_for(&call->wait, &pool->rules, -1, false, wait_ms);
        return true;
    }
    if (wait_ms > 0 && !call->perhaps)
        give_back(call, false); /* others may use the line; nothing was done under its number */
    bool goes_on = wait_ms <= 0 || twi_wait_for(&call->wait, &pool->rules, -1, false, wait_ms);
    return goes_on && twi_wait_left_ms(&call->wait, engine) > 0;
}

/* Returns the last try's outcome. */
static enum twi_pool_connection_outcome try_until_done(struct call *call) {
    struct twi_pool *pool = call->pool;
    for (int64_t pause_ms = PAUSE_MS;;) {
        bool is_located = locate(call);
        enum twi_pool_connection_outcome done = is_located ? attempt(call) : TWI_POOL_CONNECTION_REDIRECTED;
        bool over = done == TWI_POOL_CONNECTION_DONE || done == TWI_POOL_CONNECTION_SPOILT ||
                    done == TWI_POOL_CONNECTION_REFUSED || done == TWI_POOL_CONNECTION_TURNED_AWAY || call->is_away;
        if (over) return done;
        if (is_located && is_cluster(call)) find_way(call, done);
        if (twi_wait_left_ms(&call->wait, pool->rules.engine) <= 0 || twi_load_relaxed(&pool->stopped)) return done;
        if (!rest(call, done, &pause_ms)) return done;
    }
}

/* The script says that a value is no number. (Totals say so to their caller.) */
static bool is_bad(const struct twi_request *request) {
    return request->script != TWI_SCRIPT_TOTALS && request->value_count != 0 &&
           strcmp(request->values[0].text, "BAD") == 0;
}

static enum twi_request_outcome run(struct call *call) {
    enum twi_pool_connection_outcome done = try_until_done(call);
    if (done == TWI_POOL_CONNECTION_DONE && is_bad(call->request))
        twi_spoilt_note(&call->pool->spoilt, call->request, "its value decides nothing");
    if (done == TWI_POOL_CONNECTION_DONE) return TWI_REQUEST_DONE;
    if (call->perhaps) owe(call);
    if (done == TWI_POOL_CONNECTION_SPOILT) { /* an answer, but it decides nothing */
        call->request->value_count = 0;
        return TWI_REQUEST_DONE;
    }
    if (call->perhaps) return TWI_REQUEST_UNKNOWN;
    bool refused = done == TWI_POOL_CONNECTION_REFUSED || done == TWI_POOL_CONNECTION_TURNED_AWAY;
    return refused ? TWI_REQUEST_REFUSED : TWI_REQUEST_UNSENT;
}

enum twi_request_outcome twi_pool_request(struct twi_pool *pool, struct twi_request *request) {
    tw_engine *engine = pool->rules.engine;
    int64_t began_ms = twi_port_mono_ms(engine);
    struct call call = {.pool = pool,
                        .request = request,
                        .wait = {.deadline_ms = request->deadline_ms, .budget_ms = request->deadline_ms - began_ms}};
    if (pool->directory != NULL) call.slot = twi_key_slot_of(request->keys[0].data, request->keys[0].size);
    twi_port_count(engine, ask_calls, 1);
    enum twi_request_outcome outcome = TWI_REQUEST_UNSENT;
    if (!twi_load_relaxed(&pool->stopped)) outcome = run(&call);
    give_back(&call, true);
    if (!call.has_begun) twi_port_count(engine, ask_away, 1);
    if (!call.has_begun) return outcome;
    twi_port_count(engine, ask_active, -1);
    twi_port_count(engine, ask_ms, twi_port_mono_ms(engine) - began_ms);
    return outcome;
}
