/* layout.h -- the memory of one generation: records that never move, in chunks, and an index of slots over them.
 *
 *   root ─▶ node (2^n entries, by the next n bits of the tag) ─▶ leaf (slots) ─▶ cell
 *
 *   entry | a node: 1 : 1 | .. : 25 | 64 - n : 6 | line : 32 |    a leaf: 0 : 26 | its lines - 1 : 6 | line : 32 |
 *   slot  | tag: upper half of the hash : 32 | line of the cell : 32 |    0: EMPTY, 1: CLOSED
 *   leaf  | next (an entry) | piece link : 32, used : 16, depth : 8, room and size : 8 | slot ... | 8 to 512 words
 *   node  | (free link)     | piece link : 32, size : 8                               | entry ... | 2, 256, ... words
 *
 * This file has the types, and how to read one of them. Their changes and invariants are described in table.h, index.h,
 * record.h (records) and area.h (areas of records). */
#ifndef TWI_TABLE_LAYOUT_H
#define TWI_TABLE_LAYOUT_H

#include "engine/memory/part.h"
#include "engine/table/cell.h"
#include "engine/base/hash.h"
#include "tallywheel.h"

#define TWI_SLOT_EMPTY UINT64_C(0)
#define TWI_SLOT_CLOSED UINT64_C(1)

/* Entries. A hot path reads an entry without a mask. The sign shows that it is a node, the shift is how far a hash goes
 * for its place in the node, and `hash & entry` has the hash's line in the leaf above its lower half. */
#define TWI_ENTRY_NONE UINT64_C(0)
#define TWI_NO_COPY (UINT64_C(1) << 62) /* SEALED, in place of a copy's entry */
#define TWI_ENTRY_LINE(entry) ((uint32_t)(entry))

TWI_INLINE uint64_t twi_entry_of_node(uint32_t log2, uint32_t line) {
    return UINT64_C(1) << 63 | (uint64_t)(64 - log2) << 32 | line;
}
TWI_INLINE uint64_t twi_entry_of_leaf(uint32_t log2, uint32_t line) {
    return (uint64_t)((1u << log2) * 8 / TWI_LINE_BYTES - 1) << 32 | line;
}
TWI_INLINE bool twi_entry_is_node(uint64_t entry) {
    return (int64_t)entry < 0;
}
/* How far a hash, of which the bits before are gone, is shifted for its place in a node. */
TWI_INLINE uint32_t twi_node_shift(uint64_t entry) {
    return (uint32_t)(entry >> 32) & 63;
}
/* The lines of a leaf. */
TWI_INLINE uint32_t twi_leaf_lines(uint64_t entry) {
    return (uint32_t)(entry >> 32) + 1;
}

#define TWI_LEAF_LOG2_MIN 3u  /* 8 words are one line, with six slots. A window with a handful of keys has no more */
#define TWI_LEAF_LOG2_STEP 2u /* a leaf grows to four times its size */
#define TWI_LEAF_LOG2_MAX 9u  /* 512 words are a page, with 510 slots */
#define TWI_NODE_LOG2 8u
#define TWI_LEAF_HEAD_WORDS 2u
#define TWI_TAG_BITS 32u

struct twi_leaf {
    _Atomic uint64_t next;       /* NONE, or the entry of the copy, or SEALED, which means that there will be no copy */
    _Atomic uint32_t piece_link; /* next index piece of the generation, for giving back */
    _Atomic uint16_t used;       /* number of slots taken, which decides when to grow. It may be late */
    uint8_t depth;               /* tag bits that led here; this and the next are set before sharing */
    uint8_t room_log2;           /* bits of the node above that are not used here << 4 | words, log2 */
    _Atomic uint64_t slots[];
};
static_assert(sizeof(struct twi_leaf) == TWI_LEAF_HEAD_WORDS * 8, "a leaf of 8 words is one line");

struct twi_node {
    uint64_t reserved; /* in the place where a leaf has its `next` */
    _Atomic uint32_t piece_link;
    uint16_t unused;
    uint8_t log2;
    uint8_t not_a_leaf; /* 0 where a leaf has its size */
    _Atomic uint64_t entries[];
};

static_assert(offsetof(struct twi_node, not_a_leaf) == offsetof(struct twi_leaf, room_log2),
              "pieces tell what they are");

