/* feed.h -- files to counts, in parallel. One thread reads (and decompresses), the others parse and count. Several
 * compressed files are read at once, by as many readers as there are threads that count.
 *
 *     files ──▶ reader ──▶ pieces (cut at line ends) ──▶ workers ──▶ counters
 *                 ▲                                         │
 *                 └────────── empty pieces ◀────────────────┘
 *
 * Always true: memory is bounded by a few pieces for each worker and each reader, however fast these are. Outcomes are
 * added up in the order of the input, so the first skipped line is the same for any number of threads. */
#ifndef TOOL_FEED_H
#define TOOL_FEED_H

#include "tools/count/counter.h"
#include "tools/count/unpack.h"

#ifndef FEED_LINE_MAX               /* a fuzzer takes less, so that short inputs have long lines */
#define FEED_LINE_MAX (1024 * 1024) /* a longer line is skipped; so is binary junk, in bounded memory */
#endif
#define FEED_THREADS_MAX 256

struct feed {
    /* set by the caller */
    char *const *files; /* "-": standard input */
    size_t file_count;
    unsigned threads;
    tw_family *family, *sums; /* sums is NULL without --sum */
    const struct line_rule *rule;
    int64_t window_ms;
    struct windows_shared *windows; /* those with counts are noted here */
    /* filled by feed_run() */
    struct outcome total;
    const char *skipped_file; /* where total.skipped_line is */
    /* a file could not be read, or memory or threads are missing; reported on standard error */
    bool trouble;
};

/* Reads everything, or until a signal. */
void feed_run(struct feed *feed);

/* Opens a file for reading ("-": standard input). Returns -1 after a message on standard error. */
int feed_open(const char *file);
/* True for a pipe, a terminal or a socket, so for all files except regular ones. */
bool feed_may_block(int fd);
const char *feed_name(const char *file); /* for messages */
/* Says which program decompresses a file of a kind that this command does not. */
void feed_refuse_packed(const char *name, enum unpack_kind kind);
/* Returns the next size of a buffer that is full and has no whole line. Returns 0 if it already has room for the
 * longest line and its newline. */
size_t feed_grown(size_t capacity);
/* Drops the NULs at the start of the text, which a rotation that cuts a log leaves there, and perhaps gigabytes of
 * them. Returns how many there were. */
size_t feed_hole(char *text, size_t size);

#endif
