/* descriptor.h -- the descriptors that the library has made in this process, socket sets, and writes without a signal.
 * Nobody else closes them, and the library closes no others.
 *
 * A number says nothing about the owner of a descriptor. A forked child closes what it has inherited, as daemons do,
 * and opens its files under the same numbers. So fork() itself closes the child's copies, before it returns there: the
 * numbers are surely still ours at that moment. From then on the child has no descriptor of its parent's engines, and
 * code that renews an engine in the child forgets the numbers and closes nothing.
 * Always true: a number is in the table only while its descriptor is open, so it leaves the table first. The handlers
 * of fork() take no lock and allocate nothing. A child of vfork(), of posix_spawn() (so of system() and popen()), or
 * of clone() runs no handler, and nothing is closed there. */
#ifndef TWI_BASE_DESCRIPTOR_H
#define TWI_BASE_DESCRIPTOR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- without signal ----
 * a write that may send a signal to its thread, in a program whose signals are not ours.
 * SIGXFSZ comes beyond a limit on file sizes, SIGPIPE where nobody reads.
 * Always true: between begin and end the signal is blocked in this thread alone. What it sent meanwhile is taken away,
 * unless one had been waiting before; errno stays as the write left it. */

struct twi_without_signal {
    sigset_t blocked, before;
    bool waited; /* one had been sent before */
};

void twi_without_signal_begin(struct twi_without_signal *without, int signal);
void twi_without_signal_end(const struct twi_without_signal *without);

/* Notes a descriptor that was just made, and returns it. Takes -1, too, and leaves errno as it is. Returns -1, with
 * errno, if it cannot be noted; the descriptor is closed then. Any thread. */
int twi_descriptor_own(int fd);
/* Closes it, if it is one of this process, and if what is open under the number is still what was noted. Otherwise, and
 * for -1, it does nothing. Any thread. */
void twi_descriptor_close(int fd);
/* Whether the library has made what is open under that number in this process. */
bool twi_descriptor_has(int fd);
/* Ask before it is read or written. A child may close all descriptors after its first call, too; then the engine loses
 * what it has made in the child, and leaves the child's files alone. Returns true in a process that is no such child:
 * who has opened an engine does not close its descriptors. */
bool twi_descriptor_is_own(int fd);
/* The first call in a child. What is noted is the parent's. A child of fork() has closed it, and in a child of clone()
 * it stays open. */
void twi_descriptors_forget(void);
/* poll(). If the system refuses that (a sandbox), it is a pause of at most 10 ms, because a loop that waits here would
 * never rest. Returns what poll() returned. */
struct pollfd;
int twi_descriptor_wait(struct pollfd *fds, unsigned count, int ms);

/* ---- socket set ----
 * one descriptor for all events that an engine waits for. It is readable as soon as one of its sockets
 * is ready, or another thread rings (it is an epoll descriptor that contains an eventfd).
 *
 * The thread that runs the turns waits for this one descriptor, for reading. The number and the state of the
 * connections do not matter. The descriptor stays the same while the set exists.
 * Always true: a descriptor leaves the set before it is closed. Closing alone is not enough, because after a fork
 * the child has a copy of the descriptor. While the copy exists, the set would still report a socket that no thread
 * reads. */

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
