/* all_fast.h -- tw_acquire_all() of a few claims on plain counters that all have room: one section, one time, one look
 * at all counters, and then one compare-and-swap for each. It is a part of the same template, and acquire_fast.h is
 * included before it. Families with Redis do not use it.
 * Always true: unless the result is true, no unit stays taken, and no statistic has counted. All claims are looked at
 * before one is taken, so a call that cannot be admitted denies no other one. Units are taken in the order of
 * acquire.c. A window may end between the look and the last compare-and-swap: then its counter is frozen, or the
 * units count in a window that ends in these moments. */
#include "engine/limit/acquire.h"

#ifndef TWI_HOT_ALL
#error "all_fast.h is a template: define TWI_HOT_ALL first"
#endif

#ifndef TWI_HOT_ALL_ONCE
#define TWI_HOT_ALL_ONCE

/* One claim, and what the look has found. */
struct hot_claimed {
    const tw_claim *claim;
    struct twi_generation *generation;
    struct twi_cell *cell;
    struct twi_limit_shard *counts;
    uint64_t word; /* of the cell; after the compare-and-swap the word before that */
};

/* A key in the form that its length needs. */
struct hot_any_key {
    tw_key key;
    TWI_HOT_SHORT_KEY short_key; /* of a short key */
    uint64_t hash;
};

/* Puts claims in the order of acquire.c. */
static __attribute__((noinline)) void hot_put_in_order(struct hot_claimed *claimed, size_t count) {
    for (size_t i = 1; i < count; i++) {
        const struct hot_claimed one = {.claim = claimed[i].claim, .generation = claimed[i].generation};
        size_t at = i;
        for (; at > 0 && twi_claim_comes_before(one.claim, claimed[at - 1].claim); at--) {
            claimed[at].claim = claimed[at - 1].claim;
            claimed[at].generation = claimed[at - 1].generation;
        }
        claimed[at].claim = one.claim;
        claimed[at].generation = one.generation;
    }
}

/* Puts back the units of a claim. They leave the same word, whatever it counts by now. A word that was frozen meanwhile
 * has stripes, or its window has ended. The caller is inside a short section. */
static TWI_COLD void hot_put_back(struct twi_thread *self, struct hot_claimed one) {
    uint64_t word = twi_load_acquire(&one.cell->local); /* C2 */
    uint64_t units = (uint64_t)one.claim->n << TWI_COUNT_SHIFT;
    while ((word & TWI_FROZEN) == 0 && !twi_cas_weak_acqrel(&one.cell->local, &word, word - units)) continue;
    if ((word & TWI_FROZEN) == 0) return;
    tw_family *family = one.claim->family;
    self->depth++; /* the callee enters a section */
    (void)family->kind.limit->undo(family, one.claim->key, one.claim->n, one.claim->limit, one.generation->start_ms);
    self->depth--;
}

/* Takes the units of a claim whose word has changed since the look. Returns the word before, or a frozen one if the
 * units are not there any more, or the counter was frozen. Another claim of the call may have changed the word. The
 * caller is inside a short section. */
static TWI_COLD uint64_t hot_take_changed(tw_engine *engine, struct twi_thread *self, struct hot_claimed one,
                                          bool is_alone) {
    const tw_claim *claim = one.claim;
    self->depth++; /* a callee may enter a section */
    do {
        if (is_alone) twi_contention_detect_acquire(engine, one.generation, one.cell, claim->limit, self);
        one.word = twi_load_acquire(&one.cell->local); /* C2 */
        if ((one.word & TWI_FROZEN) != 0 || twi_word_value(one.word) + claim->n > claim->limit) one.word = TWI_FROZEN;
    } while (one.word != TWI_FROZEN &&
             !twi_cas_weak_acqrel(&one.cell->local, &one.word, one.word + ((uint64_t)claim->n << TWI_COUNT_SHIFT)));
    self->depth--;
    return one.word;
}

