/* store_map.c -- see store_map.h. */
#include "engine/core/store_map.h"

#include "engine/table/layout.h"

uint32_t twi_store_map_enter(tw_engine *engine, struct twi_store_map *map, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS && map->count < TWI_KEY_SLOTS);
    twi_check(twi_store_map_at(map, slot) == TWI_STORE_NONE);
    uint32_t store = map->count++;
    int64_t since_ms = twi_load_relaxed(&engine->peers.all_away_since_ms);
    map->slots[store] = (uint16_t)slot;
    twi_store_relaxed(&map->away_since_ms[store], since_ms);
    if (since_ms != 0) map->away++;
    twi_store_relaxed(&map->of_slot[slot], (uint16_t)(store + 1)); /* hints, both */
    return store;
}

uint32_t twi_port_stores(const tw_engine *engine) {
    return engine->peers.stores != NULL ? engine->peers.stores->count : 1;
}

uint32_t twi_port_store_slot(const tw_engine *engine, uint32_t store) {
    twi_check(engine->peers.stores != NULL && store < engine->peers.stores->count);
    return engine->peers.stores->slots[store];
}

static int64_t since_of_name(const tw_engine *engine, const char *name, size_t size) {
    twi_check(size != 0 && size <= TWI_REDIS_KEY_MAX);
    const struct twi_store_map *map = engine->peers.stores;
    uint32_t store = twi_store_map_at(map, twi_key_slot_of(name, size));
    if (store == TWI_STORE_NONE) return twi_load_relaxed(&engine->peers.all_away_since_ms); /* a hint */
    return twi_load_relaxed(&map->away_since_ms[store]);                                    /* a hint */
}

int64_t twi_store_away_since(const tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell) {
    twi_check(generation->family->engine == engine);
    int64_t since_ms = twi_load_relaxed(&engine->peers.away_since_ms); /* this is a hint, as old as the last turn */
    if (twi_likely(since_ms == 0) || engine->peers.stores == NULL) return since_ms;
    char name[TWI_REDIS_KEY_MAX];
    bool is_overflow = (twi_load_relaxed(&cell->meta) & TWI_META_OVERFLOW) != 0;
    struct twi_item item = {.family = generation->family, .generation = generation, .cell = cell};
    item.flags = is_overflow ? TWI_ITEM_OVERFLOW : 0;
    return since_of_name(engine, name, twi_port_render(&item, name));
}

int64_t twi_store_away_since_key(const struct tw_family *family, tw_key key, int64_t start_ms) {
    twi_check(key.size - 1 < TW_KEY_SIZE_MAX);
    const tw_engine *engine = family->engine;
    int64_t since_ms = twi_load_relaxed(&engine->peers.away_since_ms); /* this is a hint, too */
    if (twi_likely(since_ms == 0) || engine->peers.stores == NULL) return since_ms;
    char name[TWI_REDIS_KEY_MAX];
    return since_of_name(engine, name, twi_key_template_render(&family->template, key, start_ms, name));
}

int64_t twi_store_away_since_now(const struct tw_family *family, tw_key key) {
    if (twi_likely(twi_load_relaxed(&family->engine->peers.away_since_ms) == 0)) return 0;
    int64_t now_ms = twi_clock_now_ms(&family->engine->clock);
    return twi_store_away_since_key(family, key, twi_calendar_span(&family->rule, now_ms).start_ms);
}
