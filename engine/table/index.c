/* index.c -- how an index grows: see the picture in layout.h and T1..T4 in table.h.
 *
 * A leaf grows in four steps. Any thread may do or repeat each of them:
 *   1 take memory for the copy (if there is none, the leaf stays as it is and takes further keys);
 *   2 close the leaf: every EMPTY becomes CLOSED by compare-and-swap. It is immutable from then on;
 *   3 copy its slots into one or two new leaves, which no other thread can see yet;
 *   4 publish the copy by one swap of `next`. A thread that loses this race gives its copy back: all copies are alike.
 * A leaf that has not used up the bits of the node above splits under a small node of two entries. That node is
 * temporary: the entries above are repaired to name the new leaves directly. A leaf that has used up these bits splits
 * under a new node of 256 entries. */
#include "engine/table/index.h"

#include "engine/table/record.h"

static uint32_t *link_of(struct twi_arena *arena, uint64_t entry) {
    void *piece = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    return TWI_ENTRY_KIND(entry) == TWI_ENTRY_LEAF ? &((struct twi_leaf *)piece)->piece_link
                                                   : &((struct twi_node *)piece)->piece_link;
}

/* Only the turn reads the list, after a grace period, and before that there are only pushes: no ABA. The link keeps
 * only the line. The piece itself says what kind it is, except for the newest: the head holds its whole entry. */
void twi_piece_own(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry) {
    uint64_t head = twi_load_relaxed(&generation->pieces);
    do {
        *link_of(arena, entry) = TWI_ENTRY_LINE(head);
    } while (!twi_cas_weak_acqrel(&generation->pieces, &head, entry));
}

uint64_t twi_leaf_make(struct twi_arena *arena, struct twi_generation *generation, uint32_t log2, uint32_t depth,
                       uint32_t room) {
    uint64_t entry = TWI_ENTRY(TWI_ENTRY_LEAF, log2, 0);
    uint32_t line = twi_piece_take(arena, generation, twi_entry_lines(entry));
    if (line == 0) return 0;
    struct twi_leaf *leaf = twi_arena_at(arena, line);
    leaf->depth = (uint8_t)depth;
    leaf->room_log2 = (uint8_t)(room << 4 | log2);
    return entry | line;
}

static void give_entry(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry) {
    if (entry != 0) twi_piece_give(arena, generation, TWI_ENTRY_LINE(entry), twi_entry_lines(entry));
}

/* Memory for the copy, taken before a leaf is closed: one larger leaf, or two leaves and the node above them. */
struct copy {
    uint64_t leaves[2];
    uint64_t node;
    uint32_t split_bit; /* depth of the tag bit that decides between the two */
};

static bool take_copy(struct twi_arena *arena, struct twi_generation *generation, const struct twi_leaf *leaf,
                      struct copy *copy) {
    uint32_t log2 = twi_leaf_log2(leaf), depth = leaf->depth, room = twi_leaf_room(leaf);
    *copy = (struct copy){.split_bit = depth};
    if (log2 < TWI_LEAF_LOG2_MAX) {
        uint32_t larger = log2 + TWI_LEAF_LOG2_STEP;
        copy->leaves[0] =
            twi_leaf_make(arena, generation, larger < TWI_LEAF_LOG2_MAX ? larger : TWI_LEAF_LOG2_MAX, depth, room);
        return copy->leaves[0] != 0;
    }
    if (depth + 1 >= TWI_TAG_BITS - TWI_NODE_LOG2) return false; /* 2^24 leaves; only chance fills a leaf further */
    uint32_t node_log2 = room != 0 ? 1 : TWI_NODE_LOG2;
    uint32_t room_below = room != 0 ? room - 1 : TWI_NODE_LOG2 - 1;
    copy->node = TWI_ENTRY(TWI_ENTRY_NODE, node_log2, 0);
    copy->node |= twi_piece_take(arena, generation, twi_entry_lines(copy->node));
    if (TWI_ENTRY_LINE(copy->node) == 0) {
        copy->node = 0;
        return false;
    }
    copy->leaves[0] = twi_leaf_make(arena, generation, log2, depth + 1, room_below);
    copy->leaves[1] = twi_leaf_make(arena, generation, log2, depth + 1, room_below);
    struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(copy->node));
    node->log2 = (uint8_t)node_log2;
    for (uint32_t i = 0; i < 1u << node_log2; i++)
        twi_store_relaxed(&node->entries[i], copy->leaves[i >> (node_log2 - 1)]);
    return copy->leaves[0] != 0 && copy->leaves[1] != 0;
}

