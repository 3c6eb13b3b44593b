/* record.h -- the memory that a generation owns: pieces of the arena within the share of its family, and records in
 * chunks.
 * Always true: the bytes of an owned piece are counted in its family and in its generation. Any thread, lock-free. */
#ifndef TWI_TABLE_RECORD_H
#define TWI_TABLE_RECORD_H

#include "engine/table/layout.h"

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

#endif
