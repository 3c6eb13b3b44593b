/* rows.h -- the counts of one window, in the order in which they are shown. This is by count, the greatest first, then
 * by key in byte order.
 * Always true: with a limit, only that many rows are kept at any time, the greatest so far (a heap). Only the sums of
 * the others are kept. Memory depends on the rows kept, not on the windows shown. It is reused. One thread at a
 * time. */
#ifndef TOOL_ROWS_H
#define TOOL_ROWS_H

#include "tallywheel.h"

struct row {
    int64_t count, sum; /* the sum is 0 without rows_add_sums() */
    unsigned char *key;
    uint32_t key_size, key_room; /* key_room is the number of bytes available at `key` */
};

struct rows {
    struct row *row;
    size_t count, capacity;
    size_t limit;               /* 0 if there is no limit */
    struct rows_chunk *chunks;  /* the keys' bytes */
    size_t keys_all;            /* keys of the window, with those that are left out */
    int64_t field_sum;          /* of the field of --sum, of all keys */
    int64_t sum_all, sum_shown; /* they exceed 64 bits only past 2^63 units in one window, and then saturate */
    bool no_memory;             /* some rows are missing */
};

#define ROWS_EMPTY \
    { 0 }

/* Collects the counts that this process added to the window that contains `start_ms`, sorted. `is_alone` means that
 * there is no Redis, so no other process counts in the views. Returns the result of tw_each() or tw_top();
 * TW_ERR_MEMORY means rows are missing. */
tw_status rows_collect(struct rows *rows, tw_family *family, int64_t start_ms, size_t limit, bool is_alone);
/* Adds the sums of the same window to rows that were collected. Returns the result of tw_each(), or TW_ERR_MEMORY. */
tw_status rows_add_sums(struct rows *rows, tw_family *sums, int64_t start_ms);
/* The steps of rows_collect(). */
void rows_begin(struct rows *rows, size_t limit);
void rows_add(struct rows *rows, tw_key key, int64_t count);
void rows_sort(struct rows *rows);
void rows_free(struct rows *rows);

#endif
