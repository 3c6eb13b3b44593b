/* watchdog_log.c -- keeps the last line that an engine of this program has logged, for the report of watchdog.h.
 * Method: the linker gives the library's calls of twi_port_log() to this file (--wrap, meson.build), so a test needs no
 * log_write for it. It is a separate file, so that a test of one file links without the rest.
 * Always true: the engine's own function gets the same text. */
#include "tests/support/watchdog.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct tw_engine tw_engine;
__attribute__((format(printf, 4, 5))) void __real_twi_port_log(tw_engine *engine, int level, int event,
                                                               const char *format, ...);
__attribute__((format(printf, 4, 5))) void __wrap_twi_port_log(tw_engine *engine, int level, int event,
                                                               const char *format, ...);

void __wrap_twi_port_log(tw_engine *engine, int level, int event, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    test_watchdog_log_line(event, text);
    __real_twi_port_log(engine, level, event, "%s", text);
}
