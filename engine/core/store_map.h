/* store_map.h -- for several stores, which key slot is which store, and since when each store has not replied. Any
 * thread reads here whether a counter's store replies.
 *
 * One Redis is one store, and there is no map. Then peers.away_since_ms has the time for all counters. Where keys have
 * hash tags, a store is what lies in one key slot of the names in Redis (twi_port_store()).
 * Always true: the map is made before the engine is shared, and is freed at its end. Only the turn writes it. Callers
 * take each value as a hint, as old as the last turn. The hot path makes one load, of peers.away_since_ms. Only if some
 * store is unreachable is a name rendered. */
#ifndef TWI_CORE_STORE_MAP_H
#define TWI_CORE_STORE_MAP_H

#include "engine/base/key_slot.h"
#include "engine/core/family.h"

/* Pages that were never touched take no memory. A store that was not met takes no memory. */
struct twi_store_map {
    _Atomic uint16_t of_slot[TWI_KEY_SLOTS]; /* index + 1; 0 means not met */
    /* by index, the monotonic time; 0 means that the store replies, or was never tried */
    _Atomic int64_t away_since_ms[TWI_KEY_SLOTS];
    uint16_t slots[TWI_KEY_SLOTS]; /* by index; owned by the turn */
    uint32_t away;                 /* number of unreachable stores; owned by the turn */
    uint32_t count;                /* stores met; owned by the turn */
};

#define TWI_STORE_NONE UINT32_MAX

/* The index of a slot's store; TWI_STORE_NONE means not met. */
TWI_INLINE uint32_t twi_store_map_at(const struct twi_store_map *map, uint32_t slot) {
    uint32_t entry = twi_load_relaxed(&map->of_slot[slot]);
    return entry != 0 ? entry - 1 : TWI_STORE_NONE;
}
/* Gives the slot the next index. A store that is met while all others are unreachable counts as unreachable, too. Only
 * * the turn calls it.
 */
uint32_t twi_store_map_enter(tw_engine *engine, struct twi_store_map *map, uint32_t slot);

/* Since when the store of this counter, or of this key, has not replied (monotonic ms); 0 means that it replies, or was
 * never tried. A store that was not met is unreachable only if all are. Any thread. The first is for a counter inside a
 * section. */
int64_t twi_store_away_since(const tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell);
int64_t twi_store_away_since_key(const struct tw_family *family, tw_key key, int64_t start_ms);
/* The same for a key of the window that is now. */
int64_t twi_store_away_since_now(const struct tw_family *family, tw_key key);

#endif
