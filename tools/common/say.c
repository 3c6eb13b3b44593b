/* say.c -- writes complaints and a progress bar to standard error. See say.h. */
#include "tools/common/say.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/common/foreign.h"
#include "tools/common/tool.h"

#define DRAW_EVERY_MS 200
#define BAR_WIDTH 30
#define LINE_WIDTH 72 /* with the bar, at a million MiB */

static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER; /* the last line of the terminal */
static bool bar_stands;

static struct {
    bool wanted, is_narrow; /* is_narrow means figures without a bar */
    uint64_t bytes_all;
    int64_t begun_ms, drawn_ms;
} progress;

static void bar_clear(void) {
    if (bar_stands) fputs("\r\033[K", stderr);
    bar_stands = false;
}

/* Names, errors and words of the command line are in it, and they may not reach a terminal unescaped. */
void tool_complain(const char *format, ...) {
    char text[8192];
    struct sink line;
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0 || !sink_open(&line, -1)) return;
    foreign_message(&line, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
    pthread_mutex_lock(&line_lock);
    bar_clear();
    fprintf(stderr, TOOL_NAME ": %.*s\n", (int)line.size, line.buffer);
    fflush(stderr);
    pthread_mutex_unlock(&line_lock);
    sink_close(&line);
}

void progress_begin(uint64_t bytes_all) {
    struct winsize size;
    progress.wanted = isatty(STDERR_FILENO) == 1;
    progress.is_narrow = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_col < LINE_WIDTH;
    progress.bytes_all = bytes_all;
    progress.begun_ms = moment_mono_ms();
    progress.drawn_ms = progress.begun_ms; /* short runs show no bar */
}

static void bar_draw(uint64_t done, double seconds) {
    double mib = (double)done / 1048576.0;
    pthread_mutex_lock(&line_lock);
    fputs("\r\033[K", stderr);
    if (progress.bytes_all > 0) {
        double share = (double)done / (double)progress.bytes_all;
        int filled = share >= 1 ? BAR_WIDTH : (int)(share * BAR_WIDTH);
        if (!progress.is_narrow)
            fprintf(stderr, "[%.*s%*s] ", filled, "==============================", BAR_WIDTH - filled, "");
        fprintf(stderr, "%3.0f %%  ", share >= 1 ? 100.0 : share * 100);
    }
    fprintf(stderr, "%.0f MiB  %.0f MiB/s", mib, seconds > 0 ? mib / seconds : 0.0);
    fflush(stderr);
    bar_stands = true;
    pthread_mutex_unlock(&line_lock);
}

void progress_step(uint64_t bytes_done) {
    if (!progress.wanted) return;
    int64_t now_ms = moment_mono_ms();
    if (now_ms - progress.drawn_ms < DRAW_EVERY_MS) return;
    progress.drawn_ms = now_ms;
    bar_draw(bytes_done, (double)(now_ms - progress.begun_ms) / 1000.0);
}

void progress_end(void) {
    pthread_mutex_lock(&line_lock);
    bar_clear();
    fflush(stderr);
    pthread_mutex_unlock(&line_lock);
    progress.wanted = false;
}
