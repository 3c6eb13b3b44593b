/* table.c -- see table.h. It makes a generation, inserts (index.h), walks, seals and gives back. */
#include "engine/table/table.h"

#include "engine/base/grow.h"
#include "engine/memory/epoch.h"
#include "engine/table/index.h"
#include "engine/table/area.h"
#include "engine/table/guests.h"
#include "engine/table/sketch.h"
#include "engine/table/spill.h"
#include "engine/table/stripe.h"

/* If there is no memory for that many keys, the window begins small, like any other. So does one whose first piece
 * finds no free run that is long enough. */
static uint64_t keys_with_room(const struct twi_arena *arena, struct twi_quota *quota, uint64_t keys_expected) {
    int64_t room = twi_piece_room(arena, quota);
    if (keys_expected > (uint64_t)room / TWI_LINE_BYTES) return 0;
    return twi_index_bytes(keys_expected) + (int64_t)keys_expected * TWI_LINE_BYTES > room ? 0 : keys_expected;
}

/* An index that grows from a small one, or from a forecast that was too small, needs up to twice as much memory
 * in the end, because closed leaves stay until the window is dropped. If a thread stops while it lays out a whole
 * index, no other thread can use that memory. A share does not have memory for either case. So in a share each window
 * has all the leaves that it may ever need, and a leaf gets its memory when its keys come. */
static uint64_t make_index(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected) {
    uint64_t laid = twi_load_relaxed(&generation->quota->keys_laid), root;
    uint32_t next = 0, work = UINT32_MAX;
    if (laid != 0) {
        root = twi_index_lay(arena, generation, laid > keys_expected ? laid : keys_expected);
        return root != 0 ? root : twi_index_begin(arena, generation, 0);
    }
    root = twi_index_begin(arena, generation, keys_expected);
    if (root == 0) root = twi_index_begin(arena, generation, 0);
    return root != 0 && twi_index_fill(arena, generation, root, &next, &work) ? root : 0;
}

