/* operation.c -- see operation.h. */
#include "engine/core/operation.h"

#include "engine/base/threads.h"
#include "engine/core/family.h"
#include "engine/core/processes.h"
#include "engine/core/state.h"

#include <stdlib.h>

/* The words of a request that are the library's. */
enum { OWN_OPERATION, OWN_PROCESS, OWN_UNCOUNTED };

struct twi_slab {
    struct twi_slab *next;
    alignas(TWI_LINE_BYTES) unsigned char bytes[TWI_OPERATION_SLAB][TWI_OPERATION_BYTES];
};

static_assert(sizeof(struct twi_operation) + 320 <= TWI_OPERATION_BYTES, "a kind has room for what it needs");
static_assert(TWI_OPERATION_BYTES % TWI_LINE_BYTES == 0, "each operation begins a line");
static_assert(sizeof(tw_request) == 328, "the size is fixed for ever");

/* The process has one lock, because an idle request names no engine, and may outlive its engine. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void twi_calls_lock(void) {
    twi_lock(&lock);
}

void twi_calls_unlock(void) {
    twi_unlock(&lock);
}

/* ---- lists ---- */

void twi_operations_add(struct twi_operations *list, struct twi_operation *operation) {
    twi_check(list->count == 0 ? list->first == NULL && list->last == NULL
                               : list->last != NULL && list->last->next == NULL);
    twi_check(operation->list == NULL);
    operation->list = list;
    operation->next = NULL;
    operation->before = list->last;
    *(list->last != NULL ? &list->last->next : &list->first) = operation;
    list->last = operation;
    list->count++;
}

void twi_operations_remove(struct twi_operation *operation) {
    twi_check(operation->list->count != 0);
    struct twi_operations *list = operation->list;
    *(operation->before != NULL ? &operation->before->next : &list->first) = operation->next;
    *(operation->next != NULL ? &operation->next->before : &list->last) = operation->before;
    list->count--;
    operation->list = NULL;
}

/* ---- requests ---- */

/* Changes in a forked child, before its first call continues. */
static uint64_t process_here(void) {
    return twi_thread_self->process;
}

struct twi_operation *twi_operation_of(const tw_request *call) {
    if (call->own[OWN_PROCESS] != process_here()) return NULL; /* of the parent, or never used */
    return (struct twi_operation *)(uintptr_t)call->own[OWN_OPERATION];
}

/* Refuses a request that cannot be started. */
static tw_status check_request(const tw_engine *engine, const tw_request *call) {
    if (twi_operation_of(call) != NULL)
        return twi_refuse(TW_ERR_MODE, "request: it is under way; its answer, or tw_request_cancel(), comes first");
    if (call->done == NULL) return twi_refuse(TW_ERR_OPTIONS, "request: its done is NULL");
    if (call->queue != NULL && call->queue->engine != engine)
        return twi_refuse(TW_ERR_MODE, "request: its queue is of another engine");
    return TW_OK;
}

static bool has_room(const struct twi_calls *calls, const tw_request *call) {
    return call == NULL || calls->under_way < calls->most || call->own[OWN_UNCOUNTED] != 0;
}

/* The family's on_busy lets a call of that kind begin. */
static bool is_outage_when_busy(bool of_that_kind, const tw_family *family) {
    return of_that_kind && twi_load_relaxed(&family->policy.busy_is_outage);
}

static void join(struct twi_calls *calls, struct twi_operation *operation, tw_request *call) {
    twi_check(operation->call == NULL && operation->queue == NULL);
    operation->call = call;
    operation->queue = call->queue != NULL ? call->queue : &calls->own;
    operation->queue->under_way++;
    operation->is_counted = call->own[OWN_UNCOUNTED] == 0;
    calls->under_way += operation->is_counted;
    call->own[OWN_OPERATION] = (uintptr_t)operation;
    call->own[OWN_PROCESS] = process_here();
}

void twi_operation_part(struct twi_operation *operation) {
    operation->call->own[OWN_OPERATION] = 0;
    operation->call = NULL;
    operation->queue->under_way--;
    operation->queue = NULL;
    operation->engine->here->calls->under_way -= operation->is_counted;
}

void twi_operation_own_request(tw_request *request, void (*done)(tw_request *request), struct twi_operation *ctx) {
    tw_request_init(request);
    request->done = done;
    request->ctx = ctx;
    request->own[OWN_UNCOUNTED] = 1;
}

