/* queue.c -- see queue.h. Queues, delivering and cancelling. */
#include "engine/core/queue.h"

#include "engine/base/descriptor.h"
#include "engine/core/operation.h"
#include "engine/core/family.h"
#include "engine/core/host.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SLOW_DONE_MS 100

/* The calls whose `done` runs just now, or is about to. Under the lock of calls; each lies on its thread's stack. */
struct running {
    const tw_request *call;
    struct twi_thread *self;
    struct running *next;
};
static struct running *running;

void twi_queue_renew_running(void) {
    running = NULL;
}

/* ---- pushing ---- */

static void ring(const struct tw_queue *queue) {
    twi_check(queue->engine != NULL);
    uint64_t one = 1;
    bool is_awaited = queue->runner == NULL || queue->runner != twi_thread_self;
    if (queue->fd >= 0 && is_awaited && twi_descriptor_is_own(queue->fd)) (void)!write(queue->fd, &one, sizeof one);
}

void twi_queue_push(struct twi_operation *operation) {
    twi_check(operation->list == NULL);
    twi_check(operation->kind != NULL);
    if (operation->blocks) {
        twi_store_release(&operation->is_over, true); /* AN3, pairs with AN4, for its result */
        TWI_RACE_POINT(operation_over_not_raised);
        twi_event_count_raise(&operation->over);
        return;
    }
    twi_calls_lock();
    struct tw_queue *queue = operation->call != NULL ? operation->queue : NULL;
    if (queue != NULL) {
        twi_operations_add(&queue->answered, operation);
        /* under the lock, because as soon as it is left, the answer may be delivered and the queue be closed */
        if (queue->answered.count == 1) ring(queue);
    }
    bool is_given_up = operation->is_given_up;
    twi_calls_unlock();
    if (queue != NULL) return;
    if (is_given_up)
        twi_operation_give_up(operation);
    else
        twi_operation_give(operation);
}

void twi_queue_wake_own(tw_engine *engine) {
    twi_calls_lock();
    ring(&engine->here->calls->own);
    twi_calls_unlock();
}

/* ---- delivering ---- */

/* Takes the first answer, or the first one of a try, and notes whose `done` runs from now on. */
static struct twi_operation *take_first(struct tw_queue *queue, bool tries_only, struct running *run) {
    twi_calls_lock();
    struct twi_operation *operation = queue->answered.first;
    while (tries_only && operation != NULL && operation->is_counted) operation = operation->next;
    if (operation != NULL) {
        twi_operations_remove(operation);
        run->call = operation->call;
        run->next = running;
        running = run;
        twi_operation_part(operation);
    }
    twi_calls_unlock();
    return operation;
}

static void end_run(struct running *run) {
    twi_calls_lock();
    twi_check(running != NULL);
    struct running **link = &running;
    while (*link != run) link = &(*link)->next;
    *link = run->next;
    twi_calls_unlock();
}

static void note_time(tw_engine *engine, int64_t took_ms) {
    twi_check(took_ms >= 0);
    _Atomic int64_t *slow_ms = &engine->here->calls->slow_done_ms; /* the turn logs it */
    twi_stat_raise(engine, offsetof(tw_stats, done_ms_max), took_ms);
    if (took_ms > SLOW_DONE_MS && took_ms > twi_load_relaxed(slow_ms)) twi_store_relaxed(slow_ms, took_ms);
}

/* Returns false in a child that `done` has forked. There, all of this is the parent's. */
static bool deliver(tw_engine *engine, struct twi_operation *operation, struct running *run, tw_request *call) {
    twi_check(operation->call == NULL);
    twi_check(run->self != NULL);
    uint32_t process = run->self->process;
    bool was_in_hook = run->self->in_hook;
    run->self->in_hook = true; /* a visitor is called as `done` is */
    call->status = operation->kind->finish(operation, call);
    run->self->in_hook = was_in_hook;
    twi_operation_pass_on(operation, call);
    twi_operation_give(operation);
    int64_t took_ms = twi_host_done(engine, call);
    if (took_ms < 0 || run->self->process != process) return false;
    note_time(engine, took_ms);
    end_run(run);
    return true;
}

static size_t run_answers(struct tw_queue *queue, size_t most, bool tries_only, struct twi_thread *self) {
    twi_check(self != NULL);
    tw_engine *engine = queue->engine;
    size_t count = 0;
    while (count < most) {
        struct running run = {.self = self};
        struct twi_operation *operation = take_first(queue, tries_only, &run);
        if (operation == NULL) break;
        count++;
        if (!deliver(engine, operation, &run, (tw_request *)(uintptr_t)run.call)) break;
    }
    return count;
}

static size_t run_queue(struct tw_queue *queue, size_t most, struct twi_thread *self) {
    twi_check(!self->in_hook);
    return run_answers(queue, most, false, self);
}

void twi_queue_run_tries(tw_engine *engine) {
    struct twi_thread *self = twi_thread_here();
    if (self != NULL) (void)run_answers(&engine->here->calls->own, SIZE_MAX, true, self);
}

static uint32_t unanswered_of(const struct tw_queue *queue) {
    twi_check(queue->under_way >= queue->answered.count);
    return queue->under_way - queue->answered.count;
}

