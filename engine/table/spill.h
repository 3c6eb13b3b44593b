/* spill.h -- the heavy keys among those that found no room in a window, and each one's part of its overflow counter.
 *
 *   generation ─▶ | sketch: ways to its shards, what was missed | shard | entry, entry, ... | heap, places, index |
 *                        └─▶ | shard | entry, entry, ... | heap, places, index |    other kinds of keys, busy times
 *
 * Each shard is a summary by the algorithm Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi: "Efficient Computation
 * of Frequent and Top-k Elements in Data Streams", ICDT 2005). A shard has a fixed number of entries. Each has a key,
 * its count, and the part of that count that may be of other keys. A key without an entry takes the lightest entry when
 * the shard is full. Its count continues from the greatest count that was ever given up (`floor`), which is its error.
 * So, of what went to a shard of E entries, N units in all:
 *   - a key with an entry has had at most its count, and at least its count less its error;
 *   - a key without an entry has had at most `floor`, and that is at most N / E if nothing negative was added.
 * A key that makes up more than 1 % of what overflowed has an entry. A shard has 437 entries for keys of up to 32
 * bytes, 178 for the longest. From the arena's reserve come segments: of one, 123 entries for keys of up to 480 bytes,
 * 58 for longer ones (then 2 %).
 * Negative deltas: an entry's count falls. `debt` is by how much every key of the shard may have had less: the
 * sum of what fell on keys without an entry, and of what keys whose entry was given up may have had below zero.
 *
 * A thread that adds tries the locks of the shards in turn, its own first, and takes the first that is free. It never
 * waits: if all are held, a shard more is made, up to 8 for each kind of key; if that cannot be, the units are missed.
 * They are added to one of 64 sums, which the key's tag chooses, and by which each key of these tags may have had more
 * (or less). A key may be in several shards. Its bounds add up.
 * Readers take no lock. Each entry has a version, which is odd while its key is replaced.
 * Memory: the first overflow of a window takes 32 KiB for keys of up to 32 bytes, 192 KiB at most for longer ones; less
 * where less is left. A window that has grown large takes it ahead, when half of the arena is used. Shares of families,
 * and arenas of 16 MiB or more, keep some memory for sketches (record.h, arena.h).
 * Always true: what overflow counted since the window's first overflow is in the sketch, except for adds that are just
 * being made; or the sketch was refused, and there is none in this window (TWI_SPILL_REFUSED).
 * Elsewhere: who feeds it (api.c), who reads it (heavy.c). */
#ifndef TWI_TABLE_SPILL_H
#define TWI_TABLE_SPILL_H

#include "engine/table/layout.h"

#define TWI_SPILL_SHARDS 8u /* shards of each kind of key (twi_kinds) */
#define TWI_SPILL_MISSED 64u
#define TWI_SPILL_REFUSED 1u /* in place of the line, because there was no memory for it */

struct twi_spill_entry {
    _Atomic uint32_t version; /* odd while the key is being replaced */
    _Atomic uint32_t size;    /* the size of the key */
    _Atomic int64_t count, error;
    uint32_t tag; /* the tag of the key's hash; used under the shard's lock, like all fields that are not atomic */
    uint32_t unused;
    _Atomic uint64_t key[]; /* its bytes; the last word is filled up with zeroes */
};
static_assert(sizeof(struct twi_spill_entry) == 32, "a short key and its entry are one line");

struct twi_spill_shard {
    _Atomic uint64_t reserved;
    _Atomic uint32_t lock; /* 1 means held */
    _Atomic uint32_t used; /* number of entries in use, which are the first ones */
    _Atomic int64_t floor, debt;
    uint32_t kind, room; /* number of entries; set before sharing, as all that follows */
    uint32_t piece, piece_lines;
    uint64_t unused[2];
};
static_assert(sizeof(struct twi_spill_shard) == TWI_LINE_BYTES, "entries begin at a line");

/* Units that no shard took, of positive and of negative deltas. */
struct twi_spill_missed {
    _Atomic int64_t more, less;
};

struct twi_spill {
    _Atomic uint64_t reserved;
    /* lines of the shards; 0 means that there is none from here on */
    _Atomic uint32_t shards[TWI_KINDS][TWI_SPILL_SHARDS];
    struct twi_spill_missed missed[TWI_SPILL_MISSED]; /* by the key's tag */
};
TWI_INLINE struct twi_spill_missed *twi_spill_missed_of(struct twi_spill *sketch, uint32_t tag) {
    return &sketch->missed[tag % TWI_SPILL_MISSED];
}

/* Notes an add of `delta` to the overflow counter of this generation. Lock-free. Inside a section; `thread` is any
 * number of the calling thread. Returns false, once for each generation, if there is no memory and therefore no
 * sketch. */
bool twi_spill_add(struct twi_arena *arena, struct twi_generation *generation, const struct twi_lookup_key *lookup,
                   uint32_t thread, int64_t delta);

/* A window has grown. If it has much of the arena, and half of the arena is used, its sketch is made now, because later
 * there may be no memory for it. */
void twi_spill_prepare(struct twi_arena *arena, struct twi_generation *generation, size_t key_size);

/* The sketch of a generation that does not go meanwhile, or NULL. */
struct twi_spill *twi_spill_of(const struct twi_arena *arena, struct twi_generation *generation);
/* A shard of it; NULL means that there are no more of this kind. */
struct twi_spill_shard *twi_spill_shard_of(const struct twi_arena *arena, struct twi_spill *sketch, uint32_t kind,
                                           uint32_t number);

/* One entry, as it was at some moment of the call. `key` has room for TW_KEY_SIZE_MAX bytes. Returns false if its key
 * was being replaced all the time; then its former key has had at most `floor`. */
struct twi_spill_seen {
    int64_t count, error;
    size_t size;
    uint64_t key[TW_KEY_SIZE_MAX / 8];
};
bool twi_spill_read(struct twi_spill_shard *shard, uint32_t number, struct twi_spill_seen *seen);

/* Gives its memory back. No thread can reach it any more. True when all is given back. */
bool twi_spill_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
