/* closing_keys.c -- see closing_keys.h. This is a hash table with open addressing. Its entries are the lines of
 * records. */
#include "engine/core/closing_keys.h"

#include "engine/core/family.h"

#include <stdlib.h>

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
