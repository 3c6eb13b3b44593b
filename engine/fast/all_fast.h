/* all_fast.h -- tw_acquire_all() of a few claims on plain counters that all have room: one section, one time, one look
 * at all counters, and then one compare-and-swap for each. It is a part of the same template, and acquire_fast.h is
 * included before it. Families with Redis do not use it.
 * Always true: unless the result is true, no unit stays taken, and no statistic has counted. All claims are looked at
 * before one is taken, so a call that cannot be admitted denies no other one. A window may end between the look and the
 * last compare-and-swap: then its counter is frozen, or the units count in a window that ends in these moments. */
#ifndef TWI_HOT_ALL
#error "all_fast.h is a template: define TWI_HOT_ALL first"
#endif

#ifndef TWI_HOT_ALL_ONCE
#define TWI_HOT_ALL_ONCE

/* One claim after the look. */
struct hot_claimed {
    struct twi_generation *generation;
    struct twi_cell *cell;
    struct twi_limit_shard *counts;
    uint64_t word; /* of the cell; after the compare-and-swap the word before that */
};

/* Puts back the units that were taken, the last ones first. They leave the same words, whatever these count by now. A
 * word that was frozen meanwhile has stripes, or its window has ended. The caller is inside a section. */
static TWI_COLD void hot_put_back(const tw_claim *const *claims, const struct hot_claimed *claimed, size_t taken) {
    for (size_t i = taken; i > 0; i--) {
        const tw_claim *claim = claims[i - 1];
        struct twi_cell *cell = claimed[i - 1].cell;
        uint64_t word = twi_load_acquire(&cell->local), units = (uint64_t)claim->n << TWI_COUNT_SHIFT; /* C2 */
        while ((word & TWI_FROZEN) == 0 && !twi_cas_weak_acqrel(&cell->local, &word, word - units)) continue;
        if ((word & TWI_FROZEN) != 0)
            (void)claim->family->kind.limit->undo(claim->family, claim->key, claim->n, claim->limit,
                                                  claimed[i - 1].generation->start_ms);
    }
}

#endif

/* Returns the cell of a key in the line where its walk begins, or NULL. `short_key` is NULL for a long key. */
TWI_HOT_CODE TWI_INLINE struct twi_cell *TWI_HOT_OWN(cell_in_line)(const tw_engine *engine,
                                                                   struct twi_generation *generation, tw_key key,
                                                                   TWI_HOT_SHORT_KEY *short_key, uint64_t hash) {
    const struct twi_arena *arena = &engine->arena;
    struct twi_cell *cell =
        hot_cell_at(arena, hot_line_first(hot_line_of(arena, generation, hash), hash), short_key == NULL);
    bool is_it = hot_may_be(cell, key.size, HOT_NOT_STRIPED) &&
                 twi_likely(short_key == NULL ? TWI_HOT_LONG_IS(key, cell->key)
                                              : TWI_HOT_SHORT_IS(*short_key, cell->key, key.size));
    return twi_likely(is_it) ? cell : NULL;
}

/* Returns the plain cell of the key, or NULL. */
TWI_HOT_CODE TWI_INLINE struct twi_cell *TWI_HOT_OWN(plain_cell)(const tw_engine *engine,
                                                                 struct twi_generation *generation, tw_key key) {
    struct twi_cell *cell;
    uint64_t hash;
    if (twi_likely(hot_key_is_short(key))) {
        TWI_HOT_SHORT_KEY short_key = TWI_HOT_SHORT_OF(key);
        hash = TWI_HOT_SHORT_HASH(engine, short_key, key);
        cell = TWI_HOT_OWN(cell_in_line)(engine, generation, key, &short_key, hash);
    } else {
        if (twi_unlikely(key.size - TWI_KEY_INLINE - 1 >= TW_KEY_SIZE_MAX - TWI_KEY_INLINE)) return NULL;
        hash = TWI_HOT_LONG_HASH(engine, key);
        cell = TWI_HOT_OWN(cell_in_line)(engine, generation, key, NULL, hash);
    }
    if (twi_likely(cell != NULL)) return cell;
    cell = hot_find_slow(engine, generation, hash, key);
    return cell != NULL && !hot_is_striped(cell) ? cell : NULL;
}

