/* index.h -- the index of a window's keys: how it finds a slot, and how it grows (picture in layout.h; invariants in
 * table.h). */
#ifndef TWI_TABLE_INDEX_H
#define TWI_TABLE_INDEX_H

#include "engine/memory/epoch.h"
#include "engine/table/layout.h"
#include "engine/table/area.h"

/* ---- slot line ----
 * one look at a line of a leaf. It finds the words that have a given tag, and the words that are vacant.
 * It uses vectors if the processor has them, because no processor predicts the end of a walk from slot to slot.
 * Always true: each word is loaded once, as a whole. So both results about a slot are from the same moment. The
 * loads are relaxed. If a thread follows a slot, or ends a walk there, it loads the slot again with acquire (T5).
 * ThreadSanitizer does not recognise vector loads as atomic, so for ThreadSanitizer the words are loaded one by one. */

#define TWI_LINE_WORDS 8u
static_assert(TWI_LINE_WORDS * sizeof(uint64_t) == TWI_LINE_BYTES && TWI_LINE_WORDS == 1u << TWI_LEAF_LOG2_MIN,
              "the smallest leaf is one line");

/* Each result has one bit for each word of the line. `vacant` has the words that are EMPTY or CLOSED. A vacant word
 * is in `match`, too, if the tag is 0. */
struct twi_line_look {
    uint32_t match, vacant;
};

#if TWI_EPOCH_SEES_FENCES && defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i twi_quad; /* the halves of four words */
TWI_INLINE void twi_quad_load(const _Atomic uint64_t *words, twi_quad *lower, twi_quad *upper) {
    const volatile __m128i *pairs = (const volatile __m128i *)(const volatile void *)(uintptr_t)words;
    /* volatile, so that each word is loaded exactly once */
    __m128 first = _mm_castsi128_ps(pairs[0]), last = _mm_castsi128_ps(pairs[1]);
    *lower = _mm_castps_si128(_mm_shuffle_ps(first, last, _MM_SHUFFLE(2, 0, 2, 0)));
    *upper = _mm_castps_si128(_mm_shuffle_ps(first, last, _MM_SHUFFLE(3, 1, 3, 1)));
}
#define twi_quad_are(x, value) _mm_cmpeq_epi32((x), _mm_set1_epi32((int)(value)))
#define twi_quad_halved(x) _mm_srli_epi32((x), 1)
TWI_INLINE uint32_t twi_quad_bits(twi_quad first, twi_quad last) {
    return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(first)) | (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(last)) << 4;
}
#define TWI_WITH_QUADS 1
#elif TWI_EPOCH_SEES_FENCES && defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>
typedef uint32x4_t twi_quad;
TWI_INLINE void twi_quad_load(const _Atomic uint64_t *words, twi_quad *lower, twi_quad *upper) {
    const uint64_t *pairs = (const uint64_t *)(uintptr_t)words; /* 64 bits each, so a word is loaded as a whole */
    uint32x4_t first = vreinterpretq_u32_u64(vld1q_u64(pairs)), last = vreinterpretq_u32_u64(vld1q_u64(pairs + 2));
    __asm__ volatile("" : "+w"(first), "+w"(last)); /* each loaded once */
    *lower = vuzp1q_u32(first, last);
    *upper = vuzp2q_u32(first, last);
}
#define twi_quad_are(x, value) vceqq_u32((x), vdupq_n_u32(value))
#define twi_quad_halved(x) vshrq_n_u32((x), 1)
TWI_INLINE uint32_t twi_quad_bits(twi_quad first, twi_quad last) {
    static const uint16_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(vcombine_u16(vmovn_u32(first), vmovn_u32(last)), vld1q_u16(bits)));
}
#define TWI_WITH_QUADS 1
#endif

