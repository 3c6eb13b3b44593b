/* record.c -- see record.h. */
#include "engine/table/record.h"

/* ---- pieces ---- */

#define SHARE_SPLIT (INT64_C(64) << 10) /* a smaller share keeps no memory for sketches */
#define SKETCHES_MAX (INT64_C(128) << 10)

static uint32_t record_lines(uint32_t kind, bool synced, uint32_t count) {
    if (kind == 0 && synced) return (count + 1) / 2 * 3;
    return count * twi_kinds[kind].lines;
}

static int64_t without_sketches(int64_t share) {
    if (share < SHARE_SPLIT) return share;
    return share - (share / 8 < SKETCHES_MAX ? share / 8 : SKETCHES_MAX);
}

/* Returns the memory that a share has for all uses except sketches. 0 means that there is no bound. */
static int64_t most_without_sketches(const struct twi_quota *quota) {
    return without_sketches(twi_load_relaxed(&quota->bytes_max));
}

#define INDEX_OF_KEY 18u /* the bytes of the index for each key, if the index was laid out for that many keys */

uint64_t twi_share_keys(uint64_t bytes, uint32_t windows, bool synced) {
    uint64_t record = record_lines(0, synced, 2) * TWI_LINE_BYTES / 2;
    return (uint64_t)without_sketches((int64_t)bytes) / windows / (record + INDEX_OF_KEY);
}

/* Returns false if the share has no room for the piece. If `most` is 0, there is no bound. */
static bool charge(struct twi_generation *generation, int64_t bytes, int64_t most) {
    int64_t used = twi_add_relaxed(&generation->quota->bytes, bytes) + bytes;
    if (most != 0 && used > most) {
        (void)twi_sub_relaxed(&generation->quota->bytes, bytes);
        return false;
    }
    (void)twi_add_relaxed(&generation->bytes, bytes);
    return true;
}

static void discharge(struct twi_generation *generation, int64_t bytes) {
    (void)twi_sub_relaxed(&generation->quota->bytes, bytes);
    (void)twi_sub_relaxed(&generation->bytes, bytes);
}

static int64_t bytes_of(uint32_t lines) {
    return (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
}

uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines) {
    if (!charge(generation, bytes_of(lines), most_without_sketches(generation->quota))) return 0;
    uint32_t line = twi_quota_take(arena, generation->quota, lines);
    if (line == 0) discharge(generation, bytes_of(lines));
    return line;
}

void twi_piece_disown(struct twi_generation *generation, uint32_t lines) {
    discharge(generation, bytes_of(lines));
}

void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines) {
    discharge(generation, bytes_of(lines));
    twi_arena_give(arena, line, lines);
}

static uint32_t take_reserved(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines) {
    uint32_t line = twi_arena_take_reserved(arena, lines);
    if (line == 0 || charge(generation, bytes_of(*lines), twi_load_relaxed(&generation->quota->bytes_max))) return line;
    twi_arena_give(arena, line, *lines);
    return 0;
}

uint32_t twi_piece_take_for_spill(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines,
                                  uint32_t least) {
    for (uint32_t tried = *lines; tried >= least; tried -= tried / 4) {
        uint32_t line = 0;
        *lines = twi_arena_round(tried);
        if (charge(generation, bytes_of(*lines), twi_load_relaxed(&generation->quota->bytes_max))) {
            line = twi_quota_take(arena, generation->quota, *lines);
            if (line == 0) discharge(generation, bytes_of(*lines));
        }
        if (line == 0) line = take_reserved(arena, generation, lines);
        if (line != 0) return line;
    }
    return 0;
}

struct twi_quota_use twi_quota_use(const struct twi_arena *arena, struct twi_quota *quota) {
    int64_t most = most_without_sketches(quota);
    if (most != 0) return (struct twi_quota_use){twi_load_relaxed(&quota->bytes), most};
    return (struct twi_quota_use){twi_arena_rest_used(arena), twi_arena_rest_max(arena)};
}

int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota) {
    struct twi_quota_use use = twi_quota_use(arena, quota);
    return use.most - use.used;
}

/* ---- records ---- */

void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines) {
    bool synced = generation->synced;
    uint32_t capacity = kind == 0 && synced ? (lines - 1) / 3 * 2 : (lines - 1) / twi_kinds[kind].lines;
    chunk->capacity = (uint16_t)(synced && capacity > TWI_CHUNK_MARKS * 64 ? TWI_CHUNK_MARKS * 64 : capacity);
    chunk->kind = (uint8_t)kind;
    chunk->lines = (uint16_t)lines;
    chunk->generation = twi_arena_line(arena, generation);
}

/* a chunk takes at most this part of a share, because some of its records may not be needed */
#define SHARE_CHUNKS 64u
#define SHARE_CHUNK_LINES 32u /* but a chunk may always have this many lines */

static uint32_t chunk_lines_max(const struct twi_generation *generation) {
    uint32_t most = generation->synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES;
    uint64_t share = (uint64_t)twi_load_relaxed(&generation->quota->bytes_max) / TWI_LINE_BYTES / SHARE_CHUNKS;
    if (share == 0 || share >= most) return most;
    return share > SHARE_CHUNK_LINES ? (uint32_t)share : SHARE_CHUNK_LINES;
}

#define FEW_KEYS 32u /* with fewer keys, a new chunk has as many records as keys */

/* Chunks grow with the generation. A new chunk has about a quarter as many records as the generation has keys, and at
 * most a segment. It has an eighth beside an area, because few more keys are likely to come. If no run of free lines is
 * that long, it tries half as many records, and then again half as many. */
static struct twi_chunk *add_chunk(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                   uint32_t older) {
    bool synced = generation->synced;
    uint64_t keys = twi_load_relaxed(&generation->keys);
    bool has_area = twi_load_relaxed(&generation->area.places[kind != 0]) != 0;
    uint64_t wanted = keys < FEW_KEYS ? keys : keys / (has_area ? 8 : 4);
    uint32_t lookup = wanted < 1 ? 1 : wanted > 1024 ? 1024 : (uint32_t)wanted;
    uint32_t most = chunk_lines_max(generation), lines, line;
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
        struct twi_cell *cell = twi_record_take_next(arena, generation, kind, generation->synced, meta);
        if (cell != NULL) return cell;
        if (add_chunk(arena, generation, kind, line) == NULL) return NULL;
    }
}