void twi_operation_pass_on(struct twi_operation *operation, const tw_request *try) {
    if (try->own[OWN_UNCOUNTED] == 0 || !operation->result.is_kept || try->status != TW_OK) return;
    struct twi_operation *heir = try->ctx;
    twi_check(!heir->result.is_kept && heir != operation);
    twi_store_relaxed(&heir->number, twi_load_relaxed(&operation->number));
    heir->sync = operation->sync;
    heir->result.is_kept = true;
    operation->result.is_kept = false;
}

void twi_call_waits(tw_request *call) {
    twi_check(call == NULL); /* the thread that waits takes its result itself */
    (void)call;
}

/* ---- memory ---- */

/* Called under the lock. Returns NULL if there is no memory. */
static struct twi_operation *take(struct twi_calls *calls) {
    if (calls->spare == NULL) {
        struct twi_slab *slab = aligned_alloc(TWI_LINE_BYTES, sizeof *slab);
        if (slab == NULL) return NULL;
        memset((void *)slab, 0, sizeof *slab);
        slab->next = calls->slabs;
        calls->slabs = slab;
        for (uint32_t i = TWI_OPERATION_SLAB; i-- != 0;) {
            struct twi_operation *operation = (void *)slab->bytes[i];
            twi_event_count_make(&operation->over);
            operation->next = calls->spare;
            calls->spare = operation;
        }
    }
    struct twi_operation *operation = calls->spare;
    calls->spare = operation->next;
    return operation;
}

/* Clears all except the event, because a thread that has raised it may still be about to wake a waiting thread. */
static void clear(struct twi_operation *operation) {
    operation->call = NULL;
    operation->queue = NULL;
    operation->list = NULL;
    operation->is_given_up = false;
    twi_store_relaxed(&operation->is_over, false);
    twi_store_relaxed(&operation->number, 0);
    operation->wait = (struct twi_wait){0};
    operation->result = (struct twi_result){.outcome = TWI_REQUEST_UNSENT};
    operation->key_bytes = 0;
    operation->long_keys = NULL;
}

tw_status twi_operation_refuse_busy(const tw_engine *engine) {
    return twi_refuse_with(TW_ERR_BUSY, "calls_max: %u calls are under way, or more than Redis answers in their time",
                           engine->options.calls_max);
}

struct twi_operation *twi_operation_make(tw_engine *engine, const struct twi_operation_kind *kind, tw_family *family,
                                         tw_request *call, tw_status *status) {
    struct twi_calls *calls = engine->here->calls;
    uint32_t timeout_ms = call != NULL && call->timeout_ms != 0 ? call->timeout_ms : twi_port_timeout_ms(engine);
    bool blocks = twi_call_is_by_thread(call);
    if (blocks) call = NULL;
    twi_calls_lock();
    *status = call != NULL ? check_request(engine, call) : TW_OK;
    bool is_busy = *status == TW_OK && !has_room(calls, call);
    if (is_busy && !is_outage_when_busy(kind->gives_way, family)) twi_port_count(engine, ask_busy, 1);
    if (is_busy && !is_outage_when_busy(kind->may_be_unsent, family)) *status = twi_operation_refuse_busy(engine);
    struct twi_operation *operation = *status == TW_OK ? take(calls) : NULL;
    if (operation == NULL) {
        twi_calls_unlock();
        if (*status == TW_OK) *status = twi_refuse(TW_ERR_MEMORY, NULL);
        return NULL;
    }
    clear(operation);
    operation->kind = kind;
    operation->engine = engine;
    operation->family = family;
    operation->blocks = operation->waits_for_room = blocks;
    operation->deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    if (is_busy) operation->result.outcome = TWI_REQUEST_BUSY;
    if (call != NULL) join(calls, operation, call);
    if (family != NULL) (void)twi_add_relaxed(&family->started, 1); /* its caller keeps it open */
    twi_calls_unlock();
    return operation;
}

bool twi_operation_keep(struct twi_operation *operation, tw_key key, tw_key *kept) {
    twi_check(key.size <= TW_KEY_SIZE_MAX && (key.data != NULL || key.size == 0));
    *kept = key;
    if (operation->blocks || key.size == 0) return true; /* who waits keeps them */
    unsigned char *at = operation->keys + operation->key_bytes;
    if (key.size > sizeof operation->keys - operation->key_bytes) {
        twi_check(operation->long_keys == NULL || operation->key_bytes <= TW_KEY_SIZE_MAX);
        if (operation->long_keys == NULL) operation->long_keys = malloc(2 * TW_KEY_SIZE_MAX);
        if (operation->long_keys == NULL) return false;
        /* a piece for each, because both may be long */
        at = (unsigned char *)operation->long_keys + operation->key_bytes;
    }
    memcpy(at, key.data, key.size);
    operation->key_bytes += key.size;
    *kept = tw_bytes(at, key.size);
    return true;
}

