/* group_fast.h -- adds for a group of keys at once (add_many.c), so that the waits for memory overlap. It is a part of
 * the same template, and add_fast.h is included before it.
 *
 * Three stages process all keys. The first hashes the key, and prefetches the line of slots and the place of the record
 * in an area. The second prefetches the record that the line shows first. The third adds. If this record belongs to the
 * key, the add is made at once. Other keys go to look_in_index, as with tw_add(), in the section of the group.
 * Always true: the stages before the adds only read and prefetch. The record that they show is a hint. */
#ifndef TWI_HOT_GROUP
#error "group_fast.h is a template: define TWI_HOT_GROUP first"
#endif

#ifndef TWI_HOT_STAGED
#define TWI_HOT_STAGED

struct hot_staged {
    uint64_t hash;
    struct hot_line line;
    struct twi_cell *cell; /* the first record that may be the key's; a record that is no cell if none was seen */
};

#endif

/* Computes the hash, and prefetches the line and the place. */
TWI_HOT_CODE TWI_INLINE void TWI_HOT_OWN(stage)(const tw_engine *engine, struct twi_generation *generation, tw_key key,
                                                struct hot_staged *staged) {
    staged->hash = TWI_HOT_HASH(engine, key);
    staged->line = hot_line_of(&engine->arena, generation, staged->hash);
    __builtin_prefetch((void *)(uintptr_t)staged->line.words, 0);
}

/* For a key that is not plain. Does the same as tw_add() for that key, inside the section of the group. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(add_staged)(struct twi_generation *generation, tw_key key,
                                                                   int64_t delta, int64_t *view, uint64_t hash) {
    twi_section_enter(twi_thread_self); /* the callee leaves by twi_section_leave() */
    return TWI_HOT_OWN(look_in_index)(generation, key, delta, view, hash);
}

/* Adds for a group of at most TWI_HOT_GROUP_MAX keys, in order. Returns false if no key was added, because the group is
 * not plain. Then add_many.c adds the keys one by one. After true, status[] is filled. views[], unless it is NULL, is
 * filled for each status that is not negative. *why becomes the reason of the lowest status, if that is negative. */
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
    int64_t now_ms = twi_clock_now_ms(&engine->clock), plain = 0; /* after W1, because inserts rely on it */
    if (!twi_generation_holds(generation, now_ms)) {
        twi_section_leave(self);
        return false;
    }
    for (size_t i = 0; i < count; i++) TWI_HOT_OWN(stage)(engine, generation, keys[i], &staged[i]);
    for (size_t i = 0; i < count; i++) {
        uint64_t slot = hot_line_first(staged[i].line, staged[i].hash);
        staged[i].cell = hot_cell_at(&engine->arena, slot, keys[i].size > TWI_KEY_INLINE);
        __builtin_prefetch(staged[i].cell, 1);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t delta = deltas != NULL ? deltas[i] : 1;
        uint64_t before;
        struct twi_cell *cell = staged[i].cell;
        if (!hot_is_it(cell, keys[i], false, HOT_NOT_STRIPED) || twi_unlikely(!twi_cell_count(cell, delta, &before))) {
            status[i] =
                TWI_HOT_OWN(add_staged)(generation, keys[i], delta, views != NULL ? &views[i] : NULL, staged[i].hash);
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
