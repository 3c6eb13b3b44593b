/* tag_groups.h -- tag groups: the fast way to the cells of a window with a forecast. One cache miss instead of two.
 *
 *   directory ─▶ | chunk, tags | chunk, tags | ...      a chunk: head line, then its records, 16 to a group
 *                  key ─▶ chunk ─▶ group of 16 ─▶ 16 tags of one byte ─▶ a record in the group
 *   in a window of one chunk the directory is one entry, and that stands in the generation's first line
 *
 * A window with a forecast gets its records in advance. Its chunks are cut into groups of 16 records, and a key's hash
 * decides its primary group. Each record has a tag of one byte: 0 free, 1 taken by a key of another group
 * (overflow placement), 2 to 255 by the key's hash. The tags lie together, few enough to stay in the cache.
 * An inserter takes a free record of the primary group by one swap of its tag. If that group is full, it takes one of
 * the adjacent groups, whose tags share a line with it. If these are full, it takes any record of the chunk. At load
 * factor 1, 87 % of the keys are in their primary group, 8 % in an adjacent group, and 5 % are found only by the index.
 *
 * A window's records in groups are all of one kind, of one to four lines: the kind that most of its keys need. Keys
 * that need another kind have no tag groups there. A window that is made by a forecast gets its tag groups before it is
 * shared. A small window that only knows how many keys were announced gets them from a thread that inserts, after a few
 * keys, which decide the kind. Until then it is a window without. A large one gets them at once, for short keys.
 *
 * The index (table.h) stays the truth. A tag group only supplies the record, and tags are hints. A key is inserted when
 * its slot in the index names its record, wherever that lies. A record that lost the race for the slot was never
 * PUBLISHED. It is given back by clearing its tag. So:
 *   H1 a PUBLISHED record that is found through its tag and holds the key is what the index would return: there is no
 *      other record of that key (T1), and a PUBLISHED record never held another key.
 *   H2 a key that is not found through its tag groups may still exist: the lookup asks the index.
 * Always true: directory, chunks and tags are in place before a thread can see that there are any, and never change. A
 * tag goes from 0 to a value by compare-and-swap. Only the thread that took it sets it back to 0, and only while the
 * record is unpublished. TW_WINDOW_FROM_FIRST families have no tag groups. */
#ifndef TWI_TABLE_TAG_GROUPS_H
#define TWI_TABLE_TAG_GROUPS_H

#include "engine/table/layout.h"
#include "engine/memory/epoch.h"

#define TWI_TAG_GROUP_SIZE 16u
#define TWI_TAG_GROUPS_PER_LINE (TWI_LINE_BYTES / TWI_TAG_GROUP_SIZE) /* adjacent groups: their tags share a line */
#define TWI_TAG_OVERFLOW 1u
#define TWI_TAG_LOWEST 2u           /* of a key in its own group */
#define TWI_TAG_GROUPS_KEYS_MIN 20u /* for fewer, groups take more memory than records as they come */
#define TWI_TAG_GROUPS_LINES_MAX 4u /* of a record; up to that, its kind is one less than its lines */

/* The piece of a directory, where a window has more than one chunk. */
struct twi_tag_groups {
    uint32_t planned; /* chunks for which the directory has room */
    uint32_t given;   /* chunks whose tags were given back */
    struct twi_tag_groups_entry entries[];
};
/* `directory` of a window of one chunk: its entry is in the generation. */
#define TWI_TAG_GROUPS_ONLY \
    (int64_t)(offsetof(struct twi_generation, tag_groups) + offsetof(struct twi_tag_groups_at, only))

/* The primary group of a key. */
struct twi_tag_group {
    _Atomic uint8_t *tags;  /* tags of the group */
    unsigned char *records; /* of the chunk */
    uint32_t first;         /* index of the group's first record in the chunk */
    uint32_t lines;         /* of a record */
};

/* TWI_TAG_LOWEST to 255: the hash's uppermost byte, but not what means something else. The other half of the hash
 * decides the primary group. */
