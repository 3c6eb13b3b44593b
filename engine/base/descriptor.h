/* descriptor.h -- the descriptors that the library has made in this process. Nobody else closes them, and the library
 * closes no others.
 *
 * A number says nothing about the owner of a descriptor. A forked child closes what it has inherited, as daemons do,
 * and opens its files under the same numbers. So fork() itself closes the child's copies, before it returns there: the
 * numbers are surely still ours at that moment. From then on the child has no descriptor of its parent's engines, and
 * code that renews an engine in the child forgets the numbers and closes nothing.
 * Always true: a number is in the table only while its descriptor is open, so it leaves the table first. The handlers
 * of fork() take no lock and allocate nothing. A child of vfork(), of posix_spawn() (so of system() and popen()), or of
 * clone() runs no handler, and nothing is closed there. */
#ifndef TWI_BASE_DESCRIPTOR_H
#define TWI_BASE_DESCRIPTOR_H

#include <stdbool.h>

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

#endif
