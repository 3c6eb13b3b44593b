/* index.h -- the index of a window's keys: how it finds a slot, and how it grows (picture in layout.h; invariants in
 * table.h). */
#ifndef TWI_TABLE_INDEX_H
#define TWI_TABLE_INDEX_H

#include "engine/table/layout.h"
#include "engine/table/slot_line.h"

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
#endif
