/* add_fast.h -- tw_add() of an existing key in an open window. The whole path is one function, with all state in
 * registers. It is a template. fast_aes.c and fast_portable.c include it with their hash, for families with Redis and
 * for families without.
 *
 * There are four levels:
 *   - add_short handles keys of 4 to 32 bytes, and add_long handles longer keys, if they are found in the line of slots
 *     where their walk begins (index.h). They call no function on these paths.
 *   - look_in_index handles every key that is not found there, including striped and new keys. It continues in the
 *     section and with the window of its caller. The caller has read the clock after it found the window.
 *   - add_timed is for calls that must read the clock, because no thread keeps the time for them.
 *   - insert makes the record of a new key at the place where that look-up ended. It needs that order.
 *   - twi_add_slow() begins again and handles all other cases: a closed leaf, a frozen cell, an edge of the range, a
 *     TW_WINDOW_FROM_FIRST family, a stopped engine, a forked child.
 * The first level exists twice: for threads that are outside of any section, and for threads inside of one, which have
 * less to do. A striped counter goes to stripe.c, which is as short.
 * Always true: this path does only what twi_add_slow() also does, in the same order and under the same labels. */
#include "engine/count/api.h"
#include "engine/count/dirty.h"
#include "engine/count/lookup.h"
#include "engine/fast/fast.h"
#include "engine/table/index.h"
#include "engine/table/stripe.h"

#ifndef TWI_HOT_NAME
#error "add_fast.h is a template: define TWI_HOT_NAME, _GROUP, _ACQUIRE, _OWN, _SYNCED, _CODE and _HASH first"
#endif

#ifndef TWI_HOT_ONCE
#define TWI_HOT_ONCE

/* Returns true for keys that are compared without a call. Saving registers for a call would make all keys slower. */
TWI_INLINE bool hot_key_is_short(tw_key key) {
    return key.size - 4 <= TWI_KEY_INLINE - 4;
}

/* Returns true for a published cell of that key in no rare state. `rare` decides whether the cell may be striped. */
#define HOT_NOT_STRIPED TWI_META_STRIPED
#define HOT_MAYBE_STRIPED UINT64_C(0)
TWI_INLINE bool hot_may_be(struct twi_cell *cell, size_t key_size, uint64_t rare) {
    const uint32_t plain = (uint32_t)(TWI_META_SIZE | TWI_META_INCARNATION | TWI_META_PUBLISHED | TWI_META_EDGE | rare);
    uint32_t meta = (uint32_t)twi_load_relaxed(&cell->meta); /* complete, by T5 */
    return twi_likely(((meta ^ (uint32_t)key_size) & plain) == (uint32_t)TWI_META_PUBLISHED);
}
TWI_INLINE bool hot_is_it(struct twi_cell *cell, tw_key key, bool is_short, uint64_t rare) {
    if (!hot_may_be(cell, key.size, rare)) return false;
    return is_short ? twi_key_equal_short(cell->key, key.data, key.size) : twi_key_equal(cell->key, key.data, key.size);
}

/* The line where the walk of a key begins. */
struct hot_line {
    _Atomic uint64_t *words;
    size_t number; /* in its leaf */
};
/* Continues below the second node. It begins again at the root, so that the usual case keeps no value for this case. */
TWI_INLINE uint64_t hot_entry_below(const struct twi_arena *arena, struct twi_generation *generation, uint64_t hash) {
    _Atomic uint64_t *where;
    uint32_t bits;
    return twi_index_follow(arena, &generation->root, hash, &where, &bits);
}

