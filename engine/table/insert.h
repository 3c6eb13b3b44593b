/* insert.h -- the inline parts of an insert: they make a new key's record and take its slot. table.c uses them. The
 * fast paths (add_fast.h) have a shorter insert, for a key whose look-up has ended where the key must go.
 *
 * An insert prepares a complete record and then publishes it by one swap of a slot (T6). An inserter that loses the
 * race for the slot uses the winner's cell. It leaves its own record to the generation, for a later insert of any
 * thread. Walkers see a record after PUBLISHED was set. The inserter sets it, or the first thread that finds the cell.
 * So a walk never misses an add that has returned, even if the inserter is still between its swap and its mark (T9). */
#ifndef TWI_TABLE_INSERT_H
#define TWI_TABLE_INSERT_H

#include "engine/table/area.h"
#include "engine/table/index.h"
#include "engine/table/record.h"

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
