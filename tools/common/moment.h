/* moment.h -- moments. It measures how much time has passed, and writes a moment as text.
 * Always true: the clock is the monotonic one, which no one sets. */
#ifndef TOOL_MOMENT_H
#define TOOL_MOMENT_H

#include <stdint.h>
#include <time.h>

#define MOMENT_TEXT_SIZE 40

/* Milliseconds of the monotonic clock. */
int64_t moment_mono_ms(void);
/* Computes broken-down UTC time with the civil arithmetic of the C library, without a time zone. */
void moment_civil(int64_t unix_ms, struct tm *civil);
/* Writes 2015-05-19T03:00:00Z, terminated. Years 0 to 9999 have four digits. */
void moment_text(int64_t unix_ms, char text[MOMENT_TEXT_SIZE]);

#endif
