/* lines.c -- see lines.h. */
#include "tests/support/lines.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- lines, made and written without stdio ----------------------------------------------------------------------- */

void line_put(struct line *line, const char *text) {
    for (; *text != '\0' && line->used < sizeof line->text - 1; text++)
        line->text[line->used++] = *text == '\n' || *text == '\r' ? ' ' : *text;
}

void line_number(struct line *line, uint64_t number, unsigned base) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do digits[--at] = "0123456789abcdef"[number % base];
    while ((number /= base) != 0);
    line_put(line, &digits[at]);
}

void line_end(struct line *line) {
    line->text[line->used++] = '\n';
    (void)!write(STDOUT_FILENO, line->text, line->used);
    line->used = 0;
}

void line_say(const char *text) {
    struct line line = {0};
    line_put(&line, text);
    line_end(&line);
}

/* ---- what Linux tells of a thread -------------------------------------------------------------------------------- */

/* Returns how many bytes were read; they end with a NUL. */
static size_t read_file(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

static void put_path(struct line *path, pid_t pid, pid_t thread, const char *file) {
    line_put(path, "/proc/");
    line_number(path, (uint64_t)pid, 10);
    if (thread != 0) {
        line_put(path, "/task/");
        line_number(path, (uint64_t)thread, 10);
    }
    line_put(path, file);
    path->text[path->used] = '\0';
}

static size_t read_proc(pid_t pid, pid_t thread, const char *file, char *text, size_t size) {
    struct line path = {0};
    put_path(&path, pid, thread, file);
    size_t got = read_file(path.text, text, size);
    while (got > 0 && text[got - 1] == '\n') text[--got] = '\0';
    return got;
}

void proc_print_thread(pid_t pid, pid_t thread, const char *title, bool has_stack) {
    char text[128];
    struct line line = {0};
    line_put(&line, title);
    line_number(&line, (uint64_t)thread, 10);
    line_put(&line, " (");
    (void)read_proc(pid, thread, "/comm", text, sizeof text);
    line_put(&line, text);
    line_put(&line, ")");
    if (!has_stack) {
        (void)read_proc(pid, thread, "/wchan", text, sizeof text);
        line_put(&line, ": wchan ");
        line_put(&line, text);
        (void)read_proc(pid, thread, "/syscall", text, sizeof text);
        line_put(&line, "; syscall ");
        line_put(&line, text);
    }
    line_end(&line);
}

/* The numbers among the names of a folder. */
static size_t numbers_of(const char *folder, pid_t *numbers, size_t count_max) {
    _Alignas(8) char entries[4096];
    size_t count = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long got; fd >= 0 && (got = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
        uint16_t size;
        for (long at = 0; at < got && count < count_max; at += size) {
            memcpy(&size, entries + at + 16, sizeof size);
            const char *name = entries + at + 19;
            pid_t number = 0;
            for (; *name >= '0' && *name <= '9'; name++) number = number * 10 + (*name - '0');
            if (*name == '\0' && number != 0) numbers[count++] = number;
        }
    }
    if (fd >= 0) close(fd);
    return count;
}

size_t proc_threads(pid_t pid, pid_t *threads, size_t count_max) {
    struct line folder = {0};
    put_path(&folder, pid, 0, "/task");
    return numbers_of(folder.text, threads, count_max);
}

void proc_print(pid_t pid) {
    char command[256];
    size_t size = read_proc(pid, 0, "/cmdline", command, sizeof command);
    for (size_t i = 0; i + 1 < size; i++)
        if (command[i] == '\0') command[i] = ' '; /* between its words, and where redis-server has changed its title */
    while (size > 0 && (command[size - 1] == '\0' || command[size - 1] == ' ')) command[--size] = '\0';
    struct line line = {0};
    line_put(&line, "# process ");
    line_number(&line, (uint64_t)pid, 10);
    line_put(&line, ": ");
    line_put(&line, command);
    line_end(&line);
    pid_t threads[PROC_THREADS_MAX];
    size_t count = proc_threads(pid, threads, PROC_THREADS_MAX);
    for (size_t i = 0; i < count; i++) proc_print_thread(pid, threads[i], "#   thread ", false);
}

static pid_t parent_of(pid_t pid) {
    char stat[512];
    (void)read_proc(pid, 0, "/stat", stat, sizeof stat);
    const char *after = strrchr(stat, ')'); /* ") S PARENT": the name before it may have any bytes */
    pid_t parent = 0;
    if (after == NULL || strlen(after) < 5) return 0;
    for (after += 4; *after >= '0' && *after <= '9'; after++) parent = parent * 10 + (*after - '0');
    return parent;
}

void proc_print_children(void) {
    static pid_t processes[4096];
    size_t count = numbers_of("/proc", processes, sizeof processes / sizeof *processes);
    for (size_t i = 0; i < count; i++)
        if (parent_of(processes[i]) == getpid()) proc_print(processes[i]);
}
