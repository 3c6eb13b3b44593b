/* watch.c -- the thread that answers on the watch socket. See watch.h.
 * One thread serves some clients at a time by poll(). Each sends one line and gets one answer. A client that does not
 * send, or does not read, is dropped at its deadline, and sooner if another one needs its place. So it delays no other
 * client, and no call of the program.
 * Always true: after a request to end, the thread sends one more answer at most. Signals belong to the program's
 * threads. */
#include "extras/watch.h"

#include "engine/base/descriptor.h"
#include "engine/base/threads.h"
#include "engine/base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS_MAX 64
#define REQUEST_MS 5000                          /* for the whole line */
#define READER_MS 10000                          /* without taking a byte of the answer */
#define REQUEST_ROOM (TWI_WATCH_REQUEST_MAX + 2) /* with the end of the line, and one byte more than is allowed */
#define RETRY_MS 200 /* after a client could not be accepted, for example for lack of descriptors */

struct client {
    int fd; /* -1 means a free place */
    bool answers;
    char *request; /* REQUEST_ROOM bytes */
    size_t size;
    struct twi_watch_text answer;
    size_t sent;
    int64_t deadline_ms;
    uint64_t number; /* number of the client, because many come within a millisecond */
};

struct tw_watch {
    struct twi_watch_scope scope;
    struct twi_watch_socket socket;
    int come_fd, give_fd; /* a pipe with the descriptors of clients that a host has accepted; -1 with a socket */
    pthread_t thread;
    int stop_fd; /* readable if the thread has to end */
    int64_t accept_again_ms;
    uint64_t accepted;
    struct client clients[CLIENTS_MAX];
};

/* ---- a client ---- */

static void client_end(struct client *client) {
    int fd = client->fd;
    char *bytes = client->answer.bytes, *request = client->request;
    *client = (struct client){.fd = -1};
    if (fd >= 0) (void)shutdown(fd, SHUT_RDWR); /* its end is seen, also if a child was forked that has a copy of it */
    twi_descriptor_close(fd);
    free(bytes);
    free(request);
}

static void client_send(struct client *client) {
    while (client->sent < client->answer.size) {
        ssize_t sent = send(client->fd, client->answer.bytes + client->sent, client->answer.size - client->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent <= 0) break; /* the reader has gone */
        client->sent += (size_t)sent;
        client->deadline_ms = twi_watch_mono_ms() + READER_MS;
    }
    client_end(client);
}

static void client_answer(struct client *client, const struct twi_watch_scope *scope, size_t size) {
    client->answers = true;
    client->deadline_ms = twi_watch_mono_ms() + READER_MS;
    twi_watch_answer(scope, client->request, size, &client->answer);
    if (client->answer.failed) /* a client would mistake a cut answer for a whole one */
        client_end(client);
    else
        client_send(client);
}

static void client_receive(struct client *client, const struct twi_watch_scope *scope) {
    ssize_t got = recv(client->fd, client->request + client->size, REQUEST_ROOM - client->size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0 || (got == 0 && client->size == 0)) {
        client_end(client);
        return;
    }
    client->size += (size_t)got;
    const char *end = memchr(client->request, '\n', client->size);
    if (end != NULL)
        client_answer(client, scope, (size_t)(end - client->request));
    else if (got == 0 || client->size == REQUEST_ROOM)
        client_answer(client, scope, client->size);
}

/* ---- all of them ---- */

/* Returns a free place. Otherwise it is the place of the client which has sent no whole line for the longest time.
 * Otherwise it is that of the client which has read no byte of its answer for the longest time. */
static struct client *make_place(struct tw_watch *watch) {
    struct client *oldest = &watch->clients[0];
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &watch->clients[i];
        if (client->fd < 0) return client;
        bool older = client->deadline_ms != oldest->deadline_ms ? client->deadline_ms < oldest->deadline_ms
                                                                : client->number < oldest->number;
        if (client->answers != oldest->answers) older = oldest->answers;
        if (older) oldest = client;
    }
    client_end(oldest);
    return oldest;
}

