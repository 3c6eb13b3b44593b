/* add_many.c -- tw_add_many() and tw_add_many_at(): many adds with the cache misses of few.
 *
 * An add of a key out of cache waits for memory twice: for its slot and for its cell. In a group of keys these waits
 * overlap. First every key is hashed and its slot prefetched. Then every slot is read and its cell prefetched. Then
 * every add is made, in order, in exactly the same way as by tw_add() (twi_add_call()).
 * Always true: the first two stages only read and prefetch, and make no decision. If there are fewer than GROUP_MIN
 * keys, these stages cost more than they save, and are left out. */
#include "engine/fast/fast.h"

#include "engine/count/api.h"
#include "engine/count/lookup.h"

/* 32 keys, chosen by measurement among 16 to 64. The lines of a stage are far fewer than the L1 cache has. */
#define GROUP TWI_HOT_GROUP_MAX
#define GROUP_MIN 8u

struct staged {
    struct twi_lookup_key lookup;
    _Atomic uint64_t *line; /* the line where the walk begins; NULL means that there is none to look at */
    tw_status status;       /* if it is not TW_OK, the item was refused before any look-up */
};

/* The common data of all items of a call. */
struct many {
    tw_family *family;
    tw_engine *engine;
    const tw_key *keys;
    const int64_t *deltas, *unix_ms;
    int64_t *views;
    tw_status *each;
    tw_status worst;
    struct twi_why why; /* the reason of the worst status, if that is an error */
};

/* Returns the lowest negative status. If there is none, returns the highest positive status, otherwise TW_OK. */
static tw_status worse(tw_status a, tw_status b) {
    if (a < 0 || b < 0) return a < b ? a : b;
    return a > b ? a : b;
}

static void settle_status(struct many *many, tw_status status, struct twi_why why) {
    if (twi_unlikely(status < 0) && status < many->worst) many->why = why;
    many->worst = worse(many->worst, status);
}

static void settle(struct many *many, size_t i, tw_status status, int64_t view) {
    if (many->views != NULL && status >= 0) many->views[i] = view;
    if (many->each != NULL) many->each[i] = status;
    settle_status(many, status, status < 0 ? twi_why_now() : (struct twi_why){0});
}

static void add_one(struct many *many, size_t i) {
    int64_t delta = many->deltas != NULL ? many->deltas[i] : 1, view = 0;
    int64_t *lookup = many->views != NULL ? &view : NULL; /* without a view the stripes need not be added up */
    tw_status status = many->unix_ms != NULL ? tw_add_at(many->family, many->keys[i], delta, many->unix_ms[i], lookup)
                                             : tw_add(many->family, many->keys[i], delta, lookup);
    settle(many, i, status, view);
}

static tw_status check_item(const struct many *many, size_t i) {
    int64_t delta = many->deltas != NULL ? many->deltas[i] : 1;
    if (delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX) return twi_refuse_for(TWI_WHY_DELTA);
    if (many->unix_ms != NULL && !twi_calendar_holds(many->unix_ms[i])) return twi_refuse_for(TWI_WHY_TIME);
    return twi_call_check_key(many->family, many->keys[i]);
}

/* Stage 1 computes the hash, and where the walk along the slots begins. `last` saves another look-up of the same
 * window. */
static void stage_line(const struct many *many, size_t i, int64_t now_ms, struct twi_generation **last,
                       struct staged *staged) {
    staged->line = NULL;
    staged->status = check_item(many, i);
    if (staged->status != TW_OK) return;
    tw_key key = many->keys[i];
    staged->lookup = twi_lookup_key(many->engine->hashing.fn(&many->engine->hashing.secret, key.data, key.size), key);
    int64_t at_ms = many->unix_ms != NULL ? many->unix_ms[i] : now_ms;
    if (*last == NULL || !twi_generation_holds(*last, at_ms)) *last = twi_window_at(many->family, at_ms, false);
    if (*last == NULL || twi_generation_is_packed(*last)) return;
    _Atomic uint64_t *where;
    uint32_t bits, tag = staged->lookup.tag;
    struct twi_arena *arena = &many->engine->arena;
    uint64_t entry = twi_index_descend(arena, &(*last)->root, tag, &where, &bits);
    if (entry == TWI_ENTRY_NONE) return;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    staged->line = twi_leaf_words(leaf, twi_leaf_line(tag, twi_leaf_lines(entry)));
    __builtin_prefetch((void *)(uintptr_t)staged->line, 0);
}

