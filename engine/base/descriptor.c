/* descriptor.c -- see descriptor.h. */
#include "engine/base/descriptor.h"

#include "engine/base/atomic.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- without signal ---- */

void twi_without_signal_begin(struct twi_without_signal *without, int signal) {
    sigset_t waiting;
    sigemptyset(&without->blocked);
    sigaddset(&without->blocked, signal);
    without->waited = sigpending(&waiting) == 0 && sigismember(&waiting, signal) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &without->blocked, &without->before);
}

void twi_without_signal_end(const struct twi_without_signal *without) {
    const struct timespec at_once = {0, 0};
    int error = errno;
    if (!without->waited) (void)sigtimedwait(&without->blocked, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &without->before, NULL);
    errno = error;
}

#define PAUSE_MS 10        /* where poll() is refused */
#define ENTRIES_MAX 65536u /* of a process: three or four of each engine, and some of each connection to Redis */

/* An entry is one word, so that no thread sees a part of it: the number plus 1, and in the lower half what differs
 * between open files. 0 means that the entry is free. An entry is at the place of its number, or behind it. */
static _Atomic uint64_t entries[ENTRIES_MAX];
static _Atomic uint32_t used;     /* no entry behind these was ever used */
static _Atomic uint32_t farthest; /* the most that an entry is behind its place */

static int number_of(uint64_t entry) {
    return (int)(entry >> 32) - 1;
}

/* Sockets and files have numbers of their own. Eventfds and epolls share one, so one of them may be taken for another.
 * Returns false, with errno, if the system does not say it. */
static bool look_at(int fd, uint64_t *entry) {
    struct stat now;
    if (fstat(fd, &now) != 0) return false;
    *entry = (uint64_t)(fd + 1) << 32 | (uint32_t)(now.st_ino ^ now.st_ino >> 32 ^ now.st_dev * 0x9E3779B1u);
    return true;
}

/* If the system refuses to say it, the descriptor is taken for ours. */
static bool is_still(uint64_t entry) {
    uint64_t now;
    return look_at(number_of(entry), &now) ? now == entry : errno != EBADF;
}

static _Atomic bool watches_forks;
/* How often twi_descriptors_forget() was called in this process and its parents, now and when it began to fork. They
 * differ if another handler of the child has called the library before ours runs. Then what is noted is the child's. */
static _Atomic uint32_t forgotten, forgotten_before_fork = UINT32_MAX;

/* ---- fork ---- */

static void before_fork(void) {
    twi_store_relaxed(&forgotten_before_fork, twi_load_relaxed(&forgotten));
}

/* A handler that the host has registered earlier comes first, and may have closed and opened descriptors. So each one
 * is looked at. */
static void close_copies(void) {
    int error = errno;
    if (twi_load_relaxed(&forgotten_before_fork) != twi_load_relaxed(&forgotten)) return;
    uint32_t count = twi_load_relaxed(&used);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t entry = twi_load_relaxed(&entries[i]);
        twi_store_relaxed(&entries[i], 0);
        if (entry != 0 && is_still(entry)) (void)close(number_of(entry));
    }
    errno = error;
}

/* Two threads may do this at once. Handlers that run twice find the table empty. */
static bool watch_forks(void) {
    if (twi_load_relaxed(&watches_forks)) return true;
    if (pthread_atfork(before_fork, NULL, close_copies) != 0) return false;
    twi_store_relaxed(&watches_forks, true);
    return true;
}

void twi_descriptors_forget(void) {
    uint32_t count = twi_load_relaxed(&used);
    (void)twi_add_relaxed(&forgotten, 1);
    for (uint32_t i = 0; i < count; i++) twi_store_relaxed(&entries[i], 0);
}

/* ---- the table ---- */

static void raise_to(_Atomic uint32_t *most, uint32_t value) {
    uint32_t found = twi_load_relaxed(most);
    while (found < value && !twi_cas_relaxed(most, &found, value)) {}
}

