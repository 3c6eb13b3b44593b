/* index.c -- how an index grows (picture in layout.h, T1..T4 in table.h).
 *
 * A leaf grows in four steps. Any thread may do or repeat each of them:
 *   1 take memory for the copy. If there is none, the leaf stays as it is and accepts further keys.
 *   2 close the leaf: a compare-and-swap changes every EMPTY to CLOSED. The leaf does not change from then on.
 *   3 copy its slots into one or two new leaves, which no other thread can see yet.
 *   4 publish the copy by one swap of `next`. A thread that loses this race gives its copy back. The copies of all
 *     threads have the same content.
 * If a leaf has not used all bits of the node above, it splits under a small node of two entries. This node is
 * temporary. Later the entries above are changed so that they name the new leaves directly. If a leaf has used all
 * bits of the root, a root with twice as many entries replaces the root first. So a look-up reads one node, and the
 * node is small enough to stay in the cache. The root is copied as it is. An entry may name a closed leaf in it, too.
 * If there is no memory for a wider root, or if the root is large, the leaf splits under a new node of 256 entries, and
 * the root stays as it is from then on (TWI_ROOT_STAYS): an entry of a wider root would need a part of that node.
 * Always true: all entries of a root that may still be replaced name leaves. */
#include "engine/table/index.h"

#include "engine/base/grow.h"
#include "engine/table/area.h"

#define KEYS_OF_ENTRY_MIN 128u /* of a root before it is replaced by a wider one; leaves are full with 408 keys */

static _Atomic uint32_t *link_of(struct twi_arena *arena, uint64_t entry) {
    void *piece = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    return !twi_entry_is_node(entry) ? &((struct twi_leaf *)piece)->piece_link
                                     : &((struct twi_node *)piece)->piece_link;
}

/* Only the turn reads the list, after a grace period. Before that there are only pushes, so there is no ABA problem.
 * The link contains only the line. The piece itself shows its kind, except for the newest piece. The head contains
 * the whole entry of the newest piece. */
void twi_piece_own(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry) {
    _Atomic uint32_t *link = link_of(arena, entry); /* atomic, because look-ups read the head together with the line */
    uint64_t head;
    twi_push(&generation->pieces, entry, head, twi_store_relaxed(link, TWI_ENTRY_LINE(head)));
}

uint64_t twi_leaf_make(struct twi_arena *arena, struct twi_generation *generation, uint32_t log2, uint32_t depth,
                       uint32_t room) {
    uint64_t entry = twi_entry_of_leaf(log2, 0);
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

/* Memory for the copy. It is taken before a leaf is closed. The copy is one larger leaf, or two leaves and the node
 * above them. */
struct copy {
    uint64_t leaves[2];
    uint64_t node;
    uint32_t split_bit; /* the depth of the tag bit that decides between the two leaves */
};

/* Replaces the root by one with twice as many entries, unless another thread has replaced it. Returns false if there is
 * no memory. */
static bool widen_root(struct twi_arena *arena, struct twi_generation *generation, uint64_t root) {
    uint32_t bits = twi_node_bits(root) + 1;
    uint64_t wide = twi_entry_of_node(bits, 0);
    wide |= twi_piece_take(arena, generation, twi_entry_lines(wide));
    if (TWI_ENTRY_LINE(wide) == 0) return false;
    struct twi_node *from = twi_arena_at(arena, TWI_ENTRY_LINE(root));
    struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(wide));
    node->log2 = (uint8_t)bits;
    for (uint32_t i = 0; i < 1u << bits; i++)
        twi_store_relaxed(&node->entries[i], twi_load_acquire(&from->entries[i / 2])); /* T7; published with T8 */
    TWI_RACE_POINT(root_copied_not_published);
    if (twi_cas_acqrel(&generation->root, &root, wide)) /* T8, pairs with T7 */
        twi_piece_own(arena, generation, wide);
    else
        give_entry(arena, generation, wide);
    return true;
}

/* Returns how many bits of the node above a leaf has not used. If these are none, and the node is the root, there is a
 * wider root first. 0 means that the leaf must split under a node of its own. */
static uint32_t room_above(struct twi_arena *arena, struct twi_generation *generation, const struct twi_leaf *leaf) {
    for (;;) {
        uint64_t root = twi_load_acquire(&generation->root); /* T7 */
        if (!twi_entry_is_node(root)) return 0;
        uint32_t bits = twi_node_bits(root);
        if (leaf->depth < bits) return bits - leaf->depth;
        bool stays = (root & TWI_ROOT_STAYS) != 0;
        twi_check(stays || leaf->depth == bits);
        if (stays) return leaf->depth == bits ? 0 : twi_leaf_room(leaf);
        /* if tags agree in many bits, one full leaf is no reason for a large root */
        bool is_full = twi_load_relaxed(&generation->keys) >> bits >= KEYS_OF_ENTRY_MIN;
        if (is_full && bits < TWI_ROOT_LOG2_MAX && widen_root(arena, generation, root)) continue;
        (void)twi_cas_acqrel(&generation->root, &root, root | TWI_ROOT_STAYS); /* T8 */
    }
}