bool twi_queue_awaits_answers(tw_engine *engine) {
    const struct twi_calls *calls = engine->here->calls;
    twi_calls_lock();
    uint32_t count = unanswered_of(&calls->own);
    for (const struct tw_queue *queue = calls->queues; queue != NULL; queue = queue->next)
        count += unanswered_of(queue);
    twi_calls_unlock();
    return count != 0;
}

bool twi_queue_run_own(tw_engine *engine, size_t most) {
    twi_check(most != 0);
    struct twi_thread *self = twi_thread_here();
    return self != NULL && run_queue(&engine->here->calls->own, most, self) == most;
}

bool twi_queue_has_own(tw_engine *engine) {
    twi_calls_lock();
    bool has = engine->here->calls->own.answered.count != 0;
    twi_calls_unlock();
    return has;
}

/* ---- queues ---- */

tw_status tw_queue_open(tw_engine *engine, tw_queue **queue) {
    TWI_NEED(engine);
    TWI_NEED(queue);
    if (twi_thread_here() == NULL) return twi_refuse_for(twi_thread_why());
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    struct tw_queue *made = calloc(1, sizeof *made);
    if (made == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    made->engine = engine;
    made->fd = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (made->fd < 0) {
        free(made);
        return twi_refuse(TW_ERR_MEMORY, "no file descriptor for the queue");
    }
    twi_calls_lock();
    made->next = engine->here->calls->queues;
    engine->here->calls->queues = made;
    twi_calls_unlock();
    *queue = made;
    return TW_OK;
}

int tw_queue_fd(const tw_queue *queue) {
    if (queue == NULL) return -1;
    (void)twi_thread_here(); /* a forked child must not get its parent's descriptor */
    return queue->fd;
}

size_t tw_queue_run(tw_queue *queue, size_t most) {
    if (queue == NULL) return 0;
    struct twi_thread *self = twi_thread_here();
    if (self == NULL || self->in_hook) return 0;
    uint64_t value;
    if (twi_descriptor_is_own(queue->fd))
        (void)!read(queue->fd, &value, sizeof value); /* first the descriptor, then the list, so that no ring is lost */
    TWI_RACE_POINT(queue_calmed_not_taken);
    uint32_t process = self->process;
    size_t count = run_queue(queue, most, self);
    if (self != twi_thread_self || self->process != process) return count;
    twi_calls_lock();
    if (queue->answered.count != 0) ring(queue);
    twi_calls_unlock();
    return count;
}

tw_status tw_queue_close(tw_queue *queue) {
    if (queue == NULL) return TW_OK;
    const struct twi_thread *self = twi_thread_here();
    if (self != NULL && self->in_hook)
        return twi_refuse(TW_ERR_MODE, "not from inside a hook or a callback: the queue may be running");
    struct twi_calls *calls = queue->engine->here->calls;
    twi_calls_lock();
    bool is_used = queue->under_way != 0;
    if (!is_used) {
        struct tw_queue **link = &calls->queues;
        while (*link != queue) link = &(*link)->next;
        *link = queue->next;
    }
    twi_calls_unlock();
    if (is_used) return twi_refuse(TW_ERR_MODE, "queue: calls are under way with it");
    twi_descriptor_close(queue->fd);
    free(queue);
    return TW_OK;
}

bool twi_queue_is_open(tw_engine *engine) {
    twi_calls_lock();
    bool is = engine->here->calls->queues != NULL;
    twi_calls_unlock();
    return is;
}

bool twi_queue_begin(tw_engine *engine) {
    twi_check(engine->here->calls != NULL);
    bool made = true;
    for (struct tw_queue *queue = engine->here->calls->queues; queue != NULL; queue = queue->next) {
        queue->fd = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        queue->answered = (struct twi_operations){0};
        queue->under_way = 0;
        made = made && queue->fd >= 0;
    }
    return made;
}

/* ---- cancelling ---- */

/* Returns true if its `done` runs in another thread. Called under the lock. */
static bool runs_elsewhere(const tw_request *call, const struct twi_thread *self) {
    for (const struct running *run = running; run != NULL; run = run->next)
        if (run->call == call) return run->self != self;
    return false;
}

tw_status tw_request_cancel(tw_request *call) {
    TWI_NEED_AS(call, "request");
    const struct twi_thread *self = twi_thread_here(); /* in a forked child, the parent's calls are forgotten */
    twi_calls_lock();
    struct twi_operation *operation = twi_operation_of(call);
    if (operation == NULL) {
        bool runs = runs_elsewhere(call, self);
        twi_calls_unlock();
        return runs ? TW_PENDING : TW_OK;
    }
    tw_engine *engine = operation->engine;
    uint64_t number = twi_load_relaxed(&operation->number);
    bool is_ours = operation->list != NULL; /* no other thread is working on it */
    if (is_ours) twi_operations_remove(operation);
    operation->is_given_up = true;
    twi_operation_part(operation);
    twi_calls_unlock();
    TWI_RACE_POINT(request_parted_not_forgotten);
    twi_port_count(engine, ask_cancelled, 1);
    /* Without an answer no other thread will ever see the operation, so it is ours again. */
    if (!is_ours && number != 0 && engine->here->remote.driver->ask_forget(twi_driving_sync(engine), number)) {
        operation->result = (struct twi_result){.outcome = TWI_REQUEST_UNKNOWN};
        is_ours = true;
    }
    if (is_ours) twi_operation_give_up(operation);
    return TW_OK;
}
