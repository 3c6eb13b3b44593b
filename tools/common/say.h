/* say.h -- standard error: the progress bar. say.c also has tool_complain() of tool.h, because both use the same line.
 * Always true: the bar is drawn only if standard error is a terminal. The main thread draws. */
#ifndef TOOL_SAY_H
#define TOOL_SAY_H

#include <stdbool.h>
#include <stdint.h>

/* `bytes_all`: 0 if unknown. */
void progress_begin(uint64_t bytes_all);
/* Draws at most five times a second. */
void progress_step(uint64_t bytes_done);
void progress_end(void);

#endif