/* Returns true if what the answered request has charged was kept for this. */
static bool end_kept(struct twi_operation *operation, bool undo) {
    if (!operation->result.is_kept) return false;
    operation->result.is_kept = false;
    operation->engine->here->remote.driver->ask_end(operation->sync, twi_load_relaxed(&operation->number), undo);
    return true;
}

void twi_operation_give(struct twi_operation *operation) {
    twi_check(operation->engine != NULL && operation->kind != NULL);
    (void)end_kept(operation, false);
    struct twi_calls *calls = operation->engine->here->calls;
    twi_check(operation->list == NULL && operation->call == NULL);
    if (operation->kind->drop != NULL) operation->kind->drop(operation);
    free(operation->long_keys);
    tw_family *family = operation->family;
    twi_calls_lock();
    operation->next = calls->spare;
    calls->spare = operation;
    twi_calls_unlock();
    /* AN1, pairs with AN2, so all uses of the family come before the turn frees it */
    if (family != NULL) (void)twi_sub_acqrel(&family->started, 1);
}

/* A hook may count while the engine closes. In the same way units may return, and tw_close() sends them to Redis. */
void twi_operation_give_up(struct twi_operation *operation) {
    twi_check(operation->list == NULL);
    twi_check(operation->is_given_up);
    struct twi_thread *self = twi_thread_here();
    bool was_in_hook = self != NULL && self->in_hook;
    if (self != NULL) self->in_hook = true;
    if (!end_kept(operation, true) && operation->kind->undo != NULL) operation->kind->undo(operation);
    if (self != NULL) self->in_hook = was_in_hook;
    twi_operation_give(operation);
}

/* ---- results ---- */

void twi_result_read(struct twi_result *result, const struct twi_answer *answer) {
    twi_check(answer->value_count <= TWI_SCRIPT_VALUES_MAX);
    *result = (struct twi_result){.outcome = answer->outcome,
                                  .is_crowd = answer->is_crowd,
                                  .is_kept = answer->is_kept,
                                  .is_copied = answer->is_copied};
    if (answer->outcome != TWI_REQUEST_DONE) return;
    result->count = (uint32_t)answer->value_count;
    for (uint32_t i = 0; i < answer->value_count; i++) {
        if (!answer->values[i].is_number) continue;
        result->are_numbers |= UINT32_C(1) << i;
        result->numbers[i] = answer->values[i].number;
    }
    if (answer->value_count != 0 && answer->values[0].size < sizeof result->word)
        memcpy(result->word, answer->values[0].text, answer->values[0].size);
}

enum twi_request_outcome twi_result_why(const struct twi_result *result) {
    twi_check(!result->is_crowd || result->outcome == TWI_REQUEST_UNKNOWN);
    return result->is_crowd ? TWI_REQUEST_BUSY : result->outcome;
}

bool twi_result_is(const struct twi_result *result, const char *word) {
    return result->outcome == TWI_REQUEST_DONE && strcmp(result->word, word) == 0;
}

int64_t twi_result_number(const struct twi_result *result, size_t i) {
    twi_check(i < TWI_SCRIPT_VALUES_MAX);
    return i < result->count ? result->numbers[i] : 0;
}

/* ---- life ---- */

void twi_operations_begin(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    struct twi_slab *slabs = calls->slabs; /* in a child, they are the parent's */
    while (slabs != NULL) {
        struct twi_slab *next = slabs->next;
        free(slabs);
        slabs = next;
    }
    *calls = (struct twi_calls){.most = engine->options.calls_max, .queues = calls->queues};
    calls->own = (struct tw_queue){.engine = engine, .fd = -1};
    twi_store_relaxed(&calls->look_ms, INT64_MAX);
}

void twi_operations_end(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    for (struct twi_slab *slab = calls->slabs, *next; slab != NULL; slab = next) {
        next = slab->next;
        free(slab);
    }
    calls->slabs = NULL;
    calls->spare = NULL;
}

void twi_operations_renew_lock(void) {
    pthread_mutex_init(&lock, NULL);
}

/* ---- driving ---- */

struct twi_sync *twi_driving_sync(const tw_engine *engine) {
    const struct twi_remote *remote = &engine->here->remote;
    struct twi_sync *sync = engine->life.is_shared ? twi_load_acquire(&remote->asks) : remote->sync; /* AN14 */
    return sync != NULL && remote->driver->ask != NULL ? sync : NULL;
}

