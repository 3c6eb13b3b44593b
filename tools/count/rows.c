/* rows.c -- collecting and sorting one window's counts. See rows.h. */
#include "tools/count/rows.h"

#include <stdlib.h>

#define CHUNK_BYTES (256 * 1024)
#define ROWS_TOP_MAX 10000 /* of tw_top() */

/* Key bytes, one after the other. The first chunk of the list is being filled, the others are full. */
struct rows_chunk {
    struct rows_chunk *next;
    size_t used;
    unsigned char bytes[CHUNK_BYTES];
};

static int keys_compare(const struct row *a, const struct row *b) {
    size_t shared = a->key_size < b->key_size ? a->key_size : b->key_size;
    int order = memcmp(a->key, b->key, shared);
    if (order != 0) return order;
    return (a->key_size > b->key_size) - (a->key_size < b->key_size);
}

/* Negative if a is shown before b. */
static int row_compare(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return keys_compare(a, b);
}

static unsigned char *bytes_take(struct rows *rows, size_t size) {
    struct rows_chunk *chunk = rows->chunks;
    if (chunk == NULL || sizeof chunk->bytes - chunk->used < size) {
        chunk = malloc(sizeof *chunk);
        if (chunk == NULL) return NULL;
        chunk->next = rows->chunks;
        chunk->used = 0;
        rows->chunks = chunk;
    }
    unsigned char *bytes = chunk->bytes + chunk->used;
    chunk->used += size;
    return bytes;
}

/* The first chunk is kept for the next window. Most windows need no other. */
void rows_begin(struct rows *rows, size_t limit) {
    while (rows->chunks != NULL && rows->chunks->next != NULL) {
        struct rows_chunk *next = rows->chunks->next;
        free(rows->chunks);
        rows->chunks = next;
    }
    if (rows->chunks != NULL) rows->chunks->used = 0;
    rows->count = rows->keys_all = 0;
    rows->limit = limit;
    rows->sum_all = rows->sum_shown = rows->field_sum = 0;
    rows->no_memory = false;
}

static void saturating_add(int64_t *sum, int64_t n) {
    if (__builtin_add_overflow(*sum, n, sum)) *sum = n > 0 ? INT64_MAX : INT64_MIN;
}

static bool row_room(struct rows *rows) {
    if (rows->count < rows->capacity) return true;
    size_t capacity = rows->capacity == 0 ? 64 : rows->capacity * 2;
    struct row *larger = realloc(rows->row, capacity * sizeof *larger);
    if (larger == NULL) return false;
    rows->row = larger;
    rows->capacity = capacity;
    return true;
}

/* The heap's root is the row that is shown last. The new root sinks until no child is shown later. */
static void heap_sink(struct rows *rows, size_t at) {
    for (;;) {
        size_t last = at, left = 2 * at + 1, right = left + 1;
        if (left < rows->count && row_compare(&rows->row[left], &rows->row[last]) > 0) last = left;
        if (right < rows->count && row_compare(&rows->row[right], &rows->row[last]) > 0) last = right;
        if (last == at) return;
        struct row moved = rows->row[at];
        rows->row[at] = rows->row[last];
        rows->row[last] = moved;
        at = last;
    }
}

/* Makes room for a key. With a limit, the room is rounded up, so that the next key usually fits, too. */
static bool key_room(struct rows *rows, struct row *row, size_t size) {
    size_t room = rows->limit > 0 ? (size + 31) / 32 * 32 : size;
    unsigned char *bytes = bytes_take(rows, room);
    if (bytes == NULL) return false;
    row->key = bytes;
    row->key_room = (uint32_t)room;
    return true;
}

static void row_fill(struct row *row, tw_key key, int64_t count) {
    memcpy(row->key, key.data, key.size);
    row->key_size = (uint32_t)key.size;
    row->count = count;
    row->sum = 0;
}

static bool row_append(struct rows *rows, tw_key key, int64_t count) {
    if (!row_room(rows) || !key_room(rows, &rows->row[rows->count], key.size)) return false;
    row_fill(&rows->row[rows->count++], key, count);
    if (rows->count == rows->limit) {
        for (size_t at = rows->count / 2; at-- > 0;) heap_sink(rows, at);
    }
    return true;
}

