/* tag_groups.c -- see tag_groups.h: building tag groups, taking records from them, giving them back. */
#include "engine/table/tag_groups.h"

#include "engine/table/record.h"

/* Windows that fit into about the second-level cache get a quarter more records than keys, so that nearly every key
 * finds room in its group. In larger windows memory counts: they get 1 record in 400 more. */
#define ROOMY_KEYS 262144u

static uint64_t bytes_of(uint32_t line) {
    return (uint64_t)line * TWI_LINE_BYTES;
}
static uint32_t line_of(uint64_t bytes) {
    return (uint32_t)(bytes / TWI_LINE_BYTES);
}
static uint32_t group_lines(bool synced) {
    return synced ? TWI_TAG_GROUP_SIZE / 2 * 3 : TWI_TAG_GROUP_SIZE;
}
static uint32_t chunk_lines_max(bool synced) {
    return synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES;
}
static uint32_t tag_lines(uint32_t groups) {
    return (groups * TWI_TAG_GROUP_SIZE + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES;
}
static uint32_t chunks_in_tags_piece(uint32_t groups) {
    return TWI_SEGMENT_LINES / tag_lines(groups);
}
static uint32_t tags_piece_lines(const struct twi_tag_groups *directory, uint32_t groups) {
    uint32_t chunks = chunks_in_tags_piece(groups);
    return (directory->planned < chunks ? directory->planned : chunks) * tag_lines(groups);
}
static uint32_t directory_lines(uint32_t chunks) {
    return (uint32_t)((sizeof(struct twi_tag_groups) + (size_t)chunks * sizeof(struct twi_tag_groups_entry) +
                       TWI_LINE_BYTES - 1) /
                      TWI_LINE_BYTES);
}

/* ---- records ---- */

/* A free record of the group, with its tag set. TWI_TAG_GROUP_SIZE: none. */
static uint32_t claim(_Atomic uint8_t *tags, uint8_t tag) {
    uint32_t free = twi_tag_group_match(tags, 0);
    while (free != 0) {
        uint32_t at = twi_tag_group_choose(free, tag);
        if (twi_tag_group_claim(tags, at, tag)) return at;
        free &= ~(1u << at);
    }
    return TWI_TAG_GROUP_SIZE;
}

/* Takes a record in the primary group, else in an adjacent group. Returns its index in the chunk, or UINT32_MAX. Groups
 * in the last line of tags that have no records look full. */
static uint32_t claim_adjacent(struct twi_tag_group primary, uint8_t tag) {
    uint32_t record = claim(primary.tags, tag);
    struct twi_tag_group group = record == TWI_TAG_GROUP_SIZE ? twi_tag_group_adjacent(primary) : primary;
    for (uint32_t left = TWI_TAG_GROUPS_PER_LINE; record == TWI_TAG_GROUP_SIZE && left != 0; left--) {
        record = claim(group.tags, tag);
        if (record == TWI_TAG_GROUP_SIZE) group = twi_tag_group_next(group);
    }
    return record == TWI_TAG_GROUP_SIZE ? UINT32_MAX : group.first + record;
}

/* Takes a record behind the last group, else a free one of another group, searching from the key's own group on. */
static uint32_t claim_overflow(const struct twi_tag_group *group, uint32_t groups) {
    struct twi_chunk *chunk = group->chunk;
    if (twi_load_relaxed(&chunk->used) < chunk->capacity) {
        uint32_t index = twi_add_relaxed(&chunk->used, 1);
        if (index < chunk->capacity) return index;
    }
    _Atomic uint8_t *tags = group->tags - group->first;
    uint32_t at = group->first / TWI_TAG_GROUP_SIZE;
    for (uint32_t left = groups - 1; left != 0; left--) {
        if (++at == groups) at = 0;
        uint32_t record = claim(tags + at * TWI_TAG_GROUP_SIZE, TWI_TAG_OVERFLOW);
        if (record != TWI_TAG_GROUP_SIZE) return at * TWI_TAG_GROUP_SIZE + record;
    }
    return UINT32_MAX;
}

struct twi_cell *twi_tag_groups_take(struct twi_arena *arena, struct twi_generation *generation,
                                     const struct twi_lookup_key *lookup, uint64_t *meta) {
    if (generation->tag_groups.directory == 0 || lookup->key.size > TWI_KEY_INLINE) return NULL;
    struct twi_tag_group group = twi_tag_group_of(arena, generation->tag_groups, lookup->place);
    uint32_t index = claim_adjacent(group, twi_tag_group_tag(lookup->tag));
    if (index == UINT32_MAX) {
        if ((twi_load_relaxed(&group.chunk->used) & TWI_CHUNK_CROWDED) != 0) return NULL;
        index = claim_overflow(&group, generation->tag_groups.groups);
        if (index == UINT32_MAX) {
            (void)twi_or_relaxed(&group.chunk->used, TWI_CHUNK_CROWDED); /* no thread searches this chunk again */
            return NULL;
        }
    }
    *meta = twi_tag_group_meta(index, generation->synced);
    return twi_tag_group_cell(group.chunk, index, generation->synced);
}

bool twi_tag_groups_give(struct twi_arena *arena, struct twi_generation *generation,
                         const struct twi_lookup_key *lookup, struct twi_cell *cell) {
    uint64_t meta = twi_load_relaxed(&cell->meta);
    uint32_t index = twi_cell_index(meta);
    if (generation->tag_groups.directory == 0 || twi_cell_kind(meta) != 0) return false;
    struct twi_tag_group group = twi_tag_group_of(arena, generation->tag_groups, lookup->place);
    if (twi_cell_chunk(cell, meta) != group.chunk || index >= generation->tag_groups.groups * TWI_TAG_GROUP_SIZE)
        return false;
    twi_store_relaxed(&cell->meta, 0);
    twi_store_release(&group.tags[(int64_t)index - group.first], 0); /* H5 */
    return true;
}

/* ---- building ---- */

bool twi_tag_groups_begin(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected,
                          int64_t spare, struct twi_tag_groups_plan *plan) {
    bool synced = generation->synced;
    *plan = (struct twi_tag_groups_plan){0};
    if (keys_expected < TWI_TAG_GROUPS_KEYS_MIN) return false;
    uint64_t cells = keys_expected + keys_expected / (keys_expected <= ROOMY_KEYS ? 4 : 400);
    uint64_t per_chunk = (uint64_t)(chunk_lines_max(synced) - 1) / group_lines(synced) * TWI_TAG_GROUP_SIZE;
    uint64_t chunks = (cells + per_chunk - 1) / per_chunk, records = (cells + chunks - 1) / chunks;
    uint32_t lines = 1 + (uint32_t)(records + TWI_TAG_GROUP_SIZE - 1) / TWI_TAG_GROUP_SIZE * group_lines(synced);
    lines = twi_arena_round(lines);
    uint32_t groups = (lines - 1) / group_lines(synced);
    /* A forecast may be wrong: at least as much memory must remain for other windows and for the index. */
    int64_t bytes = (int64_t)(chunks * lines * TWI_LINE_BYTES);
    if (chunks >> 24 != 0 || bytes > spare || bytes > twi_piece_room(arena, generation->quota) / 2) return false;
    uint32_t line = twi_piece_take(arena, generation, directory_lines((uint32_t)chunks));
    if (line == 0) return false;
    struct twi_tag_groups *directory = twi_arena_at(arena, line);
    directory->planned = (uint32_t)chunks;
    plan->at = (struct twi_tag_groups_at){bytes_of(line), (uint32_t)chunks, groups};
    return true;
}

static bool add_chunk(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_plan *plan) {
    struct twi_tag_groups *directory = twi_tag_groups_directory(arena, plan->at);
    uint32_t groups = plan->at.groups, number = plan->next % chunks_in_tags_piece(groups);
    uint32_t lines = twi_arena_round(1 + groups * group_lines(generation->synced)), tags;
    uint32_t line = twi_piece_take(arena, generation, lines);
    if (line == 0) return false;
    if (number == 0)
        tags = twi_piece_take(arena, generation, tags_piece_lines(directory, groups));
    else
        tags = line_of(directory->entries[plan->next - 1].tags) + tag_lines(groups);
    if (tags == 0) {
        twi_piece_give(arena, generation, line, lines);
        return false;
    }
    if (plan->ahead) twi_arena_touch(arena, line, lines);
    if (plan->ahead) twi_arena_touch(arena, tags, tag_lines(groups));
    struct twi_chunk *chunk = twi_arena_at(arena, line);
    twi_chunk_begin(arena, generation, chunk, 0, lines);
    /* records of groups are taken by their tags, not by `used` */
    twi_store_relaxed(&chunk->used, groups * TWI_TAG_GROUP_SIZE);
    directory->entries[plan->next++] = (struct twi_tag_groups_entry){bytes_of(line), bytes_of(tags)};
    _Atomic uint8_t *tag = twi_arena_at(arena, tags);
    for (uint32_t at = groups * TWI_TAG_GROUP_SIZE; at < tag_lines(groups) * TWI_LINE_BYTES; at++)
        twi_store_relaxed(&tag[at], TWI_TAG_OVERFLOW); /* no records there; visible with the generation */
    uint32_t older = twi_load_relaxed(&generation->chunks[0]);
    do {
        chunk->older = older;
    } while (!twi_cas_acqrel(&generation->chunks[0], &older, line)); /* T10 */
    return true;
}

bool twi_tag_groups_fill(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_plan *plan,
                         uint32_t *work) {
    if (plan->at.directory == 0) return true;
    struct twi_tag_groups *directory = twi_tag_groups_directory(arena, plan->at);
    uint32_t lines = 1 + plan->at.groups * group_lines(generation->synced);
    while (plan->next < directory->planned) {
        if (*work < lines) return false;
        *work -= lines;
        if (!add_chunk(arena, generation, plan)) break;
    }
    /* If memory ended, fewer chunks serve all keys: no thread has looked up a primary group yet. */
    plan->at.chunks = plan->next;
    if (plan->next == 0) {
        twi_piece_give(arena, generation, line_of(plan->at.directory), directory_lines(directory->planned));
        plan->at.directory = 0;
    }
    generation->tag_groups = plan->at;
    return true;
}

void twi_tag_groups_abandon(struct twi_generation *generation, const struct twi_tag_groups_plan *plan) {
    generation->tag_groups = plan->at;
    generation->tag_groups.chunks = plan->next;
}

bool twi_tag_groups_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    if (generation->tag_groups.directory == 0) return true;
    struct twi_tag_groups *directory = twi_tag_groups_directory(arena, generation->tag_groups);
    uint32_t groups = generation->tag_groups.groups, lines = tags_piece_lines(directory, groups);
    while (directory->given < generation->tag_groups.chunks) {
        if (*work < lines) return false;
        *work -= lines;
        twi_piece_give(arena, generation, line_of(directory->entries[directory->given].tags), lines);
        directory->given += chunks_in_tags_piece(groups);
    }
    twi_piece_give(arena, generation, line_of(generation->tag_groups.directory), directory_lines(directory->planned));
    generation->tag_groups.directory = 0;
    return true;
}