tw_status twi_driving_begin(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    bool has_calls = engine->life.has_redis && remote->driver != NULL && remote->driver->ask != NULL;
    if (has_calls && twi_driving_sync(engine) != NULL) return TW_OK;
    if (!has_calls || !engine->life.is_shared) return twi_refuse_for(TWI_WHY_REDIS);
    struct twi_sync *made, *none = NULL;
    tw_status status =
        remote->driver->create(engine, &engine->options, remote->transport, remote->transport_ctx, &made);
    if (status != TW_OK) return status;
    if (!twi_cas_acqrel(&remote->asks, &none, made)) remote->driver->destroy(made); /* AN13, pairs with AN14 */
    return TW_OK;
}

void twi_driving_step(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    struct twi_sync *sync = twi_driving_sync(engine);
    /* In a shared engine the thread that leads and another one that calls tw_turn() may come here at once. */
    if (sync == NULL) return;
    if (twi_swap_acqrel(&calls->is_driven, true)) return; /* AN11, pairs with AN12 */
    engine->here->remote.driver->ask_step(sync);
    twi_store_release(&calls->is_driven, false); /* AN12 */
}

int64_t twi_driving_wake_ms(const tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    return sync != NULL ? engine->here->remote.driver->ask_wake_ms(sync) : INT64_MAX;
}

int twi_driving_fd(const tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    return sync != NULL ? engine->here->remote.driver->ask_fd(sync) : -1;
}

void twi_driving_stop(tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    if (sync != NULL) engine->here->remote.driver->ask_stop(sync);
}

uint32_t twi_driving_owed(const tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    return sync != NULL ? engine->here->remote.driver->ask_owed(sync) : 0;
}

void twi_driving_end(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    struct twi_sync *asks = twi_load_acquire(&remote->asks); /* AN14 */
    if (asks == NULL) return;
    twi_store_relaxed(&remote->asks, NULL);
    remote->driver->destroy(asks);
}

void twi_driving_abandon(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    struct twi_sync *asks = twi_load_acquire(&remote->asks); /* AN14 */
    twi_store_relaxed(&remote->asks, NULL);
    if (asks != NULL) remote->driver->abandon(asks, false); /* it has no turns */
}

/* ---- call guard ---- */

tw_status twi_guard_thread(const struct twi_thread *self) {
    twi_check(self == NULL || self == twi_thread_self);
    if (!twi_epoch_look_at_users()) return twi_refuse_for(TWI_WHY_ROOT);
    if (self == NULL) return twi_refuse_for(twi_thread_why());
    if (self->in_hook)
        return twi_refuse(TW_ERR_MODE,
                          "not from inside a hook or a callback: the engine that calls it would wait for itself");
    if (self->depth != 0)
        return twi_refuse(TW_ERR_MODE, "not between tw_enter() and tw_leave(): memory would not come back");
    return TW_OK;
}

tw_status twi_guard_engine(const tw_engine *engine) {
    twi_check(engine != NULL);
    if (!engine->life.host_driven) return TW_OK;
    return twi_refuse(TW_ERR_MODE, "threads: this call waits for Redis, and is not for TW_HOST_DRIVEN engines");
}

tw_status twi_guard_redis(const tw_engine *engine) {
    if (engine->here->remote.sync != NULL) return TW_OK;
    if (!engine->life.has_redis) return twi_refuse_for(TWI_WHY_REDIS);
    return twi_refuse(TW_ERR_MODE, "shared: this call needs the connection to Redis, and this process does not lead "
                                   "(tw_lead())");
}

bool twi_guard_is_alone(const tw_engine *engine) {
    const struct twi_here *here = twi_engines_find(engine);
    return here != NULL && twi_engines_is_alone(here);
}

tw_status twi_guard_families(const tw_engine *engine) {
    if (twi_guard_is_alone(engine)) return TW_OK;
    return twi_refuse(TW_ERR_MODE, "shared: families are opened and closed before the first fork, because other "
                                   "processes would not see the change");
}

tw_status twi_guard_may_wait(tw_engine *engine) {
    twi_check(engine != NULL);
    struct twi_thread *self = twi_thread_here();
    tw_status status = twi_guard_thread(self);
    if (status != TW_OK) return status;
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    return twi_load_acquire(&engine->life.stopped) ? twi_refuse(TW_ERR_CLOSED, NULL) : TW_OK;
}