/* Records of one kind, with the marks of those that have unsent counts. One line for this head, then the records. */
#define TWI_CHUNK_MARKS 4u /* so a chunk with marks has at most 4 * 64 records */
/* The largest chunk is a segment. With marks it is a third of a segment (the arena has a size class for it). */
#define TWI_CHUNK_LINES 1024u
#define TWI_CHUNK_LINES_SYNCED 341u
#define TWI_CHUNK_OWED (UINT64_C(1) << 32)
struct twi_chunk {
    _Atomic uint64_t owed; /* in the turn's list of chunks, the line of the next | TWI_CHUNK_OWED */
    _Atomic uint32_t used; /* records handed out; may exceed capacity */
    uint32_t capacity;
    uint32_t older;      /* line of the chunk before this one, of the same kind */
    uint32_t generation; /* line */
    uint32_t next_marked;
    _Atomic uint8_t listed; /* on its generation's list of marked chunks */
    uint8_t kind;
    uint16_t lines; /* lines of the whole chunk; 0 means that it is part of an area */
    _Atomic uint64_t marks[TWI_CHUNK_MARKS];
};
static_assert(sizeof(struct twi_chunk) == TWI_LINE_BYTES, "records follow in the next line");

/* How much of the arena a family may take. */
struct twi_quota {
    _Atomic int64_t bytes;
    _Atomic int64_t bytes_max; /* 0: none */
    _Atomic uint64_t keys_max; /* for each generation; 0 means none */
    /* the number of keys for which the index of each window is laid out; 0 means that there is no share */
    _Atomic uint64_t keys_laid;
    _Atomic bool overflows; /* adds that find no room are counted in the overflow counter */
    twi_parts parts;        /* memory that is reserved for it, which is bytes_max, or more if the share was larger */
};

/* Records that are laid out in advance (area.h), of 1 to 4 lines. `places` is their number, for short keys or for long
 * ones; 0 means that there is no area for them, or not yet. It is stored last, and a thread that takes a record sees by
 * it that the other fields are complete (H1). */
struct twi_area {
    int64_t first; /* bytes from the generation to the first record */
    _Atomic uint32_t places[2];
    uint32_t per_chunk; /* places from one chunk to the next */
    uint32_t taken;     /* lines of the whole, which go back with the window */
    uint8_t lines;      /* the lines of a record; its kind is one less */
};

/* Pieces of one size that a counter may have instead of stripes (limit/lease.h). Their generation owns them and gives
 * them back without reading their content. The link is at the beginning of each piece's second line. */
#define TWI_ATTACHED_LINES 4u
struct twi_attached {
    uint32_t older; /* line of the next older piece; set before sharing */
};
TWI_INLINE struct twi_attached *twi_attached_of(void *piece) {
    return (struct twi_attached *)((unsigned char *)piece + TWI_LINE_BYTES);
}

enum twi_phase { TWI_OPEN = 0, TWI_CLOSED, TWI_SEALING, TWI_SEALED, TWI_DRAINED, TWI_HISTORY, TWI_DROPPED };

/* Which of its counters have unsent counts (dirty.c). Any thread. */
struct twi_generation_marks {
    _Atomic uint32_t chunks; /* newest marked chunk */
    uint32_t next;           /* next generation on the engine's list */
    _Atomic uint8_t listed;
    _Atomic uint8_t overflow;
};

/* For a Redis that has lost everything (restore_notes.h). */
struct twi_generation_restore {
    uint32_t next; /* next generation being restored */
    /* the row with the counts that each store has acknowledged (restore_stores.h); 0 means that there is one store */
    uint32_t row;
    bool listed : 1;       /* restoring must walk it */
    bool has_given_up : 1; /* something was given up of one of its counters, and that is noted */
    bool over : 1;         /* by Redis's clock */
    bool has_negative : 1; /* a negative delta was counted, so its totals may fall */
    bool is_short : 1;     /* counts of it were given up, so its hook never gets it as complete */
    bool unrestorable : 1; /* it can no longer be determined how much of it Redis had */
};

/* For packing it once it is over (history.c). */
struct twi_generation_history {
    uint32_t packing;   /* line of the packed form while it is being built */
    uint32_t next;      /* next generation that waits to be packed */
    bool in_hand : 1;   /* history.c is packing it, or will */
    bool unpacking : 1; /* the unfinished packed form is being given back */
    bool gives_way : 1; /* it leaves history before its time, because the family's share is needed (rollover.c) */
};

/* For one engine that closes it for all (closing_windows.h). */
struct twi_generation_closing {
    bool is_adopted : 1;     /* counted elsewhere; this engine looks after it, whether counts come here or not */
    bool names_recorded : 1; /* Redis has names of its keys */
    bool is_listed : 1;      /* its family's list of windows in Redis has it, by an announcement of this engine */
    bool is_held : 1;        /* its counts wait for that announcement */
};

/* The turn's state of a generation. It is separate from the fields that callers write, and can be derived from them by
 * a walk. Later it will be moved out of the arena, into memory that is private to the turn. */