/* The new row replaces the one that is shown last, if it comes before it. */
static bool row_replace_last(struct rows *rows, tw_key key, int64_t count) {
    struct row *root = &rows->row[0];
    struct row candidate = {
        .count = count, .key = (unsigned char *)(uintptr_t)key.data, .key_size = (uint32_t)key.size};
    if (row_compare(&candidate, root) >= 0) return true;
    if (root->key_room < key.size && !key_room(rows, root, key.size)) return false;
    row_fill(root, key, count);
    heap_sink(rows, 0);
    return true;
}

void rows_add(struct rows *rows, tw_key key, int64_t count) {
    rows->keys_all++;
    saturating_add(&rows->sum_all, count);
    bool full = rows->limit > 0 && rows->count == rows->limit;
    if (!(full ? row_replace_last(rows, key, count) : row_append(rows, key, count))) rows->no_memory = true;
}

void rows_sort(struct rows *rows) {
    if (rows->count > 1) qsort(rows->row, rows->count, sizeof *rows->row, row_compare);
    for (size_t i = 0; i < rows->count; i++) saturating_add(&rows->sum_shown, rows->row[i].count);
}

/* Collects the counts that this run added. With Redis, the view includes the counts of other processes and earlier
 * runs. */
static bool rows_take(void *ctx, const tw_count *count) {
    if (count->key.size > 0) rows_add(ctx, count->key, count->local);
    return true;
}

static bool add_up(void *ctx, const tw_count *count) {
    struct rows *rows = ctx;
    if (count->key.size > 0) rows->keys_all++;
    if (count->key.size > 0) saturating_add(&rows->sum_all, count->local);
    return true;
}

static bool rows_take_top(void *ctx, const tw_count *count) {
    struct rows *rows = ctx;
    if (!row_append(rows, count->key, count->local)) rows->no_memory = true;
    return !rows->no_memory;
}

/* The greatest views are the greatest counts of this run, if no other one counts in them. */
static tw_status collect_top(struct rows *rows, tw_family *family, int64_t start_ms) {
    tw_status status = tw_each(family, start_ms, add_up, rows);
    return status == TW_OK ? tw_top(family, rows->limit, start_ms, rows_take_top, rows) : status;
}

tw_status rows_collect(struct rows *rows, tw_family *family, int64_t start_ms, size_t limit, bool is_alone) {
    rows_begin(rows, limit);
    tw_status status = is_alone && limit >= 1 && limit <= ROWS_TOP_MAX ? collect_top(rows, family, start_ms)
                                                                       : tw_each(family, start_ms, rows_take, rows);
    if (status != TW_OK) return status;
    rows_sort(rows);
    return rows->no_memory ? TW_ERR_MEMORY : TW_OK;
}

/* ---- sums ---- */

struct by_key {
    struct rows *rows;
    struct row **row; /* in the order of their keys */
};

static int row_pointers_compare(const void *left, const void *right) {
    return keys_compare(*(struct row *const *)left, *(struct row *const *)right);
}

static bool sum_take(void *ctx, const tw_count *count) {
    struct by_key *by_key = ctx;
    struct row wanted = {.key = (unsigned char *)(uintptr_t)count->key.data, .key_size = (uint32_t)count->key.size};
    struct row *key = &wanted;
    if (count->key.size == 0) return true;
    saturating_add(&by_key->rows->field_sum, count->local);
    struct row **found = bsearch(&key, by_key->row, by_key->rows->count, sizeof(void *), row_pointers_compare);
    if (found != NULL) (*found)->sum = count->local;
    return true;
}

tw_status rows_add_sums(struct rows *rows, tw_family *sums, int64_t start_ms) {
    struct by_key by_key = {rows, malloc((rows->count + 1) * sizeof(void *))};
    if (by_key.row == NULL) return TW_ERR_MEMORY;
    for (size_t i = 0; i < rows->count; i++) by_key.row[i] = &rows->row[i];
    qsort(by_key.row, rows->count, sizeof(void *), row_pointers_compare);
    tw_status status = tw_each(sums, start_ms, sum_take, &by_key);
    free(by_key.row);
    return status;
}

void rows_free(struct rows *rows) {
    while (rows->chunks != NULL) {
        struct rows_chunk *next = rows->chunks->next;
        free(rows->chunks);
        rows->chunks = next;
    }
    free(rows->row);
    *rows = (struct rows)ROWS_EMPTY;
}
