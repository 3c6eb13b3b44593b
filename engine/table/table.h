/* table.h -- one generation, which has all counters of one family in one window. An index of slots over records that
 * never move. Picture of its memory: layout.h.
 *
 * A key's place in a leaf follows from its tag alone, so a leaf is copied without looking at a cell. A slot goes EMPTY
 * -> cell or EMPTY -> CLOSED, once, by compare-and-swap. A full slot never changes.
 * A leaf that has grown full is closed (every EMPTY -> CLOSED) and is immutable from then on. It is copied into one
 * larger leaf, or into two leaves that differ in the next bit of the tag. One swap of its `next` publishes the copy.
 * Any thread can do each step, so no thread waits. An inserter that meets CLOSED without a `next` makes the copy
 * itself. A leaf without memory for a copy takes further keys until it is full. Entries that still name a closed leaf
 * are repaired in passing. They are a shortcut, `next` is the truth.
 *
 * Always true:
 *   T1 a key is in at most one slot of the final leaf of its tag: every inserter of it walks the same slots in the same
 *      order, and takes the first EMPTY by one swap that publishes a complete record.
 *   T2 a closed leaf holds all keys of its tags that were inserted before it was closed; its `next` holds all of them
 *      too.
 *   T3 a cell in the index stays there; a generation is only dropped as a whole.
 *   T4 a key that is not in front of the first EMPTY or CLOSED of its walk is not in this leaf.
 * Walkers visit records, in chunks, and skip records that are not PUBLISHED. A thread that finds a cell publishes it
 * before using it.
 * Proofs: docs/CONCURRENCY.md. Elsewhere: growing (index.c), marks (dirty.c), which generation (window_map.c). */
#ifndef TWI_TABLE_TABLE_H
#define TWI_TABLE_TABLE_H

#include "engine/table/insert.h"

enum twi_found { TWI_FOUND, TWI_ABSENT, TWI_INSERTED, TWI_NO_ROOM, TWI_GONE_SEALED, TWI_CLOCK_MOVED };

/* Finds or makes the cell of the key. TWI_FOUND and TWI_INSERTED set *cell. With TWI_FOUND, first_delta was not
 * counted. TWI_NO_ROOM means that there is no memory, or that the family has keys_max keys. TWI_GONE_SEALED means that
 * the generation takes no more keys. TWI_CLOCK_MOVED means that the walk met CLOSED, and that by `still_current(ctx)`
 * this is no longer the generation to insert into. Lock-free. Inside a section. */
enum twi_found twi_table_insert(const struct twi_insert *insert, bool (*still_current)(void *ctx), void *ctx,
                                struct twi_cell **cell);

/* For TW_WINDOW_FROM_FIRST families. If `key` is not in this generation, makes sure that it never will be (trap E22).
 * Returns the cell if it is. */
struct twi_cell *twi_table_close_probe(struct twi_arena *arena, struct twi_generation *generation,
                                       const struct twi_lookup_key *lookup);

/* A generation with one small leaf. With a forecast and enough memory it has an index for `keys_expected`, and an area
 * of records, now or after its first keys. Returns NULL if there is no memory. Not yet reachable by any thread. */
struct twi_generation *twi_table_make(struct twi_arena *arena, struct twi_quota *quota, uint64_t keys_expected,
                                      bool synced);
/* Gives records and index back, one unit of *work per line. No thread can reach them any more. True when all is given
 * back; the generation stays, and holds no key. */
bool twi_table_shed(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);
/* The same, and then gives back the generation. True when all is given back. */
bool twi_table_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

/* Called by the turn. Seals in steps, by closing leaves and freezing their cells. Returns true when the whole
 * generation is frozen. */
bool twi_table_seal(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work,
                    void (*frozen)(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final), void *ctx);

/* Makes a record outside the index for a counter of a packed window. The record is frozen, and all of `final` is
 * unsent. Called by the turn. Returns NULL if there is no memory. */
struct twi_cell *twi_table_revive(struct twi_arena *arena, struct twi_generation *generation, tw_key key, int64_t final,
                                  int64_t base);

/* Visits PUBLISHED cells from *cursor on, until `visit` returns false or all are seen (then *cursor.done). */
struct twi_cursor {
    uint32_t kind;
    uint32_t chunk; /* the line of the chunk; 0 means not yet looked up for this kind */
    uint32_t index;
    bool begun, done;
    uint32_t looks; /* how many more records to look at before stopping; 0 means all */
};
void twi_table_walk(struct twi_arena *arena, struct twi_generation *generation, struct twi_cursor *cursor,
                    bool (*visit)(void *ctx, struct twi_cell *cell, uint64_t meta), void *ctx);
/* Checks the whole structure, for tests and checks=3. Returns true if every published cell is found by its key, exactly
 * once. */
bool twi_table_is_valid(struct twi_arena *arena, struct twi_generation *generation,
                        const struct twi_hash_secret *secret,
                        uint64_t (*hash)(const struct twi_hash_secret *, const void *, size_t));

#endif