struct twi_generation_turn {
    uint32_t outstanding;  /* items in batches, or waiting to be collected again */
    uint32_t seal_tag;     /* how far sealing has come */
    uint32_t taken;        /* marked chunks that were taken and not yet looked at */
    uint32_t owed;         /* the newest of the chunks that the turn itself has marked */
    uint32_t next_pending; /* next generation being collected */
    uint32_t next_all;     /* next generation of the family */
    uint32_t striped;      /* newest set of stripes (stripe.h), and how many there are */
    uint32_t striped_cells;
    bool pending;
    bool hook_done;
    _Atomic bool
        wants_totals; /* sealed, and its totals are requested all the same, for its hook shows them (turn/closing.h) */
    struct twi_generation_closing closing;
    bool distinct;         /* its cells have sketches in place of counts (sketch.h); set before sharing */
    bool known, announced; /* on the family's list; and come with its arrivals, which may be later */
    bool hidden;           /* unlinked for a grace period, and not `current` since */
    uint64_t retired;      /* epoch stamp of its unlinking, or, while it is hidden, of its hiding */
    int64_t hook_after_ms; /* monotonic time when a hook that returned false is called again */
    int64_t sealed_mono_ms;
    int64_t hurried_mono_ms; /* closed, and when it was last to be collected at once (rollover.c) */
    /* used by the turn alone; here because the line has room */
    uint64_t acked_units;  /* sum of magnitudes that Redis has acknowledged */
    int64_t pack_after_ms; /* monotonic time of the next try after memory was short */
    struct twi_generation_restore restore;
    struct twi_generation_history history;
};

/* Lines of pieces that no key is found through. */
struct twi_generation_aside {
    _Atomic uint32_t spares; /* records that lost a race to be published, linked by `end_ms`, for later inserts */
    _Atomic uint32_t spill;  /* the sketch of the adds that overflowed (spill.h); 0 means that there were none */
};

/* Running tw_each() and tw_top() calls. */
struct twi_generation_readers {
    _Atomic uint32_t all;      /* the generation is not dropped meanwhile */
    _Atomic uint32_t of_table; /* the table is not given back meanwhile */
};

struct twi_generation {
    /* the first line has every field that a call for an existing key reads */
    _Atomic uint64_t root; /* entry */
    int64_t start_ms, end_ms;
    struct tw_family *family;
    struct twi_area area;

    struct twi_quota *quota;
    _Atomic uint8_t phase;
    bool synced;
    bool has_cells;                     /* sealing has met a counter that is not the overflow counter; the turn's own */
    _Atomic uint32_t chunks[TWI_KINDS]; /* newest chunk of each kind */
    struct twi_generation_aside aside;
    _Atomic uint32_t packed;     /* line of its packed form, which has replaced the table (history.c); 0: none */
    _Atomic uint64_t pieces;     /* entry of the newest index piece */
    _Atomic uint64_t successors; /* with idle eviction, keys that continued in the next generation */

    /* The overflow counter, and its cold part behind it. It has no key. Other fields are in that place. */
    union {
        struct twi_cell overflow;
        struct {
            unsigned char overflow_words[offsetof(struct twi_cell, key)];
            _Atomic uint32_t leases; /* newest lease (limit/lease.h), the head of a list by twi_attached */
            /* Published keys whose records have 2, 3, 4 and more lines. They decide the next window's area. */
            _Atomic uint32_t long_keys[TWI_LONG_KINDS];
            /* How many keys were announced for a window whose area is still to be laid out (area.h). */
            _Atomic uint32_t announced;
            /* The next place of its area that is looked at where a key's own is taken. */
            _Atomic uint32_t area_cursor;
        };
    };
    struct twi_cold overflow_cold;

    /* written by inserts and adders */
    _Atomic uint64_t keys; /* published keys */
    _Atomic int64_t bytes; /* bytes of the pieces that this generation owns */
    int64_t expiry_ms;     /* expiry in Redis, which is max(end, opening) + retention; 0 means never */
    struct twi_generation_marks marks;
    _Atomic uint32_t next_arrival; /* next generation that the turn has not yet seen */
    struct twi_generation_readers readers;
    struct twi_generation_turn turn;
};
static_assert(sizeof(struct twi_generation) <= 6 * TWI_LINE_BYTES, "a window of one key costs some 600 bytes");
static_assert(offsetof(struct twi_generation, overflow_cold) ==
                  offsetof(struct twi_generation, overflow) + sizeof(struct twi_cell),
              "where twi_cell_cold() looks for it");
static_assert(offsetof(struct twi_generation, quota) == TWI_LINE_BYTES, "a hit reads one line of its window");

