/* inherit.c -- the counters of a shared engine that has Redis, when another process begins to make its turns: what was
 * in flight, or waited, in the process before (items.h). Runs in the turn, before the first one of this process.
 *
 * Every counter keeps the invariant handed == acked + what is in flight. So `handed` is computed again from `acked` and
 * from the items that sync still has. An item that was collected and not sent becomes unsent by that.
 * recover.c makes the lists of what is marked again, because the process before may have ended while it changed them.
 * Always true: `acked` changes here in two cases only. One item may have been in the middle of being settled. And each
 * distinct counter begins at 0 again, because its registers are sent whole (begin_cell()). A counter with unsent units
 * is marked on the turn's own lists. */
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/port/items.h"
#include "engine/port/rejected.h"
#include "engine/table/sketch.h"
#include "engine/turn/closing.h"
#include "engine/turn/lease_stores.h"
#include "engine/turn/recover.h"
#include "engine/turn/restore.h"

static struct twi_cold *cold_of(const struct twi_item *item) {
    return twi_generation_cold(item->generation, item->cell, twi_load_relaxed(&item->cell->meta));
}

int64_t twi_port_acked(const struct twi_item *item) {
    return twi_load_relaxed(&cold_of(item)->acked);
}

void twi_port_undo_acked(const struct twi_item *item, int64_t acked) {
    twi_store_relaxed(&cold_of(item)->acked, acked);
}

/* ---- every counter ---- */

static void each_window(tw_engine *engine, void (*visit)(void *ctx, struct twi_generation *generation)) {
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.synced) twi_window_visit(family, visit, engine);
}

/* A packed window has sent all. What Redis must get again of it is in its table again. */
static void each_cell(struct twi_generation *generation,
                      bool (*visit)(void *ctx, struct twi_cell *cell, uint64_t meta)) {
    tw_engine *engine = generation->family->engine;
    struct twi_cursor cursor = {0};
    twi_table_walk(&engine->arena, generation, &cursor, visit, generation);
    (void)visit(generation, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
}

/* Registers are sent once more, because Redis may get them twice. */
static bool begin_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct twi_generation *generation = ctx;
    struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    if (generation->turn.distinct && (meta & TWI_META_OVERFLOW) == 0) twi_store_relaxed(&cold->acked, 0);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->acked));
    return true;
}

static void begin_window(void *ctx, struct twi_generation *generation) {
    (void)ctx;
    generation->turn.outstanding = 0;
    generation->turn.restore.listed = false;
    each_cell(generation, begin_cell);
}

void twi_port_inherit_begin(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    twi_rejected_clear(engine->collector.rejected);
    twi_recover_collected(engine);
    each_window(engine, begin_window);
    twi_restore_inherit(engine);
    twi_leases_inherit(engine);
    twi_closing_inherit(engine);
}

void twi_port_inherit(const struct twi_item *item) {
    struct twi_cold *cold = cold_of(item);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) + item->delta);
    item->generation->turn.outstanding++;
    item->family->engine->collector.items_out += item->delta != 0;
}

static bool end_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct twi_generation *generation = ctx;
    const struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    int64_t units = generation->turn.distinct && (meta & TWI_META_OVERFLOW) == 0
                        ? twi_sketch_sum(&generation->family->engine->arena, cell)
                        : twi_cell_local(cell, meta);
    if ((meta & TWI_META_RESEND) != 0 || units != twi_load_relaxed(&cold->handed))
        twi_dirty_owe(generation->family->engine, generation, cell, meta);
    return true;
}

static void end_window(void *ctx, struct twi_generation *generation) {
    (void)ctx;
    each_cell(generation, end_cell);
}

void twi_port_inherit_end(tw_engine *engine) {
    each_window(engine, end_window);
}
