/* hot.h -- tw_add of a key that is there, in a window that is open: the whole way in one function, nothing kept in memory
 * that a register can hold. A template: hot_aes.c and hot_any.c include it once each, with the hash they bring.
 * Whatever is not the plain case (a new key, a closed leaf, a frozen or unpublished cell, an edge of the range, a family from
 * first, a stopped engine, a forked child) goes to twi_add_slow(), which begins again and knows every case.
 * Always true: this path does nothing that twi_add_slow() does not, in the same order and under the same labels. */
#include "engine/count.h"

#ifndef TWI_HOT_NAME
#error "hot.h is a template: define TWI_HOT_NAME, TWI_HOT_CODE and TWI_HOT_HASH first"
#endif

/* The cell of the key if it is published, plain, and found without meeting a closed leaf's end; else NULL. */
TWI_INLINE struct twi_cell *hot_find(const struct twi_arena *arena, struct twi_generation *generation, uint32_t tag,
                                     tw_key key) {
    _Atomic uint64_t *where;
    uint32_t bits;
    uint64_t entry = twi_index_descend(arena, &generation->root, tag, &where, &bits);
    if (twi_unlikely(TWI_ENTRY_KIND(entry) != TWI_ENTRY_LEAF)) return NULL;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint32_t slots = twi_leaf_slots(TWI_ENTRY_LOG2(entry)), i = twi_leaf_home(tag, slots);
    for (uint32_t left = slots; left != 0; left--) {
        uint64_t slot = twi_load_acquire(&leaf->slots[i]); /* T5 */
        if (twi_likely((uint32_t)(slot >> 32) == tag) && twi_likely(slot > TWI_SLOT_CLOSED)) {
            struct twi_cell *cell = twi_arena_at(arena, (uint32_t)slot);
            const uint32_t plain = (uint32_t)(TWI_META_SIZE | TWI_META_LIFE | TWI_META_PUBLISHED | TWI_META_EDGE);
            if (twi_likely(((uint32_t)twi_load_relaxed(&cell->meta) & plain) == (key.size | TWI_META_PUBLISHED) &&
                           twi_key_equal(cell->key, key.data, key.size)))
                return cell;
        } else if (slot <= TWI_SLOT_CLOSED) {
            return NULL;
        }
        if (++i == slots) i = 0;
    }
    return NULL;
}

TWI_HOT_CODE tw_status TWI_HOT_NAME(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(self == NULL || self->mark != TWI_THREAD_MARK || key.size - 1 >= TW_KEY_SIZE_MAX ||
                     key.data == NULL || delta >= TWI_DELTA_PLAIN || delta <= -TWI_DELTA_PLAIN || family->never_plain ||
                     twi_load_relaxed(&engine->gate)))
        return twi_add_slow(family, key, delta, view);
    uint64_t hash = TWI_HOT_HASH(engine, key);
    twi_section_enter(self);
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    struct twi_cell *cell = NULL;
    if (twi_likely(generation != NULL && twi_generation_holds(generation, now_ms)))
        cell = hot_find(&engine->arena, generation, (uint32_t)(hash >> 32), key);
    if (twi_unlikely(cell == NULL)) goto slow;
    /* relaxed: see twi_cell_add(); the word tells whether the add counted, and whether the cell must be marked */
    uint64_t before = twi_add_relaxed(&cell->local, (uint64_t)delta << TWI_COUNT_SHIFT);
    int64_t value = twi_word_value(before);
    if (twi_unlikely((before & TWI_FROZEN) != 0)) goto slow;
    if (twi_unlikely((uint64_t)(value + TWI_VALUE_EDGE) >= 2 * (uint64_t)TWI_VALUE_EDGE))
        (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    value += delta;
    if (family->synced) {
        if (twi_unlikely((before & TWI_DIRTY) == 0))
            twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
        value = twi_saturated_sum(value, twi_load_relaxed(&cell->base));
    }
    twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = value;
    return TW_OK;
slow:
    twi_section_leave(self);
    return twi_add_slow(family, key, delta, view);
}
