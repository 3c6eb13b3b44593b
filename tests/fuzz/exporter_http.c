/* exporter_http.c -- any bytes as an HTTP request, in pieces: the answer is one whole head of HTTP/1.1, and a body of
 * as many bytes as it says; nothing at all, if the request was not whole. The first byte says how large the pieces
 * are.
 * Covers: tools/watched/exporter_http.c. */
#include "tools/watched/exporter_http.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exporter without a socket: its page is there at once. */
static char *const patterns[] = {"/nowhere/*.sock"};
static struct exporter exporter = {patterns, 1, .is_patient = false};

static struct server *the_server(void) {
    static struct server server;
    static bool made;
    if (made) return &server;
    made = true;
    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    server.exporter = &exporter;
    if (server.epoll < 0) abort();
    for (size_t i = 0; i < CLIENTS_MAX; i++) server.clients[i].fd = -1;
    return &server;
}

static struct client *connect_client(struct server *server, int fd) {
    struct client *client = http_place(server);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = client};
    client->fd = fd;
    client->used = client->sent = 0;
    go_to(client, READS);
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &wanted) != 0) abort();
    return client;
}

static void check(const char *answer, size_t size) {
    const char *body = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "\r\nContent-Length: ");
    if (size == 0) return;
    if (strncmp(answer, "HTTP/1.1 ", 9) != 0 || body == NULL || length == NULL || length > body) abort();
    size_t rest = size - (size_t)(body + 4 - answer);
    if (rest != 0 && rest != strtoul(length + 18, NULL, 10)) abort(); /* 0: HEAD */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct server *server = the_server();
    char answer[8192];
    size_t got = 0;
    int ends[2];
    if (size == 0) return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) abort();
    struct client *client = connect_client(server, ends[0]);
    size_t piece = data[0] * 16u + 1;
    for (size_t at = 1; at < size && client->fd >= 0;) {
        ssize_t sent = send(ends[1], data + at, size - at < piece ? size - at : piece, MSG_NOSIGNAL);
        if (sent <= 0) break;
        at += (size_t)sent;
        if (client->state != WAITS) step(server, client);
        if (server->round != NULL && exporter_step(server->round)) answer_page(server);
    }
    for (ssize_t come; (come = recv(ends[1], answer + got, sizeof answer - 1 - got, 0)) > 0;) got += (size_t)come;
    answer[got] = '\0';
    check(answer, got);
    close(ends[1]);
    if (client->fd >= 0) http_end(client);
    return 0;
}
