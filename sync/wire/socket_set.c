/* socket_set.c -- see socket_set.h. */
#include "sync/wire/socket_set.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int twi_socket_set_open(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

void twi_socket_set_watch(int set, struct twi_watched *watched, int fd, bool wants_write, bool is_new) {
    if (set < 0 || (fd == watched->fd && wants_write == watched->wants_write && !is_new)) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0u)};
    /* If the socket of before was closed, the set has forgotten it already. */
    if (watched->fd >= 0 && watched->fd != fd) (void)epoll_ctl(set, EPOLL_CTL_DEL, watched->fd, &event);
    if (fd >= 0 && epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(set, EPOLL_CTL_ADD, fd, &event); /* if that fails, the turns come by their times alone */
    watched->fd = fd;
    watched->wants_write = wants_write;
}

void twi_socket_set_close(int set) {
    if (set >= 0) close(set);
}
