/* counter.h -- turns text into counts, as one thread's share of the work.
 *
 * A counter gets a piece of a file that ends at a line end, and parses it line by line. It adds sums to the family in
 * batches, and elements one by one.
 * Always true: when counter_take() returns, every line of the piece has been counted, refused or skipped, and no
 * pointer refers to the piece any more. A counter belongs to one thread; its family may be shared. */
#ifndef TOOL_COUNTER_H
#define TOOL_COUNTER_H

#include "tools/count/line.h"
#include "tools/count/outcome.h"
#include "tools/count/windows.h"

#define COUNTER_BATCH 256
#define COUNTER_WINDOWS_NOTED \
    1024 /* power of two; 8 KiB per thread, and more windows than the lines of a log usually mix */

extern const char counter_too_long[]; /* why a line longer than FEED_LINE_MAX is skipped */

struct counter {
    tw_family *family, *sums; /* sums is NULL without --sum */
    const struct line_rule *rule;
    struct line_head *head; /* of the file whose lines come */
    int64_t window_ms;
    int64_t start_min_ms;                 /* a line of an earlier window is late, as that window is printed already */
    int64_t window_start_ms;              /* the last line's window */
    struct windows_shared *windows;       /* the windows that have counts, shared by all counters */
    int64_t noted[COUNTER_WINDOWS_NOTED]; /* some of them, by hash; they need not be noted again */
    size_t batched;
    tw_key keys[COUNTER_BATCH];
    int64_t deltas[COUNTER_BATCH];
    int64_t sum[COUNTER_BATCH];
    int64_t unix_ms[COUNTER_BATCH];
    uint64_t lines[COUNTER_BATCH];
    tw_status statuses[COUNTER_BATCH];
    char joined[COUNTER_BATCH * TW_KEY_SIZE_MAX]; /* each item of the batch has its part; an element needs no batch */
};

/* Returns NULL if no memory. `rule` and `windows` outlive it. */
struct counter *counter_new(tw_family *family, tw_family *sums, const struct line_rule *rule, int64_t window_ms,
                            struct windows_shared *windows);
/* The shared set was cleared. This counter forgets which windows it noted there. */
void counter_forget_windows(struct counter *counter);
void counter_free(struct counter *counter);

/* Counts the lines of a piece, after `head` was set. The last one may lack its newline. */
void counter_take(struct counter *counter, const char *text, size_t size, struct outcome *outcome);

#endif
