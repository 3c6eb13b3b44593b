/* exporter_http.c -- see exporter_http.h. One thread and one epoll: each client sends the head of one request, gets one
 * answer, and is read to its end, so that what it still sends does not reset the connection before the answer is
 * read. */
#include "exporter_http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tallywheel.h"
#include "say.h"
#include "stop.h"

#define CLIENTS_MAX 64
#define HEAD_BYTES_MAX 8192u
#define CLIENT_MS 2000 /* for the request; for the answer; to hang up */
#define ACCEPT_AGAIN_MS 100

enum state { READS, TAKES, HANGS_UP };

struct client {
    int fd; /* -1: a free place */
    enum state state;
    char head[HEAD_BYTES_MAX];
    size_t used;
    struct sink answer;
    size_t sent;
    int64_t deadline_ms;
};

struct server {
    int listener, epoll;
    exporter_make *make;
    void *ctx;
    struct client clients[CLIENTS_MAX];
};

/* ---- a client ---- */

static void end(struct client *client) {
    close(client->fd);
    sink_close(&client->answer);
    client->fd = -1;
}

static void go_to(struct client *client, enum state state) {
    client->state = state;
    client->deadline_ms = say_mono_ms() + CLIENT_MS;
}

static void send_more(struct server *server, struct client *client) {
    while (client->sent < client->answer.size) {
        ssize_t sent =
            send(client->fd, client->answer.buffer + client->sent, client->answer.size - client->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) {
            end(client);
            return;
        }
        client->sent += (size_t)sent;
    }
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = client};
    go_to(client, HANGS_UP);
    if (shutdown(client->fd, SHUT_WR) != 0 || epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->fd, &wanted) != 0)
        end(client);
}

/* `body` is left out for HEAD, its size is not. */
static void answer(struct server *server, struct client *client, const char *status, const char *type,
                   const struct sink *body) {
    char head[300];
    struct epoll_event wanted = {.events = EPOLLOUT, .data.ptr = client};
    bool is_head = client->used >= 5 && memcmp(client->head, "HEAD ", 5) == 0;
    (void)snprintf(head, sizeof head,
                   "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nAllow: GET, HEAD\r\n"
                   "Connection: close\r\n\r\n",
                   status, type, body->size);
    sink_text(&client->answer, head);
    if (!is_head) sink_bytes(&client->answer, body->buffer, body->size);
    if (client->answer.error != 0 || epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->fd, &wanted) != 0) {
        end(client);
        return;
    }
    go_to(client, TAKES);
    send_more(server, client);
}

static void answer_text(struct server *server, struct client *client, const char *status, const char *text) {
    struct sink body = {.buffer = (char *)(uintptr_t)text, .size = strlen(text)};
    answer(server, client, status, "text/plain; charset=utf-8", &body);
}

/* The others did not have the time that the page took. */
static void answer_page(struct server *server, struct client *client) {
    struct sink page;
    int64_t began_ms = say_mono_ms();
    if (!sink_open(&page, -1)) {
        end(client);
        return;
    }
    bool whole = server->make(server->ctx, &page);
    for (size_t i = 0; i < CLIENTS_MAX; i++) server->clients[i].deadline_ms += say_mono_ms() - began_ms;
    if (!whole)
        end(client);
    else if (page.error != 0)
        answer_text(server, client, "500 Internal Server Error", "no memory\n");
    else
        answer(server, client, "200 OK", TW_METRICS_PROMETHEUS_TYPE, &page);
    sink_close(&page);
}

static bool is(const char *word, size_t size, const char *text) {
    return size == strlen(text) && memcmp(word, text, size) == 0;
}

/* The head is whole. Its first line is METHOD PATH HTTP/1.x; the rest does not matter. */
static void answer_request(struct server *server, struct client *client) {
    const char *line = client->head, *end_of_line = memchr(line, '\n', client->used);
    const char *space = memchr(line, ' ', (size_t)(end_of_line - line));
    const char *path = space != NULL ? space + 1 : end_of_line;
    const char *version = memchr(path, ' ', (size_t)(end_of_line - path));
    if (version == NULL || end_of_line - version < 8 || memcmp(version, " HTTP/1.", 8) != 0) {
        answer_text(server, client, "400 Bad Request", "this is no request of HTTP/1.1\n");
        return;
    }
    const char *query = memchr(path, '?', (size_t)(version - path));
    size_t method_size = (size_t)(space - line), path_size = (size_t)((query != NULL ? query : version) - path);
    if (!is(line, method_size, "GET") && !is(line, method_size, "HEAD"))
        answer_text(server, client, "405 Method Not Allowed", "GET and HEAD alone\n");
    else if (is(path, path_size, "/metrics"))
        answer_page(server, client);
    else if (is(path, path_size, "/"))
        answer_text(server, client, "200 OK", "tallywheel exporter: /metrics\n");
    else
        answer_text(server, client, "404 Not Found", "there is /metrics\n");
}