/* The next client, from our socket or from the host. Returns -1, and errno, if there is none. */
static int next_client(const struct tw_watch *watch) {
    int fd;
    if (watch->come_fd < 0)
        return twi_descriptor_own(accept4(watch->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    return read(watch->come_fd, &fd, sizeof fd) == (ssize_t)sizeof fd ? fd : -1;
}

/* Accepts so many at a time, and then looks at the stop. Most clients have sent their line when they are accepted, and
 * are answered before another one can take their place. */
static void accept_all(struct tw_watch *watch) {
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        int fd = next_client(watch);
        if (fd < 0) {
            bool is_empty = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
            if (!is_empty) watch->accept_again_ms = twi_watch_mono_ms() + RETRY_MS;
            return;
        }
        struct client *client = make_place(watch);
        *client = (struct client){.fd = fd, .deadline_ms = twi_watch_mono_ms() + REQUEST_MS};
        client->number = watch->accepted++;
        client->request = malloc(REQUEST_ROOM);
        if (client->request == NULL)
            client_end(client);
        else
            client_receive(client, &watch->scope);
    }
}

/* Fills the descriptors, which are the stop, the listener and the clients. Returns how long poll() may wait; -1 for no
 * limit. */
static int watch_plan(struct tw_watch *watch, struct pollfd fds[CLIENTS_MAX + 2]) {
    int64_t now_ms = twi_watch_mono_ms(), next_ms = INT64_MAX;
    bool accepts = now_ms >= watch->accept_again_ms;
    if (!accepts && watch->accept_again_ms > now_ms) next_ms = watch->accept_again_ms;
    fds[0] = (struct pollfd){.fd = watch->stop_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = !accepts              ? -1
                                   : watch->come_fd >= 0 ? watch->come_fd
                                                         : watch->socket.fd,
                             .events = POLLIN};
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &watch->clients[i];
        fds[i + 2] = (struct pollfd){.fd = client->fd, .events = client->answers ? POLLOUT : POLLIN};
        if (client->fd >= 0 && client->deadline_ms < next_ms) next_ms = client->deadline_ms;
    }
    if (next_ms == INT64_MAX) return -1;
    return next_ms <= now_ms ? 0 : (int)(next_ms - now_ms);
}

static void serve_clients(struct tw_watch *watch, const struct pollfd fds[CLIENTS_MAX + 2]) {
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &watch->clients[i];
        if (client->fd < 0) continue;
        if (fds[i + 2].revents == 0) {
            if (twi_watch_mono_ms() >= client->deadline_ms) client_end(client);
        } else if (client->answers) {
            client_send(client);
        } else {
            client_receive(client, &watch->scope);
        }
    }
}

static void *watch_serve(void *arg) {
    struct tw_watch *watch = arg;
    struct pollfd fds[CLIENTS_MAX + 2];
    for (;;) {
        int timeout_ms = watch_plan(watch, fds);
        if (poll(fds, CLIENTS_MAX + 2, timeout_ms) < 0 && errno != EINTR) (void)poll(NULL, 0, RETRY_MS);
        if ((fds[0].revents & POLLIN) != 0) return NULL;
        serve_clients(watch, fds);
        if ((fds[1].revents & POLLIN) != 0) accept_all(watch);
    }
}

/* ---- its life ---- */

static void watch_give_back(struct tw_watch *watch) {
    if (watch->socket.fd >= 0) twi_watch_socket_close(&watch->socket);
    for (int fd; watch->come_fd >= 0 && (fd = next_client(watch)) >= 0;) twi_descriptor_close(fd);
    twi_descriptor_close(watch->come_fd);
    twi_descriptor_close(watch->give_fd);
    twi_descriptor_close(watch->stop_fd);
    free(watch->scope.families);
    free(watch->scope.engines);
    free(watch);
}

/* Without a socket and a thread yet. */
static struct tw_watch *watch_make(void) {
    struct tw_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) return NULL;
    watch->socket.fd = watch->come_fd = watch->give_fd = -1;
    for (size_t i = 0; i < CLIENTS_MAX; i++) watch->clients[i].fd = -1;
    watch->stop_fd = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (watch->stop_fd >= 0) return watch;
    watch_give_back(watch);
    return NULL;
}