TWI_INLINE struct hot_line hot_line_of(const struct twi_arena *arena, struct twi_generation *generation,
                                       uint64_t hash) {
    uint64_t entry = twi_load_acquire(&generation->root); /* T7 */
    if (twi_likely(twi_entry_is_node(entry))) {
        struct twi_node *node = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
        uint32_t shift = twi_node_shift(entry);
        entry = twi_load_acquire(&node->entries[hash >> shift]); /* T7 */
        if (twi_entry_is_node(entry)) entry = hot_entry_below(arena, generation, hash);
    }
    uint64_t number = (hash & entry) >> 32; /* twi_leaf_line() */
    return (struct hot_line){
        (_Atomic uint64_t *)(void *)(arena->base + (TWI_ENTRY_LINE(entry) + number) * TWI_LINE_BYTES), number};
}

/* Returns the first slot of the line that has the key's tag. Returns 0 if no slot has it; then twi_leaf_find() decides.
 * The slot may be vacant, if the tag is 0. Such a slot names a line of the arena that is never a cell. */
TWI_INLINE uint64_t hot_line_first(struct hot_line line, uint64_t hash) {
    size_t twice;
    if (twi_unlikely(!twi_line_shows(line.words, hash, &twice))) return 0;
    /* the word may belong to the head of the leaf; in any other line the first term is larger */
    if (twi_unlikely(line.number * TWI_LINE_WORDS + twice < 2 * TWI_LEAF_HEAD_WORDS)) return 0;
    return twi_load_acquire((_Atomic uint64_t *)(void *)((char *)line.words + twice * (sizeof(uint64_t) / 2))); /* T5 */
}
static_assert(2 * TWI_LEAF_HEAD_WORDS <= TWI_LINE_WORDS, "see above");

/* Returns the record that a slot names. For a long key, all lines of the record are prefetched at once. */
TWI_INLINE struct twi_cell *hot_cell_at(const struct twi_arena *arena, uint64_t slot, bool is_long) {
    struct twi_cell *cell = twi_arena_at(arena, (uint32_t)slot);
    if (is_long) __builtin_prefetch(cell + 1);
    return cell;
}

/* The place where a key that is absent must go. */
struct hot_end {
    struct twi_leaf *leaf; /* NULL means that the key may exist, or that its leaf is closed */
    uint32_t at;
};

/* Returns the plain or striped cell of the key, found by the index without meeting the end of a closed leaf.
 * Otherwise returns NULL and fills *end. */
TWI_INLINE struct twi_cell *hot_find_by_index(const struct twi_arena *arena, struct twi_generation *generation,
                                              uint64_t hash, tw_key key, struct hot_end *end) {
    _Atomic uint64_t *where;
    uint32_t bits, at;
    uint64_t entry = twi_index_follow(arena, &generation->root, hash, &where, &bits), stop;
    struct twi_lookup_key lookup = twi_lookup_key(hash, key);
    *end = (struct hot_end){0};
    if (twi_unlikely(entry == TWI_ENTRY_NONE)) return NULL;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    __builtin_prefetch(leaf, 1); /* an insert also reads the head, so that both waits overlap */
    struct twi_cell *cell = twi_leaf_find(arena, entry, &lookup, &stop, &at);
    if (cell != NULL) return hot_may_be(cell, key.size, HOT_MAYBE_STRIPED) ? cell : NULL;
    if (stop == TWI_SLOT_EMPTY) *end = (struct hot_end){leaf, at};
    return NULL;
}

TWI_INLINE bool hot_is_striped(struct twi_cell *cell) {
    return twi_unlikely((twi_load_relaxed(&cell->meta) & TWI_META_STRIPED) != 0);
}

/* Returns true if an add without a view must be sampled for contention (dirty.h). */
TWI_INLINE bool hot_is_sampled(const tw_engine *engine, const struct twi_thread *self, const struct twi_cell *cell) {
    return twi_unlikely(cell == self->sampled) ||
           twi_unlikely((twi_load_relaxed(&engine->shards[self->shard].increments) & (TWI_CONTENTION_EVERY - 1)) == 0);
}

/* Returns true if the thread is registered in this process, and the engine is running. */
TWI_INLINE bool hot_may_begin(const struct twi_thread *self, const tw_engine *engine) {
    return twi_likely(self->mark == TWI_THREAD_MARK) && twi_likely(!twi_load_relaxed(&engine->life.gate));
}

