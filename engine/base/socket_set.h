/* socket_set.h -- one descriptor for all that an engine waits for: readable once any of its sockets is ready, or once
 * another thread rings (epoll, and an eventfd in it).
 *
 * Whoever runs the turns waits for one descriptor, for reading, however many connections there are, and whether they
 * are being looked up, dialled, or full. The descriptor stays the same for the set's life.
 * Always true: a descriptor leaves the set before it is closed. Closing alone does not suffice: after a fork the child
 * has a copy of it, and as long as the copy lives the set would go on to report a socket that nobody reads. */
#ifndef TWI_BASE_SOCKET_SET_H
#define TWI_BASE_SOCKET_SET_H

#include <stdbool.h>
#include <stdint.h>

struct twi_socket_set {
    int fd;                /* epoll; -1: it is not made */
    int bell;              /* the eventfd */
    _Atomic int64_t rings; /* that were begun and are not calmed: without any, calming costs no system call */
};

/* False: no descriptor is left; the set is as after unmake. */
bool twi_socket_set_make(struct twi_socket_set *set);
/* Closes it. What is in it stays open, and is not touched: so it is right in a forked child, too. */
void twi_socket_set_unmake(struct twi_socket_set *set);
/* Makes the set readable until it is calmed. Any thread, while the set is made. */
void twi_socket_set_ring(struct twi_socket_set *set);
/* By whoever waits for the set: first this, then look for what it was rung for. So nothing is missed. */
void twi_socket_set_calm(struct twi_socket_set *set);

/* `fd` is in the set `set` (-1: no set; nothing is done) for reading, and for writing, too, if wanted. `*known` is what
 * the set knows of the descriptor; 0: it is not in it yet. If it cannot enter (no memory), turns come by their times
 * alone. */
void twi_socket_set_watch(int set, int fd, uint32_t *known, bool wants_write);
/* Before `fd` is closed. Not in a forked child, where the set is the parent's. */
void twi_socket_set_leave(int set, int fd, uint32_t *known);

#endif
