/* index.h -- the index of a window's keys: finding a slot, and growing (picture: layout.h; invariants: table.h). */
#ifndef TWI_TABLE_INDEX_H
#define TWI_TABLE_INDEX_H

#include "engine/table/layout.h"

TWI_INLINE uint32_t twi_leaf_slots(uint32_t log2) {
    return (1u << log2) - TWI_LEAF_HEAD_WORDS;
}
/* Where the walk of a tag begins. The low bits decide, because the high bits have led to the leaf. */
TWI_INLINE uint32_t twi_leaf_start(uint32_t tag, uint32_t slots) {
    return (uint32_t)((uint64_t)(uint32_t)(tag * 0x9E3779B1u) * slots >> 32);
}

/* Looks for `key` in the leaf of `entry`. Returns the cell, or NULL. Then *stop is the slot word that ended the walk
 * (EMPTY or CLOSED; CLOSED also if all slots are full), and *at its slot. */
TWI_INLINE struct twi_cell *twi_leaf_find(const struct twi_arena *arena, struct twi_leaf *leaf, uint32_t log2,
                                          const struct twi_lookup_key *lookup, uint64_t *stop, uint32_t *at) {
    uint32_t slots = twi_leaf_slots(log2), tag = lookup->tag, i = twi_leaf_start(tag, slots);
    *stop = TWI_SLOT_CLOSED;
    *at = slots;
    for (uint32_t left = slots; left != 0; left--) {
        uint64_t slot = twi_load_acquire(&leaf->slots[i]); /* T5, pairs with T6: the record is complete */
        if (slot <= TWI_SLOT_CLOSED) {
            *stop = slot;
            *at = i;
            return NULL;
        }
        if ((uint32_t)(slot >> 32) == tag) {
            struct twi_cell *cell = twi_arena_at(arena, (uint32_t)slot);
            if (twi_likely(twi_cell_matches(cell, lookup))) return cell;
        }
        if (++i == slots) i = 0;
    }
    return NULL;
}

/* The entry that a hash leads to from `root`, by its upper half, through nodes only. *bits: how many were used up.
 * *where: the word that holds the entry. */
TWI_INLINE uint64_t twi_index_follow(const struct twi_arena *arena, _Atomic uint64_t *root, uint64_t hash,
                                     _Atomic uint64_t **where, uint32_t *bits) {
    _Atomic uint64_t *at = root;
    uint64_t entry = twi_load_acquire(at); /* T7, pairs with T8: what the entry names is complete */
    uint32_t used = 0;
    while (TWI_ENTRY_KIND(entry) == TWI_ENTRY_NODE) {
        uint32_t log2 = TWI_ENTRY_LOG2(entry); /* 1 to 31 */
        struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        at = &node->entries[hash >> (-log2 & 63)]; /* by 64 - log2 */
        hash <<= log2 & 63;
        used += log2;
        entry = twi_load_acquire(at); /* T7 */
    }
    *where = at;
    *bits = used;
    return entry;
}
/* The same by a tag, which is that half. */
TWI_INLINE uint64_t twi_index_descend(const struct twi_arena *arena, _Atomic uint64_t *root, uint32_t tag,
                                      _Atomic uint64_t **where, uint32_t *bits) {
    return twi_index_follow(arena, root, (uint64_t)tag << TWI_TAG_BITS, where, bits);
}

/* Continues a lookup whose walk ended at CLOSED. */
struct twi_cell *twi_index_find_further(struct twi_arena *arena, struct twi_generation *generation,
                                        const struct twi_lookup_key *lookup);

/* The cell of `key` by the index, or NULL. Takes no lock, writes nothing, two or three loads to the leaf. Inside a
 * section. */
TWI_INLINE struct twi_cell *twi_index_find(struct twi_arena *arena, struct twi_generation *generation,
                                           const struct twi_lookup_key *lookup) {
    _Atomic uint64_t *where;
    uint32_t bits, at;
    uint64_t stop;
    uint64_t entry = twi_index_descend(arena, &generation->root, lookup->tag, &where, &bits);
    if (twi_unlikely(TWI_ENTRY_KIND(entry) != TWI_ENTRY_LEAF)) return NULL;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    struct twi_cell *cell = twi_leaf_find(arena, leaf, TWI_ENTRY_LOG2(entry), lookup, &stop, &at);
    if (twi_unlikely(cell == NULL && stop == TWI_SLOT_CLOSED)) return twi_index_find_further(arena, generation, lookup);
    return cell;
}

enum twi_index_growth { TWI_INDEX_GREW, TWI_INDEX_NO_MEMORY, TWI_INDEX_SEALED };

/* Turns every EMPTY slot into CLOSED: the leaf takes no further cell. Any thread, any number of times. */
void twi_leaf_close(struct twi_leaf *leaf);
/* Closes the leaf of `entry` and publishes a larger copy, unless another thread has. Lock-free. */
enum twi_index_growth twi_leaf_grow(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry);
/* The leaf that takes inserts of a tag now, found through `next` words. Repairs the entry on the way. */
uint64_t twi_index_leaf(struct twi_arena *arena, struct twi_generation *generation, uint32_t tag);
/* Adds a published index piece to the generation's list. */
void twi_piece_own(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry);
/* About how many bytes the index for `keys_expected` takes. */
int64_t twi_index_bytes(uint64_t keys_expected);
/* The root of an index with room for `keys_expected`. 0: no memory. twi_index_fill() adds the leaves, in as many turns
 * as it takes. */
uint64_t twi_index_begin(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected);
/* True when every leaf exists. Else *next is how many exist; if *work was not used up, there is no memory. */
bool twi_index_fill(struct twi_arena *arena, struct twi_generation *generation, uint64_t root, uint32_t *next,
                    uint32_t *work);
/* The root of an index for `keys` of which few are there yet: it has all leaves, and each is small until keys come.
 * 0: no memory. */
uint64_t twi_index_lay(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys);
/* An empty leaf; 0: no memory. */
uint64_t twi_leaf_make(struct twi_arena *arena, struct twi_generation *generation, uint32_t log2, uint32_t depth,
                       uint32_t room);
#endif
