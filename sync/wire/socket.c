/* socket.c -- a real socket behind the table of socket.h: non-blocking, close-on-exec, no SIGPIPE, TCP_NODELAY.
 *
 *   IDLE --> RESOLVING --> DIALLING --> OPEN          connect() goes as far as it can without waiting
 * Always true: `fd` is open only in DIALLING and OPEN. Each attempt to connect looks the name up, and tries each of
 * its addresses once, in their order. If no name server answers, the addresses of the previous connection are used
 * again. The socket set contains only descriptors that the next call of connect(), send() or recv() looks at. A
 * look-up leaves it when no connection is being made any more, although the look-up continues. */
#include "sync/wire/socket.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/descriptor.h"
#include "engine/base/threads.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- resolve ----
 * 
 *
 *   thread: asks --> answered --> rings --> lets go
 *   owner:  begins --> looks whether it is answered, or gives up --> lets go
 * Always true: `found` and `error` are the thread's until it has answered, and the owner's from then on. The last
 * one to let go frees everything. */

struct twi_lookup {
    char host[256];
    uint16_t port;
    int bell; /* an eventfd; -1 if there is none */
    _Atomic int holders;
    _Atomic bool is_answered;
    struct addrinfo *found;
    int error;
};

static int ask(const char *host, uint16_t port, int flags, struct addrinfo **found) {
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    *found = NULL;
    return getaddrinfo(host, service, &hints, found);
}

struct addrinfo *twi_resolve_digits(const char *host, uint16_t port) {
    struct addrinfo *found = NULL;
    return ask(host, port, AI_NUMERICHOST, &found) == 0 ? found : NULL;
}

static void lookup_free(struct twi_lookup *lookup) {
    if (lookup->found) freeaddrinfo(lookup->found);
    twi_descriptor_close(lookup->bell);
    free(lookup);
}

static void let_go(struct twi_lookup *lookup) {
    twi_check(twi_load_relaxed(&lookup->holders) > 0);
    /* R3: the first one releases its work on the look-up; the last one acquires it, and frees */
    if (twi_sub_acqrel(&lookup->holders, 1) == 1) lookup_free(lookup);
}

static void *run(void *argument) {
    struct twi_lookup *lookup = argument;
    uint64_t one = 1;
    lookup->error = ask(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->found);
    /* R1: releases found and error to twi_lookup_end (R2). Otherwise the owner could read them half-written. */
    twi_store_release(&lookup->is_answered, true);
    if (lookup->bell >= 0) (void)!write(lookup->bell, &one, sizeof one);
    let_go(lookup);
    return NULL;
}

struct twi_lookup *twi_lookup_begin(const char *host, uint16_t port) {
    twi_check(host[0] != '\0');
    struct twi_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) return NULL;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    lookup->port = port;
    lookup->bell = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    twi_store_relaxed(&lookup->holders, 2);
    pthread_t thread;
    if (twi_own_thread_start(&thread, run, lookup)) {
        (void)pthread_detach(thread);
        return lookup;
    }
    lookup_free(lookup);
    return NULL;
}

int twi_lookup_fd(const struct twi_lookup *lookup) {
    return lookup->bell;
}

bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why) {
    if (!twi_load_acquire(&lookup->is_answered)) return false; /* R2, pairs with R1 */
    *found = lookup->error ? NULL : lookup->found;
    *why = lookup->error ? gai_strerror(lookup->error) : NULL;
    if (!lookup->error) lookup->found = NULL;
    let_go(lookup);
    return true;
}

void twi_lookup_abandon(struct twi_lookup *lookup) {
    let_go(lookup);
}

void twi_lookup_forget(struct twi_lookup *lookup) {
    if (!twi_load_acquire(&lookup->is_answered)) lookup->found = NULL; /* the lost thread may have been writing it */
    lookup->bell = -1;
    lookup_free(lookup);
}

#define LOOKUP_OLD_MS 30000 /* an answer that stayed unused for this time is dropped, and the name is looked up again */

enum state { IDLE, RESOLVING, DIALLING, OPEN };