TWI_INLINE struct twi_line_look twi_line_look(const _Atomic uint64_t *words, uint32_t tag) {
#ifdef TWI_WITH_QUADS
    twi_quad lower, upper, lower_last, upper_last;
    twi_quad_load(words, &lower, &upper);
    twi_quad_load(words + 4, &lower_last, &upper_last);
    /* EMPTY is 0, CLOSED is 1, and each cell has a line number of at least 2: a half of it is not 0 */
    return (struct twi_line_look){
        twi_quad_bits(twi_quad_are(upper, tag), twi_quad_are(upper_last, tag)),
        twi_quad_bits(twi_quad_are(twi_quad_halved(lower), 0), twi_quad_are(twi_quad_halved(lower_last), 0))};
#else
    struct twi_line_look look = {0, 0};
    for (uint32_t i = 0; i < TWI_LINE_WORDS; i++) {
        uint64_t word = twi_load_relaxed(&words[i]);
        look.match |= (uint32_t)((uint32_t)(word >> 32) == tag) << i;
        look.vacant |= (uint32_t)(word <= TWI_SLOT_CLOSED) << i;
    }
    return look;
#endif
}

/* Returns true if a word has the upper half of the hash as its tag. *twice becomes two times the number of the first
 * such word. The result is a hint, because such a word may be vacant. */