/* The same for a call that is no add. It ends a row of inserts, and of adds to one counter. */
TWI_INLINE bool hot_may_begin_apart(struct twi_thread *self, const tw_engine *engine) {
    if (!hot_may_begin(self, engine)) return false;
    self->inserts = 0;
    self->repeats = 0;
    return true;
}

/* Returns true if the window that was loaded as `current` (W1) contains a time that was loaded after it. The window has
 * begun, because engine time had reached it when it became `current`. A negative time is in no window. */
TWI_INLINE bool hot_holds(const struct twi_generation *generation, int64_t now_ms) {
    twi_check_dear(now_ms < 0 || generation->end_ms == 0 || now_ms >= generation->start_ms);
    return twi_likely((uint64_t)now_ms < (uint64_t)generation->end_ms);
}
/* The same, where the word alone does not give the time, but is young. */
TWI_INLINE bool hot_holds_young(const tw_engine *engine, const struct twi_generation *generation, int64_t *now_ms) {
    return twi_likely(twi_clock_is_young(&engine->clock, now_ms)) && hot_holds(generation, *now_ms);
}

/* In which section a fast function works. */
enum hot_section {
    HOT_OUTSIDE, /* the thread is in no section and did not just insert a key, so this opens a short section */
    HOT_INSIDE   /* the thread is between tw_enter() and tw_leave(), or in a visitor */
};
TWI_INLINE bool hot_may_go_on(const struct twi_thread *self, const tw_engine *engine, enum hot_section section) {
    if (section == HOT_INSIDE) return hot_may_begin(self, engine);
    return twi_likely(twi_thread_is_plain(self)) && twi_likely(!twi_load_relaxed(&engine->life.gate));
}
TWI_INLINE void hot_enter(struct twi_thread *self, enum hot_section section) {
    if (section == HOT_OUTSIDE) twi_section_enter_first(self);
}
TWI_INLINE void hot_leave(struct twi_thread *self, enum hot_section section) {
    if (section == HOT_OUTSIDE) twi_section_leave_first(self);
}

/* Ends an add in the same way as twi_call_over(). One add in so many looks at the clock. After some of these looks the
 * thread checks whether its next adds go to the same counter (repeat_fast.h). */
#define HOT_REPEATS_BEGIN 5u
#define HOT_REPEATS_EVERY 1024
static TWI_COLD tw_status hot_look(tw_engine *engine, int64_t calls) {
    struct twi_thread *self = twi_thread_self;
    if ((calls & (HOT_REPEATS_EVERY - 1)) == 0 && self->repeats == 0) self->repeats = HOT_REPEATS_BEGIN;
    return twi_call_look(engine, calls);
}
TWI_INLINE tw_status hot_over(tw_engine *engine, int64_t calls) {
    return twi_likely((calls & (TWI_CLOCK_LOOK_EVERY - 1)) != 0) ? TW_OK : hot_look(engine, calls);
}

#endif

TWI_INLINE int64_t TWI_HOT_OWN(view)(struct twi_cell *cell, int64_t delta, uint64_t before) {
    int64_t value = twi_word_value(before) + delta;
    return TWI_HOT_SYNCED ? twi_saturated_sum(value, twi_load_relaxed(&cell->base)) : value;
}

/* Called for the first add since the last collection. Marks the counter. The caller is inside a section, and this
 * function leaves it. */
static TWI_COLD tw_status TWI_HOT_OWN(mark)(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                            int64_t seen, int64_t *view) {
    struct twi_thread *self = twi_thread_self;
    twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
    int64_t calls = twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return twi_call_over(engine, calls);
}

/* Called after an add without a view has counted. It samples whether other threads have added since then. The caller
 * is inside a section, and this function leaves it. */