TWI_INLINE uint8_t twi_tag_group_tag(uint32_t tag) {
    uint32_t top = tag >> 24;
    return (uint8_t)(top > TWI_TAG_LOWEST ? top : TWI_TAG_LOWEST);
}

/* `chunks` of a generation. What it stands for may be read if it is not 0. */
TWI_INLINE uint32_t twi_tag_groups_chunks(const struct twi_generation *generation) {
    return twi_load_acquire(&generation->tag_groups.chunks); /* H7, pairs with H6 */
}
/* Such a word stands for groups of records of one line. */
TWI_INLINE bool twi_tag_groups_are_short(uint32_t chunks) {
    return (int32_t)chunks > 0;
}
/* It stands for groups of longer records, and keys of that size, which is more than 32 bytes, have such records. */
TWI_INLINE bool twi_tag_groups_are_for(const struct twi_generation *generation, uint32_t chunks, size_t key_size,
                                       bool synced) {
    return (int32_t)chunks < 0 && twi_long_lines(key_size, synced) == generation->tag_groups.lines;
}
/* The chunks that keys of that size have their groups in; 0: the tag groups are not for them. */
TWI_INLINE uint32_t twi_tag_groups_serving(const struct twi_generation *generation, size_t key_size) {
    uint32_t chunks = twi_tag_groups_chunks(generation);
    if (key_size <= TWI_KEY_INLINE) return twi_tag_groups_are_short(chunks) ? chunks : 0;
    if (!twi_tag_groups_are_for(generation, chunks, key_size, generation->synced)) return 0;
    return chunks & ~TWI_TAG_GROUPS_LONG;
}

/* The entries of a directory: one for each chunk. */
TWI_INLINE struct twi_tag_groups_entry *twi_tag_groups_entries(const struct twi_generation *generation,
                                                               const struct twi_tag_groups_at *at) {
    return (struct twi_tag_groups_entry *)((unsigned char *)(uintptr_t)generation + at->directory);
}

/* The group of a place, in a generation with so many chunks of records of so many lines. */
TWI_INLINE struct twi_tag_group twi_tag_group_of(const struct twi_generation *generation, uint32_t chunks,
                                                 uint32_t lines, uint32_t place) {
    unsigned char *from = (unsigned char *)(uintptr_t)generation;
    uint64_t position = (uint64_t)place * chunks;
    const struct twi_tag_groups_entry *entry =
        &twi_tag_groups_entries(generation, &generation->tag_groups)[position >> 32];
    uint64_t first = ((uint64_t)(uint32_t)position * generation->tag_groups.groups >> 32) * TWI_TAG_GROUP_SIZE;
    return (struct twi_tag_group){(_Atomic uint8_t *)(from + entry->tags) + first, from + entry->records,
                                  (uint32_t)first, lines};
}

/* The records of a group whose tag is `tag`, one bit each. Reads hints: a tag that changes meanwhile may be seen or
 * not. */
#if defined(__SSE2__) && TWI_EPOCH_SEES_FENCES
#include <emmintrin.h>
TWI_INLINE uint32_t twi_tag_group_match(const _Atomic uint8_t *tags, uint8_t tag) {
    __m128i group = _mm_load_si128((const __m128i *)(const void *)(uintptr_t)tags);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(group, _mm_set1_epi8((char)tag)));
}
#else
/* The bytes of a word that are zero, one bit each. A byte above a zero byte may be reported wrongly; none is left
 * out. */
TWI_INLINE uint32_t twi_tag_group_zero_bytes(uint64_t word) {
    const uint64_t low = UINT64_C(0x0101010101010101);
    uint64_t zero = (word - low) & ~word & low << 7;
    return (uint32_t)((zero >> 7) * UINT64_C(0x0102040810204080) >> 56);
}
TWI_INLINE uint32_t twi_tag_group_match(const _Atomic uint8_t *tags, uint8_t tag) {
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)(uintptr_t)tags;
    uint64_t lookup = UINT64_C(0x0101010101010101) * tag;
    uint64_t low = twi_load_relaxed(&words[0]) ^ lookup, high = twi_load_relaxed(&words[1]) ^ lookup;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    low = __builtin_bswap64(low);
    high = __builtin_bswap64(high);