struct link {
    enum state state;
    int fd;
    int set;                    /* the socket set; -1 if there is none */
    uint32_t fd_known;          /* the events for `fd` in the set */
    uint32_t lookup_known;      /* ... and of the look-up's descriptor */
    bool wants_write;           /* in OPEN: the last send did not accept all bytes */
    char host[TWI_HOST_SIZE];   /* the endpoint whose addresses are here, or are being looked up */
    uint16_t port;              /* and to which port they lead */
    struct addrinfo *addresses; /* NULL if not resolved, or a unix socket */
    struct addrinfo *address;   /* the address that is being tried */
    bool is_old;                /* the addresses come from a connection that has ended, so the name may have new ones */
    struct twi_lookup *lookup;
    int64_t lookup_ms;        /* when its answer was waited for last */
    int64_t dial_deadline_ms; /* of the current address, or of the look-up if the addresses are old */
    char why[128];
};

static int socket_fail(struct link *link, const char *what, const char *detail) {
    snprintf(link->why, sizeof link->why, "%s: %s", what, detail);
    return -1;
}

static void socket_watch(struct link *link) {
    if (link->fd >= 0)
        twi_socket_set_watch(link->set, link->fd, &link->fd_known, link->state == DIALLING || link->wants_write);
}

static void fd_close(struct link *link) {
    if (link->fd < 0) return;
    twi_socket_set_leave(link->set, link->fd, &link->fd_known);
    /* Redis sees the end then, also if a child has a copy that fork() did not close */
    if (twi_descriptor_is_own(link->fd)) (void)shutdown(link->fd, SHUT_RDWR);
    twi_descriptor_close(link->fd);
    link->fd = -1;
    link->wants_write = false;
}

