/* add_fast.h -- tw_add of an existing key in an open window: the whole path in one function, with all state in
 * registers; and the same for a group of keys at once (add_many.c). A template: fast_aes.c and fast_portable.c include
 * it for families with Redis and without, with their hash.
 *
 * There are three levels:
 *   - The fast function handles keys of 4 to 32 bytes that the first look at their primary group finds (tag_groups.h).
 *     It calls nothing on that path.
 *   - look_further handles keys in adjacent groups, keys in the index, and new keys. It goes on in the section and with
 *     the window of its caller, who has read the clock after it found the window. An insert relies on that order.
 *   - twi_add_slow() begins again and handles everything else: a closed leaf, a frozen cell, an edge of the range, a
 *     TW_WINDOW_FROM_FIRST family, a stopped engine, a forked child.
 * A striped counter goes to stripe.c, which is as short.
 * Always true: this path does nothing that twi_add_slow() does not do, in the same order and under the same labels. */
#include "engine/count/api.h"
#include "engine/count/contention.h"
#include "engine/count/lookup.h"
#include "engine/count/dirty.h"
#include "engine/table/stripe.h"

#ifndef TWI_HOT_NAME
#error "add_fast.h is a template: define TWI_HOT_NAME, _GROUP, _ACQUIRE, _OWN, _SYNCED, _CODE and _HASH first"
#endif

#ifndef TWI_HOT_ONCE
#define TWI_HOT_ONCE

/* Keys that are compared without a call: registers saved around a call would make all other keys slower. */
TWI_INLINE bool hot_key_is_short(tw_key key) {
    return key.size - 4 <= TWI_KEY_INLINE - 4;
}

/* True: a published cell of that key, in no rare state. `rare` decides whether it may be striped. */
#define HOT_NOT_STRIPED TWI_META_STRIPED
#define HOT_MAYBE_STRIPED UINT64_C(0)
TWI_INLINE bool hot_is_it(struct twi_cell *cell, tw_key key, bool is_short, uint64_t rare) {
    const uint32_t plain = (uint32_t)(TWI_META_SIZE | TWI_META_INCARNATION | TWI_META_PUBLISHED | TWI_META_EDGE | rare);
    uint32_t meta = (uint32_t)twi_load_acquire(&cell->meta); /* H3 */
    if (twi_unlikely((meta & plain) != ((uint32_t)key.size | (uint32_t)TWI_META_PUBLISHED))) return false;
    return is_short ? twi_key_equal_short(cell->key, key.data, key.size) : twi_key_equal(cell->key, key.data, key.size);
}

/* The plain cell of the key among the records in `match`, counted from the group's first; NULL: none. */
TWI_INLINE struct twi_cell *hot_find_matched(const struct twi_tag_group *group, uint64_t match, bool synced,
                                             tw_key key) {
    for (; match != 0; match &= match - 1) {
        struct twi_cell *cell =
            twi_tag_group_cell(group->records, group->first + (uint32_t)__builtin_ctzll(match), synced);
        if (hot_is_it(cell, key, true, HOT_MAYBE_STRIPED)) return cell;
    }
    return NULL;
}

/* The same, among the primary and the adjacent groups. */
TWI_INLINE struct twi_cell *hot_find_adjacent(struct twi_tag_group primary, uint32_t tag, bool synced, tw_key key) {
    struct twi_tag_group line = twi_tag_group_adjacent(primary);
    return hot_find_matched(&line, twi_tag_line_match(line.tags, twi_tag_group_tag(tag)), synced, key);
}

/* The plain cell of the key by the index, found without meeting the end of a closed leaf; else NULL. *vacancy: where
 * the look-up ended, if it is not NULL and no slot in front of that has the key's tag: then the key is absent. */
