/* socket_set.c -- see socket_set.h. */
#include "sync/wire/socket_set.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int twi_socket_set_open(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

/* A closed socket has left the set by itself. Nothing is done about its number: that may be another's by now, one of
 * this set or one of the program around it. */
void twi_socket_set_watch(int set, struct twi_watched *watched, int fd, bool wants_write, bool is_new) {
    if (set < 0 || (fd == watched->fd && wants_write == watched->wants_write && !is_new)) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0u)};
    if (fd >= 0 && epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(set, EPOLL_CTL_ADD, fd, &event); /* if that fails, the turns come by their times alone */
    watched->fd = fd;
    watched->wants_write = wants_write;
}

void twi_socket_set_close(int set) {
    if (set >= 0) close(set);
}
