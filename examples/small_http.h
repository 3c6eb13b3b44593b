/* small_http.h -- the part that the three servers http_epoll.c, http_libuv.c and http_libevent.c share: just enough
 * HTTP/1.1, and a shop that limits its clients. What differs is the loop, and each file shows its own.
 *
 *   GET /         answered at once: 100 calls for each client and minute, and headers that say how many are left
 *   GET /buy      one of 500 phones, exactly, over all servers. The answer comes later, from Redis. Until then the
 *                 client waits, and the loop serves others
 *   GET /metrics  for a scraper
 * A client names itself by a header X-Client; this is no server for the open Internet.
 * Always true: one thread. No bytes of a waiting client are read. If it leaves, its call is cancelled. */
#ifndef SMALL_HTTP_H
#define SMALL_HTTP_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <tallywheel.h>

#define CALLS_PER_MINUTE 100
#define PHONES 500
#define HEAD_BYTES 4096 /* of a request */

static tw_engine *engine;
static tw_family *calls, *stock;

struct client {
    int fd;
    bool is_parked, has_left;
    char in[HEAD_BYTES];
    size_t in_size;
    char *out;
    size_t out_size, out_sent;
    tw_request call;                         /* the purchase under way */
    void (*answered)(struct client *client); /* the loop's: there is something to send */
    void *loop;                              /* the loop's own */
    struct client *next, *before;            /* of all clients */
};

static struct client *clients;

/* ---- answers ---- */

static void put(struct client *client, const char *data, size_t size) {
    char *out = realloc(client->out, client->out_size + size);
    if (out == NULL) {
        client->has_left = true; /* no memory for an answer */
        return;
    }
    memcpy(out + client->out_size, data, size);
    client->out = out;
    client->out_size += size;
}

static void answer(struct client *client, const char *status, const char *headers, const char *body, size_t size) {
    char head[512];
    int length = snprintf(head, sizeof head, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n", status, headers, size);
    put(client, head, (size_t)length);
    put(client, body, size);
}

static void answer_text(struct client *client, const char *status, const char *headers, const char *body) {
    answer(client, status, headers, body, strlen(body));
}

/* Sends what is there. What did not go out waits until the socket is writable. */
static void client_send(struct client *client) {
    while (client->out_sent < client->out_size && !client->has_left) {
        ssize_t sent = send(client->fd, client->out + client->out_sent, client->out_size - client->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            client->has_left = errno != EAGAIN && errno != EINTR;
            return;
        }
        client->out_sent += (size_t)sent;
    }
    client->out_size = client->out_sent = 0;
}

/* ---- the shop ---- */

static long long seconds(int64_t ms) { /* rounded up: nobody comes back too early */
    return ms / 1000 + (ms % 1000 > 0);
}

static void serve_home(struct client *client, const char *name) {
    char headers[256];
    tw_verdict verdict;
    tw_status status = tw_acquire(calls, tw_str(name), 1, CALLS_PER_MINUTE, &verdict);
    snprintf(headers, sizeof headers,
             "RateLimit-Limit: %lld\r\nRateLimit-Remaining: %lld\r\nRateLimit-Reset: %lld\r\nRetry-After: %lld\r\n",
             (long long)verdict.limit, (long long)verdict.remaining, seconds(verdict.reset_after_ms),
             seconds(verdict.retry_after_ms));
    if (status == TW_OK)
        answer_text(client, "200 OK", headers, "welcome\n");
    else if (status == TW_DENIED)
        answer_text(client, "429 Too Many Requests", headers, "later\n");
    else
        answer_text(client, verdict.allowed ? "200 OK" : "503 Service Unavailable", "", "");
}

/* The verdict is there: at once, or later, inside tw_turn(). */
static void tell_verdict(tw_request *call) {
    struct client *client = call->ctx;
    if (call->status == TW_OK)
        answer_text(client, "200 OK", "", "sold\n");
    else if (call->status == TW_DENIED && call->verdict.cause == TW_CAUSE_LIMIT)
        answer_text(client, "410 Gone", "", "sold out\n");
    else
        answer_text(client, "503 Service Unavailable", "Retry-After: 1\r\n", "try again\n");
}

static void on_verdict(tw_request *call) {
    struct client *client = call->ctx;
    client->is_parked = false;
    tell_verdict(call);
    client->answered(client);
}

static void serve_buy(struct client *client) {
    client->call.done = on_verdict;
    client->call.ctx = client;
    client->is_parked = tw_acquire_async(&client->call, stock, tw_str("phone"), 1, PHONES) == TW_STARTED;
    if (!client->is_parked) tell_verdict(&client->call);
}

static bool add_piece(void *ctx, const char *text, size_t size) {
    struct client *page = ctx;
    put(page, text, size);
    return !page->has_left;
}

static void serve_metrics(struct client *client) {
    struct client page = {.fd = -1};
    (void)tw_metrics_write(engine, TW_METRICS_PROMETHEUS, add_piece, &page);
    answer(client, "200 OK", "Content-Type: " TW_METRICS_PROMETHEUS_TYPE "\r\n", page.out, page.out_size);
    free(page.out);
}

/* ---- requests ---- */

/* The value of X-Client, in the head that ends with a NUL. */
static void name_of(const char *head, char *name, size_t size) {
    const char *at = strcasestr(head, "\r\nX-Client:");
    snprintf(name, size, "%s", "nobody");
    if (at == NULL) return;
    at += strlen("\r\nX-Client:");
    at += strspn(at, " ");
    snprintf(name, size, "%.*s", (int)strcspn(at, "\r\n"), at);
}

static void serve(struct client *client, const char *head) {
    char name[64];
    name_of(head, name, sizeof name);
    if (strncmp(head, "GET / ", 6) == 0)
        serve_home(client, name);
    else if (strncmp(head, "GET /buy ", 9) == 0)
        serve_buy(client);
    else if (strncmp(head, "GET /metrics ", 13) == 0)
        serve_metrics(client);
    else
        answer_text(client, "404 Not Found", "", "");
}

/* Serves the requests that have come whole, one after the other. A waiting client comes back here later. */
static void client_serve(struct client *client) {
    char head[HEAD_BYTES + 1];
    while (!client->is_parked && !client->has_left) {
        char *end = memmem(client->in, client->in_size, "\r\n\r\n", 4);
        if (end == NULL) break;
        size_t size = (size_t)(end - client->in) + 4;
        memcpy(head, client->in, size);
        head[size] = '\0';
        memmove(client->in, client->in + size, client->in_size -= size);
        serve(client, head);
    }
    client_send(client);
}

/* The socket is ready, or a verdict has come. Returns false if the client is to be freed. */
static bool client_step(struct client *client) {
    while (!client->is_parked && !client->has_left && client->out_size == 0) {
        ssize_t got = client->in_size < HEAD_BYTES
                          ? recv(client->fd, client->in + client->in_size, HEAD_BYTES - client->in_size, MSG_DONTWAIT)
                          : 0;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got <= 0) client->has_left = true; /* closed, broken, or a head that is too long */
        if (got > 0) client->in_size += (size_t)got;
        client_serve(client);
    }
    client_serve(client); /* what was sent to us while we could not answer */
    return !client->has_left;
}

