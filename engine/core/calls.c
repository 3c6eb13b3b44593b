/* calls.c -- see calls.h. */
#include "engine/core/calls.h"

#include "engine/base/descriptor.h"
#include "engine/base/threads.h"
#include "engine/core/family.h"
#include "engine/core/operation.h"
#include "engine/core/queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- waiters ---- */

#define WALK_TURN 4096u   /* waiters that are met in a turn; some tens of microseconds */
#define UNITS_LOOK_MS 100 /* other processes give units back, too, and clocks step */

/* Keys that have no units left in this turn, and the event that the waiter that has seen it waits for now. */
struct spent {
    uint64_t hashes[2 * TWI_WAITERS_TURN]; /* 0 means that no key is noted here */
    struct twi_wait waits[2 * TWI_WAITERS_TURN];
};

static uint64_t hash_of(const tw_engine *engine, const struct twi_operation *operation) {
    uint64_t hash = engine->hashing.fn(&engine->hashing.secret, operation->key.data, operation->key.size);
    hash ^= (uint64_t)(uintptr_t)operation->family;
    return hash != 0 ? hash : 1;
}

/* The place where the key is noted, or would be. */
static size_t place_of(const struct spent *spent, uint64_t hash) {
    size_t at = hash % (2 * TWI_WAITERS_TURN);
    while (spent->hashes[at] != 0 && spent->hashes[at] != hash) at = (at + 1) % (2 * TWI_WAITERS_TURN);
    return at;
}

/* Returns true if another waiter of its key has found no units in this turn. Then this one waits for the same event. */
static bool is_spared(const struct spent *spent, struct twi_operation *operation, int64_t now_ms) {
    twi_check(operation->family != NULL || !operation->wait.shares_units);
    if (!operation->wait.shares_units || operation->deadline_ms <= now_ms) return false;
    size_t at = place_of(spent, hash_of(operation->engine, operation));
    if (spent->hashes[at] == 0) return false;
    operation->wait = spent->waits[at];
    if (operation->wait.look_ms > operation->deadline_ms) operation->wait.look_ms = operation->deadline_ms;
    return true;
}

/* Lets it wait on. Returns false if its caller has gone meanwhile, or the engine has stopped; it is then freed. A
 * waiter that was being looked at during twi_waiters_stop() comes here after it, and sees that. */
static bool put_back(struct twi_calls *calls, struct twi_operation *operation) {
    twi_check(operation->list == NULL);
    twi_calls_lock();
    bool is_given_up = operation->is_given_up, is_stopped = twi_load_acquire(&operation->engine->life.stopped);
    bool waits = !is_given_up && !is_stopped;
    if (waits) twi_operations_add(&calls->waiters, operation);
    if (waits) twi_store_relaxed(&calls->look_ms, INT64_MIN); /* until the turn has planned with it */
    twi_calls_unlock();
    if (is_given_up)
        twi_operation_give_up(operation);
    else if (is_stopped)
        twi_queue_push(operation);
    return waits;
}

void twi_waiter_add(struct twi_operation *operation, enum twi_look (*look)(struct twi_operation *operation)) {
    twi_check(look != NULL);
    twi_check(!operation->blocks);
    struct twi_calls *calls = operation->engine->here->calls;
    operation->wait.look = look;
    tw_engine *engine = operation->engine;
    if (!put_back(calls, operation)) return;
    twi_port_wake(engine); /* the turn may sleep for longer than it can wait */
    if (engine->life.is_shared) twi_queue_wake_own(engine);
}

/* Returns the next waiter that is due, out of the list. Returns NULL if there is none among the `*left` that may still
 * be met. Those that are met go to the end of the list. */
static struct twi_operation *take_due(tw_engine *engine, const struct spent *spent, int64_t now_ms, bool refunded,
                                      uint32_t *left) {
    struct twi_calls *calls = engine->here->calls;
    struct twi_operation *due = NULL;
    twi_calls_lock();
    while (*left != 0 && due == NULL && calls->waiters.first != NULL) {
        struct twi_operation *operation = calls->waiters.first;
        --*left;
        twi_operations_remove(operation);
        bool is_due =
            operation->wait.look_ms <= now_ms || operation->wait.each_turn || (refunded && operation->wait.wakes);
        if (is_due && !is_spared(spent, operation, now_ms))
            due = operation;
        else
            twi_operations_add(&calls->waiters, operation);
    }
    twi_calls_unlock();
    return due;
}

