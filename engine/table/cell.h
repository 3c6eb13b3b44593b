/* cell.h -- the memory of one counter, and the counter word.
 *
 *    0        8        16       24       32                          64
 *   | local  | base   | end_ms | meta   | key (32 B, longer ones go on in the next lines) |   all an add touches
 *
 *   cold, in families with Redis only, 32 bytes in another line:   | final | handed | acked | total_state |
 *
 * `local` has the count in its upper 62 bits, and FROZEN and DIRTY in the two lowest bits. An add of delta << 2 cannot
 * change these flags, whatever its sign, and returns them at no cost.
 *   - FROZEN means that the add did not count, and that the call decides again. `final` has the value at the time of
 *     the freeze. From then on the count in the word is meaningless.
 *   - DIRTY means that the counter is marked for the collector (dirty.c).
 * Only the turn freezes, so one thread freezes at a time. It stores `final` before the swap that freezes (C1). The turn
 * stores `base` = total - acked in one store, and the answer of a strict limit may raise it (count/lookup.c). The view
 * is local + base. A family without Redis needs no base, so `final` uses the place of `base`.
 * If threads contend for a counter, it counts in another place (stripe.h). Such a cell is STRIPED: `local` is frozen,
 * `final` has its count, and the word that is end_ms in TW_WINDOW_FROM_FIRST families leads to the stripes.
 * (TW_WINDOW_FROM_FIRST families have no stripes.) Hard families with Redis have no stripes either. There this word
 * leads to the counter's lease (limit/lease.h).
 * Always true: key, key_size and the layout are complete before the cell is published, and never change. Counts stay
 * within +-TW_COUNT_MAX. A cell stays where it is until its generation is dropped. */
#ifndef TWI_TABLE_CELL_H
#define TWI_TABLE_CELL_H

#include "engine/base/calendar.h"
#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- stripe words ----
 * the functions of stripe.c that a cell needs when it is STRIPED (stripe.h). */

struct twi_cell;

/* Returns the sum of the stripes. Freezes the stripes, so that no thread can add to them (sealing), and returns the
 * sum. Clears DIRTY in each word, and returns the sum (*sealed means that no add can follow). Marks the counter
 * because its total is needed. Returns false if the counter was already marked, or is sealed. */
int64_t twi_stripes_count(struct twi_cell *cell);
int64_t twi_stripes_freeze(struct twi_cell *cell);
int64_t twi_stripes_take_dirty(struct twi_cell *cell, bool *sealed);
bool twi_stripes_mark_requested(struct twi_cell *cell);

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define TWI_FROZEN UINT64_C(1)
#define TWI_DIRTY UINT64_C(2)
#define TWI_COUNT_SHIFT 2
#define TWI_KEY_INLINE 32u

/* meta: 0..15 key size | 16.. flags | 24..29 kind (record class, cold or not) | 30 PARKED | 31 RESEND | 32..63 index in
 * its chunk */
#define TWI_META_SIZE UINT64_C(0xffff)
/* the cell is in the index, so walkers show it. The inserter sets it, or the first thread that finds the cell */
#define TWI_META_PUBLISHED (UINT64_C(1) << 16)
#define TWI_META_EDGE (UINT64_C(1) << 17)     /* a |value| >= 2^59 was seen, so adds use the careful function */
#define TWI_META_OVERFLOW (UINT64_C(1) << 18) /* the window's overflow counter, which has no key and no chunk */
#define TWI_META_COLD (UINT64_C(1) << 19)     /* has a cold part */
/* the later of two incarnations of its key in one generation (layout.h) */
#define TWI_META_INCARNATION (UINT64_C(1) << 20)
#define TWI_META_STRIPED (UINT64_C(1) << 21)   /* the cell has stripes (stripe.h); the flag is never cleared */
#define TWI_META_USED (UINT64_C(1) << 22)      /* idle eviction: used since its generation is the previous one */
#define TWI_META_SUCCESSOR (UINT64_C(1) << 23) /* idle eviction: the cell succeeds a frozen cell (idle_eviction.c) */
#define TWI_META_KIND_SHIFT 24
#define TWI_META_PARKED (UINT64_C(1) << 30) /* its store cannot accept it now: not collected (engine/turn) */
/* the present store of Redis has not yet received what an earlier store has (restore_notes.h) */
#define TWI_META_RESEND (UINT64_C(1) << 31)
#define TWI_META_INDEX_SHIFT 32