static bool is_whole(const struct client *client) {
    return memmem(client->head, client->used, "\r\n\r\n", 4) != NULL ||
           memmem(client->head, client->used, "\n\n", 2) != NULL;
}

static void read_more(struct server *server, struct client *client) {
    ssize_t got = recv(client->fd, client->head + client->used, HEAD_BYTES_MAX - client->used, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        end(client);
        return;
    }
    client->used += (size_t)got;
    if (is_whole(client))
        answer_request(server, client);
    else if (client->used == HEAD_BYTES_MAX)
        answer_text(server, client, "431 Request Header Fields Too Large", "8192 bytes at most\n");
}

static void read_to_the_end(struct client *client) {
    char rest[4096];
    ssize_t got = recv(client->fd, rest, sizeof rest, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) end(client);
}

static void step(struct server *server, struct client *client) {
    switch (client->state) {
    case READS: read_more(server, client); return;
    case TAKES: send_more(server, client); return;
    case HANGS_UP: read_to_the_end(client); return;
    }
}

/* ---- all of them ---- */

/* A free one; else that of a client that has been answered or has asked nothing yet, and had the longest time for it;
 * else that of any. */
static struct client *place(struct server *server) {
    struct client *oldest = &server->clients[0];
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &server->clients[i];
        if (client->fd < 0) return client;
        bool waits = client->state == TAKES, oldest_waits = oldest->state == TAKES;
        if (waits == oldest_waits ? client->deadline_ms < oldest->deadline_ms : oldest_waits) oldest = client;
    }
    end(oldest);
    return oldest;
}

static void accept_one(struct server *server) {
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) (void)stop_sleep_until(say_mono_ms() + ACCEPT_AGAIN_MS);
        return;
    }
    struct client *client = place(server);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = client};
    client->fd = fd;
    client->used = client->sent = 0;
    go_to(client, READS);
    if (!sink_open(&client->answer, -1) || epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &wanted) != 0) end(client);
}

/* Drops those whose time is over. Returns how long the others have; -1: there is none. */
static int drop_late(struct server *server) {
    int64_t now_ms = say_mono_ms(), left_ms = -1;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &server->clients[i];
        if (client->fd >= 0 && client->deadline_ms <= now_ms) end(client);
        if (client->fd >= 0 && (left_ms < 0 || client->deadline_ms - now_ms < left_ms))
            left_ms = client->deadline_ms - now_ms;
    }
    return (int)left_ms;
}

/* One client at a time, the listener last: no event is of a client that has gone. */
static void serve(struct server *server) {
    struct epoll_event events[CLIENTS_MAX + 1];
    int count = epoll_wait(server->epoll, events, CLIENTS_MAX + 1, 0);
    bool comes = false;
    for (int i = 0; i < count && stop_signal() == 0; i++) {
        if (events[i].data.ptr == NULL)
            comes = true;
        else
            step(server, events[i].data.ptr);
    }
    if (comes) accept_one(server);
}

bool exporter_http_serve(int listener, exporter_make *make, void *ctx) {
    static struct server server; /* half a megabyte */
    struct epoll_event wanted = {.events = EPOLLIN};
    server = (struct server){.listener = listener, .epoll = epoll_create1(EPOLL_CLOEXEC), .make = make, .ctx = ctx};
    if (server.epoll < 0) return false;
    for (size_t i = 0; i < CLIENTS_MAX; i++) server.clients[i].fd = -1;
    bool begun = epoll_ctl(server.epoll, EPOLL_CTL_ADD, listener, &wanted) == 0;
    while (begun && stop_signal() == 0)
        if (stop_wait(server.epoll, drop_late(&server))) serve(&server);
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        if (server.clients[i].fd >= 0) end(&server.clients[i]);
    close(server.epoll);
    return begun;
}
