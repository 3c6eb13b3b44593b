/* log_stderr.c -- see log_stderr.h.
 * A write to a pipe, to a terminal or to a socket waits where nobody reads. O_NONBLOCK would change standard error for
 * every process that has it. So a pipe and a terminal are opened once more for the line, with O_NONBLOCK, and a socket
 * has a flag for each message. Where that cannot be had, poll() says whether there is room. */
#include "engine/core/log_stderr.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "engine/base/clock.h"
#include "engine/base/descriptor.h"

#define LINES_A_SECOND 20u
#define TEXT_MAX 960 /* a line of at most 1,024 bytes: a pipe takes it whole */

/* The second of the monotonic clock, and in the lower half the lines of that second, also those that were left out. Of
 * this process. */
static _Atomic uint64_t lines;

/* Returns whether one more line may be written now; *left_out is how many the last second with lines has left out, for
 * the first line after it. */
static bool may_write(uint32_t *left_out) {
    struct timespec now;
    twi_clock_system_monotonic(&now);
    uint64_t known = twi_load_relaxed(&lines), next;
    uint32_t count;
    do {
        bool is_same = known >> 32 == (uint32_t)now.tv_sec;
        count = is_same ? (uint32_t)known + 1 : 1;
        uint32_t before = (uint32_t)known;
        *left_out = !is_same && before > LINES_A_SECOND ? before - LINES_A_SECOND : 0;
        next = (uint64_t)(uint32_t)now.tv_sec << 32 | count;
    } while (!twi_cas_relaxed(&lines, &known, next));
    return count <= LINES_A_SECOND;
}

static void write_if_ready(int fd, const char *line, size_t size) {
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0) (void)!write(fd, line, size);
}

static void write_line(const char *line, size_t size) {
    struct stat kind;
    if (fstat(STDERR_FILENO, &kind) != 0) return;
    if (S_ISSOCK(kind.st_mode)) {
        (void)send(STDERR_FILENO, line, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    int again = -1;
    if (S_ISFIFO(kind.st_mode) || S_ISCHR(kind.st_mode))
        again = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (again < 0) {
        write_if_ready(STDERR_FILENO, line, size);
        return;
    }
    (void)!write(again, line, size);
    close(again);
}

static const char *level_name(int level) {
    switch (level) {
    case TW_LOG_ERROR: return "error";
    case TW_LOG_WARNING: return "warning";
    case TW_LOG_INFO: return "info";
    default: return "debug";
    }
}

/* The program may have closed its standard error. Then the next descriptor has its number, and may be an engine's. */
void tw_log_stderr(void *ctx, int level, int event, const char *text) {
    char line[TEXT_MAX + 64], behind[48] = "";
    uint32_t left_out;
    (void)ctx, (void)event; /* the text has its number */
    if (text == NULL || twi_descriptor_has(STDERR_FILENO) || !may_write(&left_out)) return;
    if (left_out != 0) (void)snprintf(behind, sizeof behind, " (%u lines left out before)", left_out);
    int size = snprintf(line, sizeof line, "tallywheel %s: %.*s%s\n", level_name(level), TEXT_MAX - 64, text, behind);
    for (int i = 0; i < size - 1; i++)
        if (line[i] == '\n') line[i] = ' ';
    struct twi_without_signal without;
    twi_without_signal_begin(&without, SIGPIPE);
    write_line(line, (size_t)size);
    twi_without_signal_end(&without);
}

/* ---- the environment ---- */

static void write_up_to(void *ctx, int level, int event, const char *text) {
    const int *most = ctx;
    if (level <= *most) tw_log_stderr(NULL, level, event, text);
}

void twi_log_stderr_by_environment(tw_options *options) {
    static const char *const words[] = {"error", "warn", "info"}; /* by enum tw_log */
    static int levels[] = {TW_LOG_ERROR, TW_LOG_WARNING, TW_LOG_INFO};
    if (options->log_write != NULL) return;
    const char *word = secure_getenv("TALLYWHEEL_LOG"); /* NULL where the program has more rights than its user */
    if (word == NULL || word[0] == '\0') return;
    size_t at = 0;
    while (at < sizeof words / sizeof *words && strcmp(word, words[at]) != 0) at++;
    if (at == sizeof words / sizeof *words) {
        at = TW_LOG_WARNING;
        tw_log_stderr(NULL, TW_LOG_WARNING, TW_EVENT_START,
                      "TALLYWHEEL_LOG is none of error, warn and info, and is taken for warn");
    }
    options->log_write = write_up_to;
    options->log_ctx = &levels[at];
}
