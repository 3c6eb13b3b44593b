/* stop.h -- SIGINT and SIGTERM ask the command to come to an end; they do not end it.
 * Always true: from stop_begin() on the two signals are blocked in this thread and in those it makes, and arrive
 * through a descriptor; after the first one both have their usual effect again, so that a second one ends the process
 * at once. */
#ifndef TOOL_STOP_H
#define TOOL_STOP_H

#include <stdbool.h>

/* Before any thread is made. False: errno says why. SIGPIPE is ignored too: a write says EPIPE. */
bool stop_begin(void);
/* The first signal that came, or 0. Cheap; the main thread only. */
int stop_signal(void);
/* Waits until `fd` (or -1: none) is readable, a signal came, or the time is up (-1: never). True: `fd` is readable or
 * at its end. */
bool stop_wait(int fd, int timeout_ms);

#endif