static TWI_COLD tw_status TWI_HOT_OWN(sample)(tw_engine *engine, struct twi_generation *generation,
                                              struct twi_cell *cell, int64_t delta, uint64_t before) {
    struct twi_thread *self = twi_thread_self;
    twi_contention_detect_add(engine, generation, cell, twi_word_value(before), delta, self);
    if (TWI_HOT_SYNCED && (before & TWI_DIRTY) == 0)
        twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
    int64_t calls = twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    return hot_over(engine, calls);
}

/* Adds to a striped cell. The caller is inside a section, and this function leaves it. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(striped)(tw_key key, int64_t delta, int64_t *view,
                                                                struct twi_generation *generation,
                                                                struct twi_cell *cell) {
    tw_family *family = generation->family;
    struct twi_thread *self = twi_thread_self;
    struct twi_counted counted;
    if (TWI_HOT_SYNCED) twi_dirty_begin(self, family->engine, generation, cell);
    bool added = twi_stripes_add_anew(cell, delta, view != NULL, self, &counted) == TWI_ADDED;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    if (TWI_HOT_SYNCED && added) twi_contention_mark(family->engine, generation, cell, meta, &counted);
    if (TWI_HOT_SYNCED) twi_dirty_end(self);
    if (twi_unlikely(!added)) {
        twi_section_leave(self);
        return twi_add_slow(family, key, delta, view);
    }
    if (view != NULL) *view = twi_view_of(cell, meta, counted.local);
    int64_t calls = twi_count_increments(family->engine, self, 1);
    twi_section_leave(self);
    return twi_call_over(family->engine, calls);
}

/* Adds to a cell of any kind. The caller is inside a section, and this function leaves it. */
TWI_INLINE tw_status TWI_HOT_OWN(count)(tw_engine *engine, struct twi_thread *self, struct twi_generation *generation,
                                        struct twi_cell *cell, tw_key key, int64_t delta, int64_t *view,
                                        uint64_t hash) {
    tw_family *family = generation->family;
    uint64_t before;
    if (hot_is_striped(cell)) return TWI_HOT_OWN(striped)(key, delta, view, generation, cell);
    if (twi_unlikely(!twi_cell_count(cell, delta, &before))) {
        twi_section_leave(self);
        return twi_add_hashed(family, key, delta, view, hash);
    }
    int64_t seen = TWI_HOT_OWN(view)(cell, delta, before);
    if (view == NULL && hot_is_sampled(engine, self, cell))
        return TWI_HOT_OWN(sample)(engine, generation, cell, delta, before);
    if (TWI_HOT_SYNCED && twi_unlikely((before & TWI_DIRTY) == 0))
        return TWI_HOT_OWN(mark)(engine, generation, cell, seen, view);
    int64_t calls = twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return hot_over(engine, calls);
}

/* Inserts a key that is not in this window, wherever it must go. The caller is inside a section, and this function
 * leaves it. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(insert_anywhere)(struct twi_generation *generation, tw_key key,
                                                                        int64_t delta, int64_t *view, uint64_t hash,
                                                                        struct twi_cell *made) {
    tw_family *family = generation->family;
    struct twi_thread *self = twi_thread_self;
    struct twi_insert insert = {.arena = &family->engine->arena,
                                .generation = generation,
                                .self = self,
                                .lookup = twi_lookup_key(hash, key),
                                .first_delta = delta,
                                .vacancy.made = made};
    int64_t seen;
    if (twi_unlikely(!twi_add_new(&insert, &seen))) {
        twi_section_leave(self);
        return twi_add_hashed(family, key, delta, view, hash);
    }
    int64_t calls = twi_count_increments(family->engine, self, 1);
    twi_section_leave(self);
    if (view != NULL) *view = seen;
    return twi_call_over(family->engine, calls);
}

/* Inserts a key that is not in this window, at the place where its look-up ended, if that is possible. The caller is
 * inside a section, and this function leaves it. */