TWI_INLINE struct twi_cell *hot_find_by_index(const struct twi_arena *arena, struct twi_generation *generation,
                                              uint32_t tag, tw_key key, bool may_insert, struct twi_vacancy *vacancy) {
    _Atomic uint64_t *where;
    uint32_t bits;
    uint64_t entry = twi_index_descend(arena, &generation->root, tag, &where, &bits);
    if (twi_unlikely(TWI_ENTRY_KIND(entry) != TWI_ENTRY_LEAF)) return NULL;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint32_t slots = twi_leaf_slots(TWI_ENTRY_LOG2(entry)), i = twi_leaf_start(tag, slots);
    if (may_insert) __builtin_prefetch(leaf, 1); /* an insert also reads the head: the two waits overlap */
    for (uint32_t left = slots; left != 0; left--) {
        uint64_t slot = twi_load_acquire(&leaf->slots[i]); /* T5 */
        if (twi_likely((uint32_t)(slot >> 32) == tag) && twi_likely(slot > TWI_SLOT_CLOSED)) {
            struct twi_cell *cell = twi_arena_at(arena, (uint32_t)slot);
            if (hot_is_it(cell, key, false, HOT_MAYBE_STRIPED)) return cell;
            vacancy = NULL; /* it may be the key all the same, in a rare state */
        } else if (slot <= TWI_SLOT_CLOSED) {
            if (vacancy != NULL && slot == TWI_SLOT_EMPTY) vacancy->leaf = leaf, vacancy->at = i;
            return NULL;
        }
        if (++i == slots) i = 0;
    }
    return NULL;
}

TWI_INLINE bool hot_is_striped(struct twi_cell *cell) {
    return twi_unlikely((twi_load_relaxed(&cell->meta) & TWI_META_STRIPED) != 0);
}

/* True: an add without a view must be sampled for contention (contention.h). */
TWI_INLINE bool hot_is_sampled(const tw_engine *engine, const struct twi_thread *self, const struct twi_cell *cell) {
    return twi_unlikely(cell == self->sampled) ||
           twi_unlikely((twi_load_relaxed(&engine->shards[self->shard].increments) & (TWI_CONTENTION_EVERY - 1)) == 0);
}

/* True: the thread is registered in this process, and the engine goes on. */
TWI_INLINE bool hot_may_begin(const struct twi_thread *self, const tw_engine *engine) {
    return twi_likely(self != NULL) && twi_likely(self->mark == TWI_THREAD_MARK) &&
           twi_likely(!twi_load_relaxed(&engine->life.gate));
}

#endif

TWI_INLINE int64_t TWI_HOT_OWN(view)(struct twi_cell *cell, int64_t delta, uint64_t before) {
    int64_t value = twi_word_value(before) + delta;
    return TWI_HOT_SYNCED ? twi_saturated_sum(value, twi_load_relaxed(&cell->base)) : value;
}

