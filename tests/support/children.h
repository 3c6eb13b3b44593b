/* children.h -- forked children of a test, and memory that they share with it.
 * Always true: a child that hangs is ended by its alarm; a child that ends in another way than expected fails the test
 * of its parent. */
#ifndef TEST_CHILDREN_H
#define TEST_CHILDREN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Zeroed memory that this process and its children share, at one address. munmap() frees it. */
void *children_pages(size_t bytes);
/* As fork(), which does not fail. The child has so many seconds. */
pid_t child_fork(unsigned seconds);
/* Waits until the child ends, or stops if it is traced. Returns its status, as waitpid() does. */
int child_await(pid_t pid);
/* Waits for the end of the child, which ends by itself and with the exit status 0. */
void child_expect_end(pid_t pid);
/* Returns how much time of processors the child has had. */
int64_t child_processor_ms(pid_t pid);
/* Ends the child, which has not ended by itself. */
void child_kill(pid_t pid);

#endif