TWI_INLINE tw_status TWI_HOT_OWN(insert)(struct twi_insert insert, int64_t *view, uint64_t hash) {
    struct twi_generation *generation = insert.generation;
    tw_family *family = generation->family;
    struct twi_cell *cell = NULL;
    TWI_RACE_POINT(absent_not_inserted);
    if (twi_likely(!family->kind.checks_keys) && twi_likely(!twi_generation_is_packed(generation)))
        cell = twi_insert_at_vacancy(&insert, TWI_HOT_SYNCED);
    if (twi_unlikely(cell == NULL))
        return TWI_HOT_OWN(insert_anywhere)(generation, insert.lookup.key, insert.first_delta, view, hash,
                                            insert.vacancy.made);
    if (TWI_HOT_SYNCED) twi_dirty_mark(family->engine, generation, cell, twi_load_relaxed(&cell->meta));
    int64_t seen = TWI_HOT_OWN(view)(cell, insert.first_delta, 0);
    int64_t calls = twi_count_increments(family->engine, insert.self, 1);
    twi_section_leave(insert.self);
    if (view != NULL) *view = seen;
    return twi_call_over(family->engine, calls);
}

/* For any key. The caller is inside a section, which this function leaves, and in a window that contained the
 * clock's moment. The clock was read after the window was found. */
__attribute__((noinline)) static tw_status TWI_HOT_OWN(look_in_index)(struct twi_generation *generation, tw_key key,
                                                                      int64_t delta, int64_t *view, uint64_t hash) {
    tw_engine *engine = generation->family->engine;
    struct twi_thread *self = twi_thread_self;
    struct hot_end end;
    struct twi_cell *cell = hot_find_by_index(&engine->arena, generation, hash, key, &end);
    self->inserts = cell == NULL;
    if (cell != NULL) return TWI_HOT_OWN(count)(engine, self, generation, cell, key, delta, view, hash);
    struct twi_insert insert = {.arena = &engine->arena,
                                .generation = generation,
                                .self = self,
                                .lookup = twi_lookup_key(hash, key),
                                .first_delta = delta,
                                .vacancy = {.leaf = end.leaf, .at = end.at}};
    return TWI_HOT_OWN(insert)(insert, view, hash);
}

