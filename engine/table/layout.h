/* layout.h -- the memory of one generation: records that never move, in chunks, and an index of slots.
 *
 *   root ─▶ node (2^n entries, by the next n bits of the tag) ─▶ leaf (slots) ─▶ cell
 *
 *   entry | a node: 1 : 1 | .. : 25 | 64 - n : 6 | line : 32 |    a leaf: 0 : 26 | its lines - 1 : 6 | line : 32 |
 *   slot  | tag: upper half of the hash : 32 | line of the cell : 32 |    0: EMPTY, 1: CLOSED
 *   leaf  | next (an entry) | piece link : 32, used : 16, depth : 8, room and size : 8 | slot ... | 8 to 512 words
 *   node  | (free link)     | piece link : 32, size : 8                               | entry ... | 2 to 2^20 words
 *
 * This file has the types, and how to read one of them. table.h, index.h and area.h describe how these
 * types change, and their invariants. */
#ifndef TWI_TABLE_LAYOUT_H
#define TWI_TABLE_LAYOUT_H

#include "engine/memory/part.h"
#include "engine/table/cell.h"
#include "engine/base/hash.h"
#include "tallywheel.h"

#define TWI_SLOT_EMPTY UINT64_C(0)
#define TWI_SLOT_CLOSED UINT64_C(1)

/* Entries. A hot path needs no mask to read an entry. The sign shows whether the entry is a node. The shift is how far
 * a hash is shifted for its place in the node. `hash & entry` has the hash's line in the leaf, above its lower half. */
#define TWI_ENTRY_NONE UINT64_C(0)
#define TWI_NO_COPY (UINT64_C(1) << 62) /* SEALED; it replaces the entry of a copy */
/* In the entry of the root: no wider root replaces it, because a leaf has a node of its own below it, or soon has. */
#define TWI_ROOT_STAYS (UINT64_C(1) << 61)
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
/* Returns how far a hash, without the bits that were used before, is shifted for its place in a node. */
TWI_INLINE uint32_t twi_node_shift(uint64_t entry) {
    return (uint32_t)(entry >> 32) & 63;
}
/* Returns how many bits of a hash a node uses. */
TWI_INLINE uint32_t twi_node_bits(uint64_t entry) {
    return 64 - twi_node_shift(entry);
}
/* Returns the number of lines of a leaf. */
TWI_INLINE uint32_t twi_leaf_lines(uint64_t entry) {
    return (uint32_t)(entry >> 32) + 1;
}

#define TWI_LEAF_LOG2_MIN 3u  /* 8 words are one line, with six slots. A window with a few keys has no larger leaf */
#define TWI_LEAF_LOG2_STEP 2u /* a leaf grows to four times its size */
#define TWI_LEAF_LOG2_MAX 9u  /* 512 words are a page, with 510 slots */
#define TWI_NODE_LOG2 8u
#define TWI_ROOT_LOG2_MAX 16u /* the largest root that replaces another. A forecast makes roots of up to 20 bits */
#define TWI_LEAF_HEAD_WORDS 2u
#define TWI_TAG_BITS 32u

struct twi_leaf {
    _Atomic uint64_t next;       /* NONE, or the entry of the copy, or SEALED, which means that there will be no copy */
    _Atomic uint32_t piece_link; /* the next index piece of the generation, used to give the pieces back */
    _Atomic uint16_t used;       /* slots that are taken, which decides growth. It may be late */
    uint8_t depth;               /* how many tag bits led here; set before the leaf is shared, as is the next field */
    /* bits of the node above that were unused when the leaf was made << 4 | log2 of the number of words */
    uint8_t room_log2;
    _Atomic uint64_t slots[];
};
static_assert(sizeof(struct twi_leaf) == TWI_LEAF_HEAD_WORDS * 8, "a leaf of 8 words is one line");

struct twi_node {
    uint64_t reserved; /* at the place where a leaf has `next` */
    _Atomic uint32_t piece_link;
    uint16_t unused;
    uint8_t log2;
    uint8_t not_a_leaf; /* always 0; a leaf has its size here */
    _Atomic uint64_t entries[];
};

static_assert(offsetof(struct twi_node, not_a_leaf) == offsetof(struct twi_leaf, room_log2),
              "pieces tell what they are");

