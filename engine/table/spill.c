/* spill.c -- see spill.h.
 *
 * Three tables are under the lock of a shard: `heap` has the numbers of its entries, the lightest first. `places`
 * has the place of each entry in the heap. `index` has numbers + 1 by tag, with open addressing, at most half full,
 * without tombstones. */
#include "engine/table/spill.h"

#include "engine/table/area.h"

#include <string.h>

/* how many times the shards of a kind are tried before a unit is missed; so no thread waits for another */
#define TRIES 64u
#define READS 16u /* how often one entry is read */
#define SKETCH_LINES ((uint32_t)((sizeof(struct twi_spill) + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES))
#define LINES_LEAST 96u /* the fewest lines of a piece: room for 80 short keys, or 5 of the longest keys */
#define PREPARE_BYTES 131072
#define PREPARE_PART 16u /* this part of the memory of a window */
#define PER_ENTRY 8u     /* the bytes of heap, places and index for each entry */

/* How many lines a shard of each kind has. With a sketch in front it fills half a segment or whole ones. */
static const uint16_t shard_lines[TWI_KINDS] = {492, 492, 1004, 1004, 2028, 3052};

/* ---- memory ---- */

static_assert(SKETCH_LINES == 20, "see shard_lines");

static uint32_t room_in(uint32_t lines, uint32_t kind) {
    return (uint32_t)((uint64_t)(lines - 1) * TWI_LINE_BYTES / (twi_kinds[kind].lines * TWI_LINE_BYTES + PER_ENTRY));
}

/* Makes a shard behind the first `before` lines of a new piece, or a smaller one. NULL: no memory. */
static struct twi_spill_shard *make_shard(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                          uint32_t before, uint32_t most) {
    uint32_t lines = before + shard_lines[kind] < most ? before + shard_lines[kind] : most;
    uint32_t line = twi_piece_take_for_spill(arena, generation, &lines, LINES_LEAST);
    if (line == 0) return NULL;
    struct twi_spill_shard *shard = twi_arena_at(arena, line + before);
    shard->kind = kind;
    shard->room = room_in(lines - before, kind);
    shard->piece = line;
    shard->piece_lines = lines;
    return shard;
}

/* Returns the sketch of the generation. If this thread makes the sketch, it has a shard of this kind. NULL means
 * that the sketch is refused. *is_refused means that this call refused it. */
static struct twi_spill *begin(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind, uint32_t most,
                               bool *is_refused) {
    struct twi_spill_shard *shard = make_shard(arena, generation, kind, SKETCH_LINES, most);
    if (shard == NULL && most != UINT32_MAX) return NULL; /* made in advance, so a later call tries again */
    uint32_t found = 0, line = shard != NULL ? shard->piece : TWI_SPILL_REFUSED;
    struct twi_spill *sketch = shard != NULL ? twi_arena_at(arena, line) : NULL;
    if (sketch != NULL) twi_store_relaxed(&sketch->shards[kind][0], line + SKETCH_LINES);
    if (twi_cas_acqrel(&generation->aside.spill, &found, line)) { /* B5, pairs with B6 */
        *is_refused = shard == NULL;
        return sketch;
    }
    if (shard != NULL) twi_piece_give(arena, generation, shard->piece, shard->piece_lines);
    return found != TWI_SPILL_REFUSED ? twi_arena_at(arena, found) : NULL;
}

struct twi_spill *twi_spill_of(const struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t line = twi_load_acquire(&generation->aside.spill); /* B6, pairs with B5 */
    return line > TWI_SPILL_REFUSED ? twi_arena_at(arena, line) : NULL;
}

struct twi_spill_shard *twi_spill_shard_of(const struct twi_arena *arena, struct twi_spill *sketch, uint32_t kind,
                                           uint32_t number) {
    uint32_t line = number < TWI_SPILL_SHARDS ? twi_load_acquire(&sketch->shards[kind][number]) : 0; /* B6 */
    return line != 0 ? twi_arena_at(arena, line) : NULL;
}

/* Returns false if other uses may need the memory more. The first shard of a kind is always tried. Further ones
 * leave half of what the reserve and the share have for sketches, and an eighth of the arena. */
static bool may_add(const struct twi_arena *arena, struct twi_generation *generation, uint32_t kind, uint32_t number) {
    struct twi_quota *quota = generation->quota;
    int64_t bytes = (int64_t)shard_lines[kind] * TWI_LINE_BYTES, most = twi_load_relaxed(&quota->bytes_max);
    if (number == 0 || number >= TWI_SPILL_SHARDS) return number == 0;
    if (most != 0 && most - twi_load_relaxed(&quota->bytes) < 2 * bytes) return false;
    struct twi_quota_use use = twi_quota_use(arena, quota);
    return most != 0 || use.most - use.used >= use.most / 8 || twi_arena_reserve_is_half_free(arena);
}

