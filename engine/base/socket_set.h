/* socket_set.h -- one descriptor for everything that an engine waits for. It is readable as soon as any of its sockets
 * is ready, or another thread rings (epoll, and an eventfd in it).
 *
 * The thread that runs the turns waits for one descriptor, for reading, however many connections there are, and whether
 * they are being looked up, dialled, or full. The descriptor stays the same for the set's life.
 * Always true: a descriptor leaves the set before it is closed. Closing alone does not suffice, because after a fork
 * the child has a copy of it, and as long as the copy lives the set would still report a socket that no thread
 * reads. */
#ifndef TWI_BASE_SOCKET_SET_H
#define TWI_BASE_SOCKET_SET_H

#include <stdbool.h>
#include <stdint.h>

struct twi_socket_set {
    int fd;                /* epoll, or -1 */
    int bell;              /* the eventfd */
    _Atomic int64_t rings; /* that were begun and are not calmed; without any, calming costs no system call */
};

/* Returns false if no descriptor is left. Then the set is in the same state as after unmake. */
bool twi_socket_set_make(struct twi_socket_set *set);
/* Closes it. Its sockets stay open and are not changed, so a forked child may call it, too. */
void twi_socket_set_unmake(struct twi_socket_set *set);
/* Makes the set readable until it is calmed. Any thread, while the set is made. */
void twi_socket_set_ring(struct twi_socket_set *set);
/* Called by the thread that waits for the set, before it looks for the reason of the ring. So no ring is missed. */
void twi_socket_set_calm(struct twi_socket_set *set);

/* Puts `fd` into the set `set` (unless that is -1) for reading, and if wanted also for writing. `*known` is the
 * state of the descriptor in the set, 0 before it is in it. If it cannot enter (no memory), turns come by their
 * times alone. */
void twi_socket_set_watch(int set, int fd, uint32_t *known, bool wants_write);
/* Called before `fd` is closed. Not in a forked child, where the set is the parent's. */
void twi_socket_set_leave(int set, int fd, uint32_t *known);

#endif
