/* heavy.c -- see heavy.h. */
#include "engine/count/heavy.h"

#include "engine/table/spill.h"

#include <stdlib.h>

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
