/* acquire_fast.h -- tw_acquire() of an existing key in an open window: the whole path in one function, as add_fast.h
 * does it for tw_add(). Part of the same template: add_fast.h is included before it.
 * Everything but the plain case goes to twi_acquire_slow(), which begins again and handles every case. A striped
 * counter goes to its slices (slice.c).
 * Always true: this path does nothing that twi_acquire_slow() does not do. A count rises by one compare-and-swap from a
 * value that leaves room, and a denied call has only loaded (trap E36). */
#include "engine/count/dirty.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/acquire.h"
#include "engine/limit/overshoot.h"
#include "engine/limit/share.h"
#include "engine/limit/slice.h"

#ifndef TWI_HOT_ACQUIRE
#error "acquire_fast.h is a template: define TWI_HOT_ACQUIRE first"
#endif

#ifndef TWI_HOT_ACQUIRE_ONCE
#define TWI_HOT_ACQUIRE_ONCE

/* Finds a cell that the first look at its primary group has not found. */
__attribute__((noinline)) static struct twi_cell *
hot_find_slow(const tw_engine *engine, struct twi_generation *generation, uint64_t hash, bool synced, tw_key key) {
    struct twi_cell *cell = NULL;
    uint32_t tag = (uint32_t)(hash >> 32);
    if (generation->tag_groups.directory != 0 && hot_key_is_short(key)) {
        struct twi_tag_group group = twi_tag_group_of(generation, (uint32_t)hash);
        cell = hot_find_adjacent(group, tag, synced, key);
    }
    return cell != NULL ? cell : hot_find_anywhere(engine, generation, hash, key);
}

/* The cell of the key, plain or striped; or NULL. */
TWI_INLINE struct twi_cell *hot_find(const tw_engine *engine, struct twi_generation *generation, uint64_t hash,
                                     bool synced, tw_key key) {
    if (twi_likely(generation->tag_groups.directory != 0) && twi_likely(hot_key_is_short(key))) {
        struct twi_tag_group group = twi_tag_group_of(generation, (uint32_t)hash);
        uint32_t match = twi_tag_group_match(group.tags, twi_tag_group_tag((uint32_t)(hash >> 32)));
        if (twi_likely(match != 0)) {
            uint32_t index = group.first + (uint32_t)__builtin_ctz(match);
            struct twi_cell *cell = twi_tag_group_cell(group.records, index, synced);
            if (synced) __builtin_prefetch((char *)cell + ((index & 1) != 0 ? -TWI_LINE_BYTES : TWI_LINE_BYTES));
            if (twi_likely(hot_is_it(cell, key, true, HOT_MAYBE_STRIPED))) return cell;
        }
    }
    return hot_find_slow(engine, generation, hash, synced, key);
}

/* Takes from the stripes of a cell whose local was seen frozen. TWI_AGAIN: it has no stripes, so its window was
 * sealed. */
__attribute__((noinline)) static tw_status hot_take_striped(tw_engine *engine, struct twi_generation *generation,
                                                            struct twi_cell *cell, int64_t n, int64_t limit,
                                                            struct twi_thread *self, struct twi_decision *decision) {
    struct twi_taken taken;
    uint64_t meta = twi_load_acquire(&cell->meta); /* S2 */
    tw_status status = twi_slices_take(cell, meta, n, limit, self, &taken);
    decision->view = taken.used;
    decision->bound = taken.bound;
    if (taken.unlisted) twi_dirty_list(engine, generation, cell, meta);
    return status;
}

/* A soft limit with Redis whose call may have brought more than its count (share.h). */
__attribute__((noinline)) static void hot_share_decided(tw_family *family, struct twi_generation *generation,
                                                        struct twi_cell *cell, int64_t n, int64_t limit,
                                                        tw_status status, struct twi_decision *decision) {
    struct twi_call call = {.family = family, .engine = family->engine};
    struct twi_place place = {.generation = generation, .cell = cell, .meta = twi_load_relaxed(&cell->meta)};
    twi_share_decided(&call, &place, n, limit, status, decision);
    twi_overshoot_check(family, generation, cell, n, decision->view, limit);
}

#endif