static struct tw_watch *watch_open(tw_engine *engine, const char *path, bool writes, char *why, size_t why_size) {
    struct tw_watch *watch = watch_make();
    if (watch == NULL) {
        (void)snprintf(why, why_size, "no memory, or no file descriptor");
        return NULL;
    }
    watch->scope = (struct twi_watch_scope){.engine = engine, .writes = writes};
    if (!twi_watch_socket_open(path, &watch->socket, why, why_size)) {
        watch->socket.fd = -1;
        watch_give_back(watch);
        return NULL;
    }
    if (twi_own_thread_start(&watch->thread, watch_serve, watch)) return watch;
    (void)snprintf(why, why_size, "no thread could be started");
    watch_give_back(watch);
    return NULL;
}

static void watch_close(struct tw_watch *watch) {
    uint64_t one = 1;
    (void)!write(watch->stop_fd, &one, sizeof one);
    pthread_join(watch->thread, NULL);
    for (size_t i = 0; i < CLIENTS_MAX; i++) client_end(&watch->clients[i]);
    watch_give_back(watch);
}

/* The parent's thread may have been forked in the middle of an answer, so the answers' memory is not freed. */
static void watch_abandon(struct tw_watch *watch) {
    free(watch);
}

const struct twi_watch_server *twi_watch_find(void) {
    static const struct twi_watch_server server = {.open = watch_open, .close = watch_close, .abandon = watch_abandon};
    return &server;
}

/* ---- of a host ---- */

static int watch_compare_names(const void *one, const void *other) {
    tw_family *const *a = one, *const *b = other;
    return strcmp(twi_watch_name(*a), twi_watch_name(*b));
}

/* Copies the families, sorted, and lists their engines. */
static tw_status watch_fill_scope(struct twi_watch_scope *scope, tw_family *const *families, size_t count) {
    scope->families = calloc(count, sizeof(void *));
    scope->engines = calloc(count, sizeof(void *));
    if (scope->families == NULL || scope->engines == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    memcpy(scope->families, families, count * sizeof(void *));
    qsort(scope->families, count, sizeof(void *), watch_compare_names);
    scope->family_count = count;
    for (size_t i = 0, k; i < count; i++) {
        tw_engine *engine = twi_watch_engine(scope->families[i]);
        if (i > 0 && watch_compare_names(&scope->families[i - 1], &scope->families[i]) == 0)
            return twi_refuse(TW_ERR_RANGE, "families: two have one name");
        for (k = 0; k < scope->engine_count && scope->engines[k] != engine;) k++;
        if (k == scope->engine_count) scope->engines[scope->engine_count++] = engine;
    }
    return TW_OK;
}

tw_status tw_watch_open(tw_family *const *families, size_t count, uint32_t writes, tw_watch **out) {
    int ends[2];
    TWI_NEED(families);
    TWI_NEED_AS(out, "watch");
    if (count == 0) return twi_refuse(TW_ERR_RANGE, "families: there is none");
    struct tw_watch *watch = watch_make();
    if (watch == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    watch->scope.writes = writes != 0;
    tw_status status = watch_fill_scope(&watch->scope, families, count);
    bool has_pipe = status == TW_OK && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0; /* for twi_descriptor_own() */
    watch->come_fd = has_pipe ? twi_descriptor_own(ends[0]) : -1;
    watch->give_fd = has_pipe ? twi_descriptor_own(ends[1]) : -1;
    bool runs = watch->come_fd >= 0 && watch->give_fd >= 0 && twi_own_thread_start(&watch->thread, watch_serve, watch);
    if (status == TW_OK && !runs) status = twi_refuse(TW_ERR_MEMORY, NULL);
    if (status == TW_OK)
        *out = watch;
    else
        watch_give_back(watch);
    return status;
}

tw_status tw_watch_take(tw_watch *watch, int fd) {
    TWI_NEED(watch);
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    fd = twi_descriptor_own(fd);
    if (fd < 0) return twi_refuse(TW_ERR_MEMORY, NULL);
    if (write(watch->give_fd, &fd, sizeof fd) == (ssize_t)sizeof fd) return TW_OK;
    twi_descriptor_close(fd);
    return twi_refuse(TW_ERR_BUSY, "fd: too many clients wait already");
}

void tw_watch_close(tw_watch *watch) {
    if (watch != NULL) watch_close(watch);
}
