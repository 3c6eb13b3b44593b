/* say.h -- standard error: the progress bar. (tool_complain() of tool.h lives in say.c, too: the two share a line.)
 * Always true: without a terminal on standard error nothing of it is drawn. The main thread draws. */
#ifndef TOOL_SAY_H
#define TOOL_SAY_H

#include <stdbool.h>
#include <stdint.h>

/* `bytes_all`: 0 when not known. */
void progress_begin(uint64_t bytes_all);
/* Draws at most five times a second. */
void progress_step(uint64_t bytes_done);
void progress_end(void);
/* Milliseconds of the monotonic clock. */
int64_t say_mono_ms(void);

#endif