/* A key as the table looks it up. In TW_WINDOW_FROM_FIRST families one generation may hold a key twice, if Redis has
 * ended its first incarnation early. The second has INCARNATION set, and its own tag. */
struct twi_lookup_key {
    tw_key key;
    uint32_t tag;
    uint32_t meta;  /* the value that meta must have, which is the size, and INCARNATION or not */
    uint32_t place; /* the other half of the hash, which decides the place in an area */
};
#define TWI_INCARNATION_TAG UINT32_C(0x5bd1e995)

TWI_INLINE struct twi_lookup_key twi_lookup_key(uint64_t hash, tw_key key) {
    return (struct twi_lookup_key){key, (uint32_t)(hash >> 32), (uint32_t)key.size, (uint32_t)hash};
}
TWI_INLINE struct twi_lookup_key twi_lookup_key_next(struct twi_lookup_key first) {
    return (struct twi_lookup_key){first.key, first.tag ^ TWI_INCARNATION_TAG,
                                   first.meta | (uint32_t)TWI_META_INCARNATION, first.place};
}

TWI_INLINE bool twi_cell_matches(struct twi_cell *cell, const struct twi_lookup_key *lookup) {
    return ((uint32_t)twi_load_relaxed(&cell->meta) & (uint32_t)(TWI_META_SIZE | TWI_META_INCARNATION)) ==
               lookup->meta &&
           twi_key_equal(cell->key, lookup->key.data, lookup->key.size);
}

/* Publishes a found cell for walkers and returns its meta. Call it before using a cell (T9 in table.c). */
TWI_INLINE uint64_t twi_cell_publish(struct twi_cell *cell) {
    uint64_t meta = twi_load_relaxed(&cell->meta);
    if (twi_unlikely((meta & TWI_META_PUBLISHED) == 0))
        meta = twi_or_acqrel(&cell->meta, TWI_META_PUBLISHED) | TWI_META_PUBLISHED; /* T13, as T9 */
    return meta;
}

/* Returns true if the packed form has replaced the table. Records and index are given back, or soon will be. */
TWI_INLINE bool twi_generation_is_packed(struct twi_generation *generation) {
    return twi_load_acquire(&generation->packed) != 0; /* K2, pairs with K1 */
}
TWI_INLINE struct twi_cell *twi_chunk_cell_of(struct twi_chunk *chunk, uint32_t kind, uint32_t index, bool cold) {
    unsigned char *at = (unsigned char *)(chunk + 1);
    if (kind != 0) return (struct twi_cell *)(at + (size_t)index * twi_kinds[kind].lines * TWI_LINE_BYTES);
    return (struct twi_cell *)(at + (size_t)(cold ? (index >> 1) * 3 + (index & 1) * 2 : index) * TWI_LINE_BYTES);
}
TWI_INLINE struct twi_cell *twi_chunk_cell(struct twi_chunk *chunk, uint32_t index, bool cold) {
    return twi_chunk_cell_of(chunk, chunk->kind, index, cold);
}
TWI_INLINE struct twi_chunk *twi_cell_chunk(struct twi_cell *cell, uint64_t meta) {
    uint32_t kind = twi_cell_kind(meta), index = twi_cell_index(meta);
    size_t lines = kind == 0 && (meta & TWI_META_COLD) != 0 ? (index >> 1) * 3 + (index & 1) * 2
                                                            : (size_t)index * twi_kinds[kind].lines;
    return (struct twi_chunk *)((unsigned char *)cell - lines * TWI_LINE_BYTES) - 1;
}

/* The generation at a line; NULL for line 0. */
TWI_INLINE struct twi_generation *twi_generation_at(const struct twi_arena *arena, uint32_t line) {
    return line != 0 ? twi_arena_at(arena, line) : NULL;
}
/* The cold part of one of its counters, or of its overflow counter. */
TWI_INLINE struct twi_cold *twi_generation_cold(struct twi_generation *generation, struct twi_cell *cell,
                                                uint64_t meta) {
    return (meta & TWI_META_OVERFLOW) != 0 ? &generation->overflow_cold : twi_cell_cold(cell, meta);
}

TWI_INLINE uint32_t twi_leaf_log2(const struct twi_leaf *leaf) {
    return leaf->room_log2 & 15u;
}
TWI_INLINE uint32_t twi_leaf_room(const struct twi_leaf *leaf) {
    return leaf->room_log2 >> 4;
}
/* The lines of a leaf or a node. */
TWI_INLINE uint32_t twi_entry_lines(uint64_t entry) {
    if (!twi_entry_is_node(entry)) return twi_leaf_lines(entry);
    uint64_t words = (UINT64_C(1) << (64 - twi_node_shift(entry))) + 2;
    return (uint32_t)((words * 8 + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

#endif
