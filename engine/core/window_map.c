/* window_map.c -- the map of a family's windows. It finds the generation of a moment. See family.h.
 *
 *   map   | free link | size, used | slot ... |    slot: hash of the start : 32 | line of the generation : 32
 *                                                 0 EMPTY, 1 CLOSED, 2 GONE
 *
 * The map is a hash table with open addressing. A slot changes from EMPTY to a generation and then to GONE, or from
 * EMPTY to CLOSED. Each step happens once. A full map is closed and copied without dropped generations. One swap of
 * family->map replaces it. Only the turn unlinks generations, without a copy. This needs no memory, so windows that are
 * over can be released even if the arena is full. The turn then raises the upper half of family->map. So a copy that
 * still contains an unlinked generation fails in its swap (W3). Any thread opens windows, by a compare-and-swap of a
 * slot. So if two threads open one window at once, both use one generation, and the other one is given back unseen. */
#include "engine/core/window_map.h"

#include "engine/base/grow.h"
#include "engine/core/agenda.h"
#include "engine/core/family.h"
#include "engine/table/area.h"
#include "engine/table/index.h"

#include <stdlib.h>
#include <string.h>

struct map {
    _Atomic uint64_t next_retired; /* the line of the next map in the engine's list of replaced maps */
    uint32_t capacity;
    _Atomic uint32_t used;
    _Atomic uint64_t slots[];
};
#define MAP_HEAD_WORDS 2u
#define MAP_GONE UINT64_C(2) /* a generation was here and was dropped, so a look-up continues after this slot */
#define MAP_LINE(word) ((uint32_t)(word))
#define MAP_TURNS (UINT64_C(1) << 32)
#define MAP_LINES_MIN 2u

static uint32_t start_tag(int64_t start_ms) {
    uint64_t mixed = (uint64_t)start_ms * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)((mixed ^ mixed >> 29) >> 7);
}

static uint32_t map_lines(const struct map *map) {
    return (map->capacity + MAP_HEAD_WORDS) * 8 / TWI_LINE_BYTES;
}

/* Returns the generation with that start, or NULL. If NULL, *at is the slot that ended the walk, *stop its word. */
static struct twi_generation *look(const struct twi_arena *arena, struct map *map, int64_t start_ms, uint32_t *at,
                                   uint64_t *stop) {
    twi_check(map->capacity >= MAP_LINES_MIN * (TWI_LINE_BYTES / 8) - MAP_HEAD_WORDS);
    uint32_t tag = start_tag(start_ms), i = (uint32_t)((uint64_t)tag * map->capacity >> 32);
    for (uint32_t left = map->capacity; left != 0; left--) {
        uint64_t slot = twi_load_acquire(&map->slots[i]); /* W4, pairs with W5 */
        *at = i;
        *stop = slot;
        if (slot <= TWI_SLOT_CLOSED) return NULL;
        if ((uint32_t)(slot >> 32) == tag && slot != MAP_GONE) {
            struct twi_generation *generation = twi_arena_at(arena, (uint32_t)slot);
            if (generation->start_ms == start_ms) return generation;
        }
        if (++i == map->capacity) i = 0;
    }
    *stop = TWI_SLOT_CLOSED;
    return NULL;
}

/* Returns the generation of a slot. Returns NULL if the slot has none, or one that is dropped. */
static struct twi_generation *live_in(const struct twi_arena *arena, uint64_t slot) {
    if (slot <= MAP_GONE) return NULL;
    struct twi_generation *generation = twi_arena_at(arena, (uint32_t)slot);
    return twi_load_acquire(&generation->phase) != TWI_DROPPED ? generation : NULL;
}

/* Returns false if another thread has replaced the map meanwhile. The function checks this every 256 slots. So if
 * many threads copy a large map, most of them stop before they touch much of their memory. */
static bool copy_into(struct tw_family *family, uint64_t word, struct map *target, struct map *source) {
    twi_check(target != source);
    twi_check(target->capacity != 0);
    const struct twi_arena *arena = &family->engine->arena;
    for (uint32_t i = 0; i < source->capacity; i++) {
        if (i % 256 == 0 && twi_load_relaxed(&family->map) != word) return false;
        uint64_t slot = twi_load_acquire(&source->slots[i]); /* W4 */
        if (live_in(arena, slot) == NULL) continue;
        uint32_t at = (uint32_t)((slot >> 32) * target->capacity >> 32);
        while (twi_load_relaxed(&target->slots[at]) != TWI_SLOT_EMPTY)
            if (++at == target->capacity) at = 0;
        twi_store_relaxed(&target->slots[at], slot);
        twi_store_relaxed(&target->used, twi_load_relaxed(&target->used) + 1);
    }
    return true;
}

