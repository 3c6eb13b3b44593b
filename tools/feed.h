/* feed.h -- files to counts, in parallel: one thread reads, the others parse and count.
 *
 *     files ──▶ reader ──▶ pieces (cut at line ends) ──▶ workers ──▶ counters
 *                 ▲                                         │
 *                 └────────── empty pieces ◀────────────────┘
 *
 * Always true: a few pieces for each worker are in memory, however fast the reader; outcomes are added up in the
 * order of the input, so that the first skipped line is the first one whatever the number of threads. */
#ifndef TOOL_FEED_H
#define TOOL_FEED_H

#include "counter.h"

#define FEED_LINE_MAX (1024 * 1024) /* a longer line is skipped; so is binary junk, in bounded memory */
#define FEED_THREADS_MAX 256

struct feed {
    /* set by the caller */
    char *const *files; /* "-": standard input */
    size_t file_count;
    unsigned threads;
    tw_family *family;
    const struct line_rule *rule;
    int64_t window_ms;
    struct windows_shared *windows; /* those with counts are noted here */
    /* filled by feed_run() */
    struct outcome total;
    const char *skipped_file; /* where total.skipped_line is */
    bool trouble;             /* a file could not be read, or memory or threads lacked: said on standard error */
};

/* Reads all of it, or until a signal asks to stop. */
void feed_run(struct feed *feed);

/* Opens a file for reading ("-": standard input). -1: said on standard error. */
int feed_open(const char *file);
/* A pipe, a terminal, a socket: what is no regular file. */
bool feed_may_block(int fd);
const char *feed_name(const char *file); /* for messages */
/* The first bytes of a file, FEED_MAGIC_BYTES or more: true, and said on standard error, where they are those of a compressed one. */
#define FEED_MAGIC_BYTES 6
bool feed_is_compressed(const char *file, const char *text);

#endif
