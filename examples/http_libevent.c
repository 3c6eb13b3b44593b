/* http_libevent.c -- the server of http_epoll.c in a libevent loop. The engine is one event, with a time-out.
 *
 *     TALLYWHEEL_REDIS=redis://localhost http_libevent 8080 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <event2/event.h>
#include "small_http.h"

static struct event_base *base;
static struct event *engine_event;

/* ---- the engine ---- */

/* A turn, and when the next one is due, unless the descriptor is readable before. 0 where there is more to do. */
static void on_engine(evutil_socket_t fd, short what, void *unused) {
    (void)fd, (void)what, (void)unused;
    tw_turn(engine);
    uint32_t ms = tw_timeout_ms(engine);
    struct timeval timeout = {.tv_sec = ms / 1000, .tv_usec = (long)(ms % 1000) * 1000};
    event_add(engine_event, &timeout);
}

/* ---- clients ---- */

struct visitor {
    struct event *event;
    struct client client;
};

static void drop(struct client *client) {
    struct visitor *visitor = client->loop;
    event_free(visitor->event); /* before its descriptor is closed */
    client_end(client);
    free(visitor);
}

static void on_visitor(evutil_socket_t fd, short what, void *visitor);

/* While a client waits for its verdict, the loop only notices whether it leaves. */
static void watch(struct visitor *visitor) {
    short what = visitor->client.is_parked ? EV_CLOSED : visitor->client.out_size != 0 ? EV_WRITE : EV_READ;
    event_del(visitor->event);
    event_assign(visitor->event, base, visitor->client.fd, what, on_visitor, visitor);
    event_add(visitor->event, NULL);
}

static void go_on(struct client *client) {
    if (client_step(client))
        watch(client->loop);
    else
        drop(client);
}

static void on_visitor(evutil_socket_t fd, short what, void *context) {
    struct visitor *visitor = context;
    (void)fd, (void)what;
    tw_tick(engine); /* the loop may have slept: the next calls read no clock. Without it they only take longer */
    if (visitor->client.is_parked)
        drop(&visitor->client);
    else
        go_on(&visitor->client);
}

static void on_listener(evutil_socket_t listener, short what, void *unused) {
    (void)what, (void)unused;
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct visitor *visitor = malloc(sizeof *visitor);
        struct event *event = visitor != NULL ? event_new(base, fd, EV_READ, on_visitor, visitor) : NULL;
        if (event == NULL) {
            free(visitor);
            close(fd);
            continue;
        }
        visitor->event = event;
        client_begin(&visitor->client, fd, go_on);
        visitor->client.loop = visitor;
        watch(visitor);
    }
}

/* ---- the loop ---- */

static void on_signal(evutil_socket_t number, short what, void *unused) {
    (void)number, (void)what, (void)unused;
    event_base_loopbreak(base);
}

int main(int count, char **arguments) {
    if (!shop_open(TW_HOST_DRIVEN)) return 2;
    int listener = shop_listen(count, arguments);
    struct event_config *config = event_config_new();
    if (listener < 0 || config == NULL) return 1;
    event_config_require_features(config, EV_FEATURE_EARLY_CLOSE); /* EV_CLOSED */
    base = event_base_new_with_config(config);
    event_config_free(config);
    if (base == NULL) return 1;
    struct event *events[3] = {event_new(base, listener, EV_READ | EV_PERSIST, on_listener, NULL),
                               evsignal_new(base, SIGTERM, on_signal, NULL),
                               evsignal_new(base, SIGINT, on_signal, NULL)};
    for (int i = 0; i < 3; i++) event_add(events[i], NULL);
    /* Once, because the descriptor is the same for the engine's life. */
    engine_event = event_new(base, tw_fd(engine), EV_READ, on_engine, NULL);
    on_engine(-1, 0, NULL);
    event_base_dispatch(base);

    event_free(engine_event); /* the descriptor goes with the engine */
    bool is_well = shop_close(drop);
    for (int i = 0; i < 3; i++) event_free(events[i]);
    event_base_free(base);
    close(listener);
    libevent_global_shutdown();
    return is_well ? 0 : 1;
}