static uint32_t count_live(const struct twi_arena *arena, struct map *map) {
    uint32_t live = 0;
    for (uint32_t i = 0; i < map->capacity; i++) live += live_in(arena, twi_load_acquire(&map->slots[i])) != NULL;
    return live;
}

/* Replaces the map of `old_word` (0 means none yet) by one with room. Returns false if there is no memory. */
static bool replace_map(struct tw_family *family, uint64_t old_word) {
    twi_check(family->engine != NULL);
    struct twi_arena *arena = &family->engine->arena;
    uint32_t old_line = MAP_LINE(old_word);
    struct map *old = twi_arena_at(arena, old_line);
    uint32_t live = old_line != 0 ? count_live(arena, old) : 0;
    /* The new map has room for twice the live generations and some more. A third of it may be filled before the next
     * replacement. The memory is taken before the old map is closed. */
    uint32_t lines = twi_arena_round((live * 2 + MAP_HEAD_WORDS + 4) * 8 / TWI_LINE_BYTES + 1);
    uint32_t line = twi_quota_take(arena, &family->quota, lines < MAP_LINES_MIN ? MAP_LINES_MIN : lines);
    if (line == 0) return false;
    struct map *map = twi_arena_at(arena, line);
    map->capacity = (lines < MAP_LINES_MIN ? MAP_LINES_MIN : lines) * (TWI_LINE_BYTES / 8) - MAP_HEAD_WORDS;
    bool copied = true;
    if (old_line != 0) {
        for (uint32_t i = 0; i < old->capacity; i++) {
            uint64_t found = TWI_SLOT_EMPTY;
            if (twi_load_relaxed(&old->slots[i]) == TWI_SLOT_EMPTY)
                (void)twi_cas_acqrel(&old->slots[i], &found, TWI_SLOT_CLOSED);
        }
        /* more generations came during the count; the next try counts them */
        if (count_live(arena, old) * 3 > map->capacity * 2) {
            twi_arena_give(arena, line, map_lines(map));
            return true;
        }
        TWI_RACE_POINT(map_closed_not_replaced);
        copied = copy_into(family, old_word, map, old);
    }
    uint64_t found = old_word;
    if (!copied || !twi_cas_acqrel(&family->map, &found, (old_word & ~(MAP_TURNS - 1)) | line)) /* W3 */
        twi_arena_give(arena, line, map_lines(map));
    else if (old_line != 0)
        twi_window_map_retire(family->engine, old_line);
    return true;
}

void twi_window_map_retire(tw_engine *engine, uint32_t line) {
    twi_check(line != 0);
    struct map *map = twi_arena_at(&engine->arena, line);
    uint32_t older;
    twi_push(&engine->unlinked.new_maps, line, older, twi_store_relaxed(&map->next_retired, older));
}

struct twi_generation *twi_window_find(struct tw_family *family, int64_t start_ms) {
    struct twi_arena *arena = &family->engine->arena;
    for (;;) {
        uint64_t word = twi_load_acquire(&family->map), stop; /* W6, pairs with W3 */
        uint32_t at;
        if (word == 0) return NULL;
        struct twi_generation *generation = look(arena, twi_arena_at(arena, MAP_LINE(word)), start_ms, &at, &stop);
        /* A window that was opened before CLOSED is in front of it. A later one is in the next map. */
        if (generation != NULL || stop == TWI_SLOT_EMPTY || twi_load_acquire(&family->map) == word) return generation;
    }
}

static int64_t opening_ms(struct tw_family *family) {
    return twi_clock_read(&family->engine->clock);
}

struct twi_generation *twi_window_make(struct tw_family *family, struct twi_span span, uint64_t keys_expected) {
    twi_check(span.start_ms < span.end_ms);
    struct twi_generation *generation =
        twi_table_make(&family->engine->arena, &family->quota, keys_expected, family->kind.synced);
    if (generation == NULL) return NULL;
    generation->family = family;
    generation->turn.distinct = family->kind.is_distinct;
    generation->start_ms = span.start_ms;
    generation->end_ms = span.end_ms;
    /* If Redis loses data, an evicted part cannot be sent again, so the loss is counted for the window as a whole. */
    generation->turn.restore.unrestorable = family->kind.evicts_idle;
    if (family->kind.has_starts && family->kind.synced) {
        int64_t now_ms = opening_ms(family);
        generation->expiry_ms =
            twi_time_add(span.end_ms > now_ms ? span.end_ms : now_ms, twi_load_relaxed(&family->policy.retention_ms));
    }
    return generation;
}

