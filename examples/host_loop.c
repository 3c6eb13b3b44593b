/* host_loop.c -- in a server with its own event loop. No thread is made.
 * With TW_HOST_DRIVEN the host calls tw_turn() when tw_fd() is readable or tw_timeout_ms() has passed. A turn is short
 * and never waits, so it may run between two requests. Without Redis a turn only closes windows. With TALLYWHEEL_REDIS
 * the same loop also communicates with Redis. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tallywheel.h>

static int64_t mono_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool on_window_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    int64_t *windows = ctx;
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    ++*windows; /* called from tw_turn() in our own thread, so no lock is needed */
    return true;
}

int main(void) {
    int64_t windows = 0, requests = 0, seen = 0;
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *hits;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.threads = TW_HOST_DRIVEN;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    tw_family_options_init(&family_options);
    family_options.name = "loop";
    family_options.window_ms = TW_SECOND;
    family_options.on_window_closed = on_window_closed;
    family_options.closed_ctx = &windows;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (tw_family_open(engine, &family_options, &hits) != TW_OK) return 1;

    int64_t end_ms = mono_ms() + 1500, next_request_ms = 0;
    for (int64_t now_ms = mono_ms(); now_ms < end_ms; now_ms = mono_ms()) {
        uint32_t timeout_ms = tw_timeout_ms(engine);
        struct pollfd ready = {.fd = tw_fd(engine), .events = POLLIN}; /* the same number for the engine's life */
        poll(&ready, 1, timeout_ms < 5 ? (int)timeout_ms : 5); /* the server's own descriptors would be here, too */
        tw_tick(engine); /* the loop has slept: the next calls read no clock. Without it they only take longer */
        if (now_ms >= next_request_ms) { /* a request has come */
            if (tw_add(hits, tw_str("request"), 1, &seen) == TW_OK) requests++;
            next_request_ms = now_ms + 5;
        }
        if (tw_turn(engine) < TW_OK) return 1;
    }
    tw_status closed = tw_close(engine, 2000);
    printf("%lld requests, %lld windows closed, no thread made\n", (long long)requests, (long long)windows);
    return closed == TW_OK && requests > 0 && windows >= 2 ? 0 : 1;
}