static void give_copy(struct twi_arena *arena, struct twi_generation *generation, const struct copy *copy) {
    give_entry(arena, generation, copy->leaves[0]);
    give_entry(arena, generation, copy->leaves[1]);
    give_entry(arena, generation, copy->node);
}

/* One bit for each of up to 64 slots from `first` on: whether it holds `word`. Full and other slots follow each other
 * at random. A branch per slot would be mispredicted once in five, and cost more than the rest of growing. */
static uint64_t slots_with(struct twi_leaf *leaf, uint32_t first, uint32_t slots, uint64_t word) {
    uint32_t count = slots - first < 64 ? slots - first : 64;
    uint64_t found = 0;
    for (uint32_t i = 0; i < count; i++) found |= (uint64_t)(twi_load_relaxed(&leaf->slots[first + i]) == word) << i;
    return found;
}

void twi_leaf_close(struct twi_leaf *leaf) {
    uint32_t slots = twi_leaf_slots(twi_leaf_log2(leaf));
    for (uint32_t first = 0; first < slots; first += 64) {
        uint64_t empty = slots_with(leaf, first, slots, TWI_SLOT_EMPTY);
        for (; empty != 0; empty &= empty - 1) {
            uint64_t found = TWI_SLOT_EMPTY; /* fails if a cell came first, which is fine */
            (void)twi_cas_acqrel(&leaf->slots[first + (uint32_t)__builtin_ctzll(empty)], &found, TWI_SLOT_CLOSED);
        }
    }
}

static void place_slot(struct twi_leaf *leaf, uint32_t slots, uint64_t slot) {
    uint32_t i = twi_leaf_start((uint32_t)(slot >> 32), slots);
    while (twi_load_relaxed(&leaf->slots[i]) != TWI_SLOT_EMPTY)
        if (++i == slots) i = 0;
    twi_store_relaxed(&leaf->slots[i], slot); /* published with the leaf, T8 */
}

static void fill_copy(struct twi_arena *arena, struct twi_leaf *leaf, const struct copy *copy) {
    bool splits = copy->node != 0;
    struct twi_leaf *target[2];
    for (uint32_t i = 0; i < 2; i++) target[i] = twi_arena_at(arena, TWI_ENTRY_LINE(copy->leaves[splits ? i : 0]));
    uint32_t slots = twi_leaf_slots(twi_leaf_log2(leaf)), slots_there = twi_leaf_slots(twi_leaf_log2(target[0]));
    uint32_t used = 0, used_right = 0;
    for (uint32_t first = 0; first < slots; first += 64) {
        uint64_t full = ~slots_with(leaf, first, slots, TWI_SLOT_CLOSED);
        if (slots - first < 64) full &= (UINT64_C(1) << (slots - first)) - 1;
        for (; full != 0; full &= full - 1) {
            uint64_t slot = twi_load_acquire(&leaf->slots[first + (uint32_t)__builtin_ctzll(full)]);
            uint32_t side = splits ? (uint32_t)(slot >> (63 - copy->split_bit)) & 1 : 0;
            place_slot(target[side], slots_there, slot);
            used++;
            used_right += side;
        }
    }
    twi_store_relaxed(&target[0]->used, (uint16_t)(used - used_right));
    if (splits) twi_store_relaxed(&target[1]->used, (uint16_t)used_right);
}

