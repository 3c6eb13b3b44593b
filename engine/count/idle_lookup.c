/* idle_lookup.c -- see idle_lookup.h. */
#include "engine/count/idle_lookup.h"

#include "engine/core/window_map.h"

struct twi_generation *twi_idle_before(struct tw_family *family, int64_t eviction_epoch) {
    return twi_window_find(family, eviction_epoch - 1);
}

/* ---- finding ---- */

/* Called if the key's cell is in the previous generation. Returns true if the cell accepts adds. Returns false if
 * the cell is frozen and only shows the count. */
static bool use_before(struct twi_place *place, struct twi_generation *before, struct twi_cell *cell) {
    uint64_t meta = twi_cell_publish(cell);
    if (twi_cell_is_frozen(cell)) {
        place->previous = cell;
        place->previous_in = before;
        return false;
    }
    if ((meta & TWI_META_USED) == 0) (void)twi_or_relaxed(&cell->meta, TWI_META_USED);
    place->generation = before;
    place->cell = cell;
    place->meta = meta;
    return true;
}

bool twi_idle_find(const struct twi_call *call, struct twi_place *place) {
    struct twi_arena *arena = &call->engine->arena;
    struct twi_cell *cell = NULL;
    place->previous = NULL;
    if (place->generation != NULL) cell = twi_table_find(arena, place->generation, &call->lookup);
    if (cell != NULL) {
        place->cell = cell;
        place->meta = twi_cell_publish(cell);
        return true;
    }
    TWI_RACE_POINT(not_in_current_epoch);
    struct twi_generation *before = twi_idle_before(call->family, call->unix_ms);
    if (before != NULL) cell = twi_table_find(arena, before, &call->lookup);
    return cell != NULL && use_before(place, before, cell);
}

/* ---- making ---- */

static bool still_current(void *ctx) {
    const struct twi_generation *generation = ctx;
    return twi_load_acquire(&generation->family->eviction_epoch) == generation->start_ms; /* G5, pairs with G6 */
}

static struct twi_inherited inheritance_of(struct twi_cell *frozen) {
    uint64_t meta = twi_load_relaxed(&frozen->meta);
    return (struct twi_inherited){.local = twi_cell_local(frozen, meta),
                                  .base = twi_load_relaxed(&frozen->base),
                                  .total_state = twi_load_relaxed(&twi_cell_cold(frozen, meta)->total_state),
                                  .is_successor = true};
}

enum twi_found twi_idle_insert(struct twi_generation *generation, struct twi_thread *self, struct twi_lookup_key lookup,
                               struct twi_generation *before, struct twi_cell *frozen, struct twi_cell **cell) {
    struct twi_inherited inherited = {0};
    if (frozen != NULL) inherited = inheritance_of(frozen);
    TWI_RACE_POINT(inheritance_read);
    struct twi_insert insert = {.arena = &generation->family->engine->arena,
                                .generation = generation,
                                .self = self,
                                .lookup = lookup,
                                .end_ms = 0,
                                .inherited = &inherited,
                                .vacancy = TWI_NO_VACANCY};
    enum twi_found found = twi_table_insert(&insert, still_current, generation, cell);
    if (found == TWI_INSERTED && frozen != NULL) (void)twi_add_relaxed(&before->successors, 1);
    return found;
}

/* Before the key begins in this epoch, makes sure that it can no longer begin in the previous epoch (G1). */
static bool still_counts_before(const struct twi_call *call, struct twi_place *place) {
    place->previous = NULL;
    twi_fence_seqcst(); /* N1, pairs with N2 */
    struct twi_generation *before = twi_idle_before(call->family, call->unix_ms);
    if (before == NULL) return false;
    struct twi_cell *cell = twi_table_close_probe(&call->engine->arena, before, &call->lookup);
    TWI_RACE_POINT(probe_closed_before);
    return cell != NULL && use_before(place, before, cell);
}

tw_status twi_idle_make(struct twi_call *call, struct twi_place *place) {
    if (still_counts_before(call, place)) return TW_OK;
    place->generation = twi_window_open(call->family, twi_calendar_span(&call->family->rule, call->unix_ms), 0);
    if (place->generation == NULL) return TW_ERR_FULL;
    twi_fence_seqcst(); /* N2, pairs with N1 */
    if (!still_current(place->generation)) return TWI_AGAIN;
    switch (twi_idle_insert(place->generation, call->self, call->lookup, place->previous_in, place->previous,
                            &place->cell)) {
    case TWI_FOUND:
    case TWI_INSERTED: place->meta = twi_cell_publish(place->cell); return TW_OK;
    case TWI_NO_ROOM: return TW_ERR_FULL;
    default: return TWI_AGAIN;
    }
}

/* ---- unsent counts of the previous generation ---- */

struct twi_lookup_key twi_idle_lookup_key(struct twi_hashing *hashing, struct twi_cell *cell) {
    tw_key key = tw_bytes(cell->key, twi_load_relaxed(&cell->meta) & TWI_META_SIZE);
    return twi_lookup_key(hashing->fn(&hashing->secret, key.data, key.size), key);
}

int64_t twi_idle_unsent(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    if ((meta & TWI_META_SUCCESSOR) == 0) return 0;
    tw_engine *engine = generation->family->engine;
    struct twi_generation *before = twi_idle_before(generation->family, generation->start_ms);
    if (before == NULL) return 0; /* the generation was dropped, so it had no unsent counts */
    struct twi_lookup_key lookup = twi_idle_lookup_key(&engine->hashing, cell);
    struct twi_cell *frozen = twi_table_find(&engine->arena, before, &lookup);
    if (frozen == NULL || !twi_cell_is_frozen(frozen)) return 0;
    uint64_t frozen_meta = twi_load_relaxed(&frozen->meta);
    return twi_cell_local(frozen, frozen_meta) - twi_load_relaxed(&twi_cell_cold(frozen, frozen_meta)->acked);
}
