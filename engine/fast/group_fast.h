/* group_fast.h -- adds for a group of keys at once (add_many.c): the waits for memory overlap. Part of the same
 * template: add_fast.h is included before it.
 *
 * Three stages go over all keys: the hash, and where its tags or its slot are; the record that these show first; the
 * adds. A key whose record is that one is counted in place. Every other key goes where tw_add() of such a key goes:
 * look_further or look_in_index, in the section of the group.
 * Always true: the stages before the adds only read and prefetch. The record that they show is a hint (H1). */
#ifndef TWI_HOT_GROUP
#error "group_fast.h is a template: define TWI_HOT_GROUP first"
#endif

#ifndef TWI_HOT_STAGED
#define TWI_HOT_STAGED

struct hot_staged {
    uint64_t hash;
    struct twi_cell *cell;      /* the first record that may be the key's; NULL: none is seen */
    struct twi_tag_group group; /* no tags: use the index */
    struct hot_line line;       /* by the index; words NULL: nothing to look at */
};

TWI_INLINE void hot_stage_line(const struct twi_arena *arena, struct twi_generation *generation,
                               struct hot_staged *staged) {
    staged->line = hot_line_of(arena, generation, staged->hash);
    __builtin_prefetch((void *)(uintptr_t)staged->line.words, 0);
}

/* Shows and prefetches the first candidate by its tag, in the primary group or in an adjacent one. If no tag in the
 * line matches, the key may be new, or only the index has it: prefetches the record that it would get, and the slot. */
TWI_INLINE void hot_stage_group(const tw_engine *engine, struct twi_generation *generation, bool synced, uint32_t lines,
                                uint32_t match, struct hot_staged *staged) {
    struct twi_tag_group group = staged->group;
    group.lines = lines; /* the same, known when this is compiled if it is 1 */
    uint64_t all = match;
    if (twi_unlikely(match == 0)) {
        uint8_t tag = twi_tag_group_tag((uint32_t)(staged->hash >> 32));
        uint32_t free = twi_tag_group_match(group.tags, 0);
        if (free != 0) {
            uint32_t record = group.first + twi_tag_group_choose(free, tag);
            hot_ask_for(twi_tag_group_cell(&group, record, synced), lines > 1);
        }
        group = twi_tag_group_adjacent(group);
        all = twi_tag_line_match(group.tags, tag);
        if (twi_likely(all == 0)) {
            hot_stage_line(&engine->arena, generation, staged);
            return;
        }
    }
    staged->cell = twi_tag_group_cell(&group, group.first + (uint32_t)__builtin_ctzll(all), synced);
    hot_ask_for(staged->cell, lines > 1);
    if (twi_unlikely((all & (all - 1)) != 0))
        hot_ask_for(twi_tag_group_cell(&group, group.first + 63 - (uint32_t)__builtin_clzll(all), synced), lines > 1);
}

/* By the index: shows and prefetches the cell, if the line shows its tag. */
TWI_INLINE void hot_stage_cell(const tw_engine *engine, bool is_long, struct hot_staged *staged) {
    uint64_t slot = hot_line_first(staged->line, staged->hash);
    if (twi_unlikely(slot == 0)) return;
    staged->cell = hot_cell_at(&engine->arena, slot, is_long);
    __builtin_prefetch(staged->cell, 1);
}

#endif

/* Computes the hash, and prefetches the tags or the slot. `chunks`: of the window. */
TWI_HOT_CODE TWI_INLINE void TWI_HOT_OWN(stage)(const tw_engine *engine, struct twi_generation *generation,
                                                uint32_t chunks, tw_key key, struct hot_staged *staged) {
    staged->hash = TWI_HOT_HASH(engine, key);
    staged->line.words = NULL;
    staged->cell = NULL;
    uint32_t place = (uint32_t)staged->hash;
    if (twi_tag_groups_are_short(chunks) && hot_key_is_short(key)) {
        staged->group = twi_tag_group_of(generation, chunks, 1, place);
    } else if (key.size > TWI_KEY_INLINE && twi_tag_groups_are_for(generation, chunks, key.size, TWI_HOT_SYNCED)) {
        chunks &= ~TWI_TAG_GROUPS_LONG;
        staged->group = twi_tag_group_of(generation, chunks, generation->tag_groups.lines, place);
    } else {
        staged->group.tags = NULL;
        hot_stage_line(&engine->arena, generation, staged);
        return;
    }
    __builtin_prefetch((void *)(uintptr_t)staged->group.tags, 0);
}

