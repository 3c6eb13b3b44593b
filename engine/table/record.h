/* record.h -- the memory that a generation owns, which is pieces of the arena within its family's share, and records in
 * chunks.
 * Always true: an owned piece is counted in the bytes of its family and of its generation. Any thread, lock-free. */
#ifndef TWI_TABLE_RECORD_H
#define TWI_TABLE_RECORD_H

#include "engine/table/layout.h"

/* Memory for a family, from its reserved part if it has one, otherwise from the rest. Not counted in its bytes. 0 means
 * none. */
TWI_INLINE uint32_t twi_quota_take(struct twi_arena *arena, struct twi_quota *quota, uint32_t lines) {
    uint32_t line = twi_parts_take(&quota->parts, lines);
    return line != 0 ? line : twi_arena_take(arena, lines);
}
/* The arena in which whole segments for its pieces can be prepared. */
TWI_INLINE struct twi_arena *twi_quota_arena(struct twi_arena *arena, struct twi_quota *quota) {
    struct twi_part *part = twi_load_acquire(&quota->parts); /* A9 */
    return part != NULL ? &part->arena : arena;
}
/* How full the memory is that a family may take. This is its share, except for the part kept for sketches, or the
 * memory outside all shares. */
struct twi_quota_use {
    int64_t used, most;
};
struct twi_quota_use twi_quota_use(const struct twi_arena *arena, struct twi_quota *quota);
/* Memory for a generation, within its family's share, except for the part that the share keeps for sketches. 0 means
 * none. */
uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines);
void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines);
/* The piece does not belong to the generation any more, though it is still in use. Its memory is given back by
 * twi_arena_give() alone. */
void twi_piece_disown(struct twi_generation *generation, uint32_t lines);
/* The same for a sketch, from the memory that shares and the arena keep for sketches (an eighth of a share of 64 KiB or
 * more, 128 KiB at most). *lines is the wanted number. It becomes the lines of the piece, which may be more, or less,
 * down to `least`. */
uint32_t twi_piece_take_for_spill(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines,
                                  uint32_t least);
/* How many keys each of so many windows can have if they fill a share of so many bytes. */
uint64_t twi_share_keys(uint64_t bytes, uint32_t windows, bool synced);
/* How much is left for a family, of the arena and of its share. */
int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota);
/* Fills in the head of a chunk of so many lines. The caller sets `older` and adds the chunk to its list. */
void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines);
/* The next record of the newest chunk of that kind, not yet filled in. NULL means that it has none left. *meta becomes
 * its index, kind and cold flag. */
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
/* A record of that kind, not yet filled in. NULL means no memory. *meta becomes its index, kind and cold flag. */
struct twi_cell *twi_record_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                 uint64_t *meta);

#endif
