/* tail.h -- one growing file, as `tail -F` reads it: through rotation and truncation, whole lines only.
 * Always true: every whole line of the file, and of each file that gets its name, is counted once, in order. The
 * beginning of a line waits for its end. Never blocks. One thread. */
#ifndef TOOL_TAIL_H
#define TOOL_TAIL_H

#include <sys/types.h>

#include "counter.h"

struct tail {
    const char *file;
    int fd; /* -1: nothing is open: no file has the name, or the input has ended */
    bool may_block, ended, skipping, missing_said, looked;
    dev_t device;
    ino_t inode;
    char *text; /* what was read and not counted yet: the beginning of a line */
    size_t size, capacity;
    uint64_t lines; /* of this file so far */
    struct line_head head;
};

/* Returns false after a message on standard error. */
bool tail_open(struct tail *tail, const char *file);

enum tail_state { TAIL_MORE, TAIL_IDLE, TAIL_TROUBLE };

/* Counts what has come, up to some MiB. TAIL_MORE: there may be more at once. TAIL_IDLE: nothing more now. `total`
 * grows; `*skipped_file` is set with its first skipped line. TAIL_TROUBLE: reported; the input has ended. */
enum tail_state tail_read(struct tail *tail, struct counter *counter, struct outcome *total, const char **skipped_file);
void tail_close(struct tail *tail);

#endif