enum twi_index_growth twi_leaf_grow(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry) {
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint64_t next = twi_load_acquire(&leaf->next);
    if (next != 0) return TWI_ENTRY_KIND(next) == TWI_ENTRY_SEALED ? TWI_INDEX_SEALED : TWI_INDEX_GREW;
    struct copy copy;
    if (!take_copy(arena, generation, leaf, &copy)) {
        give_copy(arena, generation, &copy);
        return twi_load_acquire(&leaf->next) != 0 ? TWI_INDEX_GREW : TWI_INDEX_NO_MEMORY;
    }
    twi_leaf_close(leaf);
    TWI_RACE_POINT(closed_not_copied);
    fill_copy(arena, leaf, &copy);
    uint64_t published = copy.node != 0 ? copy.node : copy.leaves[0];
    TWI_RACE_POINT(copied_not_published);
    if (!twi_cas_acqrel(&leaf->next, &next, published)) { /* T8, pairs with T7 */
        give_copy(arena, generation, &copy);
        return TWI_ENTRY_KIND(next) == TWI_ENTRY_SEALED ? TWI_INDEX_SEALED : TWI_INDEX_GREW;
    }
    twi_piece_own(arena, generation, copy.leaves[0]);
    if (copy.node != 0) {
        twi_piece_own(arena, generation, copy.leaves[1]);
        twi_piece_own(arena, generation, copy.node);
    }
    return TWI_INDEX_GREW;
}

/* One step from a closed leaf to its copy, and the repair of the word that still names the closed leaf. The word then
 * names a leaf if its prefix decides between the two halves, else the node. */
static uint64_t step_over(struct twi_arena *arena, _Atomic uint64_t *where, uint32_t bits, uint64_t entry,
                          uint32_t tag) {
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint64_t next = twi_load_acquire(&leaf->next); /* T7 */
    uint64_t better = next;
    if (TWI_ENTRY_KIND(next) == TWI_ENTRY_NODE && leaf->depth < bits) {
        struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(next));
        better = twi_load_acquire(&node->entries[(uint32_t)(tag << leaf->depth) >> 31]);
    }
    uint64_t found = entry;
    if (TWI_ENTRY_KIND(better) != TWI_ENTRY_SEALED) (void)twi_cas_acqrel(where, &found, better); /* T8 */
    return better;
}

/* The thread that passes first also repairs the other entries of a node that name the same closed leaf. Else old keys,
 * which the closed leaf still finds, would keep two copies in the cache. */
static void repair_neighbours(struct twi_arena *arena, _Atomic uint64_t *where, uint32_t bits, uint64_t entry,
                              uint32_t tag) {
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    if (leaf->depth >= bits) return;
    uint32_t span = 1u << (bits - leaf->depth);
    uint32_t prefix = tag >> (TWI_TAG_BITS - bits);
    _Atomic uint64_t *first = where - (prefix & (span - 1));
    for (uint32_t i = 0; i < span; i++) {
        uint32_t neighbour = ((prefix & ~(span - 1)) | i) << (TWI_TAG_BITS - bits);
        if (twi_load_relaxed(&first[i]) == entry) (void)step_over(arena, &first[i], bits, entry, neighbour);
    }
}

uint64_t twi_index_leaf(struct twi_arena *arena, struct twi_generation *generation, uint32_t tag) {
    _Atomic uint64_t *where;
    uint32_t bits;
    for (;;) {
        uint64_t entry = twi_index_descend(arena, &generation->root, tag, &where, &bits);
        struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint64_t next = twi_load_acquire(&leaf->next);
        if (next == 0 || TWI_ENTRY_KIND(next) == TWI_ENTRY_SEALED) return entry;
        (void)step_over(arena, where, bits, entry, tag);
        repair_neighbours(arena, where, bits, entry, tag);
    }
}

/* Leaves of 510 slots, filled to 36..72 % if the forecast comes true. A leaf that chance fills further splits by
 * itself. */
static uint32_t forecast_bits(uint64_t keys_expected) {
    uint32_t bits = 0;
    while (bits < 20 && keys_expected > (UINT64_C(367) << bits)) bits++;
    return bits;
}

/* The size of an only leaf: the smallest that so many keys fill to 72 % at most. */
static uint32_t forecast_leaf_log2(uint64_t keys_expected) {
    uint32_t log2 = TWI_LEAF_LOG2_MIN;
    while (log2 < TWI_LEAF_LOG2_MAX && keys_expected * 25 > twi_leaf_slots(log2) * UINT64_C(18)) log2++;
    return log2;
}