/* Adds one more shard, unless memory is short. */
static void add_shard(struct twi_arena *arena, struct twi_generation *generation, struct twi_spill *sketch,
                      uint32_t kind, uint32_t number) {
    if (!may_add(arena, generation, kind, number)) return;
    struct twi_spill_shard *shard = make_shard(arena, generation, kind, 0, UINT32_MAX);
    uint32_t none = 0;
    if (shard == NULL) return;
    if (!twi_cas_acqrel(&sketch->shards[kind][number], &none, twi_arena_line(arena, shard))) /* B5 */
        twi_piece_give(arena, generation, shard->piece, shard->piece_lines);
}

bool twi_spill_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    struct twi_spill *sketch = twi_spill_of(arena, generation);
    for (uint32_t kind = 0; sketch != NULL && kind < TWI_KINDS; kind++) {
        for (uint32_t number = TWI_SPILL_SHARDS; number-- > 0;) {
            struct twi_spill_shard *shard = twi_spill_shard_of(arena, sketch, kind, number);
            if (shard == NULL || shard->piece == twi_load_relaxed(&generation->aside.spill)) continue;
            if (*work < TWI_SEGMENT_LINES) return false;
            *work -= TWI_SEGMENT_LINES;
            twi_store_relaxed(&sketch->shards[kind][number], 0);
            twi_piece_give(arena, generation, shard->piece, shard->piece_lines);
        }
    }
    for (uint32_t kind = 0; sketch != NULL && kind < TWI_KINDS; kind++) { /* the piece with the sketch goes last */
        struct twi_spill_shard *shard = twi_spill_shard_of(arena, sketch, kind, 0);
        if (shard == NULL) continue;
        twi_store_relaxed(&generation->aside.spill, 0);
        twi_piece_give(arena, generation, shard->piece, shard->piece_lines);
        break;
    }
    twi_store_relaxed(&generation->aside.spill, 0);
    return true;
}

/* ---- the parts of a shard ---- */

static struct twi_spill_entry *entry_at(struct twi_spill_shard *shard, uint32_t number) {
    return (struct twi_spill_entry *)((unsigned char *)(shard + 1) +
                                      (size_t)number * twi_kinds[shard->kind].lines * TWI_LINE_BYTES);
}
static uint16_t *heap_of(struct twi_spill_shard *shard) {
    return (uint16_t *)(void *)entry_at(shard, shard->room);
}
static uint16_t *places_of(struct twi_spill_shard *shard) {
    return heap_of(shard) + shard->room;
}
static uint16_t *index_of(struct twi_spill_shard *shard) {
    return places_of(shard) + shard->room;
}
static uint32_t home_of(const struct twi_spill_shard *shard, uint32_t tag) {
    return (uint32_t)((uint64_t)tag * (2 * shard->room) >> 32);
}
static int64_t count_of(struct twi_spill_shard *shard, uint32_t number) {
    return twi_load_relaxed(&entry_at(shard, number)->count);
}

/* Returns the least count that the key can have had since it has the entry. */
static int64_t least_of(struct twi_spill_shard *shard, uint32_t number) {
    return count_of(shard, number) - twi_load_relaxed(&entry_at(shard, number)->error);
}

static uint64_t key_word(tw_key key, size_t word) {
    uint64_t bytes = 0;
    memcpy(&bytes, (const unsigned char *)key.data + word * 8, key.size - word * 8 < 8 ? key.size - word * 8 : 8);
    return bytes;
}

static bool has_key(struct twi_spill_entry *entry, const struct twi_lookup_key *lookup) {
    if (entry->tag != lookup->tag || twi_load_relaxed(&entry->size) != lookup->key.size) return false;
    for (size_t word = 0; word * 8 < lookup->key.size; word++) {
        if (twi_load_relaxed(&entry->key[word]) != key_word(lookup->key, word)) return false;
    }
    return true;
}

/* Returns the number of the key's entry. *at becomes its place in the index, or the empty place where it would be. */
static bool find(struct twi_spill_shard *shard, const struct twi_lookup_key *lookup, uint32_t *number, uint32_t *at) {
    const uint16_t *index = index_of(shard);
    for (*at = home_of(shard, lookup->tag); index[*at] != 0; *at = (*at + 1) % (2 * shard->room)) {
        *number = index[*at] - 1u;
        if (has_key(entry_at(shard, *number), lookup)) return true;
    }
    return false;
}

