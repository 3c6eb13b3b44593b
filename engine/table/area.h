/* area.h -- the memory that a window owns, and records that are prepared for a known number of keys.
 *
 *   | head | record | record | ... | head | record | ...    chunks in one row, all of one size, of one kind of record
 *
 * The hash of a key names a place in the area. A new key gets the record at its place, or the one next to it, or
 * otherwise the next free record from a cursor on, or otherwise a record outside the area, as in any window. So a
 * look-up can prefetch both records together with the line of slots. For two keys of three and more, all waits then
 * overlap. For the other keys the prefetch is useless. Two short records next to each other are an even line and the
 * odd one after it, because many processors load such lines together anyway. A prefetch of four records takes lines
 * away from other threads (docs/SPEED.md).
 * The area has one kind of record, the kind that most keys need. A window that is made by a forecast gets its area
 * before it is shared. A window for which only a number of keys was announced gets its area from the threads that
 * insert. This begins after a few keys, which decide the kind. Then each insert makes one chunk, until all are made, so
 * that none waits for a large area. A look-up sees the area when it is complete.
 * Always true: a place decides nothing, because the index finds each record wherever it is. A record of the area is
 * taken by a compare-and-swap of its `meta` from 0, and is never free again. A record that loses a race is kept for
 * later inserts. */
#ifndef TWI_TABLE_AREA_H
#define TWI_TABLE_AREA_H

#include "engine/table/layout.h"

/* ---- record ----
 * the memory that a generation owns: pieces of the arena within the share of its family, and records in
 * chunks.
 * Always true: the bytes of an owned piece are counted in its family and in its generation. Any thread, lock-free. */

/* Takes memory for a family: from its reserved part if there is one, otherwise from the rest. The family's bytes do
 * not include it. 0 means that there is no memory. */
TWI_INLINE uint32_t twi_quota_take(struct twi_arena *arena, struct twi_quota *quota, uint32_t lines) {
    uint32_t line = twi_parts_take(&quota->parts, lines);
    return line != 0 ? line : twi_arena_take(arena, lines);
}
/* Returns the arena in which whole segments for its pieces can be prepared. */
TWI_INLINE struct twi_arena *twi_quota_arena(struct twi_arena *arena, struct twi_quota *quota) {
    struct twi_part *part = twi_load_acquire(&quota->parts); /* A9 */
    return part != NULL ? &part->arena : arena;
}
/* How full the memory is that a family may use. This is the family's share without the part for sketches, or the
 * memory outside all shares. */
struct twi_quota_use {
    int64_t used, most;
};
struct twi_quota_use twi_quota_use(const struct twi_arena *arena, struct twi_quota *quota);
/* Divides the memory of a family with guests (guests.h) evenly among so many windows; 0: it has none. Of each part a
 * quarter is for guests, or less, because a piece of memory has one of some sizes. */
void twi_quota_divide(const struct twi_arena *arena, struct twi_quota *quota, uint8_t windows);
/* Returns the bytes of a part that are for the counters of the keys that come first. */
int64_t twi_quota_beside_guests(const struct twi_arena *arena, struct twi_quota *quota);
/* Takes memory for a generation within its family's share, except for the part that the share reserves for sketches.
 * 0 means that there is none. */
uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines);
void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines);
/* The piece no longer belongs to the generation, although it is still in use. twi_arena_give() alone gives its
 * memory back. */
void twi_piece_disown(struct twi_generation *generation, uint32_t lines);
/* Does the same for a sketch, from the memory that shares and the arena reserve for sketches (an eighth of a share
 * of 64 KiB or more, at most 128 KiB). *lines is the wanted number. It becomes the number of lines of the piece,
 * which may be more, or less, but at least `least`. */
uint32_t twi_piece_take_for_spill(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines,
                                  uint32_t least);
/* Returns how many keys each of so many windows can have if they fill a share of so many bytes. */
uint64_t twi_share_keys(uint64_t bytes, uint32_t windows, bool synced);
/* Returns how much memory is left for a family, in the arena and in its share. */
int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota);
/* Fills in the head of a chunk of that many lines. The caller sets `older` and adds the chunk to its list. */
void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines);
/* Takes the next record of the newest chunk of that kind. The record is not filled in yet. Returns NULL if the chunk
 * has no record left. *meta becomes the index, kind and cold flag of the record. */
TWI_INLINE struct twi_cell *twi_record_take_next(struct twi_arena *arena, struct twi_generation *generation,
                                                 uint32_t kind, bool synced, uint64_t *meta) {
    uint32_t line = twi_load_acquire(&generation->chunks[kind]); /* T11, pairs with T10 */
    struct twi_chunk *chunk = twi_arena_at(arena, line);
    if (twi_unlikely(line == 0) || twi_unlikely(twi_load_relaxed(&chunk->used) >= chunk->capacity)) return NULL;
    uint32_t index = twi_add_relaxed(&chunk->used, 1);
    if (twi_unlikely(index >= chunk->capacity)) return NULL;
    *meta =
        (uint64_t)index << TWI_META_INDEX_SHIFT | (uint64_t)kind << TWI_META_KIND_SHIFT | (synced ? TWI_META_COLD : 0);
    return twi_chunk_cell_of(chunk, kind, index, synced);
}
/* Takes a record of that kind. The record is not filled in. NULL: no memory. *meta becomes the index, kind and cold
 * flag of the record. */