TWI_INLINE bool twi_line_shows(const _Atomic uint64_t *words, uint64_t hash, size_t *twice) {
#if TWI_EPOCH_SEES_FENCES && defined(__SSE2__)
    /* Gives the same result, but the loads are operands. There is only one result, so a word may be loaded more than
     * once. */
    const __m128 *pairs = (const __m128 *)(const void *)(uintptr_t)words;
    __m128i tag = _mm_shuffle_epi32(_mm_set1_epi64x((long long)hash), _MM_SHUFFLE(1, 1, 1, 1));
    __m128i first = _mm_castps_si128(_mm_shuffle_ps(pairs[0], pairs[1], _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i last = _mm_castps_si128(_mm_shuffle_ps(pairs[2], pairs[3], _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i halves = _mm_packs_epi32(_mm_cmpeq_epi32(first, tag), _mm_cmpeq_epi32(last, tag));
    uint64_t match = (uint32_t)_mm_movemask_epi8(halves); /* there are two bits for each word */
    if (twi_unlikely(match == 0)) return false;
    *twice = (size_t)__builtin_ctzll(match);
#else
    uint32_t match = twi_line_look(words, (uint32_t)(hash >> 32)).match;
    if (twi_unlikely(match == 0)) return false;
    *twice = (size_t)__builtin_ctz(match) * 2;
#endif
    return true;
}

TWI_INLINE uint32_t twi_leaf_slots(uint32_t lines) {
    return lines * TWI_LINE_WORDS - TWI_LEAF_HEAD_WORDS;
}
/* Returns the line where the walk of a tag begins. The low bits decide, because the high bits have led to this leaf. */
TWI_INLINE uint32_t twi_leaf_line(uint32_t tag, uint32_t lines) {
    return tag & (lines - 1);
}
TWI_INLINE _Atomic uint64_t *twi_leaf_words(struct twi_leaf *leaf, uint32_t line) {
    return (_Atomic uint64_t *)(void *)leaf + (size_t)line * TWI_LINE_WORDS;
}
/* Looks at a line of a leaf, without the words of its head. */
TWI_INLINE struct twi_line_look twi_leaf_look(struct twi_leaf *leaf, uint32_t line, uint32_t tag) {
    struct twi_line_look look = twi_line_look(twi_leaf_words(leaf, line), tag);
    uint32_t slots = line == 0 ? 0xff << TWI_LEAF_HEAD_WORDS & 0xff : 0xff;
    return (struct twi_line_look){look.match & slots, look.vacant & slots};
}

/* Looks for `key` in the leaf of `entry`, line by line and slot by slot. Returns the cell, or NULL. Otherwise *stop is
 * the slot word that ended the walk: EMPTY, or CLOSED (also if all slots are full). *at is its slot. */
TWI_INLINE struct twi_cell *twi_leaf_find(const struct twi_arena *arena, uint64_t entry,
                                          const struct twi_lookup_key *lookup, uint64_t *stop, uint32_t *at) {
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint32_t lines = twi_leaf_lines(entry), line = twi_leaf_line(lookup->tag, lines), left = lines;
    *stop = TWI_SLOT_CLOSED;
    for (*at = twi_leaf_slots(lines); left != 0;) {
        _Atomic uint64_t *words = twi_leaf_words(leaf, line);
        struct twi_line_look look = twi_leaf_look(leaf, line, lookup->tag);
        for (uint32_t match = look.match & ~look.vacant; match != 0; match &= match - 1) {
            /* T5, pairs with T6: the record is complete */
            struct twi_cell *cell = twi_arena_at(arena, (uint32_t)twi_load_acquire(&words[__builtin_ctz(match)]));
            if (twi_likely(twi_cell_matches(cell, lookup))) return cell;
        }
        if (twi_likely(look.vacant != 0)) {
            uint32_t vacant = (uint32_t)__builtin_ctz(look.vacant);
            uint64_t word = twi_load_acquire(&words[vacant]);   /* T5: keys from before the closing are visible */
            if (twi_unlikely(word > TWI_SLOT_CLOSED)) continue; /* another thread has taken it since */
            *stop = word;
            *at = line * TWI_LINE_WORDS + vacant - TWI_LEAF_HEAD_WORDS;
            return NULL;
        }
        line = (line + 1) & (lines - 1);
        left--;
    }
    return NULL;
}

/* Returns the entry to which the upper half of a hash leads from `root`, through nodes only. *bits becomes the
 * number of bits that were used. *where becomes the word that contains the entry. */
TWI_INLINE uint64_t twi_index_follow(const struct twi_arena *arena, _Atomic uint64_t *root, uint64_t hash,
                                     _Atomic uint64_t **where, uint32_t *bits) {
    _Atomic uint64_t *at = root;
    uint64_t entry = twi_load_acquire(at); /* T7, pairs with T8: the piece that the entry names is complete */
    uint32_t used = 0;
    while (twi_entry_is_node(entry)) {
        uint32_t shift = twi_node_shift(entry); /* 33 to 63 */
        struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        at = &node->entries[hash >> shift];
        hash <<= -shift & 63;
        used += 64 - shift;
        entry = twi_load_acquire(at); /* T7 */
    }
    *where = at;
    *bits = used;
    return entry;
}
/* Does the same for a tag, which is that upper half. */
TWI_INLINE uint64_t twi_index_descend(const struct twi_arena *arena, _Atomic uint64_t *root, uint32_t tag,
                                      _Atomic uint64_t **where, uint32_t *bits) {
    return twi_index_follow(arena, root, (uint64_t)tag << TWI_TAG_BITS, where, bits);
}

/* Continues a look-up whose walk ended at CLOSED. */
struct twi_cell *twi_index_find_further(struct twi_arena *arena, struct twi_generation *generation,
                                        const struct twi_lookup_key *lookup);

/* Returns the cell of `key`, or NULL. Takes no lock and writes nothing. It makes two or three loads to the leaf. Call
 * it inside a section. */
TWI_INLINE struct twi_cell *twi_table_find(struct twi_arena *arena, struct twi_generation *generation,
                                           const struct twi_lookup_key *lookup) {
    _Atomic uint64_t *where;
    uint32_t bits, at;
    uint64_t entry = twi_index_descend(arena, &generation->root, lookup->tag, &where, &bits), stop;
    if (twi_unlikely(entry == TWI_ENTRY_NONE)) return NULL;
    struct twi_cell *cell = twi_leaf_find(arena, entry, lookup, &stop, &at);
    if (twi_unlikely(cell == NULL && stop == TWI_SLOT_CLOSED)) return twi_index_find_further(arena, generation, lookup);
    return cell;
}

enum twi_index_growth { TWI_INDEX_GREW, TWI_INDEX_NO_MEMORY, TWI_INDEX_SEALED };

/* Changes every EMPTY slot to CLOSED, so that the leaf accepts no further cell. Any thread, any number of times. */
void twi_leaf_close(struct twi_leaf *leaf);
/* Closes the leaf of `entry` and publishes a larger copy, unless another thread has done so. Lock-free. */
enum twi_index_growth twi_leaf_grow(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry);
/* Returns the leaf that accepts inserts of a tag now. It follows `next` words. It repairs the entry on the way. */
uint64_t twi_index_leaf(struct twi_arena *arena, struct twi_generation *generation, uint32_t tag);
/* Adds a published index piece to the generation's list. */
void twi_piece_own(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry);
/* Returns true if the index for `keys_expected` is one leaf, of at most 4 KiB. */
bool twi_index_is_one_leaf(uint64_t keys_expected);
/* Returns about how many bytes the index for `keys_expected` needs. */
int64_t twi_index_bytes(uint64_t keys_expected);
/* Makes the root of an index with room for `keys_expected`. Returns 0 if there is no memory. twi_index_fill() adds
 * the leaves, in as many turns as necessary. */
uint64_t twi_index_begin(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected);
/* Returns true when every leaf exists. Otherwise *next is the number of leaves that exist. If *work was not used up,
 * there is no memory. */
bool twi_index_fill(struct twi_arena *arena, struct twi_generation *generation, uint64_t root, uint32_t *next,
                    uint32_t *work);
/* Makes the root of an index for `keys` keys, of which few have come yet. It has all leaves. Each leaf is small
 * until keys come. Returns 0 if there is no memory. */
uint64_t twi_index_lay(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys);
/* Makes an empty leaf. Returns 0 if there is no memory. */
uint64_t twi_leaf_make(struct twi_arena *arena, struct twi_generation *generation, uint32_t log2, uint32_t depth,
                       uint32_t room);

/* ---- insert ----
 * the inline parts of an insert: they make a new key's record and take its slot. table.c uses them. The
 * fast paths (add_fast.h) have a shorter insert, for a key whose look-up has ended where the key must go.
 *
 * An insert prepares a complete record and then publishes it by one swap of a slot (T6). An inserter that loses the
 * race for the slot uses the winner's cell. It leaves its own record to the generation, for a later insert of any
 * thread. Walkers see a record after PUBLISHED was set. The inserter sets it, or the first thread that finds the cell.
 * So a walk never misses an add that has returned, even if the inserter is still between its swap and its mark (T9). */

/* The values with which the new cell of a key begins, in families with idle eviction. They are 0, or the values of
 * the frozen cell that the new cell succeeds. */
struct twi_inherited {
    int64_t local, base, total_state;
    bool is_successor;
};

/* The free slot at which the look-up of a key has ended. It is a hint for the insert, which takes the slot by
 * compare-and-swap. While the slot is EMPTY, the walk would end there again (T4), and the leaf is not closed. */
struct twi_vacancy {
    struct twi_leaf *leaf; /* NULL means that no free slot was seen */
    uint32_t at;
    struct twi_cell *made; /* a record that was already made and counted for the slot; NULL means that there is none */
};
#define TWI_NO_VACANCY ((struct twi_vacancy){0})

struct twi_thread;
struct twi_insert {
    struct twi_arena *arena;
    struct twi_generation *generation;
    struct twi_thread *self;
    struct twi_lookup_key lookup;
    int64_t end_ms;                        /* the end_ms of a new cell */
    const struct twi_inherited *inherited; /* set with idle eviction; otherwise NULL */
    int64_t first_delta;                   /* the count of a new cell when it is published; it must be a plain delta */
    struct twi_vacancy vacancy;            /* the place where a look-up in this section has ended, if it is known */
};
TWI_INLINE bool twi_leaf_is_filled(struct twi_leaf *leaf) {
    uint32_t slots = (1u << twi_leaf_log2(leaf)) - TWI_LEAF_HEAD_WORDS;
    /* at a load of 80 %, one key in ten is behind the line where its walk begins */
    return twi_load_relaxed(&leaf->used) * 5u >= slots * 4;
}

/* Counts one more key. Returns false if the generation already has keys_max keys. */
TWI_INLINE bool twi_insert_count_key(const struct twi_insert *insert, bool synced) {
    struct twi_generation *generation = insert->generation;
    size_t size = insert->lookup.key.size;
    uint64_t most = twi_load_relaxed(&generation->quota->keys_max);
    uint64_t keys = twi_add_relaxed(&generation->keys, 1);
    if (twi_unlikely(most != 0) && keys >= most) {
        (void)twi_sub_relaxed(&generation->keys, 1);
        return false;
    }
    if (size > TWI_KEY_INLINE) (void)twi_add_relaxed(&generation->long_keys[twi_long_kind(size, synced)], 1);
    return true;
}
/* Called if the key is not inserted after all. */
TWI_INLINE void twi_insert_uncount_key(const struct twi_insert *insert, bool synced) {
    struct twi_generation *generation = insert->generation;
    size_t size = insert->lookup.key.size;
    if (size > TWI_KEY_INLINE) (void)twi_sub_relaxed(&generation->long_keys[twi_long_kind(size, synced)], 1);
    (void)twi_sub_relaxed(&generation->keys, 1);
}

/* Makes the record complete. The record is not published yet. */
TWI_INLINE void twi_insert_fill(const struct twi_insert *insert, struct twi_cell *cell, uint64_t meta) {
    twi_key_copy(cell->key, insert->lookup.key.data, insert->lookup.key.size);
    /* always stored, because a record that lost a race still has the count of its earlier inserter */
    twi_store_relaxed(&cell->local, (uint64_t)insert->first_delta << TWI_COUNT_SHIFT);
    twi_store_relaxed(&cell->end_ms, insert->end_ms);
    twi_store_relaxed(&cell->meta, meta | insert->lookup.meta); /* visible together with the slot, T6 */
}

/* Takes the slot `at`, which was EMPTY before, for the record. Returns false if the slot is no longer EMPTY. */
TWI_INLINE bool twi_insert_claim_slot(const struct twi_insert *insert, struct twi_leaf *leaf, uint32_t at,
                                      struct twi_cell *record) {
    uint64_t slot = (uint64_t)insert->lookup.tag << 32 | twi_arena_line(insert->arena, record), found = TWI_SLOT_EMPTY;
    TWI_RACE_POINT(record_ready_not_claimed);
    if (twi_unlikely(!twi_cas_acqrel(&leaf->slots[at], &found, slot))) return false; /* T6, pairs with T5 */
    TWI_RACE_POINT(claimed_not_published);
    (void)twi_or_acqrel(&record->meta, TWI_META_PUBLISHED); /* T9 */
    (void)twi_add_relaxed(&leaf->used, 1);
    return true;
}

/* Takes a record for a key of a plain window. The record belongs to the area, or is the next one of the newest
 * chunk. If the result is NULL, twi_table_insert() searches for one. */
TWI_INLINE struct twi_cell *twi_insert_take(const struct twi_insert *insert, bool synced, uint64_t *meta) {
    struct twi_generation *generation = insert->generation;
    size_t size = insert->lookup.key.size;
    if (twi_unlikely((twi_load_relaxed(&generation->announced) | twi_load_relaxed(&generation->aside.spares)) != 0))
        return NULL;
    uint32_t kind = size <= TWI_KEY_INLINE ? 0 : twi_kind_for(size, synced);
    struct twi_cell *cell = NULL;
    if (twi_load_relaxed(&generation->area.places[kind != 0]) != 0)
        cell = twi_area_take(generation, insert->lookup.place, size, kind, TWI_AREA_LOOKS);
    if (cell == NULL) return twi_record_take_next(insert->arena, generation, kind, synced, meta);
    *meta = twi_load_relaxed(&cell->meta);
    return cell;
}

/* Inserts a key of a plain window at the place where the caller's look-up ended. Returns NULL if that is not
 * possible. Then insert->vacancy.made, unless it is NULL, must be used for another slot. */
TWI_INLINE struct twi_cell *twi_insert_at_vacancy(struct twi_insert *insert, bool synced) {
    struct twi_leaf *leaf = insert->vacancy.leaf;
    uint64_t meta;
    if (twi_unlikely(leaf == NULL) || twi_unlikely(twi_leaf_is_filled(leaf))) return NULL;
    if (twi_unlikely(!twi_insert_count_key(insert, synced))) return NULL;
    struct twi_cell *record = twi_insert_take(insert, synced, &meta);
    if (twi_unlikely(record == NULL)) {
        twi_insert_uncount_key(insert, synced);
        return NULL;
    }
    twi_insert_fill(insert, record, meta);
    if (twi_likely(twi_insert_claim_slot(insert, leaf, insert->vacancy.at, record))) return record;
    insert->vacancy.made = record;
    return NULL;
}

#endif
