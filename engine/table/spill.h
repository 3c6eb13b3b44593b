/* spill.h -- finds the heavy keys among the keys without a counter, and their parts of the overflow counter.
 *
 *   generation ─▶ | sketch: ways to its shards, what was missed | shard | entry, entry, ... | heap, places, index |
 *                        └─▶ | shard | entry, entry, ... | heap, places, index |    other kinds of keys, busy times
 *
 * Each shard is a summary by the algorithm Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi: "Efficient Computation
 * of Frequent and Top-k Elements in Data Streams", ICDT 2005). A shard has a fixed number of entries. Each entry has a
 * key, a count, and the part of this count that may belong to other keys. If the shard is full, a key without an entry
 * replaces the key of the lightest entry. Its count begins at the greatest count that was ever given up (`floor`), and
 * this is its error. So if a shard of E entries has received N units in all:
 *   - A key with an entry has had at most its count, and at least its count less its error.
 *   - A key without an entry has had at most `floor`. If no negative delta was added, `floor` is at most N / E.
 * A key that makes up more than 1 % of what overflowed has an entry. A shard has 437 entries for keys of up to 32
 * bytes, and 178 for the longest keys. If memory is short, the arena's reserve gives segments. A segment has 123
 * entries for keys of up to 480 bytes, or 58 for longer keys (then the limit is 2 %). A negative delta makes the count
 * of an entry fall. `debt` is by how much every key of the shard may have had less. It is the sum of the negative
 * deltas of keys without an entry, and of what keys whose entry was given up may have had below zero.
 *
 * A thread that adds tries the locks of the shards one after the other, beginning with its own shard, and uses the
 * first free one. It never waits. If all locks are held, it makes another shard, up to 8 for each kind of key. If that
 * is not possible, the units are missed. Missed units are added to one of 64 sums, which the tag of the key chooses.
 * Each key with one of these tags may have had that many more (or less). A key may be in several shards. Bounds add up.
 * Readers take no lock. Each entry has a version, which is odd while its key is replaced. Memory: the first overflow of
 * a window takes 32 KiB for keys of up to 32 bytes, and at most 192 KiB for longer keys. It takes less if less is left.
 * A large window takes this memory in advance, when half of the arena is used. Shares of families, and arenas of 16 MiB
 * or more, keep some memory for sketches (area.h, arena.h).
 * Always true: the sketch has all units that overflowed since the first overflow of the window, except adds that are
 * just being made. Or the sketch was refused, and this window has none (TWI_SPILL_REFUSED).
 * Elsewhere: api.c adds to it, and top.c reads it. */
#ifndef TWI_TABLE_SPILL_H
#define TWI_TABLE_SPILL_H

#include "engine/table/layout.h"

#define TWI_SPILL_SHARDS 8u /* the most shards for each kind of key (twi_kinds) */
#define TWI_SPILL_MISSED 64u
#define TWI_SPILL_REFUSED 1u /* it replaces the line of the sketch, because there was no memory for a sketch */

struct twi_spill_entry {
    _Atomic uint32_t version; /* odd while the key is being replaced */
    _Atomic uint32_t size;    /* the size of the key */
    _Atomic int64_t count, error;
    uint32_t tag; /* the tag of the key's hash; the shard's lock protects it and all other fields that are not atomic */
    uint32_t unused;
    _Atomic uint64_t key[]; /* the bytes of the key; the last word is filled up with zeroes */
};
static_assert(sizeof(struct twi_spill_entry) == 32, "a short key and its entry are one line");

struct twi_spill_shard {
    _Atomic uint64_t reserved;
    _Atomic uint32_t lock; /* 1 means held */
    _Atomic uint32_t used; /* how many entries are in use; these are the first ones */
    _Atomic int64_t floor, debt;
    uint32_t kind, room; /* the number of entries; this and all following fields are set before the shard is shared */
    uint32_t piece, piece_lines;
    uint64_t unused[2];
};
static_assert(sizeof(struct twi_spill_shard) == TWI_LINE_BYTES, "entries begin at a line");

/* Units that no shard accepted, of positive and of negative deltas. */
struct twi_spill_missed {
    _Atomic int64_t more, less;
};

struct twi_spill {
    _Atomic uint64_t reserved;
    /* the lines of the shards; 0 means that there are no more shards of this kind */
    _Atomic uint32_t shards[TWI_KINDS][TWI_SPILL_SHARDS];
    struct twi_spill_missed missed[TWI_SPILL_MISSED]; /* chosen by the tag of the key */
};
TWI_INLINE struct twi_spill_missed *twi_spill_missed_of(struct twi_spill *sketch, uint32_t tag) {
    return &sketch->missed[tag % TWI_SPILL_MISSED];
}

/* Notes an add of `delta` to the overflow counter of this generation. Lock-free. The caller is inside a section.
 * `thread` is any number that belongs to the calling thread. Returns false if there is no memory and therefore no
 * sketch. It does so once for each generation. */
bool twi_spill_add(struct twi_arena *arena, struct twi_generation *generation, const struct twi_lookup_key *lookup,
                   uint32_t thread, int64_t delta);

/* Does the same for a key that has probably not come before. Its units count as missed, because of a flood of such keys
 * none needs an entry, and an entry costs more than all else. */
bool twi_spill_add_first(struct twi_arena *arena, struct twi_generation *generation,
                         const struct twi_lookup_key *lookup, uint32_t thread, int64_t delta);

/* Called when a window has grown. If the window has much of the arena, and half of the arena is used, its sketch is
 * made now, because later there may be no memory for it. */
void twi_spill_prepare(struct twi_arena *arena, struct twi_generation *generation, size_t key_size);

/* Returns the sketch of a generation that cannot be dropped meanwhile, or NULL. */
struct twi_spill *twi_spill_of(const struct twi_arena *arena, struct twi_generation *generation);
/* Returns a shard of the sketch. NULL means that there are no more shards of this kind. */
struct twi_spill_shard *twi_spill_shard_of(const struct twi_arena *arena, struct twi_spill *sketch, uint32_t kind,
                                           uint32_t number);

/* One entry, as it was at one moment of the call. `key` has room for TW_KEY_SIZE_MAX bytes. Returns false if the key
 * of the entry was being replaced during the whole call. The previous key of the entry has then had at most `floor`. */
struct twi_spill_seen {
    int64_t count, error;
    size_t size;
    uint64_t key[TW_KEY_SIZE_MAX / 8];
};
bool twi_spill_read(struct twi_spill_shard *shard, uint32_t number, struct twi_spill_seen *seen);

/* Gives the memory of the sketch back. No thread can reach the sketch. Returns true when all memory is given back. */
bool twi_spill_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
