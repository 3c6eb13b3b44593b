/* socket_set.h -- one descriptor for several sockets: readable once any of them is ready (epoll).
 *
 * Whoever runs the turns of a host-driven engine waits for one descriptor, however many connections the engine has.
 * Always true: a socket that was closed is not in the set. */
#ifndef TWI_SYNC_WIRE_SOCKET_SET_H
#define TWI_SYNC_WIRE_SOCKET_SET_H

#include <stdbool.h>

/* What the set knows of one connection; zeroed, with fd -1: nothing. */
struct twi_watched {
    int fd; /* -1: none is in the set */
    bool wants_write;
};

int twi_socket_set_open(void); /* -1: it could not be made */
/* The connection's socket is `fd` now (-1: none). The one of before, if it was another, has been closed. `is_new`: it
 * may be another socket under the number of before. */
void twi_socket_set_watch(int set, struct twi_watched *watched, int fd, bool wants_write, bool is_new);
void twi_socket_set_close(int set); /* -1 is harmless */

#endif