static bool take_copy(struct twi_arena *arena, struct twi_generation *generation, const struct twi_leaf *leaf,
                      struct copy *copy) {
    uint32_t log2 = twi_leaf_log2(leaf), depth = leaf->depth;
    *copy = (struct copy){.split_bit = depth};
    if (log2 < TWI_LEAF_LOG2_MAX) {
        uint32_t larger = log2 + TWI_LEAF_LOG2_STEP;
        copy->leaves[0] = twi_leaf_make(arena, generation, larger < TWI_LEAF_LOG2_MAX ? larger : TWI_LEAF_LOG2_MAX,
                                        depth, twi_leaf_room(leaf));
        return copy->leaves[0] != 0;
    }
    if (depth + 1 >= TWI_TAG_BITS - TWI_NODE_LOG2) return false; /* a leaf this deep is full only by chance */
    uint32_t room = room_above(arena, generation, leaf);
    uint32_t node_log2 = room != 0 ? 1 : TWI_NODE_LOG2;
    uint32_t room_below = room != 0 ? room - 1 : TWI_NODE_LOG2 - 1;
    copy->node = twi_entry_of_node(node_log2, 0);
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

void twi_leaf_close(struct twi_leaf *leaf) {
    uint32_t lines = (1u << twi_leaf_log2(leaf)) / TWI_LINE_WORDS;
    for (uint32_t line = 0; line < lines; line++) {
        uint32_t vacant = twi_leaf_look(leaf, line, 0).vacant;
        for (; vacant != 0; vacant &= vacant - 1) {
            uint64_t found = TWI_SLOT_EMPTY; /* it fails if a cell came first, or if another thread closes it */
            (void)twi_cas_acqrel(&twi_leaf_words(leaf, line)[__builtin_ctz(vacant)], &found, TWI_SLOT_CLOSED);
        }
    }
}

/* A copy that is being filled, and the next free word of each of its lines. */
struct target {
    struct twi_leaf *leaf;
    uint32_t lines;
    uint16_t used;
    uint8_t next[(1u << TWI_LEAF_LOG2_MAX) / TWI_LINE_WORDS];
};
static_assert(TWI_LEAF_HEAD_WORDS < TWI_LINE_WORDS, "line 0 has slots, too");

static void target_begin(struct target *target, const struct twi_arena *arena, uint64_t entry) {
    target->leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    target->lines = twi_leaf_lines(entry);
    target->used = 0;
    memset(target->next, 0, target->lines);
    target->next[0] = TWI_LEAF_HEAD_WORDS;
}

/* Puts the slot at the place where a walk of its tag would find the first EMPTY. */
static void place_slot(struct target *target, uint64_t slot) {
    uint32_t line = twi_leaf_line((uint32_t)(slot >> 32), target->lines);
    while (twi_unlikely(target->next[line] == TWI_LINE_WORDS)) line = (line + 1) & (target->lines - 1);
    /* published with the leaf, T8 */
    twi_store_relaxed(&twi_leaf_words(target->leaf, line)[target->next[line]++], slot);
    target->used++;
}

static void fill_copy(struct twi_arena *arena, struct twi_leaf *leaf, const struct copy *copy) {
    bool splits = copy->node != 0;
    struct target targets[2];
    for (uint32_t i = 0; i < 1u + splits; i++) target_begin(&targets[i], arena, copy->leaves[i]);
    uint32_t lines = (1u << twi_leaf_log2(leaf)) / TWI_LINE_WORDS;
    for (uint32_t line = 0; line < lines; line++) {
        uint32_t heads = line == 0 ? (1u << TWI_LEAF_HEAD_WORDS) - 1 : 0;
        uint32_t full = ~(twi_leaf_look(leaf, line, 0).vacant | heads) & 0xff;
        for (; full != 0; full &= full - 1) {
            uint64_t slot = twi_load_acquire(&twi_leaf_words(leaf, line)[__builtin_ctz(full)]); /* T5 */
            place_slot(&targets[splits ? (slot >> (63 - copy->split_bit)) & 1 : 0], slot);
        }
    }
    for (uint32_t i = 0; i < 1u + splits; i++) twi_store_relaxed(&targets[i].leaf->used, targets[i].used);
}

enum twi_index_growth twi_leaf_grow(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry) {
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint64_t next = twi_load_acquire(&leaf->next);
    if (next != 0) return next == TWI_NO_COPY ? TWI_INDEX_SEALED : TWI_INDEX_GREW;
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
        return next == TWI_NO_COPY ? TWI_INDEX_SEALED : TWI_INDEX_GREW;
    }
    twi_piece_own(arena, generation, copy.leaves[0]);
    if (copy.node != 0) {
        twi_piece_own(arena, generation, copy.leaves[1]);
        twi_piece_own(arena, generation, copy.node);
    }
    return TWI_INDEX_GREW;
}