/* For a key that is probably new, or a thread that is inside a section. It reads the clock if the word gives no
 * time. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(begin_new)(tw_family *family, tw_key key,
                                                                               int64_t delta, int64_t *view) {
    struct twi_thread *self = twi_thread_self;
    uint64_t hash = TWI_HOT_HASH(family->engine, key);
    twi_section_enter(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_found_not_inserted);
    if (twi_generation_holds(generation, twi_clock_now_ms(&family->engine->clock)))
        return TWI_HOT_OWN(look_in_index)(generation, key, delta, view, hash);
    twi_section_leave(self);
    return twi_add_hashed(family, key, delta, view, hash);
}

TWI_HOT_CODE static tw_status TWI_HOT_OWN(not_plain)(tw_family *family, tw_key key, int64_t delta, int64_t *view,
                                                     enum hot_section section);
TWI_HOT_CODE static tw_status TWI_HOT_OWN(add_repeated)(tw_family *family, tw_key key, int64_t delta, int64_t *view);

/* Called when an add has counted near an edge of the range, which must be noted. It leaves the caller's section. */
static TWI_COLD tw_status TWI_HOT_OWN(at_edge)(struct twi_generation *generation, struct twi_cell *cell, int64_t delta,
                                               uint64_t before, int64_t *view) {
    struct twi_thread *self = twi_thread_self;
    (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    if (TWI_HOT_SYNCED && (before & TWI_DIRTY) == 0)
        twi_dirty_mark(generation->family->engine, generation, cell, twi_load_relaxed(&cell->meta));
    if (view != NULL) *view = TWI_HOT_OWN(view)(cell, delta, before);
    tw_engine *engine = generation->family->engine;
    int64_t calls = twi_count_increments(engine, self, 1);
    twi_section_leave(self);
    return twi_call_over(engine, calls);
}
/* Called if the window was sealed meanwhile, so the add has not counted. The caller is inside a section, and this
 * function leaves it. */
static TWI_COLD tw_status TWI_HOT_OWN(decide_again)(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    twi_section_leave(twi_thread_self);
    return twi_add_slow(family, key, delta, view);
}

/* Called when an add to a plain cell has counted. The caller is inside a section, and this function leaves it. */
TWI_INLINE tw_status TWI_HOT_OWN(counted)(tw_engine *engine, struct twi_thread *self, enum hot_section section,
                                          struct twi_generation *generation, struct twi_cell *cell, int64_t delta,
                                          int64_t *view, uint64_t before) {
    if (twi_unlikely(view == NULL) && hot_is_sampled(engine, self, cell)) {
        self->depth++; /* the callee leaves by twi_section_leave() */
        return TWI_HOT_OWN(sample)(engine, generation, cell, delta, before);
    }
    if (TWI_HOT_SYNCED && twi_unlikely((before & TWI_DIRTY) == 0)) {
        self->depth++;
        return TWI_HOT_OWN(mark)(engine, generation, cell, TWI_HOT_OWN(view)(cell, delta, before), view);
    }
    if (twi_likely(view != NULL)) *view = TWI_HOT_OWN(view)(cell, delta, before);
    int64_t calls = twi_count_increments(engine, self, 1);
    hot_leave(self, section);
    return hot_over(engine, calls);
}

/* Counts in a plain cell. The caller is inside a section, and this function leaves it. */
TWI_INLINE tw_status TWI_HOT_OWN(count_plain)(tw_engine *engine, struct twi_thread *self, enum hot_section section,
                                              struct twi_generation *generation, struct twi_cell *cell, tw_key key,
                                              int64_t delta, int64_t *view) {
    uint64_t before;
    if (twi_likely(twi_cell_count_plain(cell, delta, &before)))
        return TWI_HOT_OWN(counted)(engine, self, section, generation, cell, delta, view, before);
    self->depth++; /* the callees leave by twi_section_leave() */
    if ((before & TWI_FROZEN) == 0) return TWI_HOT_OWN(at_edge)(generation, cell, delta, before, view);
    return TWI_HOT_OWN(decide_again)(generation->family, key, delta, view);
}

/* For a key that its line does not show, or whose counter is striped. `cell` is the cell that the line shows. It hashes
 * the key again, so that the caller need not keep the values for this case. It leaves the section of the caller. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(not_shown)(struct twi_generation *generation,
                                                                               tw_key key, int64_t delta, int64_t *view,
                                                                               struct twi_cell *cell) {
    if (hot_is_it(cell, key, false, HOT_MAYBE_STRIPED) && hot_is_striped(cell))
        return TWI_HOT_OWN(striped)(key, delta, view, generation, cell);
    uint64_t hash = TWI_HOT_HASH(generation->family->engine, key);
    return TWI_HOT_OWN(look_in_index)(generation, key, delta, view, hash);
}

/* Adds to the cell that the first line of the key's walk shows. It leaves the section of the caller. */
TWI_HOT_CODE TWI_INLINE tw_status TWI_HOT_OWN(add_by_line)(tw_engine *engine, struct twi_thread *self,
                                                           enum hot_section section, struct twi_generation *generation,
                                                           tw_key key, TWI_HOT_SHORT_KEY *short_key, int64_t delta,
                                                           int64_t *view, uint64_t hash) {
    uint64_t slot = hot_line_first(hot_line_of(&engine->arena, generation, hash), hash);
    struct twi_cell *cell = hot_cell_at(&engine->arena, slot, short_key == NULL);
    if (hot_may_be(cell, key.size, HOT_NOT_STRIPED) &&
        twi_likely(short_key == NULL ? TWI_HOT_LONG_IS(key, cell->key)
                                     : TWI_HOT_SHORT_IS(*short_key, cell->key, key.size)))
        return TWI_HOT_OWN(count_plain)(engine, self, section, generation, cell, key, delta, view);
    self->depth++; /* the callee leaves by twi_section_leave() */
    return TWI_HOT_OWN(not_shown)(generation, key, delta, view, cell);
}

/* For a call to which the word gives no time. It reads the clock in the short section and with the window of its
 * caller, and leaves that section. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status
TWI_HOT_OWN(add_timed)(tw_family *family, tw_key key, int64_t delta, int64_t *view, struct twi_generation *generation) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    int64_t now_ms = twi_clock_renew_ms(&engine->clock); /* after W1 */
    if (twi_unlikely(!twi_generation_holds(generation, now_ms))) {
        twi_section_leave_first(self);
        return twi_add_slow(family, key, delta, view);
    }
    TWI_RACE_POINT(window_found_not_inserted);
    if (twi_likely(hot_key_is_short(key))) {
        TWI_HOT_SHORT_KEY short_key = TWI_HOT_SHORT_OF(key);
        uint64_t hash = TWI_HOT_SHORT_HASH(engine, short_key, key);
        twi_area_ask(generation, hash, false, TWI_HOT_SYNCED);
        return TWI_HOT_OWN(add_by_line)(engine, self, HOT_OUTSIDE, generation, key, &short_key, delta, view, hash);
    }
    uint64_t hash = TWI_HOT_LONG_HASH(engine, key);
    twi_area_ask(generation, hash, true, TWI_HOT_SYNCED);
    return TWI_HOT_OWN(add_by_line)(engine, self, HOT_OUTSIDE, generation, key, NULL, delta, view, hash);
}

