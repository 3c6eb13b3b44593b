/* waiters.c -- see waiters.h. */
#include "engine/core/waiters.h"

#include "engine/core/family.h"
#include "engine/core/queue.h"

#define WALK_TURN 4096u /* waiters that are met in a turn; some tens of microseconds */
#define LOOK_MS 100     /* other processes give units back, too, and clocks step */

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
    if (calls->waiters.count > WALK_TURN && next_ms > now_ms + LOOK_MS) next_ms = now_ms + LOOK_MS;
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
