/* windows.h -- the set of windows that have counts. The library visits one window at a time and does not list them.
 * Always true: each start is in the set once. It needs 8 bytes, and the table is at most 2/3 full. One thread at a
 * time, except windows_note(). */
#ifndef TOOL_WINDOWS_H
#define TOOL_WINDOWS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct windows {
    int64_t *slots; /* WINDOWS_FREE if free */
    size_t capacity, count;
};

#define WINDOWS_FREE INT64_MIN
/* As a window's length, it means one window for all time, which starts at 0. */
#define WINDOWS_ALL (INT64_MAX / 2)
#define WINDOWS_EMPTY \
    { 0 }

/* The start of the window that contains `unix_ms`. It is the latest multiple of window_ms, shifted by the offset, that
 * is not after it. */
int64_t windows_start(int64_t unix_ms, int64_t window_ms, int64_t utc_offset_ms);

/* Returns false if there is no memory; then the set is unchanged. */
bool windows_add(struct windows *windows, int64_t start_ms);
bool windows_holds(const struct windows *windows, int64_t start_ms);
/* The starts in ascending order; the caller frees them. Returns NULL if there are none, or no memory (`*count` is
 * the size of the set). */
int64_t *windows_sorted(const struct windows *windows, size_t *count);
void windows_free(struct windows *windows);

/* One set that several threads fill. One set per thread would multiply the memory of a year of minutes. */
struct windows_shared {
    pthread_mutex_t lock;
    struct windows set; /* may be read when the threads have ended */
    bool no_memory;     /* a window could not be noted, so the result would lack it */
};

#define WINDOWS_SHARED_EMPTY \
    { .lock = PTHREAD_MUTEX_INITIALIZER }

void windows_note(struct windows_shared *shared, int64_t start_ms);

#endif
