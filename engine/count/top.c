/* top.c -- tw_top() shows the heaviest keys of a window, the heaviest first. Equal ones are sorted by key. The walk
 * (walk.h) offers every counter to a heap of the n heaviest keys so far. The root of the heap is the lightest of them.
 * Keys are copied, because a cell may be given back between two pieces of the walk. The visitor is called after the
 * walk, so it delays no thread. Heavy keys without a counter (heavy.h) are read before the walk. After the walk they
 * are offered to the heap, together with the counters that some of them have got later.
 * Always true: the memory of a call depends on n and on its keys, not on the window. */
#include "engine/count/heavy.h"
#include "engine/count/walk.h"

#include <stdlib.h>

#define TOP_MAX 10000u
#define ROOM_MIN 64u
#define KEY_ROOM_MIN 32u /* a key that replaces another one usually fits */

struct top_entry {
    tw_count count; /* `room` bytes at key.data belong to the entry */
    uint64_t prefix;
    size_t room;
};

struct top {
    struct top_entry *entries; /* the entries, which are a heap once there are `most` of them */
    size_t used, room, most;
    bool no_memory;
    tw_engine *engine;
    struct twi_heavy heavy;
};

/* Returns the first bytes of a key as a number, the first byte highest, so that one comparison decides most keys. */
static uint64_t prefix_of(tw_key key) {
    unsigned char bytes[8] = {0};
    uint64_t prefix = 0;
    memcpy(bytes, key.data, key.size < sizeof bytes ? key.size : sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) prefix = prefix << 8 | bytes[i];
    return prefix;
}

static int compare_keys(tw_key a, tw_key b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* Returns true if a is shown before b. */
static bool is_before(const struct top_entry *a, const struct top_entry *b) {
    if (a->count.view != b->count.view) return a->count.view > b->count.view;
    if (a->prefix != b->prefix) return a->prefix < b->prefix;
    return compare_keys(a->count.key, b->count.key) < 0;
}

/* Moves the entry at `at` down until none of its children is shown after it. */
static void sink(struct top_entry *entries, size_t used, size_t at) {
    struct top_entry moved = entries[at];
    for (size_t child; (child = 2 * at + 1) < used; at = child) {
        if (child + 1 < used && is_before(&entries[child], &entries[child + 1])) child++;
        if (!is_before(&moved, &entries[child])) break;
        entries[at] = entries[child];
    }
    entries[at] = moved;
}

/* Copies a count into an entry that has `room` bytes for its key (perhaps 0). Returns false if there is no memory. */
static bool fill(struct top_entry *entry, const tw_count *count, uint64_t prefix) {
    unsigned char *bytes = (unsigned char *)(uintptr_t)entry->count.key.data;
    if (entry->room < count->key.size) {
        size_t room = entry->room != 0 ? entry->room : KEY_ROOM_MIN;
        while (room < count->key.size) room *= 2;
        free(bytes);
        bytes = malloc(room);
        entry->room = bytes != NULL ? room : 0;
    }
    entry->count = *count;
    entry->count.key.data = bytes;
    entry->prefix = prefix;
    if (bytes == NULL) return false;
    memcpy(bytes, count->key.data, count->key.size);
    return true;
}

/* Makes room for one more entry. Windows with few keys need little memory. Returns false if there is none. */
static bool make_room(struct top *top) {
    if (top->used < top->room) return true;
    size_t room = top->room != 0 ? 2 * top->room : ROOM_MIN;
    if (room > top->most) room = top->most;
    struct top_entry *larger = realloc(top->entries, room * sizeof *larger);
    if (larger == NULL) return false;
    top->entries = larger;
    top->room = room;
    return true;
}

static bool offer(struct top *top, const tw_count *count) {
    if (top->used == top->most) {
        if (count->view < top->entries[0].count.view) return true;
        const struct top_entry candidate = {.count = *count, .prefix = prefix_of(count->key)};
        if (!is_before(&candidate, &top->entries[0])) return true;
        top->no_memory = !fill(&top->entries[0], count, candidate.prefix);
        if (top->no_memory) return false;
        sink(top->entries, top->used, 0);
        return true;
    }
    top->no_memory = !make_room(top);
    if (top->no_memory) return false;
    struct top_entry *entry = &top->entries[top->used];
    *entry = (struct top_entry){.room = 0};
    top->no_memory = !fill(entry, count, prefix_of(count->key));
    if (top->no_memory) return false;
    if (++top->used == top->most)
        for (size_t at = top->most / 2; at-- > 0;) sink(top->entries, top->used, at);
    return true;
}

static bool begin(void *ctx, struct twi_generation *const *generations, size_t count) {
    struct top *top = ctx;
    top->no_memory = !twi_heavy_read(&top->heavy, top->engine, generations, count);
    return !top->no_memory;
}

static bool take(void *ctx, const tw_count *count) {
    struct top *top = ctx;
    return twi_heavy_absorb(&top->heavy, count) || offer(top, count);
}

static bool goes_on(void *ctx) {
    return !((const struct top *)ctx)->no_memory;
}

static void show(struct top *top, bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    if (top->used < top->most) /* the entries are not a heap yet */
        for (size_t at = top->used / 2; at-- > 0;) sink(top->entries, top->used, at);
    for (size_t left = top->used; left > 1;) { /* the last of the entries that are left is moved behind them */
        struct top_entry last = top->entries[0];
        top->entries[0] = top->entries[--left];
        top->entries[left] = last;
        sink(top->entries, left, 0);
    }
    for (size_t i = 0; i < top->used && visit(ctx, &top->entries[i].count); i++) continue;
}

tw_status tw_top(tw_family *family, size_t n, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count),
                 void *ctx) {
    twi_check(family != NULL && visit != NULL);
    if (family->kind.is_gcra) return twi_refuse_for(TWI_WHY_GCRA);
    if (n < 1 || n > TOP_MAX) return twi_refuse(TW_ERR_RANGE, "n: tw_top() shows 1 to 10,000 keys");
    struct top top = {.most = n, .engine = family->engine};
    const struct twi_walker walker = {.ctx = &top, .begin = begin, .take = take, .rest = goes_on};
    tw_status status = twi_walk(family, unix_ms, &walker);
    for (size_t i = 0; i < top.heavy.used && status == TW_OK && !top.no_memory; i++)
        (void)offer(&top, &top.heavy.keys[i].count);
    if (status == TW_OK && top.no_memory) status = twi_refuse(TW_ERR_MEMORY, NULL);
    if (status == TW_OK) show(&top, visit, ctx);
    for (size_t i = 0; i < top.used; i++) free((void *)(uintptr_t)top.entries[i].count.key.data);
    free(top.entries);
    twi_heavy_free(&top.heavy);
    return status;
}