/* Stage 2 prefetches the cell, if the line has the tag of the key. */
static void stage_cell(const struct many *many, const struct staged *staged) {
    if (staged->line == NULL) return;
    uint32_t match = twi_line_look(staged->line, staged->lookup.tag).match;
    if (match == 0) return;
    /* the word may belong to the head of the leaf; it is only used to prefetch */
    uint64_t word = twi_load_relaxed(&staged->line[__builtin_ctz(match)]);
    __builtin_prefetch(twi_arena_at(&many->engine->arena, (uint32_t)word), 1);
}

static void add_staged(struct many *many, struct twi_thread *self, size_t i, const struct staged *staged) {
    int64_t delta = many->deltas != NULL ? many->deltas[i] : 1, view = 0;
    tw_status status = staged->status;
    if (status == TW_OK) {
        struct twi_call call = {.family = many->family, .engine = many->engine, .self = self, .lookup = staged->lookup};
        call.at = many->unix_ms != NULL;
        call.without_sum = many->views == NULL;
        if (call.at) call.unix_ms = many->unix_ms[i];
        status = twi_add_call(&call, delta, &view);
    }
    settle(many, i, status, view);
}

/* Adds a group of plain keys by the clock, in the stages of the fast path. Returns false if no key was added. */
static bool add_hot_group(struct many *many, size_t first, size_t count) {
    tw_status own[GROUP], *status = many->each != NULL ? many->each + first : own;
    tw_family *family = many->family;
    const int64_t *deltas = many->deltas != NULL ? many->deltas + first : NULL;
    int64_t *views = many->views != NULL ? many->views + first : NULL;
    struct twi_why why = {0};
    if (many->unix_ms != NULL || family->kind.hot_group == NULL ||
        !family->kind.hot_group(family, many->keys + first, deltas, count, views, status, &why))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (twi_unlikely(status[i] != TW_OK)) settle_status(many, status[i], why);
    }
    return true;
}

static void add_group(struct many *many, struct twi_thread *self, size_t first, size_t count) {
    struct staged staged[GROUP];
    struct twi_generation *last = NULL;
    twi_section_enter(self); /* one section for the group, so that generations stay while slots are prefetched */
    int64_t now_ms = many->unix_ms != NULL ? 0 : twi_clock_now_ms(&many->engine->clock);
    for (size_t i = 0; i < count; i++) stage_line(many, first + i, now_ms, &last, &staged[i]);
    for (size_t i = 0; i < count; i++) stage_cell(many, &staged[i]);
    for (size_t i = 0; i < count; i++) add_staged(many, self, first + i, &staged[i]);
    twi_section_leave(self);
}

static tw_status add_all(struct many *many, size_t count) {
    size_t done = 0;
    twi_check(many->family != NULL && (count == 0 || many->keys != NULL));
    many->engine = many->family->engine;
    struct twi_thread *self = count >= GROUP_MIN ? twi_thread_here() : NULL;
    bool stages = self != NULL && !many->family->kind.from_first && !many->family->kind.evicts_idle &&
                  !twi_load_relaxed(&many->engine->life.broken) &&
                  (many->unix_ms == NULL || many->family->kind.has_starts);
    while (stages && count - done >= GROUP_MIN) {
        size_t group = count - done < GROUP ? count - done : GROUP;
        twi_call_looks_for(many->engine, self, (uint32_t)group);
        if (!add_hot_group(many, done, group)) add_group(many, self, done, group);
        done += group;
    }
    for (; done < count; done++) add_one(many, done);
    if (twi_unlikely(many->worst < 0)) twi_why_restore(many->why);
    return many->worst;
}

tw_status tw_add_many(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count, int64_t *views,
                      tw_status *each) {
    struct many many = {.family = family, .keys = keys, .deltas = deltas, .views = views, .each = each};
    return add_all(&many, count);
}

tw_status tw_add_many_at(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count,
                         const int64_t *unix_ms, int64_t *views, tw_status *each) {
    struct many many = {
        .family = family, .keys = keys, .deltas = deltas, .unix_ms = unix_ms, .views = views, .each = each};
    if (count != 0) TWI_NEED(unix_ms);
    return add_all(&many, count);
}
