/* store_map.c -- see store_map.h. */
#include "engine/core/store_map.h"

#include "engine/core/family.h"
#include "engine/core/state.h"
#include "engine/table/layout.h"

#include <string.h>

/* ---- redis name ----
 * the name of an item's counter in Redis (port/), by key_template.h. */

size_t twi_port_render(const struct twi_item *item, char *out) {
    twi_check(item->generation->family == item->family);
    int64_t start_ms = item->generation->start_ms;
    if ((item->flags & TWI_ITEM_OVERFLOW) != 0)
        return twi_key_template_render_overflow(&item->family->template, start_ms, out);
    return twi_key_template_render(&item->family->template, twi_port_key(item), start_ms, out);
}
tw_key twi_port_inner(const struct twi_item *item) {
    tw_key subject, inner = tw_bytes("", 0);
    if ((item->flags & TWI_ITEM_OVERFLOW) == 0)
        (void)twi_redis_shape_split(item->family->template.shape, twi_port_key(item), &subject, &inner);
    return inner;
}
/* Appends text to the used part of `out`. */
static size_t put_printable(const char *text, size_t size, char *out, size_t used, size_t room) {
    twi_check(used < room);
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size && used + 5 < room; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte > ' ' && byte < 127 && byte != '\\') {
            out[used++] = (char)byte;
            continue;
        }
        out[used++] = '\\', out[used++] = 'x', out[used++] = digits[byte >> 4], out[used++] = digits[byte & 15];
    }
    return used;
}
void twi_port_title(const struct twi_item *item, char *out, size_t room) {
    twi_check(room != 0);
    static const char between[] = ", ";
    char name[TWI_REDIS_KEY_MAX];
    tw_key inner = twi_port_inner(item);
    size_t used = put_printable(name, twi_port_render(item, name), out, 0, room);
    if (inner.size != 0 && used + sizeof between < room) {
        memcpy(out + used, between, sizeof between - 1);
        used = put_printable(inner.data, inner.size, out, used + sizeof between - 1, room);
    }
    out[used] = '\0';
}
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out) {
    twi_check(strlen(what) <= 8);
    char name[TWI_REDIS_KEY_MAX];
    return twi_key_template_own(&item->family->template, what, name, twi_port_render(item, name), out);
}
tw_key twi_port_key(const struct twi_item *item) {
    return tw_bytes(item->cell->key, twi_load_relaxed(&item->cell->meta) & TWI_META_SIZE);
}
int64_t twi_port_start_ms(const struct twi_item *item) {
    return twi_generation_start_ms(item->generation);
}

const char *twi_port_prefix(const tw_engine *engine) {
    return engine->options.redis_prefix != NULL ? engine->options.redis_prefix : "";
}

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