struct twi_cell *twi_record_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                 uint64_t *meta);

#define TWI_AREA_KEYS_MIN 20u /* fewer keys need only few lines anyway */
/* So few long records are in the cache. There a useless prefetch costs more than the others save. */
#define TWI_AREA_SMALL 4096u
#define TWI_AREA_LINES_MAX 4u /* the most lines of a record of an area; its kind is one less than its lines */

/* Returns the distance of a place from the first record, in lines. `lines` is the size of a record. */
TWI_INLINE uint64_t twi_area_distance(uint64_t place, uint32_t lines, bool synced) {
    if (lines != 1) return place * lines;
    return synced ? (place >> 1) * 3 + (place & 1) * 2 : place;
}
/* Returns the place of a hash, as one of so many places. */
TWI_INLINE uint64_t twi_area_place(uint32_t half_of_hash, uint32_t places) {
    return (uint64_t)half_of_hash * places >> 32;
}
/* Prefetches the records at the place of a key and next to it, if there is an area for this kind of key. */
TWI_INLINE void twi_area_ask(const struct twi_generation *generation, uint64_t hash, bool is_long, bool synced) {
    const struct twi_area *area = &generation->area;
    uint64_t places = twi_load_acquire(&area->places[is_long]); /* H2, pairs with H1: the area is complete */
    if (places == 0) return;
    const unsigned char *at = area->first;
    if (!is_long && !synced) { /* any byte of a line can be used */
        at += (uint32_t)hash * places >> 26;
        __builtin_prefetch(at);
        __builtin_prefetch((const unsigned char *)((uintptr_t)at ^ TWI_LINE_BYTES));
        return;
    }
    uint64_t place = twi_area_place((uint32_t)hash, (uint32_t)places);
    if (!is_long) {
        at += twi_area_distance(place & ~UINT64_C(1), 1, true) * TWI_LINE_BYTES;
        __builtin_prefetch(at);
        __builtin_prefetch(at + 2 * TWI_LINE_BYTES);
        return;
    }
    uint32_t lines = area->lines;
    bool is_small = places < TWI_AREA_SMALL;
    at += (is_small ? place : place & ~UINT64_C(1)) * lines * TWI_LINE_BYTES;
    __builtin_prefetch(at);
    __builtin_prefetch(at + TWI_LINE_BYTES);
    if (is_small) return;
    __builtin_prefetch(at + 2 * TWI_LINE_BYTES);
    __builtin_prefetch(at + 3 * TWI_LINE_BYTES);
    if (lines == 2) return;
    __builtin_prefetch(at + 4 * TWI_LINE_BYTES);
    __builtin_prefetch(at + 5 * TWI_LINE_BYTES);
}

/* Takes a free record of the area for a key of that kind. The record is at the key's place or next to it, or elsewhere,
 * found after at most `looks` looks. Returns NULL if there is none. The meta word of the record becomes its index and
 * kind, and the size of the key. */
#define TWI_AREA_LOOKS 32u        /* the most looks before the thread takes a spare record from elsewhere */
#define TWI_AREA_LOOKS_LONG 1024u /* the most looks before the thread takes memory for more records */
struct twi_cell *twi_area_take(struct twi_generation *generation, uint32_t half_of_hash, size_t key_size, uint32_t kind,
                               uint32_t looks);

/* How many keys of a window will use its area, and how many lines their records need. */
struct twi_area_forecast {
    uint64_t keys;
    uint32_t lines;
};
/* Returns the forecast for a window with so many keys, if its keys are similar to those of `seen`. It is for the
 * kind of record that most of those keys have. */
struct twi_area_forecast twi_area_forecast(const struct twi_generation *seen, uint64_t keys_expected);

/* An area that is being built, in as many steps as necessary, before a look-up can see it. */
struct twi_area_plan {
    uint32_t chunks; /* 0: no area */
    uint32_t next;   /* chunks that exist */
    uint32_t stride; /* lines from one chunk to the next */
    uint32_t lines;  /* the size of a record */
    uint32_t lines_of_chunk;
    bool ahead; /* the window is in the future, so the pages of the area are faulted in */
};
/* Takes the memory. Returns false if there is no area for so few keys, or if it would take more than `spare` bytes, or
 * more than half of the memory that is left. Then the generation has no area. */
bool twi_area_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_area_forecast forecast,
                    int64_t spare, struct twi_area_plan *plan);
/* Returns true when the area is complete. Touches at most *work lines. */
bool twi_area_fill(struct twi_arena *arena, struct twi_generation *generation, struct twi_area_plan *plan,
                   uint32_t *work);
/* Called before a window of so many keys of unknown lengths is shared. The first keys will decide about its area.
 * Memory for so many short keys is faulted in, so that fewer inserts wait for it. */
void twi_area_lay_out(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected);
/* Begins the area of such a window if enough keys have come, or makes one more chunk of it. Other threads may do the
 * same. An insert calls it, inside its section. */
#define TWI_AREA_LAYING (UINT32_C(1) << 31)
void twi_area_decide(struct twi_arena *arena, struct twi_generation *generation);
/* Gives the memory of the area back. Each line costs one unit of *work. Returns true when done. */
bool twi_area_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