/* Records of one kind, with the marks of those that have unsent counts. This head has one line. */
#define TWI_CHUNK_MARKS 4u /* so a chunk with marks has at most 4 * 64 records */
/* The largest chunk is a segment. With marks it is a third of a segment (the arena has that size). */
#define TWI_CHUNK_LINES 1024u
#define TWI_CHUNK_LINES_SYNCED 341u
#define TWI_CHUNK_OWED (UINT64_C(1) << 32)
struct twi_chunk {
    _Atomic uint64_t owed; /* in the turn's list of chunks: the line of the next chunk | TWI_CHUNK_OWED */
    _Atomic uint32_t used; /* how many records were handed out; may exceed capacity */
    uint32_t older;        /* the line of the previous chunk of the same kind */
    uint32_t generation;   /* line */
    uint32_t next_marked;
    /* The chunk is in its generation's list of marked chunks, or will be: the number of the thread that pushes it. */
    _Atomic uint16_t listed;
    uint16_t capacity;
    uint16_t lines; /* the number of lines of the whole chunk; 0 means that the chunk is a part of an area */
    uint8_t kind;
    _Atomic uint64_t marks[TWI_CHUNK_MARKS];
};
static_assert(sizeof(struct twi_chunk) == TWI_LINE_BYTES, "records follow in the next line");

/* How much of the arena a family may take. */
struct twi_quota {
    _Atomic int64_t bytes;
    _Atomic int64_t bytes_max; /* 0: none */
    _Atomic uint64_t keys_max; /* the bound for each generation; 0 means that there is none */
    /* the number of keys for which the index of each window is laid out; 0 means that there is no share */
    _Atomic uint64_t keys_laid;
    /* with guests (guests.h): the size of their table in each window, and how many windows share the memory. 0: none */
    _Atomic uint32_t guest_lines;
    _Atomic uint8_t windows;
    _Atomic bool overflows; /* adds of keys without memory are counted in the overflow counter */
    twi_parts parts;        /* the memory reserved for it: bytes_max, or more if the share was larger */
};

/* Records that are prepared in advance (area.h). Each has 1 to 4 lines. `places` is the number of records for short
 * or for long keys; 0 means that there is no area for them, or not yet. It is stored last. A thread that takes a
 * record sees by it that the other fields are complete (H1). */
struct twi_area {
    unsigned char *first; /* the first record */
    _Atomic uint32_t places[2];
    uint32_t per_chunk;              /* how many places are between the beginnings of two chunks */
    uint32_t taken;                  /* the lines of the whole area, which are given back with the window */
    uint8_t lines;                   /* the number of lines of a record; its kind is this number less 1 */
    uint16_t stride, lines_of_chunk; /* lines from one chunk to the next, and of a chunk */
};

/* Pieces of one size that a counter may have in place of stripes (limit/lease.h). The generation owns these pieces,
 * and gives them back without reading their content. The link is at the beginning of each piece's second line. */
#define TWI_ATTACHED_LINES 4u
struct twi_attached {
    uint32_t older; /* the line of the next older piece; set before the piece is shared */
};
TWI_INLINE struct twi_attached *twi_attached_of(void *piece) {
    return (struct twi_attached *)((unsigned char *)piece + TWI_LINE_BYTES);
}

/* A piece with limits of a GCRA family. The generation owns it, and gives it back without reading its content. */
#define TWI_LIMITS_LINES 2u

enum twi_phase { TWI_OPEN = 0, TWI_CLOSED, TWI_SEALING, TWI_SEALED, TWI_DRAINED, TWI_HISTORY, TWI_DROPPED };

/* Which counters of the generation have unsent counts (dirty.c). Any thread. */
struct twi_generation_marks {
    _Atomic uint32_t chunks; /* newest marked chunk */
    uint32_t next;           /* next generation on the engine's list */
    _Atomic uint16_t listed; /* the generation is in that list, or will be, same as twi_chunk.listed */
    _Atomic uint8_t overflow;
};

/* The state for restoring a Redis that has lost all data (restore_notes.h). */
struct twi_generation_restore {
    uint32_t next; /* the next generation that is being restored */
    /* the row with the counts that each store has acknowledged (restore_notes.h); 0 means that there is one store */
    uint32_t row;
    bool listed : 1;       /* a restoration still has to walk the generation */
    bool has_given_up : 1; /* units of one of its counters were given up, and notes have them */
    bool over : 1;         /* by Redis's clock */
    bool has_negative : 1; /* a negative delta was counted, so totals of the generation may fall */
    bool is_short : 1;     /* counts of the generation were given up, so its hook never gets it as complete */
    bool unrestorable : 1; /* it is unknown how many of its units Redis had */
};

