/* record.c -- see record.h. */
#include "engine/table/record.h"

/* ---- pieces ---- */

uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines) {
    struct twi_quota *quota = generation->quota;
    int64_t bytes = (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
    int64_t bound = twi_load_relaxed(&quota->bytes_max);
    int64_t used = twi_add_relaxed(&quota->bytes, bytes) + bytes;
    uint32_t line = bound != 0 && used > bound ? 0 : twi_arena_take(arena, lines);
    if (line == 0)
        (void)twi_sub_relaxed(&quota->bytes, bytes);
    else
        (void)twi_add_relaxed(&generation->bytes, bytes);
    return line;
}

void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines) {
    int64_t bytes = (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
    (void)twi_sub_relaxed(&generation->quota->bytes, bytes);
    (void)twi_sub_relaxed(&generation->bytes, bytes);
    twi_arena_give(arena, line, lines);
}

int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota) {
    int64_t left = (int64_t)arena->bytes_max - twi_arena_bytes_used(arena);
    int64_t most = twi_load_relaxed(&quota->bytes_max), share = most - twi_load_relaxed(&quota->bytes);
    return most != 0 && share < left ? share : left;
}

/* ---- records ---- */

void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines) {
    bool synced = generation->synced;
    uint32_t capacity = kind == 0 && synced ? (lines - 1) / 3 * 2 : (lines - 1) / twi_kinds[kind].lines;
    chunk->capacity = synced && capacity > TWI_CHUNK_MARKS * 64 ? TWI_CHUNK_MARKS * 64 : capacity;
    chunk->kind = (uint8_t)kind;
    chunk->lines = (uint16_t)lines;
    chunk->generation = twi_arena_line(arena, generation);
}

static uint32_t record_lines(uint32_t kind, bool synced, uint32_t count) {
    if (kind == 0 && synced) return (count + 1) / 2 * 3;
    return count * twi_kinds[kind].lines;
}

/* Chunks grow with the generation: a new chunk has about as many records as the generation has keys, at most a segment.
 * If no run of free lines is that long, half as many records do, and half of that. */
static struct twi_chunk *add_chunk(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                   uint32_t older) {
    bool synced = generation->synced;
    uint64_t keys = twi_load_relaxed(&generation->keys);
    uint32_t lookup = keys < 1 ? 1 : keys > 1024 ? 1024 : (uint32_t)keys;
    uint32_t most = synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES, lines, line;
    for (;; lookup /= 2) {
        if (lookup == 0) return NULL;
        lines = 1 + record_lines(kind, synced, lookup);
        if (lines > most && lookup > 1 && 1 + record_lines(kind, synced, lookup / 2) >= most) continue;
        lines = twi_arena_round(lines > most ? most : lines);
        line = twi_piece_take(arena, generation, lines);
        if (line != 0) break;
    }
    struct twi_chunk *chunk = twi_arena_at(arena, line);
    twi_chunk_begin(arena, generation, chunk, kind, lines);
    chunk->older = older;
    uint32_t found = older;
    if (twi_cas_acqrel(&generation->chunks[kind], &found, line)) return chunk; /* T10, pairs with T11 */
    twi_piece_give(arena, generation, line, lines);
    return twi_arena_at(arena, found);
}

struct twi_cell *twi_record_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                 uint64_t *meta) {
    for (;;) {
        uint32_t line = twi_load_acquire(&generation->chunks[kind]); /* T11, pairs with T10 */
        struct twi_chunk *chunk = twi_arena_at(arena, line);
        if (line != 0 && twi_load_relaxed(&chunk->used) < chunk->capacity) {
            uint32_t index = twi_add_relaxed(&chunk->used, 1);
            if (index < chunk->capacity) {
                *meta = (uint64_t)index << TWI_META_INDEX_SHIFT | (uint64_t)kind << TWI_META_KIND_SHIFT |
                        (generation->synced ? TWI_META_COLD : 0);
                return twi_chunk_cell(chunk, index, generation->synced);
            }
        }
        if (add_chunk(arena, generation, kind, line) == NULL) return NULL;
    }
}