static void client_begin(struct client *client, int fd, void (*answered)(struct client *)) {
    memset(client, 0, sizeof *client);
    tw_request_init(&client->call);
    client->fd = fd;
    client->answered = answered;
    client->next = clients;
    if (clients != NULL) clients->before = client;
    clients = client;
}

/* Its call is taken back: what Redis has sold to it by now returns to the stock. */
static void client_end(struct client *client) {
    if (client->is_parked) (void)tw_request_cancel(&client->call);
    client->is_parked = false;
    if (client->before != NULL) client->before->next = client->next;
    if (client->next != NULL) client->next->before = client->before;
    if (clients == client) clients = client->next;
    close(client->fd);
    free(client->out);
}

/* ---- beginning and end ---- */

/* True: the shop is open; counts go to the Redis that TALLYWHEEL_REDIS names, over all servers with the same Redis. */
static bool shop_open(uint32_t threads) {
    tw_options options;
    tw_family_options family;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.threads = threads;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    if (options.redis_url == NULL) return false;
    tw_status status = tw_open(&options, &engine);
    tw_family_options_init(&family);
    family.name = "calls";
    family.window = TW_WINDOW_FROM_FIRST;
    family.window_ms = TW_MINUTE;
    if (status == TW_OK) status = tw_family_open(engine, &family, &calls);
    tw_family_options_init(&family);
    family.name = "stock";
    family.window = TW_WINDOW_FOREVER;
    family.limit_mode = TW_LIMIT_STRICT;
    family.on_outage = TW_OUTAGE_FAIL_CLOSED; /* nobody gets a phone that may be sold already */
    if (status == TW_OK) status = tw_family_open(engine, &family, &stock);
    if (status != TW_OK) fprintf(stderr, "%s\n", tw_error_text());
    return status == TW_OK;
}

/* Each waiting client gets an answer here, because the calls under way end. Then the loop drops its clients. Returns
 * true if Redis has all counts. */
static bool shop_close(void (*drop)(struct client *client)) {
    tw_status status = tw_close(engine, 2000);
    while (clients != NULL) drop(clients);
    return status == TW_OK;
}

/* Listens on a loopback port: that of the argument, else a free one. -1: it cannot. */
static int shop_listen(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)(count > 1 ? atoi(arguments[1]) : 0)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 128) != 0) return -1;
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

#endif