#endif
    return twi_tag_group_zero_bytes(low) | twi_tag_group_zero_bytes(high) << 8;
}
#endif

/* The same for the groups whose tags share a line, which begins at `tags`: bit 16 * i + j for record j of group i. */
TWI_INLINE uint64_t twi_tag_line_match(const _Atomic uint8_t *tags, uint8_t tag) {
    uint64_t match = 0;
    for (uint32_t group = 0; group < TWI_TAG_GROUPS_PER_LINE; group++)
        match |= (uint64_t)twi_tag_group_match(tags + group * TWI_TAG_GROUP_SIZE, tag) << group * TWI_TAG_GROUP_SIZE;
    return match;
}

/* Chooses which free record to try first: the one at the tag's position, or the next one round the group. Always taking
 * the first would leave a sparse table with all its cells in a few sets of the cache. */
TWI_INLINE uint32_t twi_tag_group_choose(uint32_t free, uint8_t tag) {
    uint32_t begin = tag % TWI_TAG_GROUP_SIZE, twice = free | free << TWI_TAG_GROUP_SIZE;
    return ((uint32_t)__builtin_ctz(twice >> begin) + begin) % TWI_TAG_GROUP_SIZE;
}

TWI_INLINE struct twi_chunk *twi_tag_group_chunk(const struct twi_tag_group *group) {
    return (struct twi_chunk *)group->records - 1;
}
/* The record at `index` of the group's chunk. */
TWI_INLINE struct twi_cell *twi_tag_group_cell(const struct twi_tag_group *group, size_t index, bool synced) {
    size_t lines = group->lines != 1 ? index * group->lines : synced ? (index >> 1) * 3 + (index & 1) * 2 : index;
    return (struct twi_cell *)(group->records + lines * TWI_LINE_BYTES);
}

/* The meta of that record, before it has a key. */
TWI_INLINE uint64_t twi_tag_group_meta(const struct twi_tag_group *group, uint32_t index, bool synced) {
    return (uint64_t)index << TWI_META_INDEX_SHIFT | (uint64_t)(group->lines - 1) << TWI_META_KIND_SHIFT |
           (synced ? TWI_META_COLD : 0);
}

/* Takes a record of the group, which was seen free. False: another thread has taken it. */
TWI_INLINE bool twi_tag_group_claim(_Atomic uint8_t *tags, uint32_t at, uint8_t tag) {
    uint8_t found = 0;
    return twi_cas_acqrel(&tags[at], &found, tag); /* H4, pairs with H5: the record is ours, and clean */
}

/* The first group of those whose tags share a line with this group's. */
TWI_INLINE struct twi_tag_group twi_tag_group_adjacent(struct twi_tag_group group) {
    uint32_t number = group.first / TWI_TAG_GROUP_SIZE % TWI_TAG_GROUPS_PER_LINE;
    group.tags -= number * TWI_TAG_GROUP_SIZE;
    group.first -= number * TWI_TAG_GROUP_SIZE;
    return group;
}

TWI_INLINE struct twi_tag_group twi_tag_group_next(struct twi_tag_group group) {
    group.tags += TWI_TAG_GROUP_SIZE;
    group.first += TWI_TAG_GROUP_SIZE;
    return group;
}

/* The key's PUBLISHED cell if its primary or an adjacent group has it, else NULL: then the caller asks the index.
 * `chunks`: those that serve keys of its size. */
