/* windows.c -- a set of window starts. See windows.h. Open addressing, linear probing, no removal. */
#include "tools/count/windows.h"

#include <stdlib.h>

int64_t windows_start(int64_t unix_ms, int64_t window_ms, int64_t utc_offset_ms) {
    if (window_ms == WINDOWS_ALL) return 0;
    int64_t local_ms = unix_ms + utc_offset_ms;
    int64_t into = local_ms % window_ms;
    if (into < 0) into += window_ms;
    return unix_ms - into;
}

/* Starts are multiples of large round numbers. Only a multiplication that mixes upwards spreads them (2^64 / golden
 * ratio). */
static size_t windows_slot_of(int64_t start_ms, size_t capacity) {
    uint64_t mixed = (uint64_t)start_ms * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> 32) & (capacity - 1);
}

static int64_t *slot_find(const struct windows *windows, int64_t start_ms) {
    size_t at = windows_slot_of(start_ms, windows->capacity);
    while (windows->slots[at] != start_ms && windows->slots[at] != WINDOWS_FREE)
        at = (at + 1) & (windows->capacity - 1);
    return &windows->slots[at];
}

static bool windows_grow(struct windows *windows) {
    struct windows larger = {.capacity = windows->capacity == 0 ? 64 : windows->capacity * 2, .count = windows->count};
    larger.slots = malloc(larger.capacity * sizeof *larger.slots);
    if (larger.slots == NULL) return false;
    for (size_t i = 0; i < larger.capacity; i++) larger.slots[i] = WINDOWS_FREE;
    for (size_t i = 0; i < windows->capacity; i++) {
        if (windows->slots[i] != WINDOWS_FREE) *slot_find(&larger, windows->slots[i]) = windows->slots[i];
    }
    free(windows->slots);
    *windows = larger;
    return true;
}

bool windows_add(struct windows *windows, int64_t start_ms) {
    if (windows_holds(windows, start_ms)) return true;
    if (windows->count * 3 >= windows->capacity * 2 && !windows_grow(windows)) return false;
    *slot_find(windows, start_ms) = start_ms;
    windows->count++;
    return true;
}

void windows_note(struct windows_shared *shared, int64_t start_ms) {
    pthread_mutex_lock(&shared->lock);
    if (!windows_add(&shared->set, start_ms)) shared->no_memory = true;
    pthread_mutex_unlock(&shared->lock);
}

bool windows_holds(const struct windows *windows, int64_t start_ms) {
    return windows->capacity > 0 && *slot_find(windows, start_ms) == start_ms;
}

static int windows_compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t *windows_sorted(const struct windows *windows, size_t *count) {
    *count = windows->count;
    if (windows->count == 0) return NULL;
    int64_t *starts = malloc(windows->count * sizeof *starts);
    if (starts == NULL) return NULL;
    size_t at = 0;
    for (size_t i = 0; i < windows->capacity; i++) {
        if (windows->slots[i] != WINDOWS_FREE) starts[at++] = windows->slots[i];
    }
    qsort(starts, at, sizeof *starts, windows_compare);
    return starts;
}

void windows_free(struct windows *windows) {
    free(windows->slots);
    *windows = (struct windows)WINDOWS_EMPTY;
}
