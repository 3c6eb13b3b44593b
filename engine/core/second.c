/* second.c -- see second.h. */
#include "engine/core/second.h"

#include "engine/base/descriptor.h"
#include "engine/base/lock.h"
#include "engine/base/own_thread.h"
#include "engine/core/driving.h"
#include "engine/core/family.h"
#include "engine/core/queue.h"
#include "engine/core/waiters.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ANSWERS_AT_ONCE 256u /* then requests and replies are looked at again */
#define LOOK_MS 1000         /* no event is missed. There is a bound nevertheless */

static void await(tw_engine *engine) {
    int64_t wake_ms = twi_driving_wake_ms(engine), look_ms = twi_load_relaxed(&engine->here->calls->look_ms);
    if (engine->life.is_shared && look_ms < wake_ms) wake_ms = look_ms;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock), left_ms = wake_ms <= now_ms ? 0 : wake_ms - now_ms;
    int tick_ms = left_ms <= 0 ? 0 : left_ms < LOOK_MS ? (int)left_ms : LOOK_MS;
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
