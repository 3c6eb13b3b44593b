/* plan.h -- the options of `tallywheel count`, and the result of the input.
 * Always true: a plan that plan_read() accepted names only readable options; the engine checks its options. */
#ifndef TOOL_PLAN_H
#define TOOL_PLAN_H

#include "tools/count/counter.h"
#include "tools/count/print.h"
#include "tools/common/redis_flags.h"
#include "tools/count/windows.h"

struct plan {
    struct line_rule rule; /* contains utc_offset_ms, too */
    int64_t window_ms;
    int64_t retention_ms; /* 0 means the greater of seven days and one window */
    int64_t lateness_ms;  /* for --follow, how long after its end a window still accepts lines */
    uint64_t memory_bytes;
    size_t top; /* 0 means all */
    enum print_form form;
    unsigned threads;
    bool follow;
    const char *redis_url, *redis_key;
    const char *svg;          /* the file of the picture; NULL if there is none */
    const char *batch;        /* NULL means counts go to Redis as they are counted */
    bool resume;              /* for --batch, in steps from which a later run continues */
    uint64_t meaning;         /* a hash of the options that decide what is counted under which name */
    struct redis_flags flags; /* in addition to --redis */
    char *const *files;
    size_t file_count;
};

/* Returns -1 to continue, otherwise the exit status. */
int plan_read(int argc, char **argv, struct plan *plan);

/* The outcome of the input, however it was read. */
struct result {
    struct outcome total;
    const char *skipped_file;
    bool trouble;           /* reported on standard error already */
    struct windows windows; /* those with counts; empty with --follow */
};

#endif
