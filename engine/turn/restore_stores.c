/* restore_stores.c -- see restore_stores.h. */
#include "engine/turn/restore_stores.h"

#include "engine/base/grow.h"
#include "engine/base/key_slot.h"
#include "engine/core/state.h"

#include <stdlib.h>
#include <string.h>

#define STORES_FIRST 8u /* the first size of an array of stores */
#define ROWS_FIRST 16u

/* the first store has a place of its own */

static bool make_map(tw_engine *engine) {
    twi_check(engine->peers.stores == NULL && engine->collector.stores->map == NULL);
    struct twi_store_map *map = calloc(1, sizeof *map);
    engine->collector.stores->map = map;
    engine->peers.stores = map;
    return map != NULL;
}

uint32_t twi_port_store(tw_engine *engine, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    struct twi_restore_stores *stores = engine->collector.stores;
    if (stores->map == NULL && !make_map(engine)) return TWI_STORE_NONE;
    uint32_t store = twi_store_map_at(stores->map, slot);
    if (store != TWI_STORE_NONE) return store;
    /* the first one has its place */
    if (!twi_grow(&stores->more, sizeof *stores->more, &stores->room, stores->map->count, STORES_FIRST))
        return TWI_STORE_NONE;
    store = twi_store_map_enter(engine, stores->map, slot);
    if (store != 0) stores->more[store - 1] = (struct twi_restore_store){0};
    return store;
}

static uint32_t store_of_name(const struct twi_restore_stores *stores, const char *name, size_t size) {
    twi_check(size != 0 && size <= TWI_REDIS_KEY_MAX);
    return twi_store_map_at(stores->map, twi_key_slot_of(name, size));
}

uint32_t twi_restore_store_of(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell) {
    twi_check(generation->family->engine == engine);
    const struct twi_restore_stores *stores = engine->collector.stores;
    if (stores->map == NULL) return 0;
    char name[TWI_REDIS_KEY_MAX];
    bool is_overflow = (twi_load_relaxed(&cell->meta) & TWI_META_OVERFLOW) != 0;
    struct twi_item item = {.family = generation->family, .generation = generation, .cell = cell};
    item.flags = is_overflow ? TWI_ITEM_OVERFLOW : 0;
    return store_of_name(stores, name, twi_port_render(&item, name));
}

uint32_t twi_restore_store_of_key(tw_engine *engine, const struct twi_generation *generation, tw_key key) {
    twi_check(generation->family->engine == engine);
    const struct twi_restore_stores *stores = engine->collector.stores;
    if (stores->map == NULL) return 0;
    char name[TWI_REDIS_KEY_MAX];
    return store_of_name(stores, name,
                         twi_key_template_render(&generation->family->template, key, generation->start_ms, name));
}

/* ---- rows ---- */

static uint32_t new_row(struct twi_restore_stores *stores) {
    twi_check(stores->row_count <= stores->row_room);
    twi_check(stores->rows_free <= stores->row_count);
    if (stores->rows_free != 0) {
        uint32_t row = stores->rows_free;
        stores->rows_free = stores->rows[row - 1].next_free;
        return row;
    }
    bool has_room = twi_grow(&stores->rows, sizeof *stores->rows, &stores->row_room, stores->row_count + 1, ROWS_FIRST);
    return has_room ? ++stores->row_count : 0;
}

/* Makes room for all stores that are known so far. Returns false if there is no memory. */
static bool widen(struct twi_restore_row *row, uint32_t count) {
    twi_check(count > row->room);
    uint32_t room = row->room;
    if (!twi_grow(&row->units, sizeof *row->units, &row->room, count, STORES_FIRST)) return false;
    memset(row->units + room, 0, (row->room - room) * sizeof *row->units);
    return true;
}

void twi_restore_row_free(struct twi_restore_stores *stores, uint32_t row) {
    twi_check(row <= stores->row_count);
    if (row == 0) return;
    free(stores->rows[row - 1].units);
    stores->rows[row - 1] = (struct twi_restore_row){.next_free = stores->rows_free};
    stores->rows_free = row;
}

bool twi_port_assign(struct twi_item *item, char *name, size_t *size) {
    twi_check(item->generation->family == item->family && name != NULL);
    struct twi_restore_stores *stores = item->family->engine->collector.stores;
    uint32_t *row = &item->generation->turn.restore.row;
    *size = twi_port_render(item, name);
    uint32_t store = twi_port_store(item->family->engine, twi_key_slot_of(name, *size));
    if (store == TWI_STORE_NONE) return false;
    if (*row == 0) {
        uint32_t fresh = new_row(stores);
        if (fresh == 0) return false;
        stores->rows[fresh - 1] = (struct twi_restore_row){0};
        if (!widen(&stores->rows[fresh - 1], stores->map->count)) {
            twi_restore_row_free(stores, fresh);
            return false;
        }
        *row = fresh;
    }
    if (stores->rows[*row - 1].room <= store && !widen(&stores->rows[*row - 1], stores->map->count)) return false;
    item->store = store;
    return true;
}

static uint64_t *units_at(const struct twi_restore_stores *stores, uint32_t row, uint32_t store) {
    twi_check(row <= stores->row_count);
    if (row == 0 || store >= stores->rows[row - 1].room) return NULL;
    return &stores->rows[row - 1].units[store];
}

uint64_t twi_restore_acked(const struct twi_restore_stores *stores, const struct twi_generation *generation,
                           uint32_t store) {
    if (stores->map == NULL) return generation->turn.acked_units;
    const uint64_t *units = units_at(stores, generation->turn.restore.row, store);
    return units != NULL ? *units : 0;
}

void twi_restore_row_add(struct twi_restore_stores *stores, uint32_t row, uint32_t store, uint64_t units) {
    uint64_t *of_store = units_at(stores, row, store);
    if (of_store != NULL) *of_store += units;
}

void twi_restore_acked_less(struct twi_restore_stores *stores, struct twi_generation *generation, uint32_t store,
                            uint64_t units) {
    uint64_t acked = twi_restore_acked(stores, generation, store);
    if (units > acked) units = acked;
    uint64_t *of_store = units_at(stores, generation->turn.restore.row, store);
    generation->turn.acked_units -= units;
    if (of_store != NULL) *of_store -= units;
}

uint64_t twi_restore_row_take(struct twi_restore_stores *stores, uint32_t row, uint32_t store) {
    uint64_t *of_store = units_at(stores, row, store), units = of_store != NULL ? *of_store : 0;
    if (of_store != NULL) *of_store = 0;
    return units;
}

uint32_t twi_restore_rows_merge(struct twi_restore_stores *stores, uint32_t into, uint32_t from) {
    twi_check(into == 0 || into != from);
    twi_check(into <= stores->row_count && from <= stores->row_count);
    if (into == 0 || from == 0) return into != 0 ? into : from;
    if (stores->rows[into - 1].room < stores->rows[from - 1].room) { /* the larger array has room for both */
        uint32_t wider = from;
        from = into;
        into = wider;
    }
    const struct twi_restore_row *source = &stores->rows[from - 1];
    for (uint32_t i = 0; i < source->room; i++) stores->rows[into - 1].units[i] += source->units[i];
    twi_restore_row_free(stores, from);
    return into;
}

/* ---- the end ---- */

void twi_restore_stores_free(struct twi_restore_stores *stores) {
    for (uint32_t i = 0; i < stores->row_count; i++) free(stores->rows[i].units);
    free(stores->rows);
    free(stores->more);
    free(stores->map);
    *stores = (struct twi_restore_stores){0};
}