/* Takes from the cell; from its stripes, as hot_take_striped(), if it is striped. TW_ERR_RANGE also for cases that the
 * slow path must handle. */
TWI_INLINE tw_status TWI_HOT_OWN(take)(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                       int64_t n, int64_t limit, struct twi_thread *self,
                                       struct twi_decision *decision) {
    int64_t base = TWI_HOT_SYNCED ? twi_load_relaxed(&cell->base) : 0;
    uint64_t word = twi_load_acquire(&cell->local), after; /* C2 */
    for (;;) {
        int64_t value = twi_word_value(word);
        if (twi_unlikely((word & TWI_FROZEN) != 0)) {
            /* a copy: a decision whose address is passed nowhere stays in registers */
            struct twi_decision decided = {0};
            tw_status status = hot_take_striped(engine, generation, cell, n, limit, self, &decided);
            decision->view = decided.view;
            decision->bound = decided.bound;
            return status;
        }
        decision->view = TWI_HOT_SYNCED ? twi_saturated_sum(value, base) : value;
        if (twi_saturated_sum(decision->view, n) > limit) return TW_DENIED;
        if (twi_unlikely(n == 0)) return TW_OK;
        /* only Redis's total leaves room */
        if (TWI_HOT_SYNCED && twi_unlikely(value > TW_DELTA_MAX)) return TW_ERR_RANGE;
        after = (uint64_t)(value + n) << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
        if (twi_likely(twi_cas_weak_acqrel(&cell->local, &word, after))) break;
        twi_contention_detect_acquire(engine, generation, cell, limit, self);
    }
    decision->view += n;
    if (TWI_HOT_SYNCED && twi_unlikely((word & TWI_DIRTY) == 0))
        twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
    return TW_OK;
}

TWI_HOT_CODE tw_status TWI_HOT_ACQUIRE(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!hot_may_begin(self, engine)) || twi_unlikely(key.size - 1 >= TW_KEY_SIZE_MAX) ||
        twi_unlikely(key.data == NULL) || twi_unlikely((uint64_t)n > (uint64_t)TW_DELTA_MAX) ||
        twi_unlikely((uint64_t)limit > (uint64_t)TW_DELTA_MAX))
        return twi_acquire_slow(family, key, n, limit, verdict);
    uint64_t hash = TWI_HOT_HASH(engine, key);
    twi_section_enter(self);
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    if (twi_unlikely(generation == NULL) || twi_unlikely(!twi_generation_holds(generation, now_ms))) goto slow;
    struct twi_cell *cell = hot_find(engine, generation, hash, TWI_HOT_SYNCED, key);
    if (twi_unlikely(cell == NULL)) goto slow;
    struct twi_decision decision = {.start_ms = generation->start_ms, .end_ms = generation->end_ms, .now_ms = now_ms};
    struct twi_share_estimate share = {.most = limit};
    bool shares = TWI_HOT_SYNCED && twi_likely(family->kind.shares);
    if (shares && twi_unlikely(!twi_share_estimate(family, cell, n, limit, &share))) goto slow;
    tw_status status = TWI_HOT_OWN(take)(engine, generation, cell, n, share.most, self, &decision);
    if (twi_unlikely(status == TWI_AGAIN) || twi_unlikely(status < 0)) goto slow;
    if (shares && (twi_unlikely(status != TW_OK) || twi_unlikely(decision.view >= share.no_check_below))) {
        struct twi_decision decided = decision; /* a copy, as in take */
        hot_share_decided(family, generation, cell, n, limit, status, &decided);
        decision = decided;
    } else if (shares) {
        decision.bound = twi_saturated_sum(decision.bound, share.bound);
        decision.has_bound = true;
    }
    if (n != 0) {
        if (status == TW_OK)
            twi_limit_stats_count_admitted(family, self, decision.view, limit);
        else
            twi_limit_stats_count_denied(family, self);
    }
    twi_section_leave(self);
    if (verdict != NULL) twi_verdict_fill(verdict, TWI_HOT_SYNCED, status, n, limit, &decision);
    return status;
slow:
    twi_section_leave(self);
    return twi_acquire_slow(family, key, n, limit, verdict);
}