/* When to look again. What another process does wakes no thread here, so a waiter that it may end is looked at in each
 * tick. */
static void plan(tw_engine *engine, int64_t now_ms, bool is_cut) {
    struct twi_calls *calls = engine->here->calls;
    int64_t next_ms = is_cut ? now_ms : INT64_MAX;
    twi_calls_lock();
    uint32_t left = WALK_TURN;
    calls->looks_each_turn = false;
    for (const struct twi_operation *each = calls->waiters.first; each != NULL && left-- != 0; each = each->next) {
        if (each->wait.look_ms < next_ms) next_ms = each->wait.look_ms;
        calls->looks_each_turn = calls->looks_each_turn || each->wait.each_turn;
        bool may_end = engine->life.is_shared && (each->wait.each_turn || each->wait.wakes);
        if (may_end && next_ms > now_ms + TWI_TICK_MS) next_ms = now_ms + TWI_TICK_MS;
    }
    if (calls->waiters.count > WALK_TURN && next_ms > now_ms + UNITS_LOOK_MS) next_ms = now_ms + UNITS_LOOK_MS;
    twi_store_relaxed(&calls->look_ms, next_ms);
    twi_calls_unlock();
}

static void end(struct twi_operation *operation, enum twi_look found, struct twi_calls *calls) {
    if (found == TWI_LOOK_WAITS) (void)put_back(calls, operation);
    if (found == TWI_LOOK_OVER) twi_queue_push(operation);
}

/* Returns how many are met in this turn. */
static uint32_t count(const struct twi_calls *calls) {
    twi_calls_lock();
    uint32_t waiters = calls->waiters.count;
    twi_calls_unlock();
    return waiters < WALK_TURN ? waiters : WALK_TURN;
}

static void look_at_waiters(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    uint32_t given_back = twi_event_count_value(&engine->given_back);
    bool refunded = given_back != calls->given_back;
    if (!refunded && !calls->looks_each_turn && twi_load_relaxed(&calls->look_ms) > now_ms) return;
    calls->given_back = given_back;
    struct spent spent;
    memset(spent.hashes, 0, sizeof spent.hashes);
    uint32_t left = count(calls), looks = 0;
    while (looks < TWI_WAITERS_TURN) {
        struct twi_operation *operation = take_due(engine, &spent, now_ms, refunded, &left);
        if (operation == NULL) break;
        looks++;
        bool shares = operation->wait.shares_units;
        uint64_t hash = shares ? hash_of(engine, operation) : 0;
        enum twi_look found = operation->wait.look(operation);
        if (shares && found == TWI_LOOK_WAITS) {
            size_t at = place_of(&spent, hash);
            spent.hashes[at] = hash;
            spent.waits[at] = operation->wait;
        }
        end(operation, found, calls);
    }
    plan(engine, now_ms, looks == TWI_WAITERS_TURN);
}

void twi_waiters_turn(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    /* In a shared engine the leader's turn and the second thread may come here at once. */
    if (twi_swap_acqrel(&calls->is_looked_at, true)) return; /* AN9, pairs with AN10 */
    /* Another process may have stopped the engine. In a private one tw_stop() has ended them. */
    if (engine->life.is_shared && twi_load_acquire(&engine->life.stopped))
        twi_waiters_stop(engine);
    else
        look_at_waiters(engine);
    twi_store_release(&calls->is_looked_at, false); /* AN10 */
}

void twi_waiters_stop(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    for (;;) {
        twi_calls_lock();
        struct twi_operation *operation = calls->waiters.first;
        if (operation != NULL) twi_operations_remove(operation);
        twi_calls_unlock();
        if (operation == NULL) return;
        twi_queue_push(operation); /* its kind sees that the engine has stopped */
    }
}

/* ---- second ---- */

#define ANSWERS_AT_ONCE 256u /* then requests and replies are looked at again */
#define THREAD_LOOK_MS 1000  /* no event is missed. There is a bound nevertheless */

static void await(tw_engine *engine) {
    int64_t wake_ms = twi_driving_wake_ms(engine), look_ms = twi_load_relaxed(&engine->here->calls->look_ms);
    if (engine->life.is_shared && look_ms < wake_ms) wake_ms = look_ms;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock), left_ms = wake_ms <= now_ms ? 0 : wake_ms - now_ms;
    int tick_ms = left_ms <= 0 ? 0 : left_ms < THREAD_LOOK_MS ? (int)left_ms : THREAD_LOOK_MS;
    int wake_fd = twi_descriptor_is_own(engine->here->second.wake_fd) ? engine->here->second.wake_fd : -1;
    struct pollfd fds[2] = {{.fd = wake_fd, .events = POLLIN}, {.fd = twi_driving_fd(engine), .events = POLLIN}};
    if (twi_descriptor_wait(fds, 2, tick_ms) <= 0 || (fds[0].revents & POLLIN) == 0) return;
    uint64_t value;
    (void)!read(wake_fd, &value, sizeof value);
}