struct twi_cell {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t local;
    _Atomic int64_t base;
    union {
        _Atomic int64_t end_ms;  /* TW_WINDOW_FROM_FIRST: when this incarnation ends */
        _Atomic int64_t stripes; /* other families: the distance in lines to the stripes; 0: none (stripe.h) */
        _Atomic int64_t asked;   /* distinct counts: not 0 if the key was read since it was sent (distinct_merge.c) */
        _Atomic int64_t limit;   /* GCRA: the first limit of the key in this window; 0: none yet (limit/gcra.c) */
    };
    _Atomic uint64_t meta;
    unsigned char key[TWI_KEY_INLINE];
};
static_assert(sizeof(struct twi_cell) == TWI_LINE_BYTES, "an add touches one line");

struct twi_cold {
    _Atomic int64_t final;       /* valid after FROZEN was set */
    _Atomic int64_t handed;      /* the part of local that is in batches; written by the turn */
    _Atomic int64_t acked;       /* the part of local that Redis has acknowledged; written by the turn */
    _Atomic int64_t total_state; /* the last total's time, and the others' pace; 0: no total has come */
};
static_assert(sizeof(struct twi_cold) == 32, "two colds share a line");

/* total_state: 1 | 40 bits: monotonic ms (34 years) | 21 bits: the others' pace, units per ms in 256ths | 2 bits:
 * intervals seen, at most 3 (share.h). Before an interval is seen there is no pace. The 21 bits are then the lower
 * bits of the time of the first total. 0 means that no total has come. */
#define TWI_PACE_ONE 256
#define TWI_PACE_MAX ((1u << 21) - 1)
TWI_INLINE int64_t twi_total_state(int64_t mono_ms, uint32_t pace, uint32_t seen) {
    uint64_t ms = (uint64_t)mono_ms & ((UINT64_C(1) << 40) - 1);
    return (int64_t)(1 | ms << 1 | (uint64_t)pace << 41 | (uint64_t)seen << 62);
}
TWI_INLINE int64_t twi_total_state_ms(int64_t total_state) {
    return (int64_t)((uint64_t)total_state >> 1 & ((UINT64_C(1) << 40) - 1));
}
TWI_INLINE uint32_t twi_total_state_seen(int64_t total_state) {
    return (uint32_t)((uint64_t)total_state >> 62);
}
/* Returns the pace. Before an interval is seen, returns the time when the first total came. */
TWI_INLINE uint32_t twi_total_state_middle(int64_t total_state) {
    return (uint32_t)((uint64_t)total_state >> 41) & TWI_PACE_MAX;
}
TWI_INLINE uint32_t twi_total_state_pace(int64_t total_state) {
    return twi_total_state_seen(total_state) != 0 ? twi_total_state_middle(total_state) : 0;
}
/* Returns the state after the first total, which came at first_ms, when no interval is seen yet. */
TWI_INLINE int64_t twi_total_state_begun(int64_t mono_ms, int64_t first_ms) {
    uint32_t first = (uint32_t)first_ms & TWI_PACE_MAX;
    return twi_total_state(mono_ms, first != 0 ? first : 1, 0);
}

/* A kind of record determines how many lines the record has, how many key bytes it contains, and where its cold part
 * is. Two records of kind 0 with cold parts share three lines: | cell A | cold A, cold B | cell B |. */
#define TWI_KINDS 6u
struct twi_kind {
    uint16_t lines;
    uint16_t key_local;  /* how many key bytes a record without a cold part has */
    uint16_t key_synced; /* how many key bytes a record with a cold part has */
};
extern const struct twi_kind twi_kinds[TWI_KINDS];

