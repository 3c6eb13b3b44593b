/* hot.h -- tw_add of a key that is there, in a window that is open: the whole way in one function, nothing kept in memory
 * that a register can hold; and the same for a group of keys at once (many.c). A template: hot_aes.c and hot_any.c include it
 * once each, with the hash they bring.
 * Whatever is not the plain case (a new key, a closed leaf, a frozen or unpublished cell, an edge of the range, a family from
 * first, a stopped engine, a forked child) goes to twi_add_slow(), which begins again and knows every case.
 * Always true: this path does nothing that twi_add_slow() does not, in the same order and under the same labels. */
#include "engine/count.h"

#ifndef TWI_HOT_NAME
#error "hot.h is a template: define TWI_HOT_NAME, TWI_HOT_GROUP, TWI_HOT_CODE and TWI_HOT_HASH first"
#endif

/* Keys that are compared without a call: everything the compiler must keep over a call would cost the others. */
TWI_INLINE bool hot_is_handy(tw_key key) {
    return key.size - 4 <= TWI_KEY_INLINE - 4;
}

/* A published cell of that key which no rare case concerns. */
TWI_INLINE bool hot_is_it(struct twi_cell *cell, tw_key key, bool handy) {
    const uint32_t plain = (uint32_t)(TWI_META_SIZE | TWI_META_LIFE | TWI_META_PUBLISHED | TWI_META_EDGE);
    uint32_t meta = (uint32_t)twi_load_acquire(&cell->meta); /* H3 */
    if (twi_unlikely((meta & plain) != ((uint32_t)key.size | (uint32_t)TWI_META_PUBLISHED))) return false;
    return handy ? twi_key_equal_handy(cell->key, key.data, key.size) : twi_key_equal(cell->key, key.data, key.size);
}

/* The plain cell among the records that `match` names; NULL: none. */
TWI_INLINE struct twi_cell *hot_find_matched(const struct twi_home_group *group, uint32_t match, bool synced,
                                             tw_key key) {
    for (; match != 0; match &= match - 1) {
        struct twi_cell *cell = twi_home_cell(group->chunk, group->first + (uint32_t)__builtin_ctz(match), synced);
        if (hot_is_it(cell, key, true)) return cell;
    }
    return NULL;
}

/* The same among its group and the neighbours. */
TWI_INLINE struct twi_cell *hot_find_next_door(struct twi_home_group home, uint32_t tag, bool synced, tw_key key) {
    struct twi_home_group group = twi_home_neighbours(home);
    for (uint32_t left = TWI_HOME_LINE_GROUPS; left != 0; left--, group = twi_home_next(group)) {
        struct twi_cell *cell = hot_find_matched(&group, twi_home_match(group.tags, twi_home_tag(tag)), synced, key);
        if (cell != NULL) return cell;
    }
    return NULL;
}

/* The plain cell of the key by the index, found without meeting a closed leaf's end; else NULL. */
TWI_INLINE struct twi_cell *hot_find_by_index(const struct twi_arena *arena, struct twi_generation *generation,
                                              uint32_t tag, tw_key key) {
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
            if (hot_is_it(cell, key, false)) return cell;
        } else if (slot <= TWI_SLOT_CLOSED) {
            return NULL;
        }
        if (++i == slots) i = 0;
    }
    return NULL;
}

/* The add to a plain cell. False: it did not count (frozen). relaxed: see twi_cell_add(); the word tells whether the add counted,
 * and whether the cell must be marked. */