/* The first add since the last collection: marks the counter. Inside the caller's section, which it leaves. */
static TWI_COLD tw_status TWI_HOT_OWN(mark)(tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                                            int64_t seen, int64_t *view) {
    struct twi_thread *self = twi_thread_self;
    twi_dirty_mark(family->engine, generation, cell, twi_load_relaxed(&cell->meta));
    twi_count_increments(family->engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return TW_OK;
}

/* An add without a view has counted: samples whether other threads have added since. Inside the caller's section, which
 * it leaves. */
static TWI_COLD tw_status TWI_HOT_OWN(sample)(tw_family *family, struct twi_generation *generation,
                                              struct twi_cell *cell, int64_t delta, uint64_t before) {
    struct twi_thread *self = twi_thread_self;
    twi_contention_detect_add(family->engine, generation, cell, twi_word_value(before), delta, self);
    if (TWI_HOT_SYNCED && (before & TWI_DIRTY) == 0)
        twi_dirty_mark(family->engine, generation, cell, twi_load_relaxed(&cell->meta));
    twi_count_increments(family->engine, self, 1);
    twi_section_leave(self);
    return TW_OK;
}

/* Adds to a striped cell. Inside the caller's section, which it leaves. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(striped)(tw_family *family, tw_key key, int64_t delta,
                                                                int64_t *view, uint64_t hash,
                                                                struct twi_generation *generation,
                                                                struct twi_cell *cell) {
    struct twi_thread *self = twi_thread_self;
    struct twi_counted counted;
    if (twi_unlikely(twi_stripes_add_anew(cell, delta, view != NULL, self, &counted) != TWI_ADDED)) {
        twi_section_leave(self);
        return twi_add_hashed(family, key, delta, view, hash);
    }
    uint64_t meta = twi_load_relaxed(&cell->meta);
    if (TWI_HOT_SYNCED) twi_contention_mark(family->engine, generation, cell, meta, &counted);
    if (view != NULL) *view = twi_view_of(cell, meta, counted.local);
    twi_count_increments(family->engine, self, 1);
    twi_section_leave(self);
    return TW_OK;
}

/* For a key that the first look does not find. Inside the caller's section, which it leaves, and in a window that held
 * the clock's moment, which was read after the window was found. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(look_further)(tw_family *family, tw_key key, int64_t delta,
                                                                     int64_t *view, uint64_t hash,
                                                                     struct twi_generation *generation) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    uint32_t tag = (uint32_t)(hash >> 32);
    struct twi_vacancy vacancy = TWI_NO_VACANCY;
    struct twi_cell *cell = NULL;
    int64_t seen;
    uint64_t before;
    if (generation->tag_groups.directory != 0 && hot_key_is_short(key)) {
        struct twi_tag_group group = twi_tag_group_of(generation, (uint32_t)hash);
        uint32_t free = twi_tag_group_match(group.tags, 0);
        if (free != 0) { /* the key may be new: then the waits for this record and for the index overlap */
            vacancy.group = group;
            vacancy.record = twi_tag_group_choose(free, twi_tag_group_tag(tag));
            __builtin_prefetch(twi_tag_group_cell(group.records, group.first + vacancy.record, TWI_HOT_SYNCED), 1);
        }
        cell = hot_find_adjacent(group, tag, TWI_HOT_SYNCED, key);
    }
    if (cell == NULL) cell = hot_find_by_index(&engine->arena, generation, tag, key, self->inserts, &vacancy);
    self->inserts = cell == NULL;
    if (cell == NULL) {
        struct twi_insert insert = {.arena = &engine->arena,
                                    .generation = generation,
                                    .self = self,
                                    .lookup = twi_lookup_key(hash, key),
                                    .first_delta = delta,
                                    .vacancy = vacancy};
        TWI_RACE_POINT(absent_not_inserted);
        if (!twi_add_new(&insert, &seen)) goto again;
    } else if (hot_is_striped(cell)) {
        return TWI_HOT_OWN(striped)(family, key, delta, view, hash, generation, cell);
    } else {
        if (!twi_cell_count(cell, delta, &before)) goto again;
        seen = TWI_HOT_OWN(view)(cell, delta, before);
        if (view == NULL && hot_is_sampled(engine, self, cell))
            return TWI_HOT_OWN(sample)(family, generation, cell, delta, before);
        if (TWI_HOT_SYNCED && (before & TWI_DIRTY) == 0) return TWI_HOT_OWN(mark)(family, generation, cell, seen, view);
    }
    twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return TW_OK;
again:
    twi_section_leave(self);
    return twi_add_hashed(family, key, delta, view, hash);
}

/* Begins again, with the hash. */
TWI_INLINE tw_status TWI_HOT_OWN(begin_again)(tw_family *family, tw_key key, int64_t delta, int64_t *view,
                                              uint64_t hash) {
    struct twi_thread *self = twi_thread_self;
    twi_section_enter(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_found_not_inserted);
    if (generation != NULL && twi_generation_holds(generation, twi_clock_now_ms(&family->engine->clock)))
        return TWI_HOT_OWN(look_further)(family, key, delta, view, hash, generation);
    twi_section_leave(self);
    return twi_add_hashed(family, key, delta, view, hash);
}