/* Returns true if the thread may make a call that is no add, in a short section if it is *outermost. */
TWI_INLINE bool hot_may_begin_short(struct twi_thread *self, const tw_engine *engine, bool *outermost) {
    *outermost = true;
    if (twi_likely(twi_thread_is_plain(self))) return twi_likely(!twi_load_relaxed(&engine->life.gate));
    if (!hot_may_begin_apart(self, engine)) return false;
    *outermost = self->depth == 0;
    return true;
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

/* Returns false if the fast functions do not handle such a key. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(read_key)(const tw_engine *engine, tw_key key, struct hot_any_key *any) {
    any->key = key;
    if (twi_unlikely(key.data == NULL)) return false;
    if (twi_likely(hot_key_is_short(key))) {
        any->short_key = TWI_HOT_SHORT_OF(key);
        any->hash = TWI_HOT_SHORT_HASH(engine, any->short_key, key);
        return true;
    }
    if (twi_unlikely(key.size - TWI_KEY_INLINE - 1 >= TW_KEY_SIZE_MAX - TWI_KEY_INLINE)) return false;
    any->short_key = (TWI_HOT_SHORT_KEY){0};
    any->hash = TWI_HOT_LONG_HASH(engine, key);
    return true;
}

/* Returns the plain cell of the key, or NULL. */
TWI_HOT_CODE TWI_INLINE struct twi_cell *
TWI_HOT_OWN(plain_cell)(const tw_engine *engine, struct twi_generation *generation, struct hot_any_key *any) {
    struct twi_cell *cell = twi_likely(hot_key_is_short(any->key))
                                ? TWI_HOT_OWN(cell_in_line)(engine, generation, any->key, &any->short_key, any->hash)
                                : TWI_HOT_OWN(cell_in_line)(engine, generation, any->key, NULL, any->hash);
    if (twi_likely(cell != NULL)) return cell;
    cell = hot_find_slow(engine, generation, any->hash, any->key);
    return cell != NULL && !hot_is_striped(cell) ? cell : NULL;
}

/* Looks at the counter of a claim. Returns false if the claim is not for this function, or its counter is not plain or
 * has no room. In shadow mode, and for another kind of limit, hot_acquire is another function. *any is the key of the
 * claim before, which often is this one. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(look_at_claim)(const tw_engine *engine, const struct twi_thread *self,
                                                        int64_t now_ms, struct hot_any_key *any,
                                                        struct hot_claimed *one) {
    const tw_claim *claim = one->claim;
    const tw_family *family = claim->family;
    one->counts = twi_limit_stats_line(family, self);
    if (twi_unlikely(twi_load_relaxed(&family->kind.hot_acquire) != TWI_HOT_ACQUIRE) ||
        twi_unlikely(family->engine != engine) || twi_unlikely(one->counts == NULL) ||
        !hot_holds(one->generation, now_ms))
        return false;
    if ((claim->key.data != any->key.data || claim->key.size != any->key.size) &&
        twi_unlikely(!TWI_HOT_OWN(read_key)(engine, claim->key, any)))
        return false;
    one->cell = TWI_HOT_OWN(plain_cell)(engine, one->generation, any);
    if (twi_unlikely(one->cell == NULL)) return false;
    one->word = twi_load_acquire(&one->cell->local); /* C2 */
    return twi_likely((one->word & TWI_FROZEN) == 0) && twi_word_value(one->word) + claim->n <= claim->limit;
}

/* Takes the units of a claim, if the word is still that of the look. */
TWI_INLINE bool TWI_HOT_OWN(take_claim)(const struct hot_claimed *one) {
    uint64_t word = one->word;
    return twi_likely(
        twi_cas_weak_acqrel(&one->cell->local, &word, word + ((uint64_t)one->claim->n << TWI_COUNT_SHIFT)));
}

/* Counts an admitted claim. Returns how many units are left. *calls becomes the new count. */
TWI_INLINE int64_t TWI_HOT_OWN(count_claim)(const struct hot_claimed *one, int64_t *calls) {
    int64_t limit = one->claim->limit, used = twi_word_value(one->word) + one->claim->n;
    *calls = twi_limit_stats_raise(&one->counts->admitted);
    if (twi_unlikely(twi_limit_is_near_below(used, limit))) (void)twi_limit_stats_raise(&one->counts->near);
    return limit - used;
}

/* Returns a time after the windows were loaded. */
TWI_INLINE int64_t TWI_HOT_OWN(time_of_claims)(tw_engine *engine) {
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock);
    if (now_ms < 0 && !twi_clock_is_young(&engine->clock, &now_ms)) now_ms = twi_clock_renew_ms(&engine->clock);
    return now_ms;
}

TWI_INLINE void TWI_HOT_OWN(fill_for)(const tw_claim *claim, const struct twi_generation *generation, int64_t left,
                                      int64_t now_ms, const tw_claim *claims, tw_verdict *verdict) {
    if (twi_unlikely(verdict == NULL)) return;
    twi_verdict_fill_plain(verdict, claim->limit, claim->limit - left, generation->start_ms, generation->end_ms,
                           now_ms);
    verdict->claim = (uint16_t)(claim - claims);
}