/* For keys of more than 32 bytes. */
TWI_HOT_CODE TWI_INLINE tw_status TWI_HOT_OWN(add_long)(tw_family *family, tw_key key, int64_t delta, int64_t *view,
                                                        enum hot_section section) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!hot_may_go_on(self, engine, section)) || twi_unlikely(key.data == NULL) ||
        twi_unlikely(delta != (int32_t)delta))
        return TWI_HOT_OWN(not_plain)(family, key, delta, view, section);
    hot_enter(self, section);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* behind W1, because inserts rely on it */
    if (!hot_holds(generation, now_ms) && !hot_holds_young(engine, generation, &now_ms)) {
        if (section == HOT_INSIDE) return TWI_HOT_OWN(begin_new)(family, key, delta, view);
        return TWI_HOT_OWN(add_timed)(family, key, delta, view, generation);
    }
    uint64_t hash = TWI_HOT_LONG_HASH(engine, key);
    twi_area_ask(generation, hash, true, TWI_HOT_SYNCED);
    return TWI_HOT_OWN(add_by_line)(engine, self, section, generation, key, NULL, delta, view, hash);
}

/* For short keys. */
TWI_HOT_CODE TWI_INLINE tw_status TWI_HOT_OWN(add_short)(tw_family *family, tw_key key, int64_t delta, int64_t *view,
                                                         enum hot_section section) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!hot_may_go_on(self, engine, section)) || twi_unlikely(key.data == NULL) ||
        twi_unlikely(delta != (int32_t)delta))
        return TWI_HOT_OWN(not_plain)(family, key, delta, view, section);
    hot_enter(self, section);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    TWI_RACE_POINT(window_loaded_time_not_read);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* behind W1, because inserts rely on it */
    if (!hot_holds(generation, now_ms) && !hot_holds_young(engine, generation, &now_ms)) {
        if (section == HOT_INSIDE) return TWI_HOT_OWN(begin_new)(family, key, delta, view);
        return TWI_HOT_OWN(add_timed)(family, key, delta, view, generation);
    }
    TWI_HOT_SHORT_KEY short_key = TWI_HOT_SHORT_OF(key);
    uint64_t hash = TWI_HOT_SHORT_HASH(engine, short_key, key);
    twi_area_ask(generation, hash, false, TWI_HOT_SYNCED);
    return TWI_HOT_OWN(add_by_line)(engine, self, section, generation, key, &short_key, delta, view, hash);
}