TWI_INLINE int64_t twi_word_value(uint64_t word) {
    return (int64_t)word >> TWI_COUNT_SHIFT; /* the shift is arithmetic, because gcc and clang keep the sign */
}

TWI_INLINE uint32_t twi_cell_index(uint64_t meta) {
    return (uint32_t)(meta >> TWI_META_INDEX_SHIFT);
}
TWI_INLINE uint32_t twi_cell_kind(uint64_t meta) {
    return (uint32_t)(meta >> TWI_META_KIND_SHIFT) & 0x3f;
}

TWI_INLINE struct twi_cold *twi_cell_cold(struct twi_cell *cell, uint64_t meta) {
    unsigned char *at = (unsigned char *)cell;
    uint32_t kind = twi_cell_kind(meta);
    if (kind != 0) return (struct twi_cold *)(at + twi_kinds[kind].lines * TWI_LINE_BYTES - sizeof(struct twi_cold));
    return (struct twi_cold *)((twi_cell_index(meta) & 1) == 0 ? at + TWI_LINE_BYTES : at - sizeof(struct twi_cold));
}
/* Returns true if a total has come from Redis. Until then this process decides limits by what it knows (trap E26). */
TWI_INLINE bool twi_cell_is_known(struct twi_cell *cell, uint64_t meta) {
    return twi_load_relaxed(&twi_cell_cold(cell, meta)->total_state) != 0;
}
TWI_INLINE bool twi_cell_is_frozen(struct twi_cell *cell) {
    return (twi_load_acquire(&cell->local) & TWI_FROZEN) != 0; /* C2 */
}

TWI_INLINE _Atomic int64_t *twi_cell_final(struct twi_cell *cell, uint64_t meta) {
    return (meta & TWI_META_COLD) != 0 ? &twi_cell_cold(cell, meta)->final : &cell->base;
}

/* Returns the count that this process has added. */
TWI_INLINE int64_t twi_cell_local(struct twi_cell *cell, uint64_t meta) {
    uint64_t word = twi_load_acquire(&cell->local); /* C2, pairs with C1 */
    if (twi_likely((word & TWI_FROZEN) == 0)) return twi_word_value(word);
    int64_t final = twi_load_relaxed(twi_cell_final(cell, meta));
    return (meta & TWI_META_STRIPED) != 0 ? final + twi_stripes_count(cell) : final;
}

TWI_INLINE int64_t twi_view_of(struct twi_cell *cell, uint64_t meta, int64_t local) {
    return (meta & TWI_META_COLD) != 0 ? twi_saturated_sum(local, twi_load_relaxed(&cell->base)) : local;
}
TWI_INLINE int64_t twi_cell_view(struct twi_cell *cell, uint64_t meta) {
    return twi_view_of(cell, meta, twi_cell_local(cell, meta));
}

enum twi_added { TWI_ADDED, TWI_ADD_FROZEN, TWI_ADD_RANGE };

/* Adds carefully. The function refuses a sum outside +-TW_COUNT_MAX before it writes. */
enum twi_added twi_cell_add_careful(struct twi_cell *cell, int64_t delta, uint64_t *before);

/* A plain delta is smaller than this. So 65,536 threads cannot pass from EDGE to the end of the range: */
#define TWI_DELTA_PLAIN (INT64_C(1) << 40)
/* each thread can have one add in progress past 2^59: 2^59 + 2^16 * 2^40 < 2^60 */
#define TWI_VALUE_EDGE (INT64_C(1) << 59)