/* Returns the entry to which a tag leads from a node, after at most `bits` bits of the tag. `depth` bits lead to the
 * node. */
static uint64_t entry_below(struct twi_arena *arena, uint64_t entry, uint32_t depth, uint32_t bits, uint32_t tag) {
    while (twi_entry_is_node(entry) && depth < bits) {
        uint32_t used = twi_node_bits(entry);
        struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        twi_check(used <= bits - depth); /* a node of 256 entries is below a root that stays */
        entry = twi_load_acquire(&node->entries[(uint32_t)(tag << depth) >> (TWI_TAG_BITS - used)]); /* T7 */
        depth += used;
    }
    return entry;
}

/* Makes one step from a closed leaf to its copy, and repairs the word that still names the closed leaf. The word
 * then names a leaf if its prefix decides between the two halves. Otherwise it names the node. The small node may have
 * been repaired itself, through a root that was replaced, and lead to a node further down. */
static uint64_t step_over(struct twi_arena *arena, _Atomic uint64_t *where, uint32_t bits, uint64_t entry,
                          uint32_t tag) {
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint64_t next = twi_load_acquire(&leaf->next); /* T7 */
    uint64_t better = entry_below(arena, next, leaf->depth, bits, tag), found = entry;
    if (better != TWI_NO_COPY) (void)twi_cas_acqrel(where, &found, better); /* T8 */
    return better;
}

/* The first thread that passes also repairs the other entries of a node that name the same closed leaf. Otherwise
 * look-ups of old keys, which the closed leaf still finds, would keep two copies in the cache. */
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
        if (next == 0 || next == TWI_NO_COPY) return entry;
        (void)step_over(arena, where, bits, entry, tag);
        repair_neighbours(arena, where, bits, entry, tag);
    }
}

/* The leaves have 510 slots. They are filled to 36..72 % if the forecast is right. If a leaf gets more keys by
 * chance, it splits like any other leaf. */
static uint32_t forecast_bits(uint64_t keys_expected) {
    uint32_t bits = 0;
    while (bits < 20 && keys_expected > (UINT64_C(367) << bits)) bits++;
    return bits;
}

/* Returns the size of a single leaf: the smallest size in which so many keys use at most 72 % of the slots. */
static uint32_t forecast_leaf_log2(uint64_t keys_expected) {
    uint32_t log2 = TWI_LEAF_LOG2_MIN;
    while (log2 < TWI_LEAF_LOG2_MAX && keys_expected * 25 > ((1u << log2) - TWI_LEAF_HEAD_WORDS) * UINT64_C(18)) log2++;
    return log2;
}

bool twi_index_is_one_leaf(uint64_t keys_expected) {
    return forecast_bits(keys_expected) == 0;
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
        root = twi_entry_of_node(bits, 0);
        uint32_t line = twi_piece_take(arena, generation, twi_entry_lines(root));
        root = line != 0 ? root | line : 0;
        if (line != 0) ((struct twi_node *)twi_arena_at(arena, line))->log2 = (uint8_t)bits;
    }
    if (root != 0) twi_piece_own(arena, generation, root);
    return root;
}

bool twi_index_fill(struct twi_arena *arena, struct twi_generation *generation, uint64_t root, uint32_t *next,
                    uint32_t *work) {
    if (!twi_entry_is_node(root)) return true;
    uint32_t bits = 64 - twi_node_shift(root), lines = (1u << TWI_LEAF_LOG2_MAX) * 8 / TWI_LINE_BYTES;
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

/* The node has room for leaves that split if more keys come. */
static uint64_t lay_node(struct twi_arena *arena, struct twi_generation *generation, uint32_t bits) {
    uint64_t root = twi_entry_of_node(TWI_NODE_LOG2, 0);
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
        struct twi_cell *cell = twi_leaf_find(arena, entry, lookup, &stop, &at);
        if (cell != NULL || stop == TWI_SLOT_EMPTY) return cell;
        /* The leaf was closed during the walk. Keys that were inserted earlier are in front of the CLOSED slot (T2,
         * T4). Later keys are in the copy. */
        uint64_t next = twi_load_acquire(&leaf->next);
        if (next == 0 || next == TWI_NO_COPY) return NULL;
    }
}
