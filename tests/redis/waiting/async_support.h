/* async_support.h -- an engine with a real Redis, whose calls answer later: in the host's own loop, or by the engine's
 * own threads. To be included by the one file of a test program. */
#ifndef TEST_ASYNC_SUPPORT_H
#define TEST_ASYNC_SUPPORT_H

#include "tests/redis/waiting/strict_support.h"

#include <poll.h>
#include <unistd.h>

static struct redis_server server;
static tw_engine *engine;

/* `threads`: TW_HOST_DRIVEN or TW_OWN_THREAD. */
static inline void open_async(uint32_t threads) {
    tw_options options;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.threads = threads;
    options.redis_timeout_ms = STRICT_LONG_MS;
    assert_status(test_open(&options, &engine), TW_OK);
}

static inline void close_async(void) {
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* One turn of a host-driven engine, when it wants one. */
static inline void turn(void) {
    struct pollfd fd = {.fd = tw_fd(engine), .events = POLLIN};
    uint32_t wait_ms = tw_timeout_ms(engine);
    (void)poll(&fd, 1, wait_ms < 100 ? (int)wait_ms : 100);
    assert_status(tw_turn(engine), TW_OK);
}

/* A request, and what its `done` saw. */
struct told {
    tw_request request;
    int times;
};
static inline void note(tw_request *request) {
    ((struct told *)request->ctx)->times++;
}
static inline void prepare(struct told *told) {
    memset(told, 0, sizeof *told);
    tw_request_init(&told->request);
    told->request.done = note;
    told->request.ctx = told;
}
/* The answer, now or after some turns. */
static inline tw_status answer_of(struct told *told, tw_status status) {
    if (status != TW_STARTED) return status;
    int before = told->times;
    while (told->times == before) turn();
    assert_int_equal(told->times, before + 1);
    return told->request.status;
}

#endif