/* Removes the entry from the index. Entries behind it move towards their places, so that no search ends at the hole. */
static void forget(struct twi_spill_shard *shard, uint32_t number) {
    uint16_t *index = index_of(shard);
    uint32_t places = 2 * shard->room, hole = home_of(shard, entry_at(shard, number)->tag);
    while (index[hole] != number + 1) hole = (hole + 1) % places;
    for (uint32_t next = (hole + 1) % places; index[next] != 0; next = (next + 1) % places) {
        uint32_t home = home_of(shard, entry_at(shard, index[next] - 1u)->tag);
        if ((next + places - home) % places < (next + places - hole) % places) continue;
        index[hole] = index[next];
        hole = next;
    }
    index[hole] = 0;
}

static void set_place(struct twi_spill_shard *shard, uint32_t place, uint16_t number) {
    heap_of(shard)[place] = number;
    places_of(shard)[number] = (uint16_t)place;
}

/* Moves the entry at `place` of the heap after it has become heavier or lighter. */
static void sort_in(struct twi_spill_shard *shard, uint32_t place) {
    const uint16_t *heap = heap_of(shard);
    uint32_t used = twi_load_relaxed(&shard->used);
    uint16_t moved = heap[place];
    int64_t count = count_of(shard, moved);
    for (; place != 0 && count < count_of(shard, heap[(place - 1) / 2]); place = (place - 1) / 2)
        set_place(shard, place, heap[(place - 1) / 2]);
    for (uint32_t child; (child = 2 * place + 1) < used; place = child) {
        if (child + 1 < used && count_of(shard, heap[child + 1]) < count_of(shard, heap[child])) child++;
        if (count <= count_of(shard, heap[child])) break;
        set_place(shard, place, heap[child]);
    }
    set_place(shard, place, moved);
}

/* ---- adding, under the lock of the shard ---- */

/* A reader that sees a part of the new entry, or a later count (B7), sees another version, and reads again (B1, B2). */
static void write_entry(struct twi_spill_entry *entry, const struct twi_lookup_key *lookup, int64_t count,
                        int64_t error) {
    uint32_t version = twi_load_relaxed(&entry->version);
    twi_store_release(&entry->version, version + 1); /* B1, pairs with B2; the same is true for the next stores */
    twi_store_release(&entry->size, (uint32_t)lookup->key.size);
    for (size_t word = 0; word * 8 < lookup->key.size; word++)
        twi_store_release(&entry->key[word], key_word(lookup->key, word));
    twi_store_release(&entry->count, count);
    twi_store_release(&entry->error, error);
    entry->tag = lookup->tag;
    twi_store_release(&entry->version, version + 2); /* B1 */
}

static void add_saturated(_Atomic int64_t *sum, int64_t units) {
    int64_t found = twi_load_relaxed(sum);
    while (!twi_cas_relaxed(sum, &found, twi_saturated_sum(found, units))) continue;
}

static bool in_range(int64_t count) {
    return count <= TW_COUNT_MAX && count >= -TW_COUNT_MAX;
}

/* Gives an entry to a key that has none. Returns false if the units must be missed. */
static bool enter(struct twi_spill_shard *shard, const struct twi_lookup_key *lookup, int64_t delta, uint32_t at) {
    uint32_t number = twi_load_relaxed(&shard->used), place = number;
    int64_t floor = twi_load_relaxed(&shard->floor), below_zero = 0;
    if (number == shard->room && delta < 0) { /* it is only known that the key's count is less */
        add_saturated(&shard->debt, -delta);
        return true;
    }
    if (number == shard->room) {
        place = 0;
        number = heap_of(shard)[0];
        if (count_of(shard, number) > floor) floor = count_of(shard, number);
        below_zero = least_of(shard, number) < 0 ? -least_of(shard, number) : 0;
    }
    if (!in_range(floor + delta)) return false;
    if (place == 0 && twi_load_relaxed(&shard->used) == shard->room) {
        twi_store_relaxed(&shard->floor, floor); /* before B1, because the entry changes after it; so is the debt */
        add_saturated(&shard->debt, below_zero);
        forget(shard, number);
        uint32_t other;
        (void)find(shard, lookup, &other, &at); /* the empty place may be another one now */
    }
    struct twi_spill_entry *entry = entry_at(shard, number);
    write_entry(entry, lookup, floor + delta, floor);
    index_of(shard)[at] = (uint16_t)(number + 1);
    if (number == twi_load_relaxed(&shard->used)) {
        set_place(shard, place, (uint16_t)number);
        twi_store_release(&shard->used, number + 1); /* B1 */
    }
    sort_in(shard, place);
    return true;
}