/* The state for packing the generation after its end (windows.c). */
struct twi_generation_history {
    uint32_t packing;   /* the line of the packed form that is being built */
    uint32_t next;      /* the next generation that waits for packing */
    bool in_hand : 1;   /* windows.c packs the generation now or later */
    bool unpacking : 1; /* the unfinished packed form is being given back */
    bool gives_way : 1; /* it leaves the history before its time, because the family needs the memory (rollover.c) */
};

/* The state for families in which one engine closes a window for all (closing_election.h). */
struct twi_generation_closing {
    bool is_adopted : 1;     /* others counted in it; this engine has adopted it */
    bool names_recorded : 1; /* Redis has names of its keys */
    bool names_doubted : 1;  /* Redis may lack some of them, so they are recorded again before it is closed */
    bool names_again : 1;    /* each of its items brings its key's name, whatever was recorded before */
    bool is_listed : 1;      /* the family's list of windows in Redis contains it, because this engine announced it */
    bool is_held : 1;        /* its counts wait for this announcement */
};

/* The state of a dropped generation (window_end.c). */
struct twi_generation_dropped {
    uint32_t next;  /* the next of those that are dropped, of all families */
    bool is_hidden; /* it was unlinked for a grace period, and has not been `current` since */
    /* the epoch stamp of its unlinking, and then of its hiding; TWI_NOT_RETIRED means that it is not unlinked yet */
    uint64_t stamp;
};

/* The turn's state of a generation. It is separate from the fields that callers write, and a walk can compute it
 * from them. Later it will be moved out of the arena, into memory that only the turn uses. */
struct twi_generation_turn {
    uint32_t outstanding;  /* how many items are in batches or wait to be collected again */
    uint32_t seal_tag;     /* the tag that sealing has reached */
    uint32_t taken;        /* marked chunks that were taken, but not looked at yet */
    uint32_t owed;         /* the newest chunk that the turn itself has marked */
    uint32_t next_pending; /* the next generation in the list of those being collected */
    uint32_t next_all;     /* the next generation of the family */
    uint32_t striped;      /* the newest set of stripes (stripe.h), and the number of sets */
    uint32_t striped_cells;
    bool pending;
    bool hook_runs; /* it runs, or its caller ended before its answer was noted */
    bool hook_done;
    _Atomic bool wants_totals; /* sealed, but totals are requested, because its hook shows them (turn/closing.h) */
    struct twi_generation_closing closing;
    bool distinct;         /* its cells have sketches (sketch.h); set before sharing */
    bool known, announced; /* it is in the family's list; it has come with the family's arrivals (perhaps later) */
    struct twi_generation_dropped dropped;
    int64_t hook_after_ms; /* the monotonic time at which a hook that returned false is called again */
    int64_t sealed_mono_ms;
    int64_t hurried_mono_ms; /* it is closed; the time at which it was last to be collected at once (rollover.c) */
    /* only the turn uses the next fields; they are here because the line has room */
    uint64_t acked_units;  /* the sum of the magnitudes that Redis has acknowledged */
    int64_t pack_after_ms; /* the monotonic time of the next try after memory was short */
    struct twi_generation_restore restore;
    struct twi_generation_history history;
};

#define TWI_NOT_RETIRED UINT64_MAX

/* The lines of pieces through which no key is found. */
struct twi_generation_aside {
    _Atomic uint32_t spares; /* unpublished records of lost races, linked by `end_ms`, for later inserts */
    _Atomic uint32_t spill;  /* the sketch of the adds that overflowed (spill.h); 0 means that none overflowed */
};

/* How far the window was saved (engine/save.c). The owner of the turn writes it. */
#define TWI_SAVED_SHOWN 1u   /* tw_save() is writing it, or the last one has */
#define TWI_SAVED_IN_FILE 2u /* a whole file has it, so the next process reports it as final */

struct twi_generation {
    /* the first line has all fields that a call for an existing key reads */
    _Atomic uint64_t root; /* entry */
    int64_t start_ms, end_ms;
    struct tw_family *family;
    struct twi_area area;

