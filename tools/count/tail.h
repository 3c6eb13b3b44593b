/* tail.h -- reads a log by its name, as `tail -F` does, through rotation and truncation, whole lines only.
 * Always true: every whole line of the file, of each file that gets its name, and of those that had it while their
 * writers still have them open, is counted once, in each file's order. The beginning of a line waits for its end. Never
 * blocks, except for the copy of a file that was cut, which is read to its end. One thread. */
#ifndef TOOL_TAIL_H
#define TOOL_TAIL_H

#include "tools/count/tail_file.h"

#define TAIL_LEFT_MAX 8u

struct tail {
    const char *name;
    bool ended, looked;
    struct tail_file now;
    struct tail_file left[TAIL_LEFT_MAX]; /* those that had the name before, the newest first */
    size_t left_count;
};

/* Returns false after a message on standard error. */
bool tail_open(struct tail *tail, const char *name);

enum tail_state { TAIL_MORE, TAIL_IDLE, TAIL_TROUBLE };

/* Counts the new lines, up to some MiB. TAIL_MORE means that there may be more at once. TAIL_IDLE means that there are
 * no more now. `total` grows; `*skipped_file` is set with its first skipped line. TAIL_TROUBLE means that an error was
 * reported, and the input has ended. */
enum tail_state tail_read(struct tail *tail, struct counter *counter, struct outcome *total, const char **skipped_file);
/* Called when no more is read. Counts the last lines, without an end, of files that lost their name. */
void tail_finish(struct tail *tail, struct counter *counter, struct outcome *total, const char **skipped_file);
void tail_close(struct tail *tail);

#endif