struct twi_generation *twi_table_make(struct twi_arena *arena, struct twi_quota *quota, uint64_t keys_expected,
                                      bool synced) {
    uint32_t lines = sizeof(struct twi_generation) / TWI_LINE_BYTES;
    uint32_t line = twi_quota_take(arena, quota, lines);
    if (line == 0) return NULL;
    struct twi_generation *generation = twi_arena_at(arena, line);
    (void)twi_add_relaxed(&quota->bytes, (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES);
    (void)twi_add_relaxed(&generation->bytes, (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES);
    generation->quota = quota;
    generation->synced = synced;
    twi_store_relaxed(&generation->overflow.meta,
                      TWI_META_PUBLISHED | TWI_META_OVERFLOW | (synced ? TWI_META_COLD : 0));
    keys_expected = keys_with_room(arena, quota, keys_expected);
    uint64_t root = make_index(arena, generation, keys_expected);
    if (root == 0) {
        uint32_t work = UINT32_MAX;
        (void)twi_table_unmake(arena, generation, &work);
        return NULL;
    }
    twi_store_relaxed(&generation->root, root);
    twi_area_lay_out(arena, generation, keys_expected);
    return generation;
}

/* ---- records ---- */

struct twi_cell *twi_table_revive(struct twi_arena *arena, struct twi_generation *generation, tw_key key, int64_t final,
                                  int64_t base) {
    uint64_t meta;
    struct twi_cell *cell = twi_record_take(arena, generation, twi_kind_for(key.size, generation->synced), &meta);
    if (cell == NULL) return NULL;
    twi_check((meta & TWI_META_COLD) != 0);
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    memcpy(cell->key, key.data, key.size);
    twi_store_relaxed(&cell->end_ms, generation->end_ms);
    twi_store_relaxed(&cell->base, base);
    twi_store_relaxed(&cold->final, final);
    twi_store_relaxed(&cold->handed, final); /* a published record is never one with unsent units */
    twi_store_relaxed(&cold->acked, final);
    twi_store_relaxed(&cell->local, TWI_FROZEN);
    (void)twi_or_acqrel(&cell->meta, meta | key.size | TWI_META_PUBLISHED); /* T9 */
    return cell;
}

/* For the new cell all earlier counts are settled, because the frozen cell sends its own count. Returns meta flags. */
static uint64_t inherit(struct twi_cell *cell, uint64_t meta, const struct twi_inherited *from) {
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    twi_store_relaxed(&cell->local, (uint64_t)from->local << TWI_COUNT_SHIFT);
    twi_store_relaxed(&cell->base, from->base);
    twi_store_relaxed(&cold->handed, from->local);
    twi_store_relaxed(&cold->acked, from->local);
    twi_store_relaxed(&cold->total_state, from->total_state);
    bool at_edge = from->local >= TWI_VALUE_EDGE || from->local <= -TWI_VALUE_EDGE;
    return (at_edge ? TWI_META_EDGE : 0) | (from->is_successor ? TWI_META_SUCCESSOR : 0);
}

/* ---- records that lost a race to be published; the generation keeps them for later inserts ---- */

static void keep_chain(const struct twi_insert *insert, struct twi_cell *first, struct twi_cell *last) {
    uint32_t line = twi_arena_line(insert->arena, first), head;
    twi_push(&insert->generation->aside.spares, line, head, twi_store_relaxed(&last->end_ms, head)); /* D7 */
}

/* Takes the whole list, so that no other thread can change a link meanwhile, and puts back the records that it does
 * not need. */
static struct twi_cell *take_spare(const struct twi_insert *insert, uint32_t kind) {
    struct twi_cell *found = NULL, *first = NULL, *last = NULL;
    uint32_t line = twi_swap_acqrel(&insert->generation->aside.spares, 0); /* D8 */
    while (line != 0) {
        struct twi_cell *cell = twi_arena_at(insert->arena, line);
        line = (uint32_t)twi_load_relaxed(&cell->end_ms);
        if (found == NULL && twi_cell_kind(twi_load_relaxed(&cell->meta)) == kind) {
            found = cell;
            continue;
        }
        if (last != NULL) twi_store_relaxed(&last->end_ms, twi_arena_line(insert->arena, cell));
        if (first == NULL) first = cell;
        last = cell;
    }
    if (first != NULL) keep_chain(insert, first, last);
    return found;
}

/* Returns a complete record for the key, which is not published yet. Returns NULL if there is no memory. */
static struct twi_cell *prepare_record(const struct twi_insert *insert) {
    struct twi_generation *generation = insert->generation;
    size_t size = insert->lookup.key.size;
    uint32_t kind = twi_kind_for(size, generation->synced), place = insert->lookup.place;
    struct twi_cell *cell = NULL;
    uint64_t meta = 0;
    if (twi_unlikely(twi_load_relaxed(&generation->announced) != 0)) twi_area_decide(insert->arena, generation);
    if (twi_unlikely(twi_load_relaxed(&generation->aside.spares) != 0)) cell = take_spare(insert, kind);
    if (cell == NULL) cell = twi_area_take(generation, place, size, kind, TWI_AREA_LOOKS_LONG);
    if (cell == NULL && (cell = twi_record_take(insert->arena, generation, kind, &meta)) == NULL) {
        /* if there is no memory for more, any record that is left in the area is used */
        cell = twi_area_take(generation, place, size, kind, UINT32_MAX);
        if (cell == NULL) return NULL;
    }
    /* 0 in a new record of a chunk; a spare record has the flags of its former inserter */
    meta |=
        twi_load_relaxed(&cell->meta) & ~(TWI_META_SIZE | TWI_META_INCARNATION | TWI_META_EDGE | TWI_META_SUCCESSOR);
    twi_insert_fill(insert, cell, meta);
    if (insert->inherited != NULL)
        twi_store_relaxed(&cell->meta, twi_load_relaxed(&cell->meta) | inherit(cell, meta, insert->inherited));
    return cell;
}

/* ---- inserting ---- */

/* Returns a record for one more key. Both the record and the key are counted. Returns NULL if there is no memory, or
 * if the generation has keys_max keys. */
static struct twi_cell *reserve(const struct twi_insert *insert) {
    if (!twi_insert_count_key(insert, insert->generation->synced)) return NULL;
    struct twi_cell *record = prepare_record(insert);
    if (record == NULL) twi_insert_uncount_key(insert, insert->generation->synced);
    return record;
}

enum twi_found twi_table_insert(const struct twi_insert *insert, bool (*still_current)(void *ctx), void *ctx,
                                struct twi_cell **cell) {
    struct twi_arena *arena = insert->arena;
    struct twi_generation *generation = insert->generation;
    struct twi_cell *record = insert->vacancy.made;
    uint32_t tag = insert->lookup.tag;
    bool may_grow = true;
    enum twi_found answer;
    for (;;) {
        uint64_t entry = twi_index_leaf(arena, generation, tag), stop;
        struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint32_t at;
        *cell = twi_leaf_find(arena, entry, &insert->lookup, &stop, &at);
        answer = TWI_FOUND;
        if (*cell != NULL) break;
        bool all_full = at == twi_leaf_slots(twi_leaf_lines(entry));
        if (stop == TWI_SLOT_CLOSED && !all_full) {
            answer = TWI_CLOCK_MOVED;
            if (!still_current(ctx)) break;
        }
        if (stop == TWI_SLOT_CLOSED || (may_grow && twi_leaf_is_filled(leaf))) {
            enum twi_index_growth grown = twi_leaf_grow(arena, generation, entry);
            answer = TWI_GONE_SEALED;
            if (grown == TWI_INDEX_SEALED) break;
            answer = TWI_NO_ROOM;
            if (grown == TWI_INDEX_NO_MEMORY && stop == TWI_SLOT_CLOSED) break;
            twi_spill_prepare(arena, generation, insert->lookup.key.size);
            may_grow = grown == TWI_INDEX_GREW; /* there is no memory for a copy, so the rest of this leaf is filled */
            continue;
        }
        if (record == NULL) {
            answer = TWI_NO_ROOM;
            record = reserve(insert);
            if (record == NULL) break;
        }
        if (twi_insert_claim_slot(insert, leaf, at, record)) {
            *cell = record;
            return TWI_INSERTED;
        }
    }
    if (record != NULL) {
        keep_chain(insert, record, record);
        twi_insert_uncount_key(insert, generation->synced);
    }
    return answer;
}

struct twi_cell *twi_table_close_probe(struct twi_arena *arena, struct twi_generation *generation,
                                       const struct twi_lookup_key *lookup) {
    for (;;) {
        uint64_t entry = twi_index_leaf(arena, generation, lookup->tag), stop;
        struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint32_t at;
        struct twi_cell *cell = twi_leaf_find(arena, entry, lookup, &stop, &at);
        if (cell != NULL) return cell;
        uint64_t found = TWI_SLOT_EMPTY;
        if (stop == TWI_SLOT_EMPTY && !twi_cas_acqrel(&leaf->slots[at], &found, TWI_SLOT_CLOSED))
            continue; /* another thread has taken or closed the slot, so the loop looks again */
        /* Closing the slot is not enough. A copy of the leaf would have room for the key. Such a copy may be in
         * progress, or an inserter that read the clock earlier may make it later. A sealed leaf never gets a copy.
         * An inserter that needs a copy decides again by the clock, which has moved for every thread. */
        uint64_t next = TWI_ENTRY_NONE;
        if (twi_cas_acqrel(&leaf->next, &next, TWI_NO_COPY) || next == TWI_NO_COPY) return NULL;
    }
}

/* ---- walking, sealing, giving back ---- */

void twi_table_walk(struct twi_arena *arena, struct twi_generation *generation, struct twi_cursor *cursor,
                    bool (*visit)(void *ctx, struct twi_cell *cell, uint64_t meta), void *ctx) {
    while (cursor->kind < TWI_KINDS) {
        if (!cursor->begun) {
            cursor->chunk = twi_load_acquire(&generation->chunks[cursor->kind]); /* T11 */
            cursor->begun = true;
            cursor->index = 0;
        }
        while (cursor->chunk != 0) {
            struct twi_chunk *chunk = twi_arena_at(arena, cursor->chunk);
            uint32_t used = twi_load_acquire(&chunk->used);
            if (used > chunk->capacity) used = chunk->capacity;
            while (cursor->index < used) {
                struct twi_cell *cell = twi_chunk_cell(chunk, cursor->index++, generation->synced);
                uint64_t meta = twi_load_acquire(&cell->meta); /* T12, pairs with T9 */
                if ((meta & TWI_META_PUBLISHED) != 0 && !visit(ctx, cell, meta)) return;
                if (cursor->looks != 0 && --cursor->looks == 0) return;
            }
            cursor->chunk = chunk->older;
            cursor->index = 0;
        }
        cursor->kind++;
        cursor->begun = false;
    }
    cursor->done = true;
}

#define SEAL_WORK 7u /* the work for a counter, which is usually one cache miss */

/* Freezes a counter of any form, and returns its final count. *lines becomes the number of lines of a sketch that
 * was closed by this call. */
static int64_t freeze_counter(struct twi_arena *arena, struct twi_generation *generation, struct twi_cell *cell,
                              uint64_t meta, uint32_t *lines) {
    if (generation->turn.distinct) return twi_sketch_freeze(arena, cell, meta, lines);
    int64_t shared = (meta & TWI_META_STRIPED) != 0 ? twi_stripes_freeze(cell) : 0;
    return shared + twi_cell_freeze(cell, meta);
}

bool twi_table_seal(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work,
                    void (*frozen)(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final), void *ctx) {
    while (*work > 0) {
        uint64_t entry = twi_index_leaf(arena, generation, generation->turn.seal_tag), next = TWI_ENTRY_NONE;
        struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint32_t slots = twi_leaf_slots(twi_leaf_lines(entry)), cost = slots;
        twi_leaf_close(leaf);
        TWI_RACE_POINT(closed_not_sealed);
        if (!twi_cas_acqrel(&leaf->next, &next, TWI_NO_COPY) && next != TWI_NO_COPY)
            continue; /* a copy was published first, so the copy is sealed next */
        for (uint32_t i = 0; i < slots; i++) {
            uint64_t slot = twi_load_acquire(&leaf->slots[i]);
            if (slot <= TWI_SLOT_CLOSED) continue;
            struct twi_cell *cell = twi_arena_at(arena, (uint32_t)slot);
            uint64_t meta = twi_cell_publish(cell);
            uint32_t lines = 0;
            frozen(ctx, cell, meta, freeze_counter(arena, generation, cell, meta, &lines));
            cost += SEAL_WORK + lines;
            if (lines != 0 && cost >= *work) { /* sketches are large, so the next call looks at this leaf again */
                *work = 0;
                return false;
            }
        }
        *work = *work > cost ? *work - cost : 0;
        uint32_t step = leaf->depth == 0 ? 0 : UINT32_C(1) << (TWI_TAG_BITS - leaf->depth);
        generation->turn.seal_tag += step;
        if (generation->turn.seal_tag == 0) {
            uint64_t meta = twi_load_relaxed(&generation->overflow.meta);
            int64_t final = twi_cell_freeze(&generation->overflow, meta);
            if (final != 0 || generation->synced) frozen(ctx, &generation->overflow, meta, final);
            return true;
        }
    }
    return false;
}

static bool give_chunks(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    for (uint32_t kind = 0; kind < TWI_KINDS; kind++) {
        uint32_t line = twi_load_acquire(&generation->chunks[kind]);
        while (line != 0) {
            struct twi_chunk *chunk = twi_arena_at(arena, line);
            uint32_t older = chunk->older, lines = chunk->lines, cost = lines != 0 ? lines : chunk->capacity;
            if (*work < cost) return false;
            if (generation->turn.distinct && !twi_sketch_give(arena, generation, chunk, work)) return false;
            *work = *work > cost ? *work - cost : 0;
            twi_store_relaxed(&generation->chunks[kind], older);
            /* otherwise its area is given back as a whole */
            if (lines != 0) twi_piece_give(arena, generation, line, lines);
            line = older;
        }
    }
    return true;
}

static uint64_t piece_entry(struct twi_arena *arena, uint32_t line) {
    if (line == 0) return 0;
    struct twi_leaf *leaf = twi_arena_at(arena, line);
    if (twi_leaf_log2(leaf) != 0) return twi_entry_of_leaf(twi_leaf_log2(leaf), line);
    struct twi_node *node = twi_arena_at(arena, line);
    return twi_entry_of_node(node->log2, line);
}

static bool give_index(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    uint64_t entry = twi_load_acquire(&generation->pieces);
    while (entry != 0) {
        uint32_t lines = twi_entry_lines(entry);
        if (*work < lines && *work < TWI_SEGMENT_LINES) return false;
        *work -= lines < *work ? lines : *work;
        struct twi_leaf *piece = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint64_t older = piece_entry(arena, twi_load_relaxed(&piece->piece_link));
        twi_store_relaxed(&generation->pieces, older);
        twi_piece_give(arena, generation, TWI_ENTRY_LINE(entry), lines);
        entry = older;
    }
    return true;
}

bool twi_table_shed(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    twi_store_relaxed(&generation->root, TWI_ENTRY_NONE);
    if (!twi_stripes_give(arena, generation, work)) return false;
    return give_chunks(arena, generation, work) && twi_area_unmake(arena, generation, work) &&
           give_index(arena, generation, work);
}

static bool give_attached(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    uint32_t line = twi_load_acquire(&generation->leases); /* J4 */
    while (line != 0) {
        uint32_t older = twi_attached_of(twi_arena_at(arena, line))->older;
        if (*work < TWI_ATTACHED_LINES) return false;
        *work -= TWI_ATTACHED_LINES;
        twi_store_relaxed(&generation->leases, older);
        twi_piece_give(arena, generation, line, TWI_ATTACHED_LINES);
        line = older;
    }
    return true;
}

static void give_limits(struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t line = twi_load_relaxed(&generation->limits);
    twi_store_relaxed(&generation->limits, 0);
    if (line != 0) twi_piece_give(arena, generation, line, TWI_LIMITS_LINES);
}

bool twi_table_empty(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    give_limits(arena, generation);
    twi_guests_give(arena, generation);
    return give_attached(arena, generation, work) && twi_spill_give(arena, generation, work) &&
           twi_table_shed(arena, generation, work);
}

void twi_table_give(struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t lines = sizeof(struct twi_generation) / TWI_LINE_BYTES;
    (void)twi_sub_relaxed(&generation->quota->bytes, (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES);
    twi_arena_give(arena, twi_arena_line(arena, generation), lines);
}

bool twi_table_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    if (!twi_table_empty(arena, generation, work)) return false;
    twi_table_give(arena, generation);
    return true;
}

struct valid {
    struct twi_arena *arena;
    struct twi_generation *generation;
    const struct twi_hash_secret *secret;
    uint64_t (*hash)(const struct twi_hash_secret *, const void *, size_t);
    uint64_t cells;
    bool ok;
};

static bool check_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct valid *valid = ctx;
    tw_key key = tw_bytes(cell->key, meta & TWI_META_SIZE);
    uint64_t hash = valid->hash(valid->secret, key.data, key.size);
    struct twi_lookup_key lookup = twi_lookup_key(hash, key);
    if ((meta & TWI_META_INCARNATION) != 0) lookup = twi_lookup_key_next(lookup);
    valid->cells++;
    valid->ok = valid->ok && twi_table_find(valid->arena, valid->generation, &lookup) == cell;
    return valid->ok;
}

bool twi_table_is_valid(struct twi_arena *arena, struct twi_generation *generation,
                        const struct twi_hash_secret *secret,
                        uint64_t (*hash)(const struct twi_hash_secret *, const void *, size_t)) {
    struct valid valid = {arena, generation, secret, hash, 0, true};
    struct twi_cursor cursor = {0};
    twi_table_walk(arena, generation, &cursor, check_cell, &valid);
    return valid.ok && valid.cells == twi_load_relaxed(&generation->keys);
}