/* The hot add. `before` gets the word before it. If the word has no DIRTY, the caller must mark the counter. */
TWI_INLINE enum twi_added twi_cell_add(struct twi_cell *cell, uint64_t meta, int64_t delta, uint64_t *before) {
    if (twi_unlikely((meta & TWI_META_EDGE) != 0 || delta >= TWI_DELTA_PLAIN || delta <= -TWI_DELTA_PLAIN))
        return twi_cell_add_careful(cell, delta, before);
    /* relaxed, because others only read a count here, and the same operation returns the flags */
    uint64_t word = twi_add_relaxed(&cell->local, (uint64_t)delta << TWI_COUNT_SHIFT);
    *before = word;
    if (twi_unlikely((word & TWI_FROZEN) != 0)) return TWI_ADD_FROZEN;
    int64_t value = twi_word_value(word);
    if (twi_unlikely(value >= TWI_VALUE_EDGE || value <= -TWI_VALUE_EDGE))
        (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    return TWI_ADDED;
}

static_assert(TWI_VALUE_EDGE << TWI_COUNT_SHIFT == INT64_C(1) << 61, "twi_cell_count_plain() looks at two bits");
/* Adds to a plain cell. twi_cell_add() explains why the operation is relaxed. The word shows whether the add
 * counted, and whether the cell must be marked. Returns false if the add did not count (FROZEN). Also returns false
 * if the add counted and is near an edge of the range, which must be noted. */
TWI_INLINE bool twi_cell_count_plain(struct twi_cell *cell, int64_t delta, uint64_t *before) {
    uint64_t word = twi_add_relaxed(&cell->local, (uint64_t)delta << TWI_COUNT_SHIFT);
    *before = word;
    /* One test covers both rare cases. Within the edges, the two upper bits of the sum are 0. After the rotation
     * they are next to FROZEN. */
    uint64_t sum = word + ((uint64_t)TWI_VALUE_EDGE << TWI_COUNT_SHIFT);
    return twi_likely(((sum << 2 | sum >> 62) & (TWI_FROZEN << 2 | 3)) == 0);
}
/* Adds to a plain cell. Returns false if the add did not count (the cell is frozen). */
TWI_INLINE bool twi_cell_count(struct twi_cell *cell, int64_t delta, uint64_t *before) {
    if (twi_likely(twi_cell_count_plain(cell, delta, before))) return true;
    if ((*before & TWI_FROZEN) != 0) return false;
    (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    return true;
}

/* Freezes the word. `final` then has the value at that moment, and the function returns it. Only the turn calls it.
 * It does not change stripes. */
int64_t twi_cell_freeze(struct twi_cell *cell, uint64_t meta);

/* Returns the kind of record that a key of this size needs. */
TWI_INLINE uint32_t twi_kind_for(size_t key_size, bool synced) {
    uint32_t kind = 0;
    while (key_size > (synced ? twi_kinds[kind].key_synced : twi_kinds[kind].key_local)) kind++;
    return kind;
}

/* Returns how many lines the record of a key of more than 32 bytes needs. Up to 4, the record has that many. */
TWI_INLINE size_t twi_long_lines(size_t key_size, bool synced) {
    size_t others = sizeof(struct twi_cell) - TWI_KEY_INLINE + (synced ? sizeof(struct twi_cold) : 0);
    return (others + key_size + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES;
}
/* Such keys are counted by the size of their records: 2, 3, 4 or more lines. */
#define TWI_LONG_KINDS 4u
TWI_INLINE size_t twi_long_kind(size_t key_size, bool synced) {
    size_t further = twi_long_lines(key_size, synced) - 2;
    return further < TWI_LONG_KINDS - 1 ? further : TWI_LONG_KINDS - 1;
}

/* Compares keys of 4 to 32 bytes. These are in the line that the add touches anyway. Two loads, which may overlap,
 * read each key. */
TWI_INLINE bool twi_key_equal_short(const unsigned char *a, const unsigned char *b, size_t size) {
    if (twi_likely(size > 16)) {
#if defined(__SSE2__)
        const __m128i *x = (const __m128i *)(const void *)a, *y = (const __m128i *)(const void *)b;
        const __m128i *z = (const __m128i *)(const void *)(a + size - 16);
        const __m128i *w = (const __m128i *)(const void *)(b + size - 16);
        __m128i first = _mm_cmpeq_epi8(_mm_loadu_si128(x), _mm_loadu_si128(y));
        __m128i last = _mm_cmpeq_epi8(_mm_loadu_si128(z), _mm_loadu_si128(w));
        return _mm_movemask_epi8(_mm_and_si128(first, last)) == 0xffff;
#else
        uint64_t x[2], y[2], z[2], w[2];
        memcpy(x, a, 16);
        memcpy(y, b, 16);
        memcpy(z, a + size - 16, 16);
        memcpy(w, b + size - 16, 16);
        return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (z[0] ^ w[0]) | (z[1] ^ w[1])) == 0;
#endif
    }
    if (size >= 8) {
        uint64_t x, y, z, w;
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        memcpy(&z, a + size - 8, 8);
        memcpy(&w, b + size - 8, 8);
        return ((x ^ y) | (z ^ w)) == 0;
    }
    uint32_t x, y, z, w;
    memcpy(&x, a, 4);
    memcpy(&y, b, 4);
    memcpy(&z, a + size - 4, 4);
    memcpy(&w, b + size - 4, 4);
    return ((x ^ y) | (z ^ w)) == 0;
}

/* Returns the bits in which the 32 bytes at `a` and at `b` differ, as one word or vector of words. */
#if defined(__SSE2__)
typedef __m128i twi_key_difference;
TWI_INLINE twi_key_difference twi_key_differ_32(const unsigned char *a, const unsigned char *b) {
    const __m128i *x = (const __m128i *)(const void *)a, *y = (const __m128i *)(const void *)b;
    __m128i first = _mm_xor_si128(_mm_loadu_si128(x), _mm_loadu_si128(y));
    return _mm_or_si128(first, _mm_xor_si128(_mm_loadu_si128(x + 1), _mm_loadu_si128(y + 1)));
}
#define twi_key_differ_or(x, y) _mm_or_si128((x), (y))
#define twi_key_differ_none(x) (_mm_movemask_epi8(_mm_cmpeq_epi8((x), _mm_setzero_si128())) == 0xffff)
#else
typedef uint64_t twi_key_difference;
TWI_INLINE twi_key_difference twi_key_differ_32(const unsigned char *a, const unsigned char *b) {
    uint64_t x[4], y[4];
    memcpy(x, a, 32);
    memcpy(y, b, 32);
    return (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]);
}
#define twi_key_differ_or(x, y) ((x) | (y))
#define twi_key_differ_none(x) ((x) == 0)
#endif

/* Compares keys of more than 32 bytes, without a call. It compares blocks of 32 bytes. The last block may overlap
 * the previous one. It compares all blocks, because most keys that come here are equal. */
TWI_INLINE bool twi_key_equal_long(const unsigned char *a, const unsigned char *b, size_t size) {
    size_t last = size - 32; /* 1 and more */
    twi_key_difference differ = twi_key_differ_or(twi_key_differ_32(a, b), twi_key_differ_32(a + last, b + last));
    for (size_t at = 32; at < last; at += 32) differ = twi_key_differ_or(differ, twi_key_differ_32(a + at, b + at));
    return twi_key_differ_none(differ);
}

TWI_INLINE bool twi_key_equal(const unsigned char *a, const unsigned char *b, size_t size) {
    if (twi_likely(size - 4 <= TWI_KEY_INLINE - 4)) return twi_key_equal_short(a, b, size);
    return size > TWI_KEY_INLINE ? twi_key_equal_long(a, b, size) : memcmp(a, b, size) == 0;
}

/* Copies a key into its record without a call, using loads and stores that may overlap. */
TWI_INLINE void twi_key_copy(unsigned char *to, const unsigned char *from, size_t size) {
    if (twi_likely(size > 16)) {
        for (size_t at = 0; at + 32 < size; at += 32) memcpy(to + at, from + at, 32);
        size_t last = size > 32 ? size - 32 : 0;
        memcpy(to + last, from + last, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else {
        for (size_t at = 0; at < size; at++) to[at] = from[at];
    }
}

/* ---- cell check ----
 * the check of one counter, for tests and level 3.
 * Always true: it changes nothing. It is exact while no thread adds to the counter. */

/* Returns true if the key fits into the record, the flags agree with each other, and the count is in its range. */
bool twi_cell_is_valid(struct twi_cell *cell);

#endif
