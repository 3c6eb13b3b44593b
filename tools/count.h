/* count.h -- what `tallywheel count` was asked to do, and the parts that do it.
 * Always true: a plan that plan_read() accepted names readable options only; the engine checks what is its own to
 * check. */
#ifndef TOOL_COUNT_H
#define TOOL_COUNT_H

#include "counter.h"
#include "line.h"
#include "print.h"
#include "windows.h"

struct plan {
    struct line_rule rule; /* holds utc_offset_ms, too */
    int64_t window_ms;
    int64_t retention_ms; /* 0: the greater of seven days and one window */
    int64_t lateness_ms;  /* --follow: how long after its end a window still takes lines */
    uint64_t memory_bytes;
    size_t top; /* 0: all */
    enum print_form form;
    unsigned threads;
    bool follow;
    const char *redis_url, *redis_key;
    char *const *files;
    size_t file_count;
};

/* EXIT_DONE: go on. -1: help was shown, EXIT_USAGE: said on standard error what is wrong. */
int plan_read(int argc, char **argv, struct plan *plan);

/* What came of the input, however it was read. */
struct result {
    struct outcome total;
    const char *skipped_file;
    bool trouble;           /* said on standard error already */
    struct windows windows; /* those with counts; none with --follow, which shares its counters with others as a rule */
};

/* `count --follow`: reads and prints until a signal or the end of every input. */
void follow_run(const struct plan *plan, tw_family *family, tw_family_options *options, struct print *print,
                struct result *result);

#endif
