/* socket_set.c -- see socket_set.h. */
#include "engine/base/socket_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "engine/base/descriptor.h"

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
