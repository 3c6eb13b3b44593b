/* top.c -- tw_top() shows the heaviest keys of a window, the heaviest first. Equal ones are sorted by key. The walk
 * (walk.h) offers every counter to a heap of the n heaviest keys so far. The root of the heap is the lightest of them.
 * Keys are copied, because a cell may be given back between two pieces of the walk. The visitor is called after the
 * walk, so it delays no thread. Heavy keys without a counter (top.h) are read before the walk. After the walk they
 * are offered to the heap, together with the counters that some of them have got later.
 * Always true: the memory of a call depends on n and on its keys, not on the window. */
#include "engine/count/top.h"

#include "engine/count/walk.h"
#include "engine/table/spill.h"

#include <stdlib.h>

/* ---- heavy ---- */

/* Shards have 123 entries or more. They have fewer only if memory is short and keys are longer than 480 bytes. If N
 * units overflowed, a key with more than N / 100 of them has an entry. Its certain count is more than N / 100 - N /
 * 123, which is more than N / 535. floor / 8 is at most N / 984. */
#define SURE_PART 8

/* The data that one shard has about one key. */
struct part {
    const unsigned char *key;
    uint32_t size, kind, shard;
    int64_t count, error, floor;
};

/* The bounds of all shards of a kind, for keys that have no entry in them. */
struct absent {
    int64_t floor, debt;
};

struct missed {
    int64_t more, less;
};

struct reading {
    const struct twi_arena *arena;
    struct twi_spill *sketches[2];
    size_t sketch_count;
    uint32_t shards_of[2][TWI_KINDS];
    struct part *parts;
    size_t used;
    unsigned char *bytes;
    size_t bytes_used;
    uint32_t shards;
    struct absent absent[TWI_KINDS];
    struct missed missed[TWI_SPILL_MISSED]; /* by tag */
};

/* Measures the memory that the shards need, and how many there are. Adds in a shard that is made later had not
 * returned before. */
static void measure(struct reading *reading, size_t sketch) {
    for (uint32_t kind = 0; kind < TWI_KINDS; kind++) {
        uint32_t number = 0;
        struct twi_spill_shard *shard;
        while ((shard = twi_spill_shard_of(reading->arena, reading->sketches[sketch], kind, number)) != NULL) {
            reading->used += shard->room;
            reading->bytes_used += (size_t)shard->room * twi_kinds[kind].key_local;
            number++;
        }
        reading->shards_of[sketch][kind] = number;
    }
}

static void read_shard(struct reading *reading, struct twi_spill_shard *shard) {
    size_t first = reading->used;
    uint32_t used = twi_load_acquire(&shard->used); /* B2 */
    for (uint32_t number = 0; number < used; number++) {
        struct twi_spill_seen seen;
        if (!twi_spill_read(shard, number, &seen)) continue;
        unsigned char *key = reading->bytes + reading->bytes_used;
        memcpy(key, seen.key, seen.size);
        reading->bytes_used += seen.size;
        reading->parts[reading->used++] =
            (struct part){key, (uint32_t)seen.size, shard->kind, reading->shards, seen.count, seen.error, 0};
    }
    /* The floor is read after the entries, because a key that was given up meanwhile is below this floor. */
    int64_t floor = twi_load_relaxed(&shard->floor);
    for (size_t i = first; i < reading->used; i++) reading->parts[i].floor = floor;
    struct absent *absent = &reading->absent[shard->kind];
    absent->floor = twi_saturated_sum(absent->floor, floor);
    absent->debt = twi_saturated_sum(absent->debt, twi_load_relaxed(&shard->debt));
    reading->shards++;
}

static void read_sketch(struct reading *reading, size_t sketch) {
    struct twi_spill *from = reading->sketches[sketch];
    for (uint32_t kind = 0; kind < TWI_KINDS; kind++) {
        for (uint32_t number = 0; number < reading->shards_of[sketch][kind]; number++)
            read_shard(reading, twi_spill_shard_of(reading->arena, from, kind, number));
    }
    for (uint32_t tag = 0; tag < TWI_SPILL_MISSED; tag++) {
        struct twi_spill_missed *missed = twi_spill_missed_of(from, tag);
        struct missed *sum = &reading->missed[tag];
        sum->more = twi_saturated_sum(sum->more, twi_load_relaxed(&missed->more));
        sum->less = twi_saturated_sum(sum->less, twi_load_relaxed(&missed->less));
    }
}

/* Compares by key, then by shard. The greater count comes first. A key that moved may have been read twice. */
static int compare_parts(const void *left, const void *right) {
    const struct part *a = left, *b = right;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    int order = memcmp(a->key, b->key, a->size);
    if (order != 0) return order;
    if (a->shard != b->shard) return a->shard < b->shard ? -1 : 1;
    return (a->count < b->count) - (a->count > b->count);
}