/* From now on it is woken for the answers that others have for it. */
static void take_queue(tw_engine *engine, int fd) {
    twi_check(fd >= 0 || fd == -1);
    struct tw_queue *own = &engine->here->calls->own;
    twi_calls_lock();
    own->fd = fd;
    own->runner = fd >= 0 ? twi_thread_here() : NULL;
    twi_calls_unlock();
}

static void *run_calls(void *arg) {
    tw_engine *engine = arg;
    bool has_more = true; /* before it took the queue */
    take_queue(engine, engine->here->second.wake_fd);
    while (!twi_load_acquire(&engine->here->second.stops)) {
        if (!has_more) await(engine);
        twi_driving_step(engine);
        if (engine->life.is_shared) twi_waiters_turn(engine);
        has_more = twi_queue_run_own(engine, ANSWERS_AT_ONCE);
    }
    take_queue(engine, -1);
    return NULL;
}

static tw_status start(tw_engine *engine) {
    twi_check(!engine->life.host_driven);
    struct twi_second *second = &engine->here->second;
    second->wake_fd = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (second->wake_fd < 0) return twi_refuse(TW_ERR_MEMORY, "no file descriptor for the thread that waits for Redis");
    twi_store_relaxed(&second->stops, false);
    if (twi_own_thread_start(&second->thread, run_calls, engine)) return TW_OK;
    twi_descriptor_close(second->wake_fd);
    return twi_refuse(TW_ERR_MEMORY, "no thread could be started");
}

tw_status twi_second_start(tw_engine *engine) {
    struct twi_second *second = &engine->here->second;
    if (engine->life.host_driven || twi_load_acquire(&second->runs)) return TW_OK; /* AN5, pairs with AN6 */
    tw_status status = TW_OK;
    twi_lock(&second->lock);
    if (!twi_load_relaxed(&second->runs)) {
        status = start(engine);
        twi_store_release(&second->runs, status == TW_OK); /* AN6, for its descriptor */
    }
    twi_unlock(&second->lock);
    return status;
}

void twi_second_wake(tw_engine *engine) {
    struct twi_second *second = &engine->here->second;
    uint64_t one = 1;
    if (twi_load_acquire(&second->runs) && twi_descriptor_is_own(second->wake_fd)) /* AN5 */
        (void)!write(second->wake_fd, &one, sizeof one);
}

void twi_second_stop(tw_engine *engine) {
    twi_check(!twi_load_relaxed(&engine->here->second.runs) || engine->here->second.wake_fd >= 0);
    struct twi_second *second = &engine->here->second;
    if (!twi_load_relaxed(&second->runs)) return;
    twi_store_release(&second->stops, true);
    twi_second_wake(engine);
    pthread_join(second->thread, NULL);
    twi_store_relaxed(&second->runs, false);
    twi_descriptor_close(second->wake_fd);
}

void twi_second_begin(tw_engine *engine) {
    struct twi_second *second = &engine->here->second;
    pthread_mutex_init(&second->lock, NULL);
    twi_store_relaxed(&second->runs, false);
}

void twi_second_end(tw_engine *engine) {
    twi_check(!twi_load_relaxed(&engine->here->second.runs));
    pthread_mutex_destroy(&engine->here->second.lock);
}

#define LOOK_MS 1000 /* no event is missed; this is only a bound */
#define STOP_MS 1000 /* for threads that are in the middle of a step */

tw_status twi_calls_may_start(tw_engine *engine) {
    twi_check(engine != NULL);
    if (twi_thread_here() == NULL) return twi_refuse_for(twi_thread_why());
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    return twi_second_start(engine);
}

/* ---- starting ---- */

static void part(struct twi_operation *operation) {
    if (operation->blocks) return; /* it is in no queue */
    twi_calls_lock();
    twi_operation_part(operation);
    twi_calls_unlock();
}

tw_status twi_call_end_now(struct twi_operation *operation, tw_request *call, tw_status status) {
    twi_check(status != TW_STARTED);
    if (call != NULL) part(operation);
    twi_operation_give(operation);
    return twi_call_answer(call, status);
}

