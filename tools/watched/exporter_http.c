/* exporter_http.c -- see exporter_http.h. There is one thread and one epoll. Each client sends the head of one request,
 * gets one answer, and is read to its end, so that its later bytes do not reset the connection before the answer is
 * read. The engines get their requests meanwhile, and all waiting clients get the same page. */
#include "tools/watched/exporter_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tallywheel.h"
#include "tools/common/moment.h"
#include "tools/common/stop.h"

#define CLIENTS_MAX 512
#define HEAD_BYTES_MAX 8192u
#define CLIENT_MS 2000 /* for the request; for the answer; to hang up */
#define ACCEPT_AGAIN_MS 100

enum state { READS, WAITS, TAKES, HANGS_UP };

/* A page that several clients receive. */
struct body {
    size_t users;
    struct sink text;
};

struct client {
    int fd; /* -1 means a free place */
    enum state state;
    char head[HEAD_BYTES_MAX]; /* of the request, then of the answer */
    size_t used;
    struct body *body; /* NULL if the answer has no body */
    size_t sent;
    int64_t deadline_ms;
    uint64_t number; /* number of the client, because many come within a millisecond */
};

struct server {
    int listener, epoll;
    struct exporter *exporter;
    struct exporter_round *round; /* the requests to the engines under way; NULL if no client waits */
    uint64_t accepted;
    struct client clients[CLIENTS_MAX];
};

/* ---- a client ---- */

static void body_leave(struct body *body) {
    if (body == NULL || --body->users > 0) return;
    sink_close(&body->text);
    free(body);
}

static void http_end(struct client *client) {
    close(client->fd);
    body_leave(client->body);
    client->body = NULL;
    client->fd = -1;
}

static void go_to(struct client *client, enum state state) {
    client->state = state;
    client->deadline_ms = moment_mono_ms() + CLIENT_MS;
}

/* Returns the next bytes of the answer, first the rest of its head, then of its body. */
static const char *answer_rest(const struct client *client, size_t *size) {
    size_t in_body = client->sent - client->used;
    bool is_head = client->sent < client->used;
    *size = is_head ? client->used - client->sent : client->body != NULL ? client->body->text.size - in_body : 0;
    return is_head ? client->head + client->sent : *size > 0 ? client->body->text.buffer + in_body : NULL;
}

static void send_more(struct server *server, struct client *client) {
    const char *bytes;
    size_t size;
    while ((bytes = answer_rest(client, &size)) != NULL) {
        ssize_t sent = send(client->fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) {
            http_end(client);
            return;
        }
        client->sent += (size_t)sent;
    }
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = client};
    go_to(client, HANGS_UP);
    if (shutdown(client->fd, SHUT_WR) != 0 || epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->fd, &wanted) != 0)
        http_end(client);
}

/* `body` is left out for HEAD, its size is not. */
static void answer(struct server *server, struct client *client, const char *status, const char *type,
                   struct body *body) {
    struct epoll_event wanted = {.events = EPOLLOUT, .data.ptr = client};
    bool is_head = client->used >= 5 && memcmp(client->head, "HEAD ", 5) == 0;
    client->used = (size_t)snprintf(client->head, sizeof client->head,
                                    "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nAllow: GET, HEAD\r\n"
                                    "Connection: close\r\n\r\n",
                                    status, type, body->text.size);
    if (!is_head) {
        client->body = body;
        body->users++;
    }
    if (epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->fd, &wanted) != 0) {
        http_end(client);
        return;
    }
    go_to(client, TAKES);
    send_more(server, client);
}

/* Returns NULL if there is no memory. It has one user, the caller. */
static struct body *body_new(void) {
    struct body *body = calloc(1, sizeof *body);
    if (body == NULL || !sink_open(&body->text, -1)) {
        free(body);
        return NULL;
    }
    body->users = 1;
    return body;
}

static void answer_text(struct server *server, struct client *client, const char *status, const char *text) {
    struct body *body = body_new();
    if (body == NULL) {
        http_end(client);
        return;
    }
    sink_text(&body->text, text);
    answer(server, client, status, "text/plain; charset=utf-8", body);
    body_leave(body);
}

/* ---- the page ---- */

static void http_round_end(struct server *server, struct sink *out) {
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, exporter_fd(server->round), NULL);
    (void)exporter_end(server->exporter, server->round, out);
    server->round = NULL;
}

/* All engines have answered, or their time has ended. The time for the page does not count against the clients. */
static void answer_page(struct server *server) {
    int64_t began_ms = moment_mono_ms();
    struct body *page = body_new();
    http_round_end(server, page != NULL ? &page->text : NULL);
    for (size_t i = 0; i < CLIENTS_MAX; i++) server->clients[i].deadline_ms += moment_mono_ms() - began_ms;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &server->clients[i];
        if (client->fd < 0 || client->state != WAITS) continue;
        if (stop_signal() != 0)
            http_end(client);
        else if (page == NULL || page->text.error != 0)
            answer_text(server, client, "500 Internal Server Error", "no memory\n");
        else
            answer(server, client, "200 OK", TW_METRICS_PROMETHEUS_TYPE, page);
    }
    body_leave(page);
}

