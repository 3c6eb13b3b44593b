/* http_libuv.c -- the server of http_epoll.c in a libuv loop. The engine is one uv_poll_t and one uv_timer_t.
 *
 *     TALLYWHEEL_REDIS=redis://localhost http_libuv 8080 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <uv.h>
#include "small_http.h"

static uv_loop_t loop;
static uv_poll_t engine_poll, listener_poll;
static uv_timer_t engine_timer;
static uv_signal_t signals[2];

/* ---- the engine ---- */

static void on_engine_timer(uv_timer_t *timer);

/* A turn, and when the next one is due. tw_timeout_ms() is 0 where there is more to do. */
static void turn(void) {
    tw_turn(engine);
    uv_update_time(&loop);
    uv_timer_start(&engine_timer, on_engine_timer, tw_timeout_ms(engine), 0);
}

static void on_engine_timer(uv_timer_t *timer) {
    (void)timer;
    turn();
}

static void on_engine_ready(uv_poll_t *poll, int status, int events) {
    (void)poll, (void)status, (void)events;
    turn();
}

/* ---- clients ---- */

struct visitor {
    uv_poll_t poll;
    struct client client;
};

static void free_visitor(uv_handle_t *handle) {
    free(handle->data);
}

static void drop(struct client *client) {
    struct visitor *visitor = client->loop;
    uv_poll_stop(&visitor->poll); /* before its descriptor is closed */
    client_end(client);
    uv_close((uv_handle_t *)&visitor->poll, free_visitor);
}

static void on_visitor(uv_poll_t *poll, int status, int events);

/* While a client waits for its verdict, the loop only notices whether it leaves. */
static void watch(struct visitor *visitor) {
    int events = visitor->client.is_parked ? 0 : visitor->client.out_size != 0 ? UV_WRITABLE : UV_READABLE;
    uv_poll_start(&visitor->poll, events | UV_DISCONNECT, on_visitor);
}

static void go_on(struct client *client) {
    if (client_step(client))
        watch(client->loop);
    else
        drop(client);
}

static void on_visitor(uv_poll_t *poll, int status, int events) {
    struct visitor *visitor = poll->data;
    tw_tick(engine); /* the loop may have slept: the next calls read no clock. Without it they only take longer */
    if (status < 0 || visitor->client.is_parked || events == UV_DISCONNECT)
        drop(&visitor->client);
    else
        go_on(&visitor->client);
}

static void on_listener(uv_poll_t *poll, int status, int events) {
    int listener;
    (void)status, (void)events;
    uv_fileno((uv_handle_t *)poll, &listener);
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct visitor *visitor = malloc(sizeof *visitor);
        if (visitor == NULL || uv_poll_init(&loop, &visitor->poll, fd) != 0) {
            free(visitor);
            close(fd);
            continue;
        }
        visitor->poll.data = visitor;
        client_begin(&visitor->client, fd, go_on);
        visitor->client.loop = visitor;
        watch(visitor);
    }
}

/* ---- the loop ---- */

static void on_signal(uv_signal_t *handle, int number) {
    (void)handle, (void)number;
    uv_stop(&loop);
}

static void close_handle(uv_handle_t *handle, void *unused) {
    (void)unused;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

int main(int count, char **arguments) {
    if (!shop_open(TW_HOST_DRIVEN)) return 2;
    int listener = shop_listen(count, arguments);
    if (listener < 0 || uv_loop_init(&loop) != 0) return 1;
    uv_poll_init(&loop, &listener_poll, listener);
    uv_poll_start(&listener_poll, UV_READABLE, on_listener);
    uv_poll_init(&loop, &engine_poll, tw_fd(engine)); /* once, because it is the same for the engine's life */
    uv_poll_start(&engine_poll, UV_READABLE, on_engine_ready);
    uv_timer_init(&loop, &engine_timer);
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&loop, &signals[i]);
        uv_signal_start(&signals[i], on_signal, i == 0 ? SIGTERM : SIGINT);
    }
    turn();
    uv_run(&loop, UV_RUN_DEFAULT);

    uv_poll_stop(&engine_poll); /* the descriptor goes with the engine */
    bool is_well = shop_close(drop);
    uv_walk(&loop, close_handle, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    close(listener);
    return uv_loop_close(&loop) == 0 && is_well ? 0 : 1;
}