static void announce(struct tw_family *family, struct twi_generation *generation) {
    twi_check(generation->family == family);
    struct twi_arena *arena = &family->engine->arena;
    uint32_t line = twi_arena_line(arena, generation), older;
    twi_push(&family->arrivals, line, older, twi_store_relaxed(&generation->next_arrival, older));
    TWI_RACE_POINT(window_announced_not_news);
    twi_agenda_notify(family);
}

void twi_window_visit_entered(struct tw_family *family, void (*visit)(void *ctx, struct twi_generation *generation),
                              void *ctx) {
    const struct twi_arena *arena = &family->engine->arena;
    uint64_t word = twi_load_acquire(&family->map); /* W6 */
    struct map *map = twi_arena_at(arena, MAP_LINE(word));
    for (uint32_t i = 0; word != 0 && i < map->capacity; i++) {
        uint64_t slot = twi_load_acquire(&map->slots[i]); /* W4 */
        if (slot > MAP_GONE) visit(ctx, twi_arena_at(arena, (uint32_t)slot));
    }
}

struct entered {
    const struct twi_generation *wanted;
    bool is_there;
};
static void compare(void *ctx, struct twi_generation *generation) {
    struct entered *entered = ctx;
    entered->is_there |= generation == entered->wanted;
}

bool twi_window_is_arriving(struct tw_family *family, const struct twi_generation *generation) {
    const struct twi_arena *arena = &family->engine->arena;
    uint32_t wanted = twi_arena_line(arena, generation), line = twi_load_acquire(&family->arrivals);
    while (line != 0 && line != wanted) line = twi_load_relaxed(&twi_generation_at(arena, line)->next_arrival);
    return line != 0;
}

bool twi_window_heal(struct tw_family *family, struct twi_generation *generation) {
    /* A window that is not in the map any more was known to the turn, or nobody has ever seen it. */
    struct entered entered = {generation, generation->turn.known};
    if (!entered.is_there) twi_window_visit_entered(family, compare, &entered);
    if (!entered.is_there) return false;
    if (!generation->turn.announced && !twi_window_is_arriving(family, generation)) announce(family, generation);
    return true;
}

/* Enters the generation into the map. Returns the generation that the map has in the end. Returns NULL if there is
 * no memory for a larger map. */
static struct twi_generation *enter(struct tw_family *family, struct twi_generation *mine, int64_t start_ms,
                                    struct twi_generation *(*make)(void *ctx), void *ctx) {
    twi_check(mine == NULL || (mine->family == family && mine->start_ms == start_ms));
    twi_check(mine != NULL || make != NULL);
    struct twi_arena *arena = &family->engine->arena;
    for (;;) {
        uint64_t word = twi_load_acquire(&family->map), stop; /* W6 */
        struct map *map = twi_arena_at(arena, MAP_LINE(word));
        uint32_t at;
        if (word == 0) {
            if (!replace_map(family, 0)) return NULL;
            continue;
        }
        struct twi_generation *there = look(arena, map, start_ms, &at, &stop);
        if (there != NULL) return there;
        if (stop == TWI_SLOT_CLOSED || twi_load_relaxed(&map->used) * 3 >= map->capacity * 2) {
            if (!replace_map(family, word)) return NULL;
            continue;
        }
        if (mine == NULL && (mine = make(ctx)) == NULL) return NULL;
        uint64_t slot = (uint64_t)start_tag(start_ms) << 32 | twi_arena_line(arena, mine), found = TWI_SLOT_EMPTY;
        TWI_RACE_POINT(window_made_not_entered);
        struct twi_thread *self = twi_thread_self;
        bool says = twi_thread_has_slot(self);
        if (says) (void)twi_marking_begin(self, family->engine, mine, &mine->overflow);
        if (twi_cas_acqrel(&map->slots[at], &found, slot)) { /* W5, pairs with W4 */
            (void)twi_add_relaxed(&map->used, 1);
            TWI_RACE_POINT(window_entered_not_announced);
            announce(family, mine);
            if (says) twi_marking_end(self, NULL);
            return mine;
        }
        if (says) twi_marking_end(self, NULL);
    }
}