/* A client that comes during the requests to the engines gets that page. A waiting client need not be read. */
static void want_page(struct server *server, struct client *client) {
    struct epoll_event wanted = {.events = EPOLLIN}, nothing = {.data.ptr = client};
    if (server->round == NULL) {
        server->round = exporter_begin(server->exporter);
        wanted.data.ptr = server;
        if (server->round != NULL && epoll_ctl(server->epoll, EPOLL_CTL_ADD, exporter_fd(server->round), &wanted) != 0)
            http_round_end(server, NULL);
    }
    if (server->round == NULL || epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->fd, &nothing) != 0) {
        answer_text(server, client, "500 Internal Server Error", "no memory, or no descriptor\n");
        return;
    }
    go_to(client, WAITS);
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
        want_page(server, client);
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
        http_end(client);
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
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) http_end(client);
}

static void step(struct server *server, struct client *client) {
    switch (client->state) {
    case READS: read_more(server, client); return;
    case WAITS: http_end(client); return; /* it has hung up */
    case TAKES: send_more(server, client); return;
    case HANGS_UP: read_to_the_end(client); return;
    }
}

/* ---- all of them ---- */

static bool takes(const struct client *client) {
    return client->state == TAKES || client->state == WAITS;
}

/* Returns a free place. Otherwise it is the place of the client that was answered or has sent no request yet, and had
 * the longest time for it. Otherwise it is that of a client that has its page and does not read it, and otherwise that
 * of any client. */
static struct client *http_place(struct server *server) {
    struct client *oldest = &server->clients[0];
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &server->clients[i];
        if (client->fd < 0) return client;
        unsigned worth = (unsigned)takes(client) + (client->state == WAITS);
        unsigned least = (unsigned)takes(oldest) + (oldest->state == WAITS);
        bool older = client->deadline_ms != oldest->deadline_ms ? client->deadline_ms < oldest->deadline_ms
                                                                : client->number < oldest->number;
        if (worth < least || (worth == least && older)) oldest = client;
    }
    http_end(oldest);
    return oldest;
}

static void accept_one(struct server *server) {
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) (void)stop_sleep_until(moment_mono_ms() + ACCEPT_AGAIN_MS);
        return;
    }
    struct client *client = http_place(server);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = client};
    client->fd = fd;
    client->used = client->sent = 0;
    client->number = server->accepted++;
    go_to(client, READS);
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &wanted) != 0) http_end(client);
}

/* Drops the clients whose time has ended. A client that waits for the page has the engines' time. Returns how long the
 * others have; -1 if there are no others. */
static int drop_late(struct server *server) {
    int64_t now_ms = moment_mono_ms(), left_ms = -1;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &server->clients[i];
        if (client->fd < 0 || client->state == WAITS) continue;
        if (client->deadline_ms <= now_ms)
            http_end(client);
        else if (left_ms < 0 || client->deadline_ms - now_ms < left_ms)
            left_ms = client->deadline_ms - now_ms;
    }
    if (server->round == NULL) return (int)left_ms;
    int round_ms = exporter_wait_ms(server->round);
    return left_ms >= 0 && left_ms < round_ms ? (int)left_ms : round_ms;
}

/* Handles one client at a time, and the listener last, so that no event belongs to a client that has gone. */
static void http_serve(struct server *server) {
    struct epoll_event events[CLIENTS_MAX + 1];
    int count = epoll_wait(server->epoll, events, CLIENTS_MAX + 1, 0);
    bool comes = false;
    for (int i = 0; i < count && stop_signal() == 0; i++) {
        if (events[i].data.ptr == NULL)
            comes = true;
        else if (events[i].data.ptr != server) /* the engines' answers are looked at in any case */
            step(server, events[i].data.ptr);
    }
    if (comes) accept_one(server);
}

bool exporter_http_serve(int listener, struct exporter *exporter) {
    static struct server server; /* four megabytes, of which only the parts of present clients are used */
    struct epoll_event wanted = {.events = EPOLLIN};
    server.listener = listener;
    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    server.exporter = exporter;
    if (server.epoll < 0) return false;
    for (size_t i = 0; i < CLIENTS_MAX; i++) server.clients[i].fd = -1;
    bool begun = epoll_ctl(server.epoll, EPOLL_CTL_ADD, listener, &wanted) == 0;
    while (begun && stop_signal() == 0) {
        if (stop_wait(server.epoll, drop_late(&server))) http_serve(&server);
        if (server.round != NULL && exporter_step(server.round)) answer_page(&server);
    }
    if (server.round != NULL) http_round_end(&server, NULL);
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        if (server.clients[i].fd >= 0) http_end(&server.clients[i]);
    close(server.epoll);
    return begun;
}
