/* await.c -- see await.h. */
#include "sync/ask/await.h"

#include <poll.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/event_count.h"
#include "engine/base/lock.h"
#include "engine/base/own_thread.h"
#include "engine/port/services.h"

static void *drive(void *arg) {
    struct twi_await *await = arg;
    struct twi_dispatcher *dispatcher = await->dispatcher;
    while (!twi_load_acquire(&await->stops)) {
        twi_dispatcher_step(dispatcher);
        int64_t left_ms = twi_dispatcher_until_ms(dispatcher);
        struct pollfd fd = {.fd = twi_dispatcher_fd(dispatcher), .events = POLLIN};
        (void)poll(&fd, 1, left_ms < 1000 ? (int)left_ms : 1000);
    }
    return NULL;
}

void twi_await_begin(struct twi_await *await, struct twi_dispatcher *dispatcher) {
    await->dispatcher = dispatcher;
    pthread_mutex_init(&await->lock, NULL);
}

void twi_await_end(struct twi_await *await) {
    if (await->dispatcher == NULL) return;
    twi_store_release(&await->stops, true);
    twi_dispatcher_stop(await->dispatcher); /* wakes it */
    if (await->runs) pthread_join(await->thread, NULL);
    await->runs = false;
    pthread_mutex_destroy(&await->lock);
}

/* On the caller's stack, under the lock of its own. */
struct caller {
    pthread_mutex_t lock;
    struct twi_event_count woken;
    struct twi_request *request;
    enum twi_request_outcome outcome;
    bool is_answered;
};

static void answered(void *ctx, struct twi_answer *answer) {
    struct caller *caller = ctx;
    struct twi_request *request = caller->request;
    twi_lock(&caller->lock);
    caller->outcome = answer->outcome;
    request->value_count = answer->value_count;
    memcpy(request->values, answer->values, sizeof request->values);
    request->long_text = answer->long_text;
    request->long_size = answer->long_size;
    answer->long_text = NULL;
    caller->is_answered = true;
    twi_event_count_raise(&caller->woken);
    twi_unlock(&caller->lock);
}

static bool is_answered(struct caller *caller) {
    twi_lock(&caller->lock);
    bool is = caller->is_answered;
    twi_unlock(&caller->lock);
    return is;
}

enum twi_request_outcome twi_await_request(struct twi_await *await, struct twi_request *request) {
    struct caller caller = {.request = request};
    enum twi_request_outcome why;
    struct twi_request copy = *request;
    twi_lock(&await->lock);
    if (!await->runs) await->runs = twi_own_thread_start(&await->thread, drive, await);
    bool runs = await->runs;
    twi_unlock(&await->lock);
    if (!runs) return TWI_REQUEST_UNSENT;
    pthread_mutex_init(&caller.lock, NULL);
    twi_event_count_make(&caller.woken);
    copy.answered = answered;
    copy.ctx = &caller;
    copy.waits_for_room = true;
    uint32_t seen = twi_event_count_value(&caller.woken);
    if (twi_dispatcher_ask(await->dispatcher, &copy, &why) == 0) {
        pthread_mutex_destroy(&caller.lock);
        return why;
    }
    while (!is_answered(&caller)) {
        twi_event_count_wait(&caller.woken, seen, 1000);
        seen = twi_event_count_value(&caller.woken);
        if (is_answered(&caller)) break;
    }
    pthread_mutex_destroy(&caller.lock);
    return caller.outcome;
}
