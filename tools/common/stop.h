/* stop.h -- SIGINT and SIGTERM ask the command to finish; they do not kill it.
 * Always true: from stop_begin() on, the two signals are blocked in this thread and in the threads that it starts, and
 * arrive through a descriptor. After the first signal both have their usual effect again, so that a second one ends the
 * process at once. */
#ifndef TOOL_STOP_H
#define TOOL_STOP_H

#include <stdbool.h>
#include <stdint.h>

/* Call before any thread is started. Returns false with errno set. SIGPIPE is ignored, too. A write fails with
 * EPIPE. */
bool stop_begin(void);
/* Returns the first signal that came, or 0. Cheap; the main thread only. */
int stop_signal(void);
/* Returns whether a signal came that the main thread has seen. Any thread. */
bool stop_came(void);
/* "SIGINT" or "SIGTERM", if one came. */
const char *stop_name(void);
/* From here on the first signal ends a write that waits for its reader. Without effect if one came before. Then the
 * next one ends the process. The main thread, when the threads that it started have ended. */
void stop_interrupts(void);
/* Returns whether a signal came after stop_interrupts(). */
bool stop_interrupted(void);
/* Waits until `fd` (-1 if there is none) is readable, a signal came, or the time has ended (-1 for no limit). Returns
 * true if `fd` is readable or at its end. */
bool stop_wait(int fd, int timeout_ms);
/* Waits until a moment of moment_mono_ms(), however far away. Returns false if a signal came. */
bool stop_sleep_until(int64_t until_ms);

#endif
