/* thin_link.c -- see thin_link.h. */
#include "tests/support/thin_link.h"
#include "tests/support/support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS_MAX 64
#define PIECE 1024 /* bytes */

struct piece {
    struct piece *next;
    int64_t at_us; /* when it arrives */
    size_t size, at;
    char bytes[PIECE];
};

/* One direction of a connection. */
struct lane {
    int from, to;
    struct piece *first, **last;
    int64_t busy_until_us; /* of its own line, if it has one */
};

struct pair {
    struct lane lanes[2]; /* to the server, to the client */
};

struct thin_link {
    char path[108], url[128], server[108];
    int listener, stop_fd;
    int64_t bytes_per_s, way_us;
    int64_t busy_until_us[2]; /* each direction, of all connections */
    _Atomic bool is_apart;    /* each connection has a line of its own */
    pthread_t thread;
    struct pair *pairs[PAIRS_MAX];
    size_t count;
};

static int64_t mono_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static struct sockaddr_un address_of(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static void lane_init(struct lane *lane, int from, int to) {
    *lane = (struct lane){.from = from, .to = to};
    lane->last = &lane->first;
}

static void take_client(struct thin_link *link) {
    struct sockaddr_un address = address_of(link->server);
    int client = accept4(link->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair *pair = calloc(1, sizeof *pair);
    if (client < 0 || server < 0 || pair == NULL || link->count == PAIRS_MAX ||
        connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
        if (client >= 0) close(client);
        if (server >= 0) close(server);
        free(pair);
        return;
    }
    lane_init(&pair->lanes[0], client, server);
    lane_init(&pair->lanes[1], server, client);
    link->pairs[link->count++] = pair;
}

static void drop(struct thin_link *link, size_t i) {
    struct pair *pair = link->pairs[i];
    for (size_t way = 0; way < 2; way++) {
        close(pair->lanes[way].from);
        for (struct piece *piece = pair->lanes[way].first, *next; piece != NULL; piece = next) {
            next = piece->next;
            free(piece);
        }
    }
    free(pair);
    link->pairs[i] = link->pairs[--link->count];
}

/* Takes all that is there. False: the connection is over. */
static bool take(struct thin_link *link, struct lane *lane, size_t way) {
    for (;;) {
        struct piece *piece = calloc(1, sizeof *piece);
        if (piece == NULL) return false;
        ssize_t got = recv(lane->from, piece->bytes, sizeof piece->bytes, MSG_DONTWAIT);
        if (got <= 0) {
            free(piece);
            return got < 0 && errno == EAGAIN;
        }
        int64_t now_us = mono_us(), *busy_us = link->is_apart ? &lane->busy_until_us : &link->busy_until_us[way];
        if (*busy_us < now_us) *busy_us = now_us;
        *busy_us += got * 1000000 / link->bytes_per_s;
        piece->size = (size_t)got;
        piece->at_us = *busy_us + link->way_us / 2;
        *lane->last = piece;
        lane->last = &piece->next;
    }
}

/* Hands over what has arrived. False: the connection is over. */
static bool hand_over(struct lane *lane, int64_t now_us) {
    while (lane->first != NULL && lane->first->at_us <= now_us) {
        struct piece *piece = lane->first;
        ssize_t sent = send(lane->to, piece->bytes + piece->at, piece->size - piece->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) return errno == EAGAIN;
        piece->at += (size_t)sent;
        if (piece->at < piece->size) return true;
        lane->first = piece->next;
        if (lane->first == NULL) lane->last = &lane->first;
        free(piece);
    }
    return true;
}

static int wait_ms(const struct thin_link *link) {
    int64_t at_us = INT64_MAX, now_us = mono_us();
    for (size_t i = 0; i < link->count; i++)
        for (size_t way = 0; way < 2; way++) {
            const struct piece *piece = link->pairs[i]->lanes[way].first;
            if (piece != NULL && piece->at_us < at_us) at_us = piece->at_us;
        }
    if (at_us == INT64_MAX) return -1;
    return at_us <= now_us ? 1 : (int)((at_us - now_us) / 1000) + 1;
}

static void *run(void *arg) {
    struct thin_link *link = arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = link->stop_fd, .events = POLLIN},
                                                {.fd = link->listener, .events = POLLIN}};
        for (size_t i = 0; i < 2 * link->count; i++)
            fds[2 + i] = (struct pollfd){.fd = link->pairs[i / 2]->lanes[i % 2].from, .events = POLLIN};
        (void)poll(fds, 2 + 2 * link->count, wait_ms(link));
        if (fds[0].revents) return NULL;
        for (size_t i = link->count; i-- > 0;) { /* backwards: what is dropped is replaced by one that was looked at */
            bool goes_on = true;
            for (size_t way = 0; way < 2; way++) {
                struct lane *lane = &link->pairs[i]->lanes[way];
                if (fds[2 + 2 * i + way].revents) goes_on = take(link, lane, way) && goes_on;
                goes_on = hand_over(lane, mono_us()) && goes_on;
            }
            if (!goes_on) drop(link, i);
        }
        if (fds[1].revents) take_client(link);
    }
}

struct thin_link *thin_link_start(const char *folder, const char *socket_path, int64_t bytes_per_s, int64_t way_ms) {
    struct thin_link *link = calloc(1, sizeof *link);
    assert_non_null(link);
    snprintf(link->path, sizeof link->path, "%s/thin", folder);
    snprintf(link->url, sizeof link->url, "unix://%s", link->path);
    snprintf(link->server, sizeof link->server, "%s", socket_path);
    link->bytes_per_s = bytes_per_s;
    link->way_us = way_ms * 1000;
    link->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    link->stop_fd = eventfd(0, EFD_CLOEXEC);
    struct sockaddr_un address = address_of(link->path);
    unlink(link->path);
    assert_int_equal(bind(link->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(link->listener, 64), 0);
    assert_int_equal(pthread_create(&link->thread, NULL, run, link), 0);
    return link;
}

void thin_link_apart(struct thin_link *link) {
    link->is_apart = true;
}

void thin_link_stop(struct thin_link *link) {
    uint64_t one = 1;
    assert_int_equal(write(link->stop_fd, &one, sizeof one), sizeof one);
    pthread_join(link->thread, NULL);
    while (link->count) drop(link, 0);
    close(link->listener);
    close(link->stop_fd);
    unlink(link->path);
    free(link);
}

const char *thin_link_url(const struct thin_link *link) {
    return link->url;
}
