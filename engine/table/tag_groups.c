/* tag_groups.c -- see tag_groups.h: building tag groups, taking records from them, giving them back. */
#include "engine/table/tag_groups.h"

#include "engine/table/record.h"

/* Windows that fit into about the second-level cache get a quarter more records than keys, so that nearly every key
 * finds room in its group. In larger windows memory counts: they get 1 record in 400 more. */
#define ROOMY_LINES 262144u

/* Where lengths are not known, one key in 256 decides: at least one, at most 64. */
#define DECIDING_PART 256u
#define DECIDING_MOST 64u
/* So many lines for short keys, 8 MiB, are left to an insert: those of some 100,000 keys. */
#define PUT_OFF_LINES 131072u

/* The distance of a line from the generation, and the line at a distance. */
static int64_t bytes_of(const struct twi_arena *arena, const struct twi_generation *generation, uint32_t line) {
    return ((int64_t)line - (int64_t)twi_arena_line(arena, generation)) * TWI_LINE_BYTES;
}
static uint32_t line_of(const struct twi_arena *arena, const struct twi_generation *generation, int64_t bytes) {
    return (uint32_t)((int64_t)twi_arena_line(arena, generation) + bytes / TWI_LINE_BYTES);
}
static uint32_t record_lines(bool synced, uint32_t lines, uint64_t records) {
    return (uint32_t)(lines == 1 && synced ? (records + 1) / 2 * 3 : records * lines);
}
static uint32_t chunk_lines_max(bool synced) {
    return synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES;
}
/* How many records of so many lines a chunk holds. */
static uint32_t chunk_records(bool synced, uint32_t lines, uint32_t chunk_lines) {
    return lines == 1 && synced ? (chunk_lines - 1) / 3 * 2 : (chunk_lines - 1) / lines;
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
static bool is_only(const struct twi_tag_groups_at *at) {
    return at->directory == TWI_TAG_GROUPS_ONLY;
}
static uint32_t chunks_of(const struct twi_tag_groups_at *at) {
    return twi_load_relaxed(&at->chunks) & ~TWI_TAG_GROUPS_LONG;
}
/* The directory of a window of several chunks. */
static struct twi_tag_groups *directory_of(const struct twi_generation *generation,
                                           const struct twi_tag_groups_at *at) {
    unsigned char *entries = (unsigned char *)twi_tag_groups_entries(generation, at);
    return (struct twi_tag_groups *)(entries - offsetof(struct twi_tag_groups, entries));
}
static void give_directory(struct twi_arena *arena, struct twi_generation *generation,
                           const struct twi_tag_groups_at *at) {
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
    uint32_t chunks = twi_tag_groups_serving(generation, lookup->key.size);
    if (chunks == 0) return NULL;
    struct twi_tag_group group = twi_tag_group_of(generation, chunks, generation->tag_groups.lines, lookup->place);
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
    *meta = twi_tag_group_meta(&group, index, generation->synced);
    return twi_tag_group_cell(&group, index, generation->synced);
}

bool twi_tag_groups_give(struct twi_generation *generation, const struct twi_lookup_key *lookup,
                         struct twi_cell *cell) {
    uint64_t meta = twi_load_relaxed(&cell->meta);
    uint32_t index = twi_cell_index(meta), chunks = twi_tag_groups_serving(generation, lookup->key.size);
    if (chunks == 0) return false;
    struct twi_tag_group group = twi_tag_group_of(generation, chunks, generation->tag_groups.lines, lookup->place);
    if (twi_cell_chunk(cell, meta) != twi_tag_group_chunk(&group) ||
        index >= generation->tag_groups.groups * TWI_TAG_GROUP_SIZE)
        return false;
    twi_store_relaxed(&cell->meta, 0);
    twi_store_release(&group.tags[(int64_t)index - group.first], 0); /* H5 */
    return true;
}

/* ---- building ---- */

/* How many chunks for so many records of `record` lines, how many lines each has, and how many groups. */
struct shape {
    uint64_t chunks;
    uint32_t lines, groups;
};

/* Several chunks have whole groups, and what is left of their lines serves the overflow of all groups. The last group
 * of an only chunk may lack some records, half of them at most: small pieces come in few sizes, so whole groups would
 * waste up to half of a small chunk. */
static struct shape shape_of(bool synced, uint32_t record, uint64_t records) {
    uint64_t per_chunk =
        chunk_records(synced, record, chunk_lines_max(synced)) / TWI_TAG_GROUP_SIZE * TWI_TAG_GROUP_SIZE;
    uint64_t chunks = (records + per_chunk - 1) / per_chunk, each = (records + chunks - 1) / chunks;
    if (chunks > 1) each = (each + TWI_TAG_GROUP_SIZE - 1) / TWI_TAG_GROUP_SIZE * TWI_TAG_GROUP_SIZE;
    uint32_t lines = twi_arena_round(1 + record_lines(synced, record, each));
    uint32_t more = chunks > 1 ? 0 : TWI_TAG_GROUP_SIZE / 2;
    return (struct shape){chunks, lines, (chunk_records(synced, record, lines) + more) / TWI_TAG_GROUP_SIZE};
}

struct twi_tag_groups_forecast twi_tag_groups_forecast(const struct twi_generation *seen, uint64_t keys_expected) {
    uint64_t keys = twi_load_relaxed(&seen->keys), longer = 0, most = 0;
    struct twi_tag_groups_forecast forecast = {.lines = 1};
    for (uint32_t kind = 0; kind < TWI_LONG_KINDS; kind++) {
        uint64_t of_kind = twi_load_relaxed(&seen->long_keys[kind]);
        longer += of_kind;
        if (of_kind <= most || kind + 2 > TWI_TAG_GROUPS_LINES_MAX) continue;
        most = of_kind;
        forecast.lines = kind + 2;
    }
    if (longer == 0 || keys == 0) return (struct twi_tag_groups_forecast){keys_expected, 1};
    uint64_t shorter = longer < keys ? keys - longer : 0; /* inserts under way are in one of the figures */
    if (shorter >= most) {
        most = shorter;
        forecast.lines = 1;
    }
    forecast.keys = most < keys ? (uint64_t)((double)keys_expected * (double)most / (double)keys) : keys_expected;
    return forecast;
}

bool twi_tag_groups_begin(struct twi_arena *arena, struct twi_generation *generation,
                          struct twi_tag_groups_forecast forecast, int64_t spare, struct twi_tag_groups_plan *plan) {
    *plan = (struct twi_tag_groups_plan){0};
    uint64_t keys = forecast.keys;
    if (keys < TWI_TAG_GROUPS_KEYS_MIN) return false;
    uint64_t cells = keys + keys / (keys <= ROOMY_LINES / forecast.lines ? 4 : 400);
    struct shape shape = shape_of(generation->synced, forecast.lines, cells);
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
    plan->at.directory = directory_at;
    plan->at.groups = (uint16_t)shape.groups;
    plan->at.lines = (uint16_t)forecast.lines;
    twi_store_relaxed(&plan->at.chunks, (uint32_t)shape.chunks);
    plan->lines = shape.lines;
    return true;
}

/* Where the entries are while they are made. */
static struct twi_tag_groups_entry *planned_entries(const struct twi_generation *generation,
                                                    struct twi_tag_groups_plan *plan) {
    return is_only(&plan->at) ? &plan->at.only : twi_tag_groups_entries(generation, &plan->at);
}

static bool add_chunk(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_plan *plan) {
    struct twi_tag_groups_entry *entries = planned_entries(generation, plan);
    uint32_t groups = plan->at.groups, kind = plan->at.lines - 1u, number = plan->next % chunks_in_tags_piece(groups);
    uint32_t line = twi_piece_take(arena, generation, plan->lines), tags;
    if (line == 0) return false;
    if (number == 0)
        tags = twi_piece_take(arena, generation, tags_piece_lines(chunks_of(&plan->at), groups));
    else
        tags = line_of(arena, generation, entries[plan->next - 1].tags) + tag_lines(groups);
    if (tags == 0) {
        twi_piece_give(arena, generation, line, plan->lines);
        return false;
    }
    if (plan->ahead) twi_arena_touch(arena, line, plan->lines);
    if (plan->ahead) twi_arena_touch(arena, tags, tag_lines(groups));
    struct twi_chunk *chunk = twi_arena_at(arena, line);
    twi_chunk_begin(arena, generation, chunk, kind, plan->lines);
    /* records of groups are taken by their tags, not by `used` */
    uint32_t grouped = groups * TWI_TAG_GROUP_SIZE < chunk->capacity ? groups * TWI_TAG_GROUP_SIZE : chunk->capacity;
    twi_store_relaxed(&chunk->used, grouped);
    entries[plan->next++] =
        (struct twi_tag_groups_entry){bytes_of(arena, generation, line + 1), bytes_of(arena, generation, tags)};
    _Atomic uint8_t *tag = twi_arena_at(arena, tags);
    for (uint32_t at = grouped; at < tag_lines(groups) * TWI_LINE_BYTES; at++)
        twi_store_relaxed(&tag[at], TWI_TAG_OVERFLOW); /* no records there; visible with the generation */
    uint32_t older = twi_load_relaxed(&generation->chunks[kind]);
    do {
        chunk->older = older;
    } while (!twi_cas_acqrel(&generation->chunks[kind], &older, line)); /* T10 */
    return true;
}

/* All but `chunks`, which is stored last. */
static void set_at(struct twi_generation *generation, const struct twi_tag_groups_at *at) {
    struct twi_tag_groups_at *own = &generation->tag_groups;
    own->directory = at->directory;
    own->groups = at->groups;
    own->lines = at->lines;
    own->only = at->only;
}

bool twi_tag_groups_fill(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_plan *plan,
                         uint32_t *work) {
    if (plan->at.directory == 0) return true;
    while (plan->next < chunks_of(&plan->at)) {
        if (*work < plan->lines) return false;
        *work -= plan->lines;
        if (!add_chunk(arena, generation, plan)) break;
    }
    /* If memory ended, fewer chunks serve all keys: no thread has looked up a primary group yet. */
    twi_store_relaxed(&plan->at.chunks, plan->next);
    if (plan->next == 0) {
        give_directory(arena, generation, &plan->at);
        plan->at.directory = 0;
        return true;
    }
    set_at(generation, &plan->at);
    TWI_RACE_POINT(groups_made_not_shown);
    twi_store_release(&generation->tag_groups.chunks,
                      plan->next | (plan->at.lines > 1 ? TWI_TAG_GROUPS_LONG : 0)); /* H6, pairs with H7 */
    return true;
}

void twi_tag_groups_abandon(struct twi_generation *generation, const struct twi_tag_groups_plan *plan) {
    set_at(generation, &plan->at);
    twi_store_relaxed(&generation->tag_groups.chunks, plan->next);
}

void twi_tag_groups_lay_out(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected) {
    struct twi_tag_groups_plan plan;
    uint32_t work = UINT32_MAX;
    if (!twi_tag_groups_begin(arena, generation, (struct twi_tag_groups_forecast){keys_expected, 1}, INT64_MAX, &plan))
        return;
    if (chunks_of(&plan.at) > PUT_OFF_LINES / plan.lines) {
        (void)twi_tag_groups_fill(arena, generation, &plan, &work);
        return;
    }
    if (plan.lines * chunks_of(&plan.at) > TWI_SEGMENT_LINES)
        (void)twi_arena_stock(twi_quota_arena(arena, generation->quota), plan.lines, chunks_of(&plan.at), &work);
    give_directory(arena, generation, &plan.at);
    twi_store_relaxed(&generation->told, (uint32_t)keys_expected);
}

void twi_tag_groups_decide(struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t told = twi_load_relaxed(&generation->told), work = UINT32_MAX;
    uint64_t keys = told / DECIDING_PART < DECIDING_MOST ? told / DECIDING_PART : DECIDING_MOST;
    if (told == 0 || twi_load_relaxed(&generation->keys) <= keys) return;
    if (!twi_cas_relaxed(&generation->told, &told, 0)) return; /* another thread does it */
    struct twi_tag_groups_plan plan;
    if (twi_tag_groups_begin(arena, generation, twi_tag_groups_forecast(generation, told), INT64_MAX, &plan))
        (void)twi_tag_groups_fill(arena, generation, &plan, &work);
}

bool twi_tag_groups_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    const struct twi_tag_groups_at *at = &generation->tag_groups;
    if (at->directory == 0) return true;
    uint32_t one = 0, *given = is_only(at) ? &one : &directory_of(generation, at)->given;
    uint32_t planned = is_only(at) ? 1 : directory_of(generation, at)->planned;
    uint32_t lines = tags_piece_lines(planned, at->groups);
    while (*given < chunks_of(at)) {
        if (*work < lines) return false;
        *work -= lines;
        int64_t tags = twi_tag_groups_entries(generation, at)[*given].tags;
        twi_piece_give(arena, generation, line_of(arena, generation, tags), lines);
        *given += chunks_in_tags_piece(at->groups);
    }
    give_directory(arena, generation, at);
    generation->tag_groups.directory = 0;
    twi_store_relaxed(&generation->tag_groups.chunks, 0);
    return true;
}