/* Two claims, the usual number: all that is known of them is in variables. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(take_two)(tw_engine *engine, struct twi_thread *self, const tw_claim *claims,
                                                   tw_verdict *verdict, int64_t *calls) {
    uint64_t bits = ((uint64_t)claims[0].n - 1) | ((uint64_t)claims[0].limit - 1) | ((uint64_t)claims[1].n - 1) |
                    ((uint64_t)claims[1].limit - 1);
    if (twi_unlikely(bits >> 53 != 0)) return false; /* acquire_is_plain */
    bool is_turned = twi_claim_comes_before(&claims[1], &claims[0]);
    struct hot_claimed one = {.claim = &claims[is_turned]}, two = {.claim = &claims[!is_turned]};
    one.generation = twi_load_acquire(&one.claim->family->current); /* W1 */
    two.generation = twi_load_acquire(&two.claim->family->current); /* W1 */
    int64_t now_ms = TWI_HOT_OWN(time_of_claims)(engine);
    struct hot_any_key key = {.key = one.claim->key};
    if (twi_unlikely(!TWI_HOT_OWN(read_key)(engine, key.key, &key)) ||
        !TWI_HOT_OWN(look_at_claim)(engine, self, now_ms, &key, &one) ||
        !TWI_HOT_OWN(look_at_claim)(engine, self, now_ms, &key, &two))
        return false;
    TWI_RACE_POINT(claims_seen_not_taken);
    if (!TWI_HOT_OWN(take_claim)(&one)) {
        one.word = hot_take_changed(engine, self, one, true);
        if ((one.word & TWI_FROZEN) != 0) return false;
    }
    if (!TWI_HOT_OWN(take_claim)(&two)) {
        two.word = hot_take_changed(engine, self, two, one.cell != two.cell);
        if ((two.word & TWI_FROZEN) != 0) {
            hot_put_back(self, one);
            return false;
        }
    }
    int64_t left = TWI_HOT_OWN(count_claim)(&one, calls), left_two = TWI_HOT_OWN(count_claim)(&two, calls);
    if (left_two < left)
        TWI_HOT_OWN(fill_for)(two.claim, two.generation, left_two, now_ms, claims, verdict);
    else
        TWI_HOT_OWN(fill_for)(one.claim, one.generation, left, now_ms, claims, verdict);
    return true;
}

/* Any other number. */
TWI_HOT_CODE TWI_INLINE bool TWI_HOT_OWN(take_all)(tw_engine *engine, struct twi_thread *self, const tw_claim *claims,
                                                   size_t count, tw_verdict *verdict, int64_t *calls) {
    struct hot_claimed claimed[TWI_HOT_ALL_MAX], *const end = claimed + count, *one;
    bool rises = true;
    uint64_t bits = 0;
    uintptr_t family = 0;
    for (one = claimed; one != end; one++, claims++) {
        one->claim = claims;
        one->generation = twi_load_acquire(&claims->family->current); /* W1 */
        bits |= ((uint64_t)claims->n - 1) | ((uint64_t)claims->limit - 1);
        if ((uintptr_t)claims->family <= family) rises = false; /* the order may be another one */
        family = (uintptr_t)claims->family;
    }
    if (twi_unlikely(bits >> 53 != 0)) return false; /* acquire_is_plain */
    claims -= count;
    if (!rises) hot_put_in_order(claimed, count);
    int64_t now_ms = TWI_HOT_OWN(time_of_claims)(engine);
    struct hot_any_key key;
    if (twi_unlikely(!TWI_HOT_OWN(read_key)(engine, claimed->claim->key, &key))) return false;
    for (one = claimed; one != end; one++)
        if (!TWI_HOT_OWN(look_at_claim)(engine, self, now_ms, &key, one)) return false;
    TWI_RACE_POINT(claims_seen_not_taken);
    for (one = claimed; one != end; one++) {
        if (TWI_HOT_OWN(take_claim)(one)) continue;
        one->word = hot_take_changed(engine, self, *one, one == claimed || one[-1].cell != one->cell);
        if ((one->word & TWI_FROZEN) == 0) continue;
        while (one != claimed) hot_put_back(self, *--one);
        return false;
    }
    const struct hot_claimed *fewest = claimed;
    int64_t least = TWI_HOT_OWN(count_claim)(claimed, calls);
    for (one = claimed + 1; one < end; one++) {
        int64_t left = TWI_HOT_OWN(count_claim)(one, calls);
        if (left >= least) continue;
        least = left;
        fewest = one;
    }
    TWI_HOT_OWN(fill_for)(fewest->claim, fewest->generation, least, now_ms, claims, verdict);
    return true;
}

/* See twi_hot_all in decision.h. */
TWI_HOT_CODE bool TWI_HOT_ALL(const tw_claim *claims, size_t count, tw_verdict *verdict) {
    tw_engine *engine = claims[0].family->engine;
    struct twi_thread *self = twi_thread_self;
    twi_check_dear(count != 0 && count <= TWI_HOT_ALL_MAX);
    bool outermost;
    int64_t calls = 0;
    if (twi_unlikely(!hot_may_begin_short(self, engine, &outermost))) return false;
    if (twi_likely(outermost)) twi_section_enter_first(self);
    bool is_taken = count == 2 ? TWI_HOT_OWN(take_two)(engine, self, claims, verdict, &calls)
                               : TWI_HOT_OWN(take_all)(engine, self, claims, count, verdict, &calls);
    twi_section_leave_short(self, outermost);
    if (twi_likely(is_taken)) (void)twi_call_over(engine, calls);
    return is_taken;
}

/* Finds the cell of a known key in the table of a family's slots (reserve/hold_shared.c). See twi_hot_cell in
 * decision.h. A cell that it returns is published, as those of twi_table_find() after twi_cell_publish(). */
TWI_HOT_CODE struct twi_cell *TWI_HOT_CELL(const tw_engine *engine, struct twi_generation *table, tw_key key,
                                           uint64_t *hash) {
    struct hot_any_key any;
    if (twi_unlikely(!TWI_HOT_OWN(read_key)(engine, key, &any))) return NULL;
    *hash = any.hash;
    return TWI_HOT_OWN(plain_cell)(engine, table, &any);
}
