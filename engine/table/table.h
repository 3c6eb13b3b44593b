/* table.h -- one generation: all counters of one family in one window. It is an index of slots that lead to records,
 * and records never move. layout.h has a picture of its memory.
 *
 * The place of a key in a leaf depends only on its tag, so a leaf can be copied without looking at a cell. A slot
 * changes once, from EMPTY to a cell or from EMPTY to CLOSED, by compare-and-swap. A slot that is not EMPTY never
 * changes. A leaf that has become full is closed (every EMPTY becomes CLOSED), and does not change from then on. It is
 * copied into one larger leaf, or into two leaves that differ in the next bit of the tag. One swap of its `next`
 * publishes the copy. Any thread can do each step, so no thread waits. An inserter that finds CLOSED without a `next`
 * makes the copy itself. If there is no memory for a copy of a leaf, the leaf accepts further keys until it is full.
 * Threads that pass repair entries that still name a closed leaf. The entries are only a shortcut. `next` decides.
 *
 * Always true:
 *   T1 a key is in at most one slot of the final leaf of its tag: every inserter of the key walks the same slots in the
 *      same order, and takes the first EMPTY slot by one swap that publishes a complete record.
 *   T2 a closed leaf has all keys of its tags that were inserted before it was closed, and its `next` has all of them.
 *   T3 a cell in the index stays there, because a generation is only dropped as a whole.
 *   T4 if a key is not in front of the first EMPTY or CLOSED of its walk, it is not in this leaf.
 * Walkers visit records, in chunks, and skip records that are not PUBLISHED. A thread that finds a cell publishes the
 * cell before it uses it.
 * Proofs: docs/CONCURRENCY.md. Elsewhere: growth (index.c), marks (dirty.c), the choice of the generation
 * (window_map.c). */
#ifndef TWI_TABLE_TABLE_H
#define TWI_TABLE_TABLE_H

#include "engine/table/index.h"

enum twi_found { TWI_FOUND, TWI_ABSENT, TWI_INSERTED, TWI_NO_ROOM, TWI_GONE_SEALED, TWI_CLOCK_MOVED };

/* Finds or makes the cell of the key. TWI_FOUND and TWI_INSERTED set *cell. If the result is TWI_FOUND, first_delta was
 * not counted. TWI_NO_ROOM means that there is no memory, or that the family has keys_max keys. TWI_GONE_SEALED means
 * that the generation accepts no more keys. TWI_CLOCK_MOVED means that the walk found CLOSED, and that according to
 * `still_current(ctx)` the key must not be inserted into this generation any more. Lock-free. Inside a section. */
enum twi_found twi_table_insert(const struct twi_insert *insert, bool (*still_current)(void *ctx), void *ctx,
                                struct twi_cell **cell);

/* For TW_WINDOW_FROM_FIRST families. If `key` is not in this generation, makes sure that it never will be (trap
 * E22). Returns the cell if the key is in it. */
struct twi_cell *twi_table_close_probe(struct twi_arena *arena, struct twi_generation *generation,
                                       const struct twi_lookup_key *lookup);

/* Makes a generation with one small leaf. If there is a forecast and enough memory, the generation has an index for
 * `keys_expected`, and an area, now or after its first keys. Returns NULL if there is no memory. Still private. */
struct twi_generation *twi_table_make(struct twi_arena *arena, struct twi_quota *quota, uint64_t keys_expected,
                                      bool synced);
/* Gives records and index back. Each line costs one unit of *work. The caller makes sure that no thread can reach
 * them any more. Returns true when all is given back. The generation itself stays, and has no keys. */
bool twi_table_shed(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);
/* Gives back all pieces but the generation, in bounded pieces, as the previous function. Each piece is taken off its
 * list before it is given back. So if the thread ends in between, one piece leaks, and none is given back twice. */
bool twi_table_empty(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);
/* Gives back an empty generation. */
void twi_table_give(struct twi_arena *arena, struct twi_generation *generation);
/* Does both. Returns true when all is given back. */
bool twi_table_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

/* Called by the turn. Seals the generation in steps: it closes leaves and freezes their cells. Returns true when the
 * whole generation is frozen. */
bool twi_table_seal(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work,
                    void (*frozen)(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final), void *ctx);

/* Makes a record outside the index for a counter of a packed window, in a family with Redis. The record is frozen, and
 * all units of `final` are acknowledged. Called by the turn. Returns NULL if there is no memory. */
struct twi_cell *twi_table_revive(struct twi_arena *arena, struct twi_generation *generation, tw_key key, int64_t final,
                                  int64_t base);

/* Visits PUBLISHED cells from *cursor on, until `visit` returns false or all were visited (then *cursor.done). */
struct twi_cursor {
    uint32_t kind;
    uint32_t chunk; /* the line of the chunk; 0 means that it was not looked up for this kind yet */
    uint32_t index;
    bool begun, done;
    uint32_t looks; /* how many more records to look at before the walk stops; 0 means all */
};
void twi_table_walk(struct twi_arena *arena, struct twi_generation *generation, struct twi_cursor *cursor,
                    bool (*visit)(void *ctx, struct twi_cell *cell, uint64_t meta), void *ctx);
/* Checks the whole structure, for tests and checks=3. Returns true if every published cell is found by its key, exactly
 * once. */
bool twi_table_is_valid(struct twi_arena *arena, struct twi_generation *generation,
                        const struct twi_hash_secret *secret,
                        uint64_t (*hash)(const struct twi_hash_secret *, const void *, size_t));

#endif
