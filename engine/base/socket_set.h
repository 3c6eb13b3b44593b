/* socket_set.h -- one descriptor for all events that an engine waits for. It is readable as soon as one of its sockets
 * is ready, or another thread rings (it is an epoll descriptor that contains an eventfd).
 *
 * The thread that runs the turns waits for this one descriptor, for reading. The number and the state of the
 * connections do not matter. The descriptor stays the same while the set exists.
 * Always true: a descriptor leaves the set before it is closed. Closing alone is not enough, because after a fork
 * the child has a copy of the descriptor. While the copy exists, the set would still report a socket that no thread
 * reads. */
#ifndef TWI_BASE_SOCKET_SET_H
#define TWI_BASE_SOCKET_SET_H

#include <stdbool.h>
#include <stdint.h>

struct twi_socket_set {
    int fd;                /* epoll, or -1 */
    int bell;              /* the eventfd */
    _Atomic int64_t rings; /* rings that were begun and not calmed; without any, calming costs no system call */
};

/* Returns false if the system has no descriptor left. Then it is as after twi_socket_set_unmake(). */
bool twi_socket_set_make(struct twi_socket_set *set);
/* Closes it. The sockets in it stay open and do not change. */
void twi_socket_set_unmake(struct twi_socket_set *set);
/* Called in a forked child, where it is closed (descriptor.h). Then it is as after twi_socket_set_unmake(). */
void twi_socket_set_forget(struct twi_socket_set *set);
/* Makes the set readable until another thread calms it. Any thread may call it while the set exists. */
void twi_socket_set_ring(struct twi_socket_set *set);
/* The thread that waits for the set calls it before it looks for the reason of the ring. So no ring is missed. */
void twi_socket_set_calm(struct twi_socket_set *set);

/* Puts `fd` into `set` (unless `set` is -1): for reading, and if wanted also for writing. `*known` is the state of
 * the descriptor in the set. It is 0 before the descriptor is in the set. If the descriptor cannot be added (no
 * memory), turns are made only at their times. */
void twi_socket_set_watch(int set, int fd, uint32_t *known, bool wants_write);
/* Call it before `fd` is closed. Do not call it in a forked child, because the set belongs to the parent. */
void twi_socket_set_leave(int set, int fd, uint32_t *known);

#endif
