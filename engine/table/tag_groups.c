/* tag_groups.c -- see tag_groups.h: building tag groups, taking records from them, giving them back. */
#include "engine/table/tag_groups.h"

#include "engine/table/record.h"

/* Windows that fit into about the second-level cache get a quarter more records than keys, so that nearly every key
 * finds room in its group. In larger windows memory counts: they get 1 record in 400 more. */
#define ROOMY_KEYS 262144u

/* The distance of a line from the generation, and the line at a distance. */
static int64_t bytes_of(const struct twi_arena *arena, const struct twi_generation *generation, uint32_t line) {
    return ((int64_t)line - (int64_t)twi_arena_line(arena, generation)) * TWI_LINE_BYTES;
}
static uint32_t line_of(const struct twi_arena *arena, const struct twi_generation *generation, int64_t bytes) {
    return (uint32_t)((int64_t)twi_arena_line(arena, generation) + bytes / TWI_LINE_BYTES);
}
static uint32_t record_lines(bool synced, uint64_t records) {
    return (uint32_t)(synced ? (records + 1) / 2 * 3 : records);
}
static uint32_t chunk_lines_max(bool synced) {
    return synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES;
}
/* How many records a chunk of so many lines holds. */
static uint32_t chunk_records(bool synced, uint32_t lines) {
    return synced ? (lines - 1) / 3 * 2 : lines - 1;
}
static uint32_t tag_lines(uint32_t groups) {
    return (groups * TWI_TAG_GROUP_SIZE + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES;
}
static uint32_t chunks_in_tags_piece(uint32_t groups) {
    return TWI_SEGMENT_LINES / tag_lines(groups);
}
static uint32_t tags_piece_lines(uint32_t planned, uint32_t groups) {
    uint32_t chunks = chunks_in_tags_piece(groups);
    return (planned < chunks ? planned : chunks) * tag_lines(groups);
}
static uint32_t directory_lines(uint32_t chunks) {
    return (uint32_t)((sizeof(struct twi_tag_groups) + (size_t)chunks * sizeof(struct twi_tag_groups_entry) +
                       TWI_LINE_BYTES - 1) /
                      TWI_LINE_BYTES);
}
static bool is_only(struct twi_tag_groups_at at) {
    return at.directory == TWI_TAG_GROUPS_ONLY;
}
/* The directory of a window of several chunks. */
static struct twi_tag_groups *directory_of(const struct twi_generation *generation, struct twi_tag_groups_at at) {
    unsigned char *entries = (unsigned char *)twi_tag_groups_entries(generation, at);
    return (struct twi_tag_groups *)(entries - offsetof(struct twi_tag_groups, entries));
}
static void give_directory(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_at at) {
    if (is_only(at)) return;
    struct twi_tag_groups *directory = directory_of(generation, at);
    twi_piece_give(arena, generation, twi_arena_line(arena, directory), directory_lines(directory->planned));
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
    struct twi_chunk *chunk = twi_tag_group_chunk(group);
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

struct twi_cell *twi_tag_groups_take(struct twi_generation *generation, const struct twi_lookup_key *lookup,
                                     uint64_t *meta) {
    if (generation->tag_groups.directory == 0 || lookup->key.size > TWI_KEY_INLINE) return NULL;
    struct twi_tag_group group = twi_tag_group_of(generation, lookup->place);
    uint32_t index = claim_adjacent(group, twi_tag_group_tag(lookup->tag));
    if (index == UINT32_MAX) {
        if ((twi_load_relaxed(&twi_tag_group_chunk(&group)->used) & TWI_CHUNK_CROWDED) != 0) return NULL;
        index = claim_overflow(&group, generation->tag_groups.groups);
        if (index == UINT32_MAX) {
            (void)twi_or_relaxed(&twi_tag_group_chunk(&group)->used,
                                 TWI_CHUNK_CROWDED); /* no thread searches this chunk again */
            return NULL;
        }
    }
    *meta = twi_tag_group_meta(index, generation->synced);
    return twi_tag_group_cell(group.records, index, generation->synced);
}

bool twi_tag_groups_give(struct twi_generation *generation, const struct twi_lookup_key *lookup,
                         struct twi_cell *cell) {
    uint64_t meta = twi_load_relaxed(&cell->meta);
    uint32_t index = twi_cell_index(meta);
    if (generation->tag_groups.directory == 0 || twi_cell_kind(meta) != 0) return false;
    struct twi_tag_group group = twi_tag_group_of(generation, lookup->place);
    if (twi_cell_chunk(cell, meta) != twi_tag_group_chunk(&group) ||
        index >= generation->tag_groups.groups * TWI_TAG_GROUP_SIZE)
        return false;
    twi_store_relaxed(&cell->meta, 0);
    twi_store_release(&group.tags[(int64_t)index - group.first], 0); /* H5 */
    return true;
}

/* ---- building ---- */

/* How many chunks for so many records, how many lines each has, and how many groups. */
struct shape {
    uint64_t chunks;
    uint32_t lines, groups;
};

/* Several chunks have whole groups, and what is left of their lines serves the overflow of all groups. The last group
 * of an only chunk may lack some records, half of them at most: small pieces come in few sizes, so whole groups would
 * waste up to half of a small chunk. */
static struct shape shape_of(bool synced, uint64_t records) {
    uint64_t per_chunk = chunk_records(synced, chunk_lines_max(synced)) / TWI_TAG_GROUP_SIZE * TWI_TAG_GROUP_SIZE;
    uint64_t chunks = (records + per_chunk - 1) / per_chunk, each = (records + chunks - 1) / chunks;
    if (chunks > 1) each = (each + TWI_TAG_GROUP_SIZE - 1) / TWI_TAG_GROUP_SIZE * TWI_TAG_GROUP_SIZE;
    uint32_t lines = twi_arena_round(1 + record_lines(synced, each));
    uint32_t more = chunks > 1 ? 0 : TWI_TAG_GROUP_SIZE / 2;
    return (struct shape){chunks, lines, (chunk_records(synced, lines) + more) / TWI_TAG_GROUP_SIZE};
}

bool twi_tag_groups_begin(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected,
                          int64_t spare, struct twi_tag_groups_plan *plan) {
    *plan = (struct twi_tag_groups_plan){0};
    if (keys_expected < TWI_TAG_GROUPS_KEYS_MIN) return false;
    uint64_t cells = keys_expected + keys_expected / (keys_expected <= ROOMY_KEYS ? 4 : 400);
    struct shape shape = shape_of(generation->synced, cells);
    /* A forecast may be wrong: at least as much memory must remain for other windows and for the index. */
    int64_t bytes = (int64_t)(shape.chunks * shape.lines * TWI_LINE_BYTES);
    if (shape.chunks >> 24 != 0 || bytes > spare || bytes > twi_piece_room(arena, generation->quota) / 2) return false;
    int64_t directory_at = TWI_TAG_GROUPS_ONLY;
    if (shape.chunks > 1) {
        uint32_t line = twi_piece_take(arena, generation, directory_lines((uint32_t)shape.chunks));
        if (line == 0) return false;
        struct twi_tag_groups *directory = twi_arena_at(arena, line);
        directory->planned = (uint32_t)shape.chunks;
        directory_at = bytes_of(arena, generation, line) + (int64_t)offsetof(struct twi_tag_groups, entries);
    }
    plan->at = (struct twi_tag_groups_at){directory_at, (uint32_t)shape.chunks, shape.groups, {0, 0}};
    plan->lines = shape.lines;
    return true;
}

/* Where the entries are while they are made. */
static struct twi_tag_groups_entry *planned_entries(const struct twi_generation *generation,
                                                    struct twi_tag_groups_plan *plan) {
    return is_only(plan->at) ? &plan->at.only : twi_tag_groups_entries(generation, plan->at);
}

static bool add_chunk(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_plan *plan) {
    struct twi_tag_groups_entry *entries = planned_entries(generation, plan);
    uint32_t groups = plan->at.groups, number = plan->next % chunks_in_tags_piece(groups);
    uint32_t line = twi_piece_take(arena, generation, plan->lines), tags;
    if (line == 0) return false;
    if (number == 0)
        tags = twi_piece_take(arena, generation, tags_piece_lines(plan->at.chunks, groups));
    else
        tags = line_of(arena, generation, entries[plan->next - 1].tags) + tag_lines(groups);
    if (tags == 0) {
        twi_piece_give(arena, generation, line, plan->lines);
        return false;
    }
    if (plan->ahead) twi_arena_touch(arena, line, plan->lines);
    if (plan->ahead) twi_arena_touch(arena, tags, tag_lines(groups));
    struct twi_chunk *chunk = twi_arena_at(arena, line);
    twi_chunk_begin(arena, generation, chunk, 0, plan->lines);
    /* records of groups are taken by their tags, not by `used` */
    uint32_t grouped = groups * TWI_TAG_GROUP_SIZE < chunk->capacity ? groups * TWI_TAG_GROUP_SIZE : chunk->capacity;
    twi_store_relaxed(&chunk->used, grouped);
    entries[plan->next++] =
        (struct twi_tag_groups_entry){bytes_of(arena, generation, line + 1), bytes_of(arena, generation, tags)};
    _Atomic uint8_t *tag = twi_arena_at(arena, tags);
    for (uint32_t at = grouped; at < tag_lines(groups) * TWI_LINE_BYTES; at++)
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
    while (plan->next < plan->at.chunks) {
        if (*work < plan->lines) return false;
        *work -= plan->lines;
        if (!add_chunk(arena, generation, plan)) break;
    }
    /* If memory ended, fewer chunks serve all keys: no thread has looked up a primary group yet. */
    plan->at.chunks = plan->next;
    if (plan->next == 0) {
        give_directory(arena, generation, plan->at);
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
    struct twi_tag_groups_at at = generation->tag_groups;
    if (at.directory == 0) return true;
    uint32_t one = 0, *given = is_only(at) ? &one : &directory_of(generation, at)->given;
    uint32_t planned = is_only(at) ? 1 : directory_of(generation, at)->planned;
    uint32_t lines = tags_piece_lines(planned, at.groups);
    while (*given < at.chunks) {
        if (*work < lines) return false;
        *work -= lines;
        int64_t tags = twi_tag_groups_entries(generation, at)[*given].tags;
        twi_piece_give(arena, generation, line_of(arena, generation, tags), lines);
        *given += chunks_in_tags_piece(at.groups);
    }
    give_directory(arena, generation, at);
    generation->tag_groups.directory = 0;
    return true;
}