/* Looks at claim i. Returns false if it is not that of a plain counter with room, or is on the counter of the
 * claim before it. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(look_at_claim)(const tw_engine *engine, const struct twi_thread *self,
                                                        const tw_claim *const *claims, struct hot_claimed *claimed,
                                                        size_t i, int64_t now_ms) {
    const tw_claim *claim = claims[i];
    struct hot_claimed *one = &claimed[i];
    struct twi_limit_lines *lines = twi_load_acquire(&claim->family->limit_lines); /* S2 */
    if (twi_unlikely(claim->family->engine != engine) || twi_unlikely(lines == NULL) ||
        twi_unlikely(self->shard >= lines->count) ||
        twi_unlikely((((uint64_t)claim->n - 1) | ((uint64_t)claim->limit - 1)) >> 53 != 0) ||
        !hot_holds(one->generation, now_ms))
        return false;
    one->counts = (struct twi_limit_shard *)((char *)lines->shards + self->shard_bytes);
    one->cell = TWI_HOT_OWN(plain_cell)(engine, one->generation, claim->key);
    if (twi_unlikely(one->cell == NULL)) return false;
    if (i > 0 && twi_unlikely(claimed[i - 1].cell == one->cell)) return false; /* they are in order */
    one->word = twi_load_acquire(&one->cell->local);                           /* C2 */
    return twi_likely((one->word & TWI_FROZEN) == 0) && twi_word_value(one->word) + claim->n <= claim->limit;
}

/* Takes the units of claim i. Returns false if they are not there any more, or the counter was frozen. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(take_claim)(tw_engine *engine, struct twi_thread *self, const tw_claim *claim,
                                                     struct hot_claimed *one) {
    uint64_t units = (uint64_t)claim->n << TWI_COUNT_SHIFT;
    while (twi_unlikely(!twi_cas_weak_acqrel(&one->cell->local, &one->word, one->word + units))) {
        twi_contention_detect_acquire(engine, one->generation, one->cell, claim->limit, self);
        if ((one->word & TWI_FROZEN) != 0 || twi_word_value(one->word) + claim->n > claim->limit) return false;
    }
    return true;
}

/* The verdict is that of the claim with the fewest units left. Statistics count after the last compare-and-swap. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(take_all)(const tw_claim *const *claims, size_t count, tw_verdict *verdict) {
    tw_engine *engine = claims[0]->family->engine;
    struct twi_thread *self = twi_thread_self;
    struct hot_claimed claimed[TWI_HOT_ALL_MAX];
    twi_check_dear(count != 0 && count <= TWI_HOT_ALL_MAX);
    if (twi_unlikely(!hot_may_begin_apart(self, engine))) return false;
    twi_section_enter(self);
    for (size_t i = 0; i < count; i++) claimed[i].generation = twi_load_acquire(&claims[i]->family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* after W1 */
    if (now_ms < 0 && !twi_clock_is_young(&engine->clock, &now_ms)) now_ms = twi_clock_renew_ms(&engine->clock);
    for (size_t i = 0; i < count; i++)
        if (!TWI_HOT_OWN(look_at_claim)(engine, self, claims, claimed, i, now_ms)) goto none;
    TWI_RACE_POINT(claims_seen_not_taken);
    size_t least = 0;
    int64_t remaining = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (twi_unlikely(!TWI_HOT_OWN(take_claim)(engine, self, claims[i], &claimed[i]))) {
            hot_put_back(claims, claimed, i);
            goto none;
        }
        int64_t left = claims[i]->limit - twi_word_value(claimed[i].word) - claims[i]->n;
        if (left < remaining) {
            remaining = left;
            least = i;
        }
    }
    int64_t calls = 0;
    for (size_t i = 0; i < count; i++) {
        calls = twi_limit_stats_raise(&claimed[i].counts->admitted);
        int64_t used = twi_word_value(claimed[i].word) + claims[i]->n;
        if (twi_unlikely(twi_limit_is_near_below(used, claims[i]->limit)))
            (void)twi_limit_stats_raise(&claimed[i].counts->near);
    }
    const struct twi_generation *generation = claimed[least].generation;
    int64_t limit = claims[least]->limit;
    twi_verdict_fill_plain(verdict, limit, limit - remaining, generation->start_ms, generation->end_ms, now_ms);
    verdict->claim = (uint16_t)least;
    twi_section_leave(self);
    (void)twi_call_over(engine, calls);
    return true;
none:
    twi_section_leave(self);
    return false;
}

/* See twi_hot_all in decision.h. Two claims, the usual number, have code of their own. */
TWI_HOT_CODE bool TWI_HOT_ALL(const tw_claim *const *claims, size_t count, tw_verdict *verdict) {
    return count == 2 ? TWI_HOT_OWN(take_all)(claims, 2, verdict) : TWI_HOT_OWN(take_all)(claims, count, verdict);
}
