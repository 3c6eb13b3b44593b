/* stacks.h -- the stacks of all threads, for a signal handler that reports a hang.
 * Always true: nothing here allocates or takes a lock, and all of it has a bound: a thread has half a second to note
 * its stack. Of one that does not, it prints where in the kernel it waits. */
#ifndef TEST_STACKS_H
#define TEST_STACKS_H

#include <stdbool.h>

#define STACKS_SIGNAL (SIGRTMIN + 5)

/* Once, before any signal: finds the program, and loads what backtrace() needs. */
void stacks_begin(void);
/* In the handler of STACKS_SIGNAL: notes this thread's stack, if it is asked for. */
void stacks_note(const void *context);
/* In a handler; `context` is its third argument. Without names it takes milliseconds. */
void stacks_print(const void *context, bool with_names);

#endif