static bool count_in(struct twi_spill_shard *shard, const struct twi_lookup_key *lookup, int64_t delta) {
    uint32_t number, at;
    if (!find(shard, lookup, &number, &at)) return enter(shard, lookup, delta, at);
    int64_t count = count_of(shard, number) + delta;
    if (!in_range(count)) return false;
    twi_store_release(&entry_at(shard, number)->count, count); /* B7, pairs with B2 */
    sort_in(shard, places_of(shard)[number]);
    return true;
}

/* Locks the first shard of the kind whose lock is free, and returns it. NULL means that all locks were held. *shards
 * becomes the number of shards. Threads begin at different shards. */
static struct twi_spill_shard *lock_one(struct twi_arena *arena, struct twi_spill *sketch, uint32_t kind,
                                        uint32_t thread, uint32_t *shards) {
    *shards = 0;
    while (twi_spill_shard_of(arena, sketch, kind, *shards) != NULL) ++*shards;
    for (uint32_t tries = 0; *shards != 0 && tries < TRIES; tries++) {
        struct twi_spill_shard *shard = twi_spill_shard_of(arena, sketch, kind, (thread + tries) % *shards);
        if (twi_load_relaxed(&shard->lock) == 0 && twi_swap_acquire(&shard->lock, 1) == 0) return shard; /* B3 */
    }
    return NULL;
}

static void miss(struct twi_spill *sketch, const struct twi_lookup_key *lookup, int64_t delta) {
    struct twi_spill_missed *missed = twi_spill_missed_of(sketch, lookup->tag);
    add_saturated(delta > 0 ? &missed->more : &missed->less, delta > 0 ? delta : -delta);
}

bool twi_spill_add(struct twi_arena *arena, struct twi_generation *generation, const struct twi_lookup_key *lookup,
                   uint32_t thread, int64_t delta) {
    uint32_t kind = twi_kind_for(lookup->key.size, false), shards;
    struct twi_spill *sketch = twi_spill_of(arena, generation);
    bool is_refused = false;
    if (sketch == NULL && twi_load_relaxed(&generation->aside.spill) == 0)
        sketch = begin(arena, generation, kind, UINT32_MAX, &is_refused);
    if (sketch == NULL || delta == 0) return !is_refused;
    struct twi_spill_shard *shard = lock_one(arena, sketch, kind, thread, &shards);
    if (shard == NULL) {
        add_shard(arena, generation, sketch, kind, shards);
        shard = lock_one(arena, sketch, kind, thread, &shards);
    }
    bool counted = shard != NULL && count_in(shard, lookup, delta);
    if (shard != NULL) twi_store_release(&shard->lock, 0); /* B4, pairs with B3 */
    if (!counted) miss(sketch, lookup, delta);
    return true;
}

bool twi_spill_add_first(struct twi_arena *arena, struct twi_generation *generation,
                         const struct twi_lookup_key *lookup, uint32_t thread, int64_t delta) {
    struct twi_spill *sketch = twi_spill_of(arena, generation);
    if (sketch == NULL) return twi_spill_add(arena, generation, lookup, thread, delta);
    miss(sketch, lookup, delta);
    return true;
}

void twi_spill_prepare(struct twi_arena *arena, struct twi_generation *generation, size_t key_size) {
    int64_t bytes = twi_load_relaxed(&generation->bytes);
    bool is_refused;
    if (twi_load_relaxed(&generation->aside.spill) != 0 || !twi_load_relaxed(&generation->quota->overflows) ||
        bytes < PREPARE_BYTES)
        return;
    struct twi_quota_use use = twi_quota_use(arena, generation->quota);
    if (use.used < use.most / 2) return;
    uint64_t most = (uint64_t)bytes / PREPARE_PART / TWI_LINE_BYTES;
    (void)begin(arena, generation, twi_kind_for(key_size, false), most < UINT32_MAX ? (uint32_t)most : UINT32_MAX,
                &is_refused);
}

/* ---- reading ---- */

bool twi_spill_read(struct twi_spill_shard *shard, uint32_t number, struct twi_spill_seen *seen) {
    struct twi_spill_entry *entry = entry_at(shard, number);
    for (uint32_t reads = 0; reads < READS; reads++) {
        uint32_t version = twi_load_acquire(&entry->version); /* B2, pairs with B1, like the next loads */
        if ((version & 1) != 0) continue;
        seen->size = twi_load_acquire(&entry->size);
        for (size_t word = 0; word * 8 < seen->size; word++) seen->key[word] = twi_load_acquire(&entry->key[word]);
        seen->count = twi_load_acquire(&entry->count);
        seen->error = twi_load_acquire(&entry->error);
        if (twi_load_relaxed(&entry->version) == version) return true;
    }
    return false;
}