/* Where the fast function cannot go on. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(slow_lookup)(tw_family *family, tw_key key, int64_t delta,
                                                                    int64_t *view, uint64_t hash) {
    return TWI_HOT_OWN(begin_again)(family, key, delta, view, hash);
}

/* For keys that are not short. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(add_long_key)(tw_family *family, tw_key key,
                                                                                  int64_t delta, int64_t *view) {
    if (!hot_may_begin(twi_thread_self, family->engine) || key.size - 1 >= TW_KEY_SIZE_MAX || key.data == NULL ||
        delta != (int32_t)delta)
        return twi_add_slow(family, key, delta, view);
    return TWI_HOT_OWN(begin_again)(family, key, delta, view, TWI_HOT_HASH(family->engine, key));
}

TWI_HOT_CODE tw_status TWI_HOT_NAME(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    if (twi_unlikely(!hot_key_is_short(key))) return TWI_HOT_OWN(add_long_key)(family, key, delta, view);
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!hot_may_begin(self, engine)) || twi_unlikely(key.data == NULL) ||
        twi_unlikely(delta != (int32_t)delta))
        return twi_add_slow(family, key, delta, view);
    uint64_t hash = TWI_HOT_HASH(engine, key), before;
    bool outermost = twi_section_enter_short(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* behind W1; stale: in no window */
    if (twi_unlikely(generation == NULL) || twi_unlikely(!twi_generation_holds(generation, now_ms))) goto slow;
    if (twi_unlikely(generation->tag_groups.directory == 0)) goto further;
    struct twi_tag_group group = twi_tag_group_of(generation, (uint32_t)hash);
    uint32_t match = twi_tag_group_match(group.tags, twi_tag_group_tag((uint32_t)(hash >> 32)));
    if (twi_unlikely(match == 0)) goto further;
    struct twi_cell *cell =
        twi_tag_group_cell(group.records, group.first + (uint32_t)__builtin_ctz(match), TWI_HOT_SYNCED);
    if (twi_unlikely(!hot_is_it(cell, key, true, HOT_NOT_STRIPED))) {
        /* Another key with that tag, or a striped cell. The callee leaves by twi_section_leave(), so the depth must
         * count. */
        if (!hot_is_it(cell, key, true, HOT_MAYBE_STRIPED)) goto further;
        self->depth++;
        return TWI_HOT_OWN(striped)(family, key, delta, view, hash, generation, cell);
    }
    if (twi_unlikely(!twi_cell_count(cell, delta, &before))) goto slow;
    int64_t seen = TWI_HOT_OWN(view)(cell, delta, before);
    if (view == NULL && hot_is_sampled(engine, self, cell)) {
        self->depth++; /* the callee leaves by twi_section_leave() */
        return TWI_HOT_OWN(sample)(family, generation, cell, delta, before);
    }
    if (TWI_HOT_SYNCED && twi_unlikely((before & TWI_DIRTY) == 0)) {
        self->depth++;
        return TWI_HOT_OWN(mark)(family, generation, cell, seen, view);
    }
    twi_count_increments(engine, self, 1);
    twi_section_leave_short(self, outermost);
    if (view != NULL) *view = seen;
    return TW_OK;
further:
    self->depth++; /* the callee leaves by twi_section_leave() */
    return TWI_HOT_OWN(look_further)(family, key, delta, view, hash, generation);
slow:
    twi_section_leave_short(self, outermost);
    return TWI_HOT_OWN(slow_lookup)(family, key, delta, view, hash);
}

/* ---- a group ---- */

#ifndef TWI_HOT_STAGED
#define TWI_HOT_STAGED

struct hot_staged {
    struct twi_tag_group group; /* no tags: use the index */
    uint64_t hash;
    uint32_t match;
    _Atomic uint64_t *slot; /* by the index: where the walk begins */
};

TWI_INLINE void hot_stage_slot(const struct twi_arena *arena, struct twi_generation *generation,
                               struct hot_staged *staged) {
    _Atomic uint64_t *where;
    uint32_t bits, tag = (uint32_t)(staged->hash >> 32);
    uint64_t entry = twi_index_descend(arena, &generation->root, tag, &where, &bits);
    if (TWI_ENTRY_KIND(entry) != TWI_ENTRY_LEAF) return;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    staged->slot = &leaf->slots[twi_leaf_start(tag, twi_leaf_slots(TWI_ENTRY_LOG2(entry)))];
    __builtin_prefetch((void *)(uintptr_t)staged->slot, 0);
}

/* Prefetches the candidates by their tags. If no tag in the line matches, prefetches the slot. */
TWI_INLINE void hot_stage_group(const tw_engine *engine, struct twi_generation *generation, bool synced,
                                struct hot_staged *staged) {
    if (staged->group.tags == NULL) return;
    uint8_t tag = twi_tag_group_tag((uint32_t)(staged->hash >> 32));
    struct twi_tag_group group = staged->group;
    uint32_t match = staged->match = twi_tag_group_match(group.tags, tag);
    if (twi_unlikely(match == 0)) {
        group = twi_tag_group_adjacent(group);
        for (uint32_t left = TWI_TAG_GROUPS_PER_LINE; left != 0; left--, group = twi_tag_group_next(group)) {
            match = twi_tag_group_match(group.tags, tag);
            if (match != 0) break;
        }
    }
    if (twi_unlikely(match == 0)) {
        hot_stage_slot(&engine->arena, generation, staged);
        return;
    }
    __builtin_prefetch(twi_tag_group_cell(group.records, group.first + (uint32_t)__builtin_ctz(match), synced), 1);
    if (twi_unlikely((match & (match - 1)) != 0)) {
        uint32_t last = group.first + 31 - (uint32_t)__builtin_clz(match);
        __builtin_prefetch(twi_tag_group_cell(group.records, last, synced), 1);
    }
}

