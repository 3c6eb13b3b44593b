/* http_epoll.c -- a server of one thread and one epoll loop, with limits that are exact over all servers.
 * The engine is host-driven. Its descriptor is in the loop with the clients', and each round of the loop makes a turn.
 * A client that buys waits until the verdict comes, inside a turn. small_http.h has the shop.
 *
 *     TALLYWHEEL_REDIS=redis://localhost http_epoll 8080 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include "small_http.h"

static int loop;
static struct client *ended; /* a list, by `loop` of each, freed when the events of this round are served */

/* While a client waits for its verdict, the loop only notices whether it leaves. */
static void watch(struct client *client, int how) {
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = client};
    if (!client->is_parked) event.events |= client->out_size != 0 ? EPOLLOUT : EPOLLIN;
    (void)epoll_ctl(loop, how, client->fd, &event);
}

static void drop(struct client *client) {
    client_end(client);
    client->loop = ended;
    client->fd = -1;
    ended = client;
}

static void go_on(struct client *client) {
    if (client_step(client))
        watch(client, EPOLL_CTL_MOD);
    else
        drop(client);
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct client *client = malloc(sizeof *client);
        if (client == NULL) {
            close(fd);
            continue;
        }
        client_begin(client, fd, go_on);
        watch(client, EPOLL_CTL_ADD);
    }
}

static void serve_event(const struct epoll_event *event) {
    struct client *client = event->data.ptr;
    if (client->fd < 0) return; /* an event of this round has ended it already */
    if (client->is_parked || (event->events & (EPOLLERR | EPOLLHUP)) != 0)
        drop(client); /* of a waiting client the loop only notices whether it leaves */
    else
        go_on(client);
}

static void add(int fd, void *what) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) exit(1);
}

static void free_ended(void) {
    for (struct client *next; ended != NULL; ended = next) {
        next = ended->loop;
        free(ended);
    }
}

int main(int count, char **arguments) {
    sigset_t stop;
    struct epoll_event events[64];
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    if (!shop_open(TW_HOST_DRIVEN)) return 2;
    int listener = shop_listen(count, arguments), signals = signalfd(-1, &stop, SFD_CLOEXEC);
    loop = epoll_create1(EPOLL_CLOEXEC);
    if (listener < 0 || loop < 0) return 1;
    add(listener, &listener);
    add(signals, &signals);
    add(tw_fd(engine), engine); /* once, because it is the same for the engine's life */

    for (bool is_open = true; is_open;) {
        int ready = epoll_wait(loop, events, 64, (int)tw_timeout_ms(engine));
        tw_tick(engine); /* the loop has slept: the next calls read no clock. Without it they only take longer */
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == &listener)
                accept_all(listener);
            else if (events[i].data.ptr == &signals)
                is_open = false;
            else if (events[i].data.ptr != engine)
                serve_event(&events[i]);
        }
        tw_turn(engine); /* in each round, because it is short, and verdicts come from here */
        free_ended();
    }
    bool is_well = shop_close(drop);
    free_ended();
    close(listener), close(signals), close(loop);
    return is_well ? 0 : 1;
}