int64_t twi_index_bytes(uint64_t keys_expected) {
    uint32_t bits = forecast_bits(keys_expected);
    if (bits == 0) return INT64_C(8) << forecast_leaf_log2(keys_expected);
    int64_t words = INT64_C(1) << bits;
    return words * (TWI_LINE_BYTES / 8) + (words << TWI_LEAF_LOG2_MAX) * 8;
}

uint64_t twi_index_begin(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected) {
    uint32_t bits = forecast_bits(keys_expected);
    uint64_t root;
    if (bits == 0) {
        root = twi_leaf_make(arena, generation, forecast_leaf_log2(keys_expected), 0, 0);
    } else {
        root = TWI_ENTRY(TWI_ENTRY_NODE, bits, 0);
        uint32_t line = twi_piece_take(arena, generation, twi_entry_lines(root));
        root = line != 0 ? root | line : 0;
        if (line != 0) ((struct twi_node *)twi_arena_at(arena, line))->log2 = (uint8_t)bits;
    }
    if (root != 0) twi_piece_own(arena, generation, root);
    return root;
}

bool twi_index_fill(struct twi_arena *arena, struct twi_generation *generation, uint64_t root, uint32_t *next,
                    uint32_t *work) {
    if (TWI_ENTRY_KIND(root) == TWI_ENTRY_LEAF) return true;
    uint32_t bits = TWI_ENTRY_LOG2(root), lines = (1u << TWI_LEAF_LOG2_MAX) * 8 / TWI_LINE_BYTES;
    struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(root));
    while (*next < 1u << bits && *work >= lines) {
        uint64_t leaf = twi_leaf_make(arena, generation, TWI_LEAF_LOG2_MAX, bits, 0);
        if (leaf == 0) return false;
        twi_piece_own(arena, generation, leaf);
        twi_store_relaxed(&node->entries[(*next)++], leaf);
        *work -= lines;
    }
    return *next == 1u << bits;
}

/* The node has room for leaves that split, should more keys come. */
static uint64_t lay_node(struct twi_arena *arena, struct twi_generation *generation, uint32_t bits) {
    uint64_t root = TWI_ENTRY(TWI_ENTRY_NODE, TWI_NODE_LOG2, 0);
    uint32_t line = twi_piece_take(arena, generation, twi_entry_lines(root)), span = 1u << (TWI_NODE_LOG2 - bits);
    struct twi_node *node = twi_arena_at(arena, line);
    if (line == 0) return 0;
    node->log2 = TWI_NODE_LOG2;
    twi_piece_own(arena, generation, root | line);
    for (uint32_t first = 0; first < 1u << TWI_NODE_LOG2; first += span) {
        uint64_t leaf = twi_leaf_make(arena, generation, TWI_LEAF_LOG2_MIN, bits, TWI_NODE_LOG2 - bits);
        if (leaf == 0) return 0;
        twi_piece_own(arena, generation, leaf);
        for (uint32_t i = 0; i < span; i++) twi_store_relaxed(&node->entries[first + i], leaf);
    }
    return root | line;
}

uint64_t twi_index_lay(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys) {
    uint32_t bits = forecast_bits(keys);
    if (bits == 0) return twi_index_begin(arena, generation, 0);
    return lay_node(arena, generation, bits < TWI_NODE_LOG2 ? bits : TWI_NODE_LOG2);
}

struct twi_cell *twi_index_find_further(struct twi_arena *arena, struct twi_generation *generation,
                                        const struct twi_lookup_key *lookup) {
    for (;;) {
        uint64_t entry = twi_index_leaf(arena, generation, lookup->tag), stop;
        struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint32_t at;
        struct twi_cell *cell = twi_leaf_find(arena, leaf, TWI_ENTRY_LOG2(entry), lookup, &stop, &at);
        if (cell != NULL || stop == TWI_SLOT_EMPTY) return cell;
        /* Closed during the walk. Keys inserted before that lie in front of the CLOSED slot (T2, T4), later ones are in
         * the copy. */
        uint64_t next = twi_load_acquire(&leaf->next);
        if (next == 0 || TWI_ENTRY_KIND(next) == TWI_ENTRY_SEALED) return NULL;
    }
}