static bool put(uint64_t entry) {
    uint32_t place = (uint32_t)number_of(entry);
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        uint32_t at = (place + i) % ENTRIES_MAX;
        uint64_t none = 0;
        if (twi_load_relaxed(&entries[at]) != 0) continue;
        raise_to(&used, at + 1);
        raise_to(&farthest, i);
        if (twi_cas_relaxed(&entries[at], &none, entry)) return true;
    }
    return false;
}

/* Returns NULL if there is none of that number. */
static _Atomic uint64_t *find(int fd, uint64_t *entry) {
    uint32_t most = fd >= 0 ? twi_load_relaxed(&farthest) + 1 : 0;
    for (uint32_t i = 0; i < most; i++) {
        _Atomic uint64_t *place = &entries[((uint32_t)fd + i) % ENTRIES_MAX];
        *entry = twi_load_relaxed(place);
        if (*entry != 0 && number_of(*entry) == fd) return place;
    }
    return NULL;
}

int twi_descriptor_own(int fd) {
    uint64_t entry;
    if (fd < 0) return fd;
    if (!look_at(fd, &entry)) entry = (uint64_t)(fd + 1) << 32; /* taken for ours while the system refuses it */
    if (watch_forks() && put(entry)) return fd;
    (void)close(fd);
    errno = EMFILE;
    return -1;
}

void twi_descriptor_close(int fd) {
    uint64_t entry;
    _Atomic uint64_t *place = find(fd, &entry);
    if (place == NULL || !twi_cas_relaxed(place, &entry, 0)) return;
    if (is_still(entry)) (void)close(fd); /* a fork since then leaves a copy in the child */
}

bool twi_descriptor_has(int fd) {
    uint64_t entry;
    return find(fd, &entry) != NULL && is_still(entry);
}

bool twi_descriptor_is_own(int fd) {
    return twi_load_relaxed(&forgotten) == 0 || twi_descriptor_has(fd);
}

int twi_descriptor_wait(struct pollfd *fds, unsigned count, int ms) {
    int ready = poll(fds, count, ms);
    if (ready < 0 && errno != EINTR && ms != 0)
        nanosleep(&(struct timespec){.tv_nsec = (ms > 0 && ms < PAUSE_MS ? ms : PAUSE_MS) * 1000000L}, NULL);
    return ready;
}

/* ---- socket set ---- */

bool twi_socket_set_make(struct twi_socket_set *set) {
    struct epoll_event event = {.events = EPOLLIN};
    set->fd = twi_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    set->bell = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    twi_store_relaxed(&set->rings, 0);
    if (set->fd >= 0 && set->bell >= 0 && epoll_ctl(set->fd, EPOLL_CTL_ADD, set->bell, &event) == 0) return true;
    twi_socket_set_unmake(set);
    return false;
}

void twi_socket_set_forget(struct twi_socket_set *set) {
    set->fd = set->bell = -1;
}

void twi_socket_set_unmake(struct twi_socket_set *set) {
    twi_descriptor_close(set->fd);
    twi_descriptor_close(set->bell);
    set->fd = set->bell = -1;
}

/* The ring is counted before it is written. So a thread that calms sees that there is a ring to read. */
void twi_socket_set_ring(struct twi_socket_set *set) {
    uint64_t one = 1;
    if (!twi_descriptor_is_own(set->bell)) return;
    (void)twi_add_relaxed(&set->rings, 1);
    (void)!write(set->bell, &one, sizeof one);
}

void twi_socket_set_calm(struct twi_socket_set *set) {
    uint64_t read_here;
    if (twi_load_relaxed(&set->rings) == 0 || !twi_descriptor_is_own(set->bell)) return;
    if (read(set->bell, &read_here, sizeof read_here) != sizeof read_here) return; /* another thread writes it now */
    (void)twi_sub_relaxed(&set->rings, (int64_t)read_here);
}

void twi_socket_set_watch(int set, int fd, uint32_t *known, bool wants_write) {
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0u)};
    if (set < 0 || event.events == *known) return;
    if (epoll_ctl(set, *known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) == 0) *known = event.events;
}

void twi_socket_set_leave(int set, int fd, uint32_t *known) {
    if (set >= 0 && *known != 0) (void)epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
    *known = 0;
}