/* The size decides how a key is loaded and compared. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(add_4_to_16)(tw_family *family, tw_key key,
                                                                                 int64_t delta, int64_t *view) {
    if (key.size < 4 || key.size > 16) __builtin_unreachable();
    return TWI_HOT_OWN(add_short)(family, key, delta, view, HOT_OUTSIDE);
}
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(add_long_key)(tw_family *family, tw_key key,
                                                                                  int64_t delta, int64_t *view) {
    return TWI_HOT_OWN(add_long)(family, key, delta, view, HOT_OUTSIDE);
}

/* For threads that are inside a section. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(add_inside)(tw_family *family, tw_key key,
                                                                                int64_t delta, int64_t *view) {
    if (hot_key_is_short(key)) return TWI_HOT_OWN(add_short)(family, key, delta, view, HOT_INSIDE);
    return TWI_HOT_OWN(add_long)(family, key, delta, view, HOT_INSIDE);
}

/* Handles the other cases that the fast functions do not handle: keys of 1 to 3 bytes, threads that insert or are
 * inside a section, and cases that only the slow path can decide. It saves no register on the way. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status
TWI_HOT_OWN(add_anyhow)(tw_family *family, tw_key key, int64_t delta, int64_t *view, enum hot_section section) {
    const struct twi_thread *self = twi_thread_self;
    if (section == HOT_INSIDE || !hot_may_begin(self, family->engine) || key.size - 1 >= TW_KEY_SIZE_MAX ||
        key.data == NULL || delta != (int32_t)delta)
        return twi_add_slow(family, key, delta, view);
    if (key.size < 4 || self->inserts != 0) return TWI_HOT_OWN(begin_new)(family, key, delta, view);
    return TWI_HOT_OWN(add_inside)(family, key, delta, view);
}

/* Handles the cases that the fast functions do not handle. A thread that checks whether its adds go to one counter
 * comes here first, and saves no register on the way. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status
TWI_HOT_OWN(not_plain)(tw_family *family, tw_key key, int64_t delta, int64_t *view, enum hot_section section) {
    const struct twi_thread *self = twi_thread_self;
    if (twi_likely(self->repeats != 0) && twi_likely(self->depth == 0))
        return TWI_HOT_OWN(add_repeated)(family, key, delta, view);
    return TWI_HOT_OWN(add_anyhow)(family, key, delta, view, section);
}

/* Keys of 17 to 32 bytes are added here. No register is saved before the code knows that the key has that size. */
TWI_HOT_CODE tw_status TWI_HOT_NAME(tw_family *family, tw_key key, int64_t delta, int64_t *view) {
    if (key.size > 16) {
        if (twi_likely(key.size <= TWI_KEY_INLINE))
            return TWI_HOT_OWN(add_short)(family, key, delta, view, HOT_OUTSIDE);
        if (twi_likely(key.size <= TW_KEY_SIZE_MAX)) return TWI_HOT_OWN(add_long_key)(family, key, delta, view);
    } else if (twi_likely(key.size >= 4)) {
        return TWI_HOT_OWN(add_4_to_16)(family, key, delta, view);
    }
    return TWI_HOT_OWN(not_plain)(family, key, delta, view, HOT_OUTSIDE);
}

#include "engine/fast/group_fast.h"
#include "engine/fast/acquire_fast.h"
#if !TWI_HOT_SYNCED
#include "engine/fast/all_fast.h"
#include "engine/fast/shapes_fast.h"
#endif
#include "engine/fast/repeat_fast.h"

#undef TWI_HOT_NAME
#undef TWI_HOT_GROUP
#undef TWI_HOT_ACQUIRE
#undef TWI_HOT_ALL
#undef TWI_HOT_GCRA
#undef TWI_HOT_SLIDING
#undef TWI_HOT_CELL
#undef TWI_HOT_OWN
#undef TWI_HOT_SYNCED