/* By the index: prefetches the cell, if the walk finds its tag first within the slot's line. */
TWI_INLINE void hot_stage_cell(const tw_engine *engine, const struct hot_staged *staged) {
    _Atomic uint64_t *slot = staged->slot;
    if (slot == NULL) return;
    do {
        uint64_t word = twi_load_relaxed(slot);
        if (word >> 32 == staged->hash >> 32 && word > TWI_SLOT_CLOSED) {
            __builtin_prefetch(twi_arena_at(&engine->arena, (uint32_t)word), 1);
            return;
        }
        slot++;
    } while (((uintptr_t)slot & (TWI_LINE_BYTES - 1)) != 0);
}

TWI_INLINE struct twi_cell *hot_find_staged(const tw_engine *engine, struct twi_generation *generation, bool synced,
                                            const struct hot_staged *staged, tw_key key) {
    uint32_t tag = (uint32_t)(staged->hash >> 32);
    struct twi_cell *cell = NULL;
    if (twi_likely(staged->group.tags != NULL)) {
        cell = hot_find_matched(&staged->group, staged->match, synced, key);
        if (twi_unlikely(cell == NULL)) cell = hot_find_adjacent(staged->group, tag, synced, key);
    }
    return twi_likely(cell != NULL) ? cell : hot_find_by_index(&engine->arena, generation, tag, key, false, NULL);
}

#endif

/* Computes the hash, and prefetches the tags or the slot. */
TWI_HOT_CODE TWI_INLINE void TWI_HOT_OWN(stage)(const tw_engine *engine, struct twi_generation *generation, tw_key key,
                                                struct hot_staged *staged) {
    staged->hash = TWI_HOT_HASH(engine, key);
    staged->slot = NULL;
    if (generation->tag_groups.directory != 0 && hot_key_is_short(key)) {
        staged->group = twi_tag_group_of(generation, (uint32_t)staged->hash);
        __builtin_prefetch((void *)(uintptr_t)staged->group.tags, 0);
    } else {
        staged->group.tags = NULL;
        hot_stage_slot(&engine->arena, generation, staged);
    }
}

/* Adds for a group of at most TWI_HOT_GROUP_MAX keys, in order. False: nothing was done, because the group is not
 * plain; then add_many.c adds one by one. True: status[] is filled, and views[] unless NULL. The stages only read and
 * prefetch: what they see decides nothing. */
TWI_HOT_CODE bool TWI_HOT_GROUP(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count,
                                int64_t *views, tw_status *status) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    struct hot_staged staged[TWI_HOT_GROUP_MAX];
    if (!hot_may_begin(self, engine)) return false;
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
    for (size_t i = 0; i < count; i++) TWI_HOT_OWN(stage)(engine, generation, keys[i], &staged[i]);
    for (size_t i = 0; i < count; i++) hot_stage_group(engine, generation, TWI_HOT_SYNCED, &staged[i]);
    for (size_t i = 0; i < count; i++) hot_stage_cell(engine, &staged[i]);
    for (size_t i = 0; i < count; i++) {
        int64_t delta = deltas != NULL ? deltas[i] : 1;
        uint64_t before;
        struct twi_cell *cell = hot_find_staged(engine, generation, TWI_HOT_SYNCED, &staged[i], keys[i]);
        if (twi_unlikely(cell == NULL) || hot_is_striped(cell) || !twi_cell_count(cell, delta, &before)) {
            int64_t *view = views != NULL ? &views[i] : NULL;
            if (view != NULL) *view = 0;
            status[i] = twi_add_hashed(family, keys[i], delta, view, staged[i].hash);
            continue;
        }
        if (TWI_HOT_SYNCED && twi_unlikely((before & TWI_DIRTY) == 0))
            twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
        if (views != NULL) views[i] = TWI_HOT_OWN(view)(cell, delta, before);
        status[i] = TW_OK;
        plain++;
    }
    twi_count_increments(engine, self, plain);
    twi_section_leave(self);
    return true;
}

#include "engine/fast/acquire_fast.h"

#undef TWI_HOT_NAME
#undef TWI_HOT_GROUP
#undef TWI_HOT_ACQUIRE
#undef TWI_HOT_OWN
#undef TWI_HOT_SYNCED