TWI_INLINE bool hot_count(struct twi_cell *cell, int64_t delta, uint64_t *before) {
    uint64_t word = twi_add_relaxed(&cell->local, (uint64_t)delta << TWI_COUNT_SHIFT);
    int64_t value = twi_word_value(word);
    if (twi_unlikely((uint64_t)(value + TWI_VALUE_EDGE) >= 2 * (uint64_t)TWI_VALUE_EDGE) && (word & TWI_FROZEN) == 0)
        (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    *before = word;
    return twi_likely((word & TWI_FROZEN) == 0);
}

TWI_INLINE int64_t hot_view(const struct tw_family *family, struct twi_cell *cell, int64_t delta, uint64_t before) {
    int64_t value = twi_word_value(before) + delta;
    return family->synced ? twi_saturated_sum(value, twi_load_relaxed(&cell->base)) : value;
}

/* The first add since the collector came by. */
static TWI_COLD tw_status hot_mark(tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                                   int64_t seen, int64_t *view, struct twi_thread *self) {
    twi_dirty_mark(family->engine, generation, cell, twi_load_relaxed(&cell->meta));
    twi_count_increments(family->engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return TW_OK;
}

/* Where there is no home, or the key is not in it. Inside the section that the caller has opened. */
__attribute__((noinline)) static tw_status hot_add_from_afar(tw_family *family, tw_key key, int64_t delta,
                                                             int64_t *view, uint64_t hash, struct twi_thread *self) {
    tw_engine *engine = family->engine;
    struct twi_generation *generation =
        twi_load_acquire(&family->current); /* W1: may be another by now, so held anew */
    int64_t seen;
    bool counted = false;
    if (generation != NULL && twi_generation_holds(generation, twi_clock_now_ms(&engine->clock))) {
        uint32_t tag = (uint32_t)(hash >> 32);
        uint64_t home = twi_load_acquire(&generation->home), before; /* H6 */
        struct twi_cell *cell = NULL;
        if (home != 0 && hot_is_handy(key)) {
            struct twi_home_group group = twi_home_of(&engine->arena, home, (uint32_t)hash);
            uint32_t free = twi_home_match(group.tags, 0);
            if (free != 0) /* it may be new: then this record is waited for while the index is */
                __builtin_prefetch(
                    twi_home_cell(group.chunk, group.first + (uint32_t)__builtin_ctz(free), family->synced), 1);
            cell = hot_find_next_door(group, tag, family->synced, key);
        }
        if (cell == NULL) cell = hot_find_by_index(&engine->arena, generation, tag, key);
        if (cell == NULL) {
            counted = twi_add_new(family, generation, key, hash, delta, &seen);
        } else if (hot_count(cell, delta, &before)) {
            seen = hot_view(family, cell, delta, before);
            if (family->synced && (before & TWI_DIRTY) == 0)
                return hot_mark(family, generation, cell, seen, view, self);
            counted = true;
        }
    }
    if (counted) twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    if (twi_unlikely(!counted)) return twi_add_hashed(family, key, delta, view, hash);
    if (view != NULL) *view = seen;
    return TW_OK;
}

TWI_HOT_CODE tw_status TWI_HOT_NAME(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(self == NULL) || twi_unlikely(self->mark != TWI_THREAD_MARK) ||
        twi_unlikely(key.size - 1 >= TW_KEY_SIZE_MAX) || twi_unlikely(key.data == NULL) ||
        twi_unlikely(delta != (int32_t)delta) || twi_unlikely(twi_load_relaxed(&engine->gate)))
        return twi_add_slow(family, key, delta, view);
    uint64_t hash = TWI_HOT_HASH(engine, key);
    twi_section_enter(self);
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    if (twi_unlikely(generation == NULL) || twi_unlikely(!twi_generation_holds(generation, now_ms))) goto slow;
    uint64_t home = twi_load_acquire(&generation->home); /* H6 */
    if (twi_unlikely(home == 0) || twi_unlikely(!hot_is_handy(key))) goto afar;
    struct twi_home_group group = twi_home_of(&engine->arena, home, (uint32_t)hash);
    uint32_t match = twi_home_match(group.tags, twi_home_tag((uint32_t)(hash >> 32)));
    if (twi_unlikely(match == 0)) goto afar;
    struct twi_cell *cell = twi_home_cell(group.chunk, group.first + (uint32_t)__builtin_ctz(match), family->synced);
    if (twi_unlikely(!hot_is_it(cell, key, true))) goto afar; /* of another key with that tag */
    uint64_t before;
    if (twi_unlikely(!hot_count(cell, delta, &before))) goto slow;
    int64_t seen = hot_view(family, cell, delta, before);
    if (family->synced && twi_unlikely((before & TWI_DIRTY) == 0))
        return hot_mark(family, generation, cell, seen, view, self);
    twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return TW_OK;
afar:
    return hot_add_from_afar(family, key, delta, view, hash, self);
slow:
    twi_section_leave(self);
    return twi_add_slow(family, key, delta, view);
}

/* ---- a group ---- */

struct hot_staged {
    struct twi_home_group group;
    uint32_t tag, match;
    _Atomic uint64_t *slot; /* by the index: where the walk begins. NULL: the tags name a candidate */
};

TWI_INLINE void hot_stage_slot(const struct twi_arena *arena, struct twi_generation *generation,
                               struct hot_staged *staged) {
    _Atomic uint64_t *where;
    uint32_t bits;
    uint64_t entry = twi_index_descend(arena, &generation->root, staged->tag, &where, &bits);
    if (TWI_ENTRY_KIND(entry) != TWI_ENTRY_LEAF) return;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    staged->slot = &leaf->slots[twi_leaf_home(staged->tag, twi_leaf_slots(TWI_ENTRY_LOG2(entry)))];
    __builtin_prefetch((void *)(uintptr_t)staged->slot, 0);
}

/* The hash; and the tags asked for, or the slot. */
TWI_HOT_CODE TWI_INLINE void hot_stage(const tw_engine *engine, struct twi_generation *generation, uint64_t home,
                                       tw_key key, struct hot_staged *staged) {
    uint64_t hash = TWI_HOT_HASH(engine, key);
    staged->tag = (uint32_t)(hash >> 32);
    staged->slot = NULL;
    if (home != 0 && hot_is_handy(key)) {
        staged->group = twi_home_of(&engine->arena, home, (uint32_t)hash);
        __builtin_prefetch((void *)(uintptr_t)staged->group.tags, 0);
    } else {
        staged->group.tags = NULL;
        staged->match = 0;
        hot_stage_slot(&engine->arena, generation, staged);
    }
}

/* The candidates by their tags, asked for; where there is none in the line of tags, the slot. */
TWI_INLINE void hot_stage_home(const tw_engine *engine, struct twi_generation *generation, bool synced,
                               struct hot_staged *staged) {
    if (staged->group.tags == NULL) return;
    uint8_t tag = twi_home_tag(staged->tag);
    struct twi_home_group group = staged->group;
    uint32_t match = staged->match = twi_home_match(group.tags, tag);
    if (twi_unlikely(match == 0)) {
        group = twi_home_neighbours(group);
        for (uint32_t left = TWI_HOME_LINE_GROUPS; left != 0; left--, group = twi_home_next(group)) {
            match = twi_home_match(group.tags, tag);
            if (match != 0) break;
        }
    }
    if (twi_unlikely(match == 0)) {
        hot_stage_slot(&engine->arena, generation, staged);
        return;
    }
    __builtin_prefetch(twi_home_cell(group.chunk, group.first + (uint32_t)__builtin_ctz(match), synced), 1);
    if (twi_unlikely((match & (match - 1)) != 0)) {
        uint32_t last = group.first + 31 - (uint32_t)__builtin_clz(match);
        __builtin_prefetch(twi_home_cell(group.chunk, last, synced), 1);
    }
}

/* By the index: the cell, if it is the first of the walk with this tag within the slot's line. */
TWI_INLINE void hot_stage_cell(const tw_engine *engine, const struct hot_staged *staged) {
    _Atomic uint64_t *slot = staged->slot;
    if (slot == NULL) return;
    do {
        uint64_t word = twi_load_relaxed(slot);
        if ((uint32_t)(word >> 32) == staged->tag && word > TWI_SLOT_CLOSED) {
            __builtin_prefetch(twi_arena_at(&engine->arena, (uint32_t)word), 1);
            return;
        }
        slot++;
    } while (((uintptr_t)slot & (TWI_LINE_BYTES - 1)) != 0);
}

TWI_INLINE struct twi_cell *hot_find_staged(const tw_engine *engine, struct twi_generation *generation, bool synced,
                                            const struct hot_staged *staged, tw_key key) {
    struct twi_cell *cell = NULL;
    if (twi_likely(staged->group.tags != NULL)) {
        cell = hot_find_matched(&staged->group, staged->match, synced, key);
        if (twi_unlikely(cell == NULL)) cell = hot_find_next_door(staged->group, staged->tag, synced, key);
    }
    return twi_likely(cell != NULL) ? cell : hot_find_by_index(&engine->arena, generation, staged->tag, key);
}

/* Adds for a group of at most TWI_HOT_GROUP_MAX keys, in order. False: nothing was done, the group is not plain (many.c adds
 * one by one); else status[] and views[] are filled. The stages only read and prefetch: what they saw decides nothing. */
TWI_HOT_CODE bool TWI_HOT_GROUP(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count,
                                int64_t *views, tw_status *status) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    struct hot_staged staged[TWI_HOT_GROUP_MAX];
    bool synced = family->synced;
    if (self == NULL || self->mark != TWI_THREAD_MARK || twi_load_relaxed(&engine->gate)) return false;
    for (size_t i = 0; i < count; i++) {
        if (keys[i].size - 1 >= TW_KEY_SIZE_MAX || keys[i].data == NULL) return false;
        if (deltas != NULL && deltas[i] != (int32_t)deltas[i]) return false;
    }
    twi_section_enter(self);
    int64_t now_ms = twi_clock_now_ms(&engine->clock), plain = 0;
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    if (generation == NULL || !twi_generation_holds(generation, now_ms)) {
        twi_section_leave(self);
        return false;
    }
    uint64_t home = twi_load_acquire(&generation->home); /* H6 */
    for (size_t i = 0; i < count; i++) hot_stage(engine, generation, home, keys[i], &staged[i]);
    for (size_t i = 0; i < count; i++) hot_stage_home(engine, generation, synced, &staged[i]);
    for (size_t i = 0; i < count; i++) hot_stage_cell(engine, &staged[i]);
    for (size_t i = 0; i < count; i++) {
        int64_t delta = deltas != NULL ? deltas[i] : 1;
        uint64_t before;
        struct twi_cell *cell = hot_find_staged(engine, generation, synced, &staged[i], keys[i]);
        if (twi_unlikely(cell == NULL) || !hot_count(cell, delta, &before)) {
            views[i] = 0;
            status[i] = twi_add_slow(family, keys[i], delta, &views[i]);
            continue;
        }
        if (synced && twi_unlikely((before & TWI_DIRTY) == 0))
            twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
        views[i] = hot_view(family, cell, delta, before);
        status[i] = TW_OK;
        plain++;
    }
    twi_count_increments(engine, self, plain);
    twi_section_leave(self);
    return true;
}