/* Called by a thread that waits. */
static void sleep_until_over(struct twi_operation *operation) {
    twi_check(operation->blocks && operation->call == NULL);
    for (;;) {
        uint32_t seen = twi_event_count_value(&operation->over);
        if (twi_load_acquire(&operation->is_over)) return; /* AN4, pairs with AN3 */
        twi_event_count_wait(&operation->over, seen, LOOK_MS);
    }
}

/* The thread that has started it delivers its result. */
static tw_status end_here(struct twi_operation *operation, tw_request *call) {
    part(operation);
    call->status = operation->kind->finish(operation, call);
    twi_operation_give(operation);
    return call->status;
}

/* The thread that waits looks itself, so no other thread has to wake it. */
static tw_status look_until_over(struct twi_operation *operation, tw_request *call) {
    tw_engine *engine = operation->engine;
    for (;;) {
        uint32_t seen = twi_event_count_value(&engine->turn.ended);
        enum twi_look found = operation->wait.look(operation);
        if (found == TWI_LOOK_ASKED) sleep_until_over(operation);
        if (found != TWI_LOOK_WAITS || twi_load_acquire(&engine->life.stopped)) return end_here(operation, call);
        twi_event_count_wait(&engine->turn.ended, seen, TWI_TICK_MS);
    }
}

tw_status twi_waiter_start_in_turns(struct twi_operation *operation, tw_request *call,
                                    enum twi_look (*look)(struct twi_operation *operation)) {
    operation->wait.look = look;
    operation->wait.look_ms = INT64_MIN;
    operation->wait.each_turn = true;
    if (operation->blocks) return look_until_over(operation, call);
    twi_waiter_add(operation, look);
    return TW_STARTED;
}

/* No caller needs its result. */
static tw_status send_off(struct twi_operation *operation) {
    twi_check(operation->call == NULL && !operation->blocks);
    tw_engine *engine = operation->engine;
    if (operation->kind->send(operation)) return TW_STARTED;
    bool is_busy = operation->result.outcome == TWI_REQUEST_BUSY;
    twi_operation_give(operation);
    if (is_busy) twi_port_count(engine, asks_forgotten, 1);
    return is_busy ? twi_operation_refuse_busy(engine)
                   : twi_refuse(TW_ERR_REDIS, "Redis: it does not reply; nothing was sent");
}

tw_status twi_call_start(struct twi_operation *operation, tw_request *call) {
    twi_check(operation->kind->send != NULL && operation->list == NULL);
    if (call == NULL) return send_off(operation);
    bool blocks = operation->blocks; /* or it may be gone when it is sent, and the call may have its result */
    bool is_sent = operation->result.outcome != TWI_REQUEST_BUSY && operation->kind->send(operation);
    if (is_sent && !blocks) return TW_STARTED;
    if (is_sent) sleep_until_over(operation);
    return end_here(operation, call);
}

tw_status twi_call_start_with(struct twi_operation *operation, tw_request *call, tw_key key, tw_key *kept) {
    if (twi_operation_keep(operation, key, kept)) return twi_call_start(operation, call);
    return twi_call_end_now(operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
}

/* ---- answers ---- */

static bool is_given_up(struct twi_operation *operation) {
    twi_calls_lock();
    bool is = operation->is_given_up;
    twi_calls_unlock();
    return is;
}

void twi_call_answered(void *ctx, struct twi_answer *answer) {
    twi_check(ctx != NULL);
    twi_check(answer->value_count <= TWI_SCRIPT_VALUES_MAX);
    struct twi_operation *operation = ctx;
    operation->waits_for_room = false; /* from now on the driving thread looks at the operation */
    twi_result_read(&operation->result, answer);
    if (operation->kind->reply != NULL && !is_given_up(operation) && operation->kind->reply(operation, answer)) return;
    twi_queue_push(operation);
}

/* ---- the end ---- */

void twi_calls_end(tw_engine *engine) {
    twi_check(twi_load_acquire(&engine->life.stopped));
    int64_t by_ms = twi_clock_system_ms() + STOP_MS;
    for (;;) {
        twi_driving_step(engine);
        twi_queue_run_tries(engine);
        if (!twi_queue_awaits_answers(engine) || twi_clock_system_ms() >= by_ms) return;
        twi_event_count_wait(&engine->turn.ended, twi_event_count_value(&engine->turn.ended), 1);
        twi_waiters_stop(engine);
    }
}