    struct twi_quota *quota;
    _Atomic uint8_t phase;
    bool synced;
    bool has_cells;                     /* sealing has found a counter besides the overflow counter; for the turn */
    uint8_t saved;                      /* TWI_SAVED_SHOWN, TWI_SAVED_IN_FILE */
    _Atomic uint32_t chunks[TWI_KINDS]; /* the newest chunk of each kind */
    struct twi_generation_aside aside;
    _Atomic uint32_t packed;     /* the line of the packed form, which replaces the table (windows.c); 0: none */
    _Atomic uint64_t pieces;     /* the entry of the newest index piece */
    _Atomic uint64_t successors; /* idle eviction: how many keys continued in the next generation */

    /* The overflow counter, followed by its cold part. This counter has no key. Other fields use its place. */
    union {
        struct twi_cell overflow;
        struct {
            unsigned char overflow_words[offsetof(struct twi_cell, key)];
            _Atomic uint32_t leases; /* the newest lease (limit/lease.h); the head of a list that twi_attached links */
            /* How many published keys have records of 2, 3, 4 and more lines. They decide the next area. */
            _Atomic uint32_t long_keys[TWI_LONG_KINDS];
            /* How many keys were announced for a window whose area is not begun yet. Then TWI_AREA_LAYING, and how many
             * chunks of the area nobody makes yet (area.h). */
            _Atomic uint32_t announced;
            /* The next place in the area to look at if a key's own place is taken. Before the area is complete: how
             * many of its chunks are not made. */
            _Atomic uint32_t area_cursor;
            _Atomic uint32_t limits; /* GCRA: the line of the limits that replaced others (limit/gcra.c); 0: none */
        };
    };
    struct twi_cold overflow_cold;

    /* inserts and adders write these fields */
    _Atomic uint64_t keys; /* published keys */
    _Atomic int64_t bytes; /* the bytes of the pieces that this generation owns */
    union {
        int64_t expiry_ms; /* when it expires in Redis: max(end, opening) + retention; 0 means never */
        /* without Redis: the line of the table of the keys that came when the window was full (guests.h); 0: none */
        _Atomic uint32_t guests;
    };
    struct twi_generation_marks marks;
    _Atomic uint32_t next_arrival; /* the next generation that the turn has not seen yet */
    struct twi_generation_turn turn;
};
static_assert(sizeof(struct twi_generation) <= 6 * TWI_LINE_BYTES, "a window of one key costs some 600 bytes");
static_assert(offsetof(struct twi_generation, overflow_cold) ==
                  offsetof(struct twi_generation, overflow) + sizeof(struct twi_cell),
              "where twi_cell_cold() looks for it");
static_assert(offsetof(struct twi_generation, quota) == TWI_LINE_BYTES, "a hit reads one line of its window");

/* A key as the table looks it up. In TW_WINDOW_FROM_FIRST families a generation may have a key twice, if Redis has
 * ended the first incarnation of the key early. The second one has INCARNATION set, and a tag of its own. */
struct twi_lookup_key {
    tw_key key;
    uint32_t tag;
    uint32_t meta;  /* the value that meta must have: the size, and INCARNATION or not */
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

/* Publishes a cell that was found, so that walkers see it, and returns its meta word. Call it first (T9 in table.c). */
TWI_INLINE uint64_t twi_cell_publish(struct twi_cell *cell) {
    uint64_t meta = twi_load_relaxed(&cell->meta);
    if (twi_unlikely((meta & TWI_META_PUBLISHED) == 0))
        meta = twi_or_acqrel(&cell->meta, TWI_META_PUBLISHED) | TWI_META_PUBLISHED; /* T13, as T9 */
    return meta;
}

/* Returns true if the packed form has replaced the table. Then records and index are given back, or soon will be. */
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

/* Returns the generation at a line; NULL for line 0. */
TWI_INLINE struct twi_generation *twi_generation_at(const struct twi_arena *arena, uint32_t line) {
    return line != 0 ? twi_arena_at(arena, line) : NULL;
}
/* Returns the cold part of one of its counters, or of its overflow counter. */
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
/* Returns the lines of a leaf or a node. */
TWI_INLINE uint32_t twi_entry_lines(uint64_t entry) {
    if (!twi_entry_is_node(entry)) return twi_leaf_lines(entry);
    uint64_t words = (UINT64_C(1) << (64 - twi_node_shift(entry))) + 2;
    return (uint32_t)((words * 8 + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

#endif