uint64_t twi_window_announced(const struct tw_family *family) {
    uint64_t expected = twi_load_relaxed(&family->policy.keys_expected);
    twi_check(!family->kind.evicts_idle);
    return !family->kind.from_first && twi_index_is_one_leaf(expected) ? expected : 0;
}

struct opening {
    struct tw_family *family;
    struct twi_span span;
    uint64_t keys_expected;
    struct twi_generation *made;
};

static struct twi_generation *make_once(void *ctx) {
    struct opening *opening = ctx;
    if (opening->made == NULL) opening->made = twi_window_make(opening->family, opening->span, opening->keys_expected);
    return opening->made;
}

struct twi_generation *twi_window_open(struct tw_family *family, struct twi_span span, uint64_t keys_expected) {
    twi_check(span.start_ms < span.end_ms);
    struct opening opening = {family, span, keys_expected, NULL};
    struct twi_generation *there = enter(family, NULL, span.start_ms, make_once, &opening);
    if (opening.made != NULL && there != opening.made) {
        uint32_t work = UINT32_MAX;
        (void)twi_table_unmake(&family->engine->arena, opening.made, &work);
    }
    return there;
}

bool twi_window_publish(struct tw_family *family, struct twi_generation *generation) {
    twi_check(generation->family == family);
    twi_check(generation->start_ms < generation->end_ms);
    return enter(family, generation, generation->start_ms, NULL, NULL) == generation;
}

void twi_window_unlink_dropped(struct tw_family *family) {
    struct twi_arena *arena = &family->engine->arena;
    uint64_t word = twi_load_acquire(&family->map); /* W6 */
    while (word != 0) {
        struct map *map = twi_arena_at(arena, MAP_LINE(word));
        for (uint32_t i = 0; i < map->capacity; i++) {
            uint64_t slot = twi_load_acquire(&map->slots[i]); /* W4 */
            if (slot > MAP_GONE && live_in(arena, slot) == NULL) twi_store_release(&map->slots[i], MAP_GONE);
        }
        /* A copy that read a slot before this still contains the dropped generation. Raising the word makes the swap
         * of that copy fail (W3). */
        if (twi_cas_acqrel(&family->map, &word, word + MAP_TURNS)) return;
    }
}

void twi_window_visit(struct tw_family *family, void (*visit)(void *ctx, struct twi_generation *generation),
                      void *ctx) {
    twi_check(visit != NULL);
    struct twi_arena *arena = &family->engine->arena;
    uint32_t line = MAP_LINE(twi_load_acquire(&family->map)); /* W6 */
    struct map *map = twi_arena_at(arena, line);
    for (uint32_t i = 0; line != 0 && i < map->capacity; i++) {
        struct twi_generation *generation = live_in(arena, twi_load_acquire(&map->slots[i])); /* W4 */
        if (generation != NULL) visit(ctx, generation);
    }
}

void twi_window_count(struct tw_family *family, int64_t *windows, int64_t *keys) {
    struct twi_arena *arena = &family->engine->arena;
    uint64_t word = twi_load_acquire(&family->map); /* W6 */
    struct map *map = twi_arena_at(arena, MAP_LINE(word));
    for (uint32_t i = 0; word != 0 && i < map->capacity; i++) {
        struct twi_generation *generation = live_in(arena, twi_load_acquire(&map->slots[i])); /* W4 */
        if (generation == NULL) continue;
        *windows += 1;
        *keys += (int64_t)twi_load_relaxed(&generation->keys);
    }
}

/* The turn calls these functions for the next retired map in the list, and for its size. */
uint32_t twi_window_map_next(struct twi_arena *arena, uint32_t line) {
    twi_check(line != 0);
    struct map *map = twi_arena_at(arena, line);
    return (uint32_t)twi_load_relaxed(&map->next_retired);
}
uint32_t twi_window_map_lines(struct twi_arena *arena, uint32_t line) {
    twi_check(line != 0);
    return map_lines(twi_arena_at(arena, line));
}
void twi_window_map_give(struct tw_family *family) {
    twi_check(family->turn.held == 0);
    uint64_t word = twi_load_acquire(&family->map); /* W6 */
    twi_store_relaxed(&family->map, 0);
    if (word == 0) return;
    struct twi_arena *arena = &family->engine->arena;
    twi_arena_give(arena, MAP_LINE(word), map_lines(twi_arena_at(arena, MAP_LINE(word))));
}