static void set_state(struct link *link, enum state state) {
    twi_check(state != OPEN || link->fd >= 0);
    link->state = state;
    socket_watch(link);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static void lookup_watch(struct link *link) {
    int fd = twi_lookup_fd(link->lookup);
    if (fd >= 0) twi_socket_set_watch(link->set, fd, &link->lookup_known, false);
}

static void lookup_leave(struct link *link) {
    if (link->lookup) twi_socket_set_leave(link->set, twi_lookup_fd(link->lookup), &link->lookup_known);
}

static void lookup_abandon(struct link *link) {
    lookup_leave(link);
    if (link->lookup) twi_lookup_abandon(link->lookup);
    link->lookup = NULL;
}

/* Returns NULL if there are none. */
static void set_addresses(struct link *link, struct addrinfo *addresses) {
    if (link->addresses) freeaddrinfo(link->addresses);
    link->addresses = addresses;
    link->is_old = false;
}

/* Forgets the addresses of another endpoint, and the look-up of them. */
static void turn_to(struct link *link, const struct twi_endpoint *endpoint) {
    twi_check(!endpoint->is_unix);
    if (link->port == endpoint->port && strcmp(link->host, endpoint->host) == 0) return;
    memcpy(link->host, endpoint->host, sizeof link->host);
    link->port = endpoint->port;
    lookup_abandon(link);
    set_addresses(link, NULL);
}

static int socket_take(struct link *link, struct addrinfo *found) {
    set_addresses(link, found);
    return 1;
}

/* Called if no address was found. The old addresses are used again, if there are any. */
static int take_old(struct link *link, const char *why) {
    return link->addresses ? 1 : socket_fail(link, "name", why);
}

/* Begins to look the name up. Returns 1 if it is in digits, or if no thread could be made and the old addresses are
 * used. */
static int lookup_begin(struct link *link, const struct twi_endpoint *endpoint, int64_t now_ms) {
    twi_check(link->lookup == NULL);
    struct addrinfo *found = twi_resolve_digits(endpoint->host, endpoint->port);
    if (found) return socket_take(link, found);
    link->lookup = twi_lookup_begin(endpoint->host, endpoint->port);
    if (!link->lookup) return take_old(link, "no thread could be made to resolve it");
    link->lookup_ms = now_ms;
    return 0;
}

/* Returns 1 if link->addresses is set, 0 if not yet, -1 if it failed. */
static int lookup_look(struct link *link, int64_t now_ms) {
    twi_check(link->lookup != NULL);
    struct addrinfo *found = NULL;
    const char *why = NULL;
    bool is_late = now_ms - link->lookup_ms > LOOKUP_OLD_MS;
    link->lookup_ms = now_ms;
    lookup_leave(link); /* it enters again if it continues, because the look-up closes its descriptor */
    if (!twi_lookup_end(link->lookup, &found, &why)) return link->addresses && now_ms >= link->dial_deadline_ms;
    link->lookup = NULL;
    if (is_late && found) {
        freeaddrinfo(found);
        return 0; /* the next call asks again */
    }
    return found ? socket_take(link, found) : take_old(link, why ? why : "has no address");
}

static int resolve(struct link *link, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    turn_to(link, endpoint);
    if (link->addresses && !link->is_old) return 1;
    if (link->state != RESOLVING) link->dial_deadline_ms = now_ms + (deadline_ms - now_ms) / 2;
    int done = link->lookup ? lookup_look(link, now_ms) : lookup_begin(link, endpoint, now_ms);
    if (done == 0 && link->lookup) lookup_watch(link);
    return done;
}

/* ---- dialling ---------------------------------------------------------------------------------------------------- */

static void socket_set_up(int fd, int family) {
    int on = 1;
    if (family == AF_UNIX) return;
    /* Both are optional. Without these options replies are slower, or a dead peer is noticed later. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* Begins to connect to one address. Returns 1, 0 or -1, as connect() of the table does. */
static int socket_dial(struct link *link, int family, const struct sockaddr *address, socklen_t size) {
    twi_check(link->fd < 0);
    link->fd = twi_descriptor_own(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (link->fd < 0) return socket_fail(link, "socket", strerror(errno));
    socket_set_up(link->fd, family);
    if (connect(link->fd, address, size) == 0) return 1;
    if (errno == EINPROGRESS || errno == EINTR) return 0; /* after EINTR the attempt continues, as after EINPROGRESS */
    socket_fail(link, "connect", strerror(errno));        /* also EAGAIN, when the backlog of a unix socket is full */
    fd_close(link);
    return -1;
}

static int dial_unix(struct link *link, const struct twi_endpoint *endpoint) {
    twi_check(endpoint->is_unix);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, endpoint->host, strnlen(endpoint->host, sizeof address.sun_path - 1));
    return socket_dial(link, AF_UNIX, (const struct sockaddr *)&address, sizeof address);
}

static int addresses_left(const struct addrinfo *address) {
    twi_check(address != NULL);
    int count = 0;
    for (; address; address = address->ai_next) count++;
    return count;
}

/* Tries the addresses from link->address on, until one is connected or under way. */
static int dial_next(struct link *link, int64_t now_ms, int64_t deadline_ms) {
    for (; link->address; link->address = link->address->ai_next) {
        int64_t left_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
        link->dial_deadline_ms = now_ms + left_ms / addresses_left(link->address);
        int done = socket_dial(link, link->address->ai_family, link->address->ai_addr, link->address->ai_addrlen);
        if (done >= 0) return done;
    }
    return -1;
}

/* Looks at the attempt under way: returns 1 if connected, 0 if not yet, -1 if it failed (fd is then closed). */
static int dial_look(struct link *link) {
    twi_check(link->fd >= 0);
    struct pollfd pollfd = {.fd = link->fd, .events = POLLOUT};
    int ready = poll(&pollfd, 1, 0);
    if (ready == 0 || (ready < 0 && errno == EINTR)) return 0;
    int error = errno;
    socklen_t size = sizeof error;
    if (ready > 0 && getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return 1;
    socket_fail(link, "connect", strerror(error));
    fd_close(link);
    return -1;
}

static int dial_go_on(struct link *link, int64_t now_ms, int64_t deadline_ms) {
    twi_check(link->state == DIALLING);
    int done = dial_look(link);
    if (done > 0) return 1;
    if (done == 0) {
        bool last = !link->address || !link->address->ai_next;
        if (last || now_ms < link->dial_deadline_ms) return 0; /* the last address may use all the time that is left */
        socket_fail(link, "connect", "no answer");
        fd_close(link);
    }
    if (!link->address) return -1; /* a unix socket has one address */
    link->address = link->address->ai_next;
    return dial_next(link, now_ms, deadline_ms);
}

static int link_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    twi_check(endpoint->host[0] != '\0');
    struct link *link = ctx;
    int done = 0;
    if (link->state == OPEN) return 1;
    if (link->state == DIALLING) {
        done = dial_go_on(link, now_ms, deadline_ms);
    } else if (endpoint->is_unix) {
        done = dial_unix(link, endpoint);
    } else {
        done = resolve(link, endpoint, now_ms, deadline_ms);
        if (done == 0) {
            set_state(link, RESOLVING);
            return 0;
        }
        if (done > 0) {
            link->address = link->addresses;
            done = dial_next(link, now_ms, deadline_ms);
        }
    }
    set_state(link, done > 0 ? OPEN : done == 0 ? DIALLING : IDLE);
    if (done < 0) set_addresses(link, NULL);
    return done;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static bool socket_would_wait(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

ssize_t twi_socket_send(int fd, const void *data, size_t size) {
    if (twi_descriptor_is_own(fd)) return send(fd, data, size, MSG_NOSIGNAL);
    errno = EBADF;
    return -1;
}

ssize_t twi_socket_recv(int fd, void *data, size_t size) {
    if (twi_descriptor_is_own(fd)) return recv(fd, data, size, 0);
    errno = EBADF;
    return -1;
}

void twi_socket_wants_write(void *ctx, bool wants_write) {
    struct link *link = ctx;
    if (wants_write == link->wants_write) return;
    link->wants_write = wants_write;
    socket_watch(link);
}

static ssize_t link_send(void *ctx, const void *data, size_t size) {
    struct link *link = ctx;
    twi_check(link->state == OPEN && link->fd >= 0);
    ssize_t sent = twi_socket_send(link->fd, data, size);
    if (sent < 0 && !socket_would_wait()) return socket_fail(link, "send", strerror(errno));
    if (sent < 0) sent = 0;
    twi_socket_wants_write(link, (size_t)sent < size);
    return sent;
}

static ssize_t link_recv(void *ctx, void *data, size_t size) {
    struct link *link = ctx;
    twi_check(link->state == OPEN && link->fd >= 0);
    ssize_t got = twi_socket_recv(link->fd, data, size);
    if (got > 0) return got;
    if (got == 0) return socket_fail(link, "recv", "closed by Redis");
    return socket_would_wait() ? 0 : socket_fail(link, "recv", strerror(errno));
}

static void link_close(void *ctx) {
    struct link *link = ctx;
    fd_close(link);
    link->address = NULL;
    if (link->state == DIALLING) set_addresses(link, NULL); /* no answer in time */
    if (link->state == OPEN) link->is_old = true;
    lookup_leave(link); /* it continues, and the next attempt uses its answer */
    link->state = IDLE;
}

static int link_fd(void *ctx, bool *wants_write) {
    struct link *link = ctx;
    *wants_write = link->state == DIALLING || link->wants_write;
    return link->state == RESOLVING && link->lookup ? twi_lookup_fd(link->lookup) : link->fd;
}

static const char *link_why(void *ctx) {
    return ((struct link *)ctx)->why;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void *link_create(void *shared, int set) {
    (void)shared;
    struct link *link = calloc(1, sizeof *link);
    if (!link) return NULL;
    link->fd = -1;
    link->set = set;
    return link;
}

static void link_destroy(void *ctx) {
    struct link *link = ctx;
    if (!link) return;
    fd_close(link);
    lookup_abandon(link);
    if (link->addresses) freeaddrinfo(link->addresses);
    free(link);
}

static void link_abandon(void *ctx) {
    struct link *link = ctx;
    if (!link) return;
    link->fd = link->set = -1; /* fork() has closed them here */
    if (link->lookup) twi_lookup_forget(link->lookup);
    link->lookup = NULL;
    link_destroy(link);
}

const struct twi_transport twi_socket_transport = {
    .connect = link_connect,
    .send = link_send,
    .recv = link_recv,
    .close = link_close,
    .fd = link_fd,
    .why = link_why,
    .create = link_create,
    .destroy = link_destroy,
    .abandon = link_abandon,
};