TWI_INLINE struct twi_cell *twi_tag_groups_find(const struct twi_generation *generation, uint32_t chunks,
                                                const struct twi_lookup_key *lookup) {
    const uint32_t mask = (uint32_t)(TWI_META_SIZE | TWI_META_INCARNATION | TWI_META_PUBLISHED);
    uint8_t tag = twi_tag_group_tag(lookup->tag);
    struct twi_tag_group primary = twi_tag_group_of(generation, chunks, generation->tag_groups.lines, lookup->place);
    struct twi_tag_group group = primary;
    for (uint32_t left = TWI_TAG_GROUPS_PER_LINE + 1; left != 0; left--) {
        for (uint32_t match = twi_tag_group_match(group.tags, tag); match != 0; match &= match - 1) {
            struct twi_cell *cell =
                twi_tag_group_cell(&group, group.first + (size_t)__builtin_ctz(match), generation->synced);
            uint32_t meta = (uint32_t)twi_load_acquire(&cell->meta); /* H3, pairs with T9: the record is complete */
            if (twi_likely((meta & mask) == (lookup->meta | TWI_META_PUBLISHED)) &&
                twi_likely(twi_key_equal(cell->key, lookup->key.data, lookup->key.size)))
                return cell;
        }
        group = left > TWI_TAG_GROUPS_PER_LINE ? twi_tag_group_adjacent(primary) : twi_tag_group_next(group);
    }
    return NULL;
}

/* Takes a free record for a key, in its primary group or near it. NULL: the chunk is full. *meta: its index. */
struct twi_cell *twi_tag_groups_take(struct twi_generation *generation, const struct twi_lookup_key *lookup,
                                     uint64_t *meta);
/* Gives back a record that was never published. False: it does not belong to this group. */
bool twi_tag_groups_give(struct twi_generation *generation, const struct twi_lookup_key *lookup, struct twi_cell *cell);

/* How many keys a window will have in tag groups, and how many lines their records take. */
struct twi_tag_groups_forecast {
    uint64_t keys;
    uint32_t lines;
};
/* The tag groups of a window with so many keys, if its keys are like those of `seen`: for the kind of record that most
 * of them have. */
struct twi_tag_groups_forecast twi_tag_groups_forecast(const struct twi_generation *seen, uint64_t keys_expected);

/* The tag groups for a forecast, built in as many steps as it takes, before a thread can see them. */
struct twi_tag_groups_plan {
    struct twi_tag_groups_at at; /* no directory: no tag groups */
    uint32_t lines;              /* of a chunk */
    uint32_t next;               /* chunks that exist */
    bool ahead;                  /* for a future window: its pages are faulted in */
};
/* False: there are no tag groups for so few keys, or they would take more than `spare` bytes, or more than half of what
 * is left. The generation does without. */
bool twi_tag_groups_begin(struct twi_arena *arena, struct twi_generation *generation,
                          struct twi_tag_groups_forecast forecast, int64_t spare, struct twi_tag_groups_plan *plan);
/* True when everything exists and generation->tag_groups is set. Touches at most *work lines. If memory ends, the
 * chunks that exist are used. */
bool twi_tag_groups_fill(struct twi_arena *arena, struct twi_generation *generation, struct twi_tag_groups_plan *plan,
                         uint32_t *work);
/* Ends a plan whose generation will not be used: the parts that exist are given back with the generation. */
void twi_tag_groups_abandon(struct twi_generation *generation, const struct twi_tag_groups_plan *plan);
/* For a window of so many keys whose lengths nobody knows, before it is shared. A small one: its first keys decide, and
 * only its pages are faulted in. A large one gets tag groups for short keys at once, so that no insert has to wait for
 * so much memory. */
void twi_tag_groups_lay_out(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected);
/* Lays out the tag groups of such a window, if enough of its keys have come, and no other thread does. By an insert,
 * inside its section. */
void twi_tag_groups_decide(struct twi_arena *arena, struct twi_generation *generation);
/* Gives tags and directory back, one unit of *work per line. The chunks go with all others. True when done. */
bool twi_tag_groups_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
