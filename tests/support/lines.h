/* lines.h -- lines that a signal handler may write, and what Linux tells of a process that waits.
 * Always true: nothing here allocates, takes a lock or uses stdio. A line is cut at LINE_BYTES, and is written in one
 * piece: several processes write into one stream. */
#ifndef TEST_LINES_H
#define TEST_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LINE_BYTES 512
#define PROC_THREADS_MAX 64 /* others are left out */

struct line {
    size_t used;
    char text[LINE_BYTES];
};

void line_put(struct line *line, const char *text); /* without its ends of lines */
void line_number(struct line *line, uint64_t number, unsigned base);
void line_end(struct line *line); /* writes it to standard output */
void line_say(const char *text);

size_t proc_threads(pid_t pid, pid_t *threads, size_t count_max);
/* "# thread 12 (its name)", and of one that has no stack to show, where in the kernel it is, and in which system call
 * (its number comes first). */
void proc_print_thread(pid_t pid, pid_t thread, const char *title, bool has_stack);
/* The command of a process, and each of its threads. */
void proc_print(pid_t pid);
/* Each child of this process. */
void proc_print_children(void);

#endif