/* ---- closing keys ----
 * This is a hash table with open addressing. Its entries are the lines of
 * records. */

#define ROOM_MIN 64u

void twi_closing_keys_begin(struct twi_closing_keys *keys, struct twi_generation *generation) {
    twi_check(generation->family != NULL);
    twi_check(keys->family == NULL);
    struct tw_family *family = generation->family;
    *keys = (struct twi_closing_keys){.next = family->turn.closing.foreign, .family = family, .generation = generation};
    family->turn.closing.foreign = keys;
}

void twi_closing_keys_end(struct twi_closing_keys *keys) {
    twi_check(keys->family != NULL && keys->generation != NULL);
    struct twi_closing_keys **link = &keys->family->turn.closing.foreign;
    while (*link != keys) link = &(*link)->next;
    *link = keys->next;
    free(keys->lines);
    *keys = (struct twi_closing_keys){0};
}

static uint64_t hash_of(tw_engine *engine, tw_key key) {
    return engine->hashing.fn(&engine->hashing.secret, key.data, key.size);
}

/* Returns the slot of the key in the table, or the free slot where the key belongs. */
static uint32_t *place_of(tw_engine *engine, const struct twi_closing_keys *keys, tw_key key) {
    twi_check(keys->room != 0 && (keys->room & (keys->room - 1)) == 0);
    twi_check(keys->count < keys->room);
    uint32_t mask = keys->room - 1, i = (uint32_t)hash_of(engine, key) & mask;
    for (; keys->lines[i] != 0; i = (i + 1) & mask) {
        struct twi_cell *cell = twi_arena_at(&engine->arena, keys->lines[i]);
        if ((twi_load_relaxed(&cell->meta) & TWI_META_SIZE) == key.size && twi_key_equal(cell->key, key.data, key.size))
            break;
    }
    return &keys->lines[i];
}

static bool grow(tw_engine *engine, struct twi_closing_keys *keys) {
    twi_check(keys->count <= keys->room);
    if (keys->count * 4 < keys->room * 3) return true;
    struct twi_closing_keys larger = {.room = keys->room != 0 ? keys->room * 2 : ROOM_MIN};
    larger.lines = calloc(larger.room, sizeof *larger.lines);
    if (larger.lines == NULL) return false;
    for (uint32_t i = 0; i < keys->room; i++) {
        if (keys->lines[i] == 0) continue;
        struct twi_cell *cell = twi_arena_at(&engine->arena, keys->lines[i]);
        tw_key key = tw_bytes(cell->key, twi_load_relaxed(&cell->meta) & TWI_META_SIZE);
        *place_of(engine, &larger, key) = keys->lines[i];
    }
    free(keys->lines);
    keys->lines = larger.lines;
    keys->room = larger.room;
    return true;
}

bool twi_closing_keys_add(tw_engine *engine, struct twi_closing_keys *keys, tw_key key) {
    twi_check(keys->generation != NULL);
    twi_check(key.size - 1 < TW_KEY_SIZE_MAX);
    struct twi_generation *generation = keys->generation;
    struct twi_lookup_key lookup = twi_lookup_key(hash_of(engine, key), key);
    if (twi_table_find(&engine->arena, generation, &lookup) != NULL) return true;
    if (!grow(engine, keys)) return false;
    uint32_t *place = place_of(engine, keys, key);
    if (*place != 0) return true;
    struct twi_cell *cell = twi_table_revive(&engine->arena, generation, key, 0, 0);
    if (cell == NULL) return false;
    *place = twi_arena_line(&engine->arena, cell);
    keys->count++;
    (void)twi_add_relaxed(&generation->keys, 1);
    return true;
}

struct twi_cell *twi_closing_keys_find(struct twi_generation *generation, tw_key key) {
    twi_check(key.size - 1 < TW_KEY_SIZE_MAX);
    const struct twi_closing_keys *keys = generation->family->turn.closing.foreign;
    tw_engine *engine = generation->family->engine;
    while (keys != NULL && keys->generation != generation) keys = keys->next;
    if (keys == NULL || keys->count == 0) return NULL;
    uint32_t line = *place_of(engine, keys, key);
    return line != 0 ? twi_arena_at(&engine->arena, line) : NULL;
}