/* Shows the records of all keys that have tag groups. */
TWI_HOT_CODE TWI_INLINE void TWI_HOT_OWN(stage_groups)(const tw_engine *engine, struct twi_generation *generation,
                                                       uint32_t lines, struct hot_staged *staged, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (twi_likely(staged[i].group.tags != NULL))
            hot_stage_group(engine, generation, TWI_HOT_SYNCED, lines,
                            TWI_HOT_MATCH(staged[i].group.tags, staged[i].hash), &staged[i]);
}

/* For a key that is not plain: as tw_add() of it, inside the group's section. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(add_staged)(struct twi_generation *generation, tw_key key,
                                                                   int64_t delta, int64_t *view,
                                                                   const struct hot_staged *staged) {
    twi_section_enter(twi_thread_self); /* the callees leave by twi_section_leave() */
    if (staged->group.tags == NULL) return TWI_HOT_OWN(look_in_index)(generation, key, delta, view, staged->hash);
    if (hot_key_is_short(key)) return TWI_HOT_OWN(look_further)(generation, key, delta, view, staged->hash);
    return TWI_HOT_OWN(look_further_long)(generation, key, delta, view, staged->hash);
}

/* Adds for a group of at most TWI_HOT_GROUP_MAX keys, in order. False: nothing was done, because the group is not
 * plain; then add_many.c adds one by one. True: status[] is filled, and views[], unless NULL, where a status is not
 * negative. *why: the reason for the lowest status, if that is negative. */
TWI_HOT_CODE bool TWI_HOT_GROUP(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count,
                                int64_t *views, tw_status *status, struct twi_why *why) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    struct hot_staged staged[TWI_HOT_GROUP_MAX];
    tw_status lowest = TW_OK;
    if (!hot_may_begin(self, engine)) return false;
    for (size_t i = 0; i < count; i++) {
        if (keys[i].size - 1 >= TW_KEY_SIZE_MAX || keys[i].data == NULL) return false;
        if (deltas != NULL && deltas[i] != (int32_t)deltas[i]) return false;
    }
    twi_section_enter(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_found_not_inserted);
    int64_t now_ms = twi_clock_now_ms(&engine->clock), plain = 0; /* behind W1: inserts rely on it */
    if (!twi_generation_holds(generation, now_ms)) {
        twi_section_leave(self);
        return false;
    }
    uint32_t chunks = twi_tag_groups_chunks(generation);
    for (size_t i = 0; i < count; i++) TWI_HOT_OWN(stage)(engine, generation, chunks, keys[i], &staged[i]);
    if (twi_likely(twi_tag_groups_are_short(chunks))) /* twice: short records are addressed without a product */
        TWI_HOT_OWN(stage_groups)(engine, generation, 1, staged, count);
    else if (chunks != 0)
        TWI_HOT_OWN(stage_groups)(engine, generation, generation->tag_groups.lines, staged, count);
    for (size_t i = 0; i < count; i++)
        if (staged[i].line.words != NULL) hot_stage_cell(engine, keys[i].size > TWI_KEY_INLINE, &staged[i]);
    for (size_t i = 0; i < count; i++) {
        int64_t delta = deltas != NULL ? deltas[i] : 1;
        uint64_t before;
        struct twi_cell *cell = staged[i].cell;
        if (twi_unlikely(cell == NULL) || !hot_is_it(cell, keys[i], false, HOT_NOT_STRIPED) ||
            twi_unlikely(!twi_cell_count(cell, delta, &before))) {
            status[i] =
                TWI_HOT_OWN(add_staged)(generation, keys[i], delta, views != NULL ? &views[i] : NULL, &staged[i]);
            if (twi_unlikely(status[i] < lowest)) {
                lowest = status[i];
                *why = twi_why_now();
            }
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
