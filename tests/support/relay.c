/* relay.c -- see relay.h. */
#include "tests/support/relay.h"
#include "tests/support/support.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_MAX 32

struct pair {
    int fd[2]; /* the client's, the server's */
    size_t left;
};

struct relay {
    int listener, stop_fd, port, to_port;
    uint64_t random;
    _Atomic size_t pieces, cuts;
    _Atomic int64_t cut_count;
    pthread_t thread;
    struct pair pairs[PAIRS_MAX];
    size_t count;
};

static size_t draw(struct relay *relay, size_t most) {
    relay->random = relay->random * 6364136223846793005u + 1442695040888963407u;
    return 1 + (size_t)(relay->random >> 33) % most;
}

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void take_client(struct relay *relay) {
    struct sockaddr_in address = loopback(relay->to_port);
    int on = 1, client = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t cuts = atomic_load(&relay->cuts);
    if (client < 0 || server < 0 || relay->count == PAIRS_MAX ||
        connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
        if (client >= 0) close(client);
        if (server >= 0) close(server);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    relay->pairs[relay->count++] = (struct pair){{client, server}, cuts ? draw(relay, cuts) : SIZE_MAX};
}

static void drop(struct relay *relay, size_t i) {
    close(relay->pairs[i].fd[0]);
    close(relay->pairs[i].fd[1]);
    relay->pairs[i] = relay->pairs[--relay->count];
}

/* One piece from one side to the other. False: the connection is over. */
static bool carry(struct relay *relay, struct pair *pair, int from) {
    char bytes[16384];
    size_t most = atomic_load(&relay->pieces), size = most > sizeof bytes ? sizeof bytes : draw(relay, most);
    if (size > pair->left) size = pair->left;
    ssize_t got = recv(pair->fd[from], bytes, size, 0);
    if (got <= 0) return false;
    for (ssize_t at = 0, sent; at < got; at += sent) {
        sent = send(pair->fd[!from], bytes + at, (size_t)(got - at), MSG_NOSIGNAL);
        if (sent < 0) return false;
    }
    if (pair->left != SIZE_MAX) pair->left -= (size_t)got;
    if (pair->left != 0) return true;
    atomic_fetch_add(&relay->cut_count, 1);
    return false;
}

static void *run(void *arg) {
    struct relay *relay = arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = relay->stop_fd, .events = POLLIN},
                                                {.fd = relay->listener, .events = POLLIN}};
        for (size_t i = 0; i < 2 * relay->count; i++)
            fds[2 + i] = (struct pollfd){.fd = relay->pairs[i / 2].fd[i % 2], .events = POLLIN};
        (void)poll(fds, 2 + 2 * relay->count, -1);
        if (fds[0].revents) return NULL;
        for (size_t i = relay->count; i-- > 0;) { /* backwards: what is dropped is replaced by one that was looked at */
            bool goes_on = !fds[2 + 2 * i].revents || carry(relay, &relay->pairs[i], 0);
            goes_on = goes_on && (!fds[3 + 2 * i].revents || carry(relay, &relay->pairs[i], 1));
            if (!goes_on) drop(relay, i);
        }
        if (fds[1].revents) take_client(relay);
    }
}

struct relay *relay_start(int port, uint64_t seed) {
    struct relay *relay = calloc(1, sizeof *relay);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    assert_non_null(relay);
    relay->to_port = port;
    relay->random = seed;
    atomic_store(&relay->pieces, SIZE_MAX);
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    relay->stop_fd = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(bind(relay->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(relay->listener, 64), 0);
    assert_int_equal(getsockname(relay->listener, (struct sockaddr *)&address, &size), 0);
    relay->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&relay->thread, NULL, run, relay), 0);
    return relay;
}

void relay_stop(struct relay *relay) {
    uint64_t one = 1;
    assert_int_equal(write(relay->stop_fd, &one, sizeof one), sizeof one);
    pthread_join(relay->thread, NULL);
    while (relay->count) drop(relay, 0);
    close(relay->listener);
    close(relay->stop_fd);
    free(relay);
}

int relay_port(const struct relay *relay) {
    return relay->port;
}

void relay_pieces(struct relay *relay, size_t most) {
    atomic_store(&relay->pieces, most);
}

void relay_cuts(struct relay *relay, size_t most) {
    atomic_store(&relay->cuts, most);
}

int64_t relay_cut_count(struct relay *relay) {
    return atomic_load(&relay->cut_count);
}
