/* store_map.h -- the names of counters in Redis, and which store has a key slot, and since when it has not replied.
 * Any thread reads here whether the store of a counter replies.
 *
 * If there is one Redis, it is one store, and there is no map. Then peers.away_since_ms has the time for all counters.
 * If keys have hash tags, a store is the data of one key slot of the names in Redis (twi_port_store()).
 * Always true: the map is made before the engine is shared, and is freed at its end. Only the turn writes it.
 * Callers use each value as a hint, which is as old as the last turn. The hot path makes one load: of
 * peers.away_since_ms. A name is rendered only if some store is unreachable. */
#ifndef TWI_CORE_STORE_MAP_H
#define TWI_CORE_STORE_MAP_H

#include "engine/base/key_slot.h"
#include "engine/core/family.h"

/* Pages that were never touched use no memory. So a store that was never used uses no memory. */
struct twi_store_map {
    _Atomic uint16_t of_slot[TWI_KEY_SLOTS]; /* index + 1; 0 means that the slot was not used yet */
    /* by index: the monotonic time; 0 means that the store replies, or was never tried */
    _Atomic int64_t away_since_ms[TWI_KEY_SLOTS];
    uint16_t slots[TWI_KEY_SLOTS]; /* by index; only the turn uses it */
    uint32_t away;                 /* how many stores are unreachable; only the turn uses it */
    uint32_t count;                /* how many stores are known; only the turn uses it */
};

#define TWI_STORE_NONE UINT32_MAX

/* Returns the index of a slot's store. TWI_STORE_NONE means that the slot was not used yet. */
TWI_INLINE uint32_t twi_store_map_at(const struct twi_store_map *map, uint32_t slot) {
    uint32_t entry = twi_load_relaxed(&map->of_slot[slot]);
    return entry != 0 ? entry - 1 : TWI_STORE_NONE;
}
/* Gives the slot the next index. If all other stores are unreachable then, its store counts as unreachable, too. Only
 * the turn calls it. */
uint32_t twi_store_map_enter(tw_engine *engine, struct twi_store_map *map, uint32_t slot);

/* Returns since when the store of this counter, or of this key, has not replied (monotonic ms). 0 means that it
 * replies, or was never tried. A store that was not used yet counts as unreachable only if all others are. Any
 * thread. The first function is for a counter, inside a section. */
int64_t twi_store_away_since(const tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell);
int64_t twi_store_away_since_key(const struct tw_family *family, tw_key key, int64_t start_ms);
/* Returns the same for a key of the present window. */
int64_t twi_store_away_since_now(const struct tw_family *family, tw_key key);

#endif