/* Combines the parts of one key, the first of which is at `at`. Returns where the next key begins. */
static size_t list_key(struct twi_heavy *heavy, const struct reading *reading, size_t at,
                       const struct twi_generation *generation) {
    const struct part *first = &reading->parts[at], *last = NULL;
    const struct absent *absent = &reading->absent[first->kind];
    const struct twi_hashing *hashing = &heavy->engine->hashing;
    tw_key key = tw_bytes(first->key, first->size);
    uint64_t hash = hashing->fn(&hashing->secret, key.data, key.size);
    const struct missed *missed = &reading->missed[twi_lookup_key(hash, key).tag % TWI_SPILL_MISSED];
    int64_t most = twi_saturated_sum(absent->floor, missed->more), sure = 0;
    for (; at < reading->used; last = &reading->parts[at++]) {
        const struct part *part = &reading->parts[at];
        if (part->size != first->size || memcmp(part->key, first->key, first->size) != 0) break;
        if (last != NULL && last->shard == part->shard) continue;
        most = twi_saturated_sum(most, part->count - part->floor);
        sure = twi_saturated_sum(sure, part->count - part->error);
    }
    if (absent->floor != 0 && sure <= absent->floor / SURE_PART) return at;
    int64_t least = twi_saturated_sum(sure, -twi_saturated_sum(absent->debt, missed->less));
    heavy->keys[heavy->used++] = (struct twi_heavy_key){.count = {.key = key,
                                                                  .view = most,
                                                                  .local = most,
                                                                  .start_ms = twi_generation_start_ms(generation),
                                                                  .end_ms = twi_generation_end_ms(generation),
                                                                  .error = twi_saturated_sum(most, -least)},
                                                        .hash = hash};
    return at;
}

/* The index is at most half full. Returns false if there is no memory. */
static bool make_index(struct twi_heavy *heavy) {
    for (heavy->places = 64; heavy->places < 2 * heavy->used; heavy->places *= 2) continue;
    heavy->index = calloc(heavy->places, sizeof *heavy->index);
    if (heavy->index == NULL) return false;
    for (size_t i = 0; i < heavy->used; i++) {
        size_t at = heavy->keys[i].hash & (heavy->places - 1);
        while (heavy->index[at] != 0) at = (at + 1) & (heavy->places - 1);
        heavy->index[at] = (uint32_t)(i + 1);
    }
    return true;
}

static bool read_all(struct twi_heavy *heavy, struct reading *reading, const struct twi_generation *generation) {
    reading->parts = malloc(reading->used * sizeof *reading->parts);
    heavy->bytes = reading->bytes = malloc(reading->bytes_used);
    heavy->keys = calloc(reading->used, sizeof *heavy->keys);
    if (reading->parts == NULL || reading->bytes == NULL || heavy->keys == NULL) return false;
    reading->used = reading->bytes_used = 0;
    for (size_t i = 0; i < reading->sketch_count; i++) read_sketch(reading, i);
    qsort(reading->parts, reading->used, sizeof *reading->parts, compare_parts);
    for (size_t at = 0; at < reading->used;) at = list_key(heavy, reading, at, generation);
    return make_index(heavy);
}

bool twi_heavy_read(struct twi_heavy *heavy, tw_engine *engine, struct twi_generation *const *generations,
                    size_t count) {
    struct reading reading = {.arena = &engine->arena};
    *heavy = (struct twi_heavy){.engine = engine};
    for (size_t i = 0; i < count; i++) {
        struct twi_spill *sketch = twi_spill_of(&engine->arena, generations[i]);
        if (sketch == NULL) continue;
        reading.sketches[reading.sketch_count] = sketch;
        measure(&reading, reading.sketch_count++);
    }
    bool done = reading.used == 0 || read_all(heavy, &reading, generations[0]);
    free(reading.parts);
    return done;
}

bool twi_heavy_absorb(struct twi_heavy *heavy, const tw_count *count) {
    if (heavy->used == 0) return false;
    const struct twi_hashing *hashing = &heavy->engine->hashing;
    uint64_t hash = hashing->fn(&hashing->secret, count->key.data, count->key.size);
    for (size_t at = hash & (heavy->places - 1); heavy->index[at] != 0; at = (at + 1) & (heavy->places - 1)) {
        struct twi_heavy_key *key = &heavy->keys[heavy->index[at] - 1];
        if (key->hash != hash || key->count.key.size != count->key.size ||
            memcmp(key->count.key.data, count->key.data, count->key.size) != 0)
            continue;
        key->count.view = twi_saturated_sum(key->count.view, count->view);
        key->count.local = twi_saturated_sum(key->count.local, count->local);
        key->count.end_ms = count->end_ms;
        return true;
    }
    return false;
}

void twi_heavy_free(struct twi_heavy *heavy) {
    free(heavy->keys);
    free(heavy->index);
    free(heavy->bytes);
}

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
    TWI_NEED(family);
    TWI_NEED(visit);
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
