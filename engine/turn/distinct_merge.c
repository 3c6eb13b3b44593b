/* distinct_merge.c -- counters of distinct elements with Redis: the registers that are sent to Redis, and the registers
 * that come back (items.h).
 *
 * Each register of a key in Redis is the maximum of the registers of all engines. Merging the same registers again has
 * no effect. So these counters need no batches, ledgers or replays, and no units are reported as lost or uncertain. A
 * collected item represents all registers of its key. The registers are read when the message is made. If Redis may
 * have forgotten something, all keys are sent again (restore.c).
 * In the cold part `handed` and `acked` are sums of registers. A sum rises whenever a register rises, so a different
 * sum shows that there are new elements. Registers that come back from Redis are raised in the same way, but do not
 * mark the counter. Their only cost is that the key may be sent again. A sealed sketch accepts no registers any more.
 * For a sealed sketch `base` is the difference between Redis's estimate and the estimate of the sketch.
 * Always true: only the turn runs this file. A view never falls because of a reply. */
#include "engine/base/hll_bytes.h"

#include "engine/table/sketch.h"
#include "engine/turn/collect.h"

static_assert(TWI_DISTINCT_BYTES_MAX >= TWI_HLL_BYTES_MAX, "all registers fit");

size_t twi_port_distinct_bytes(const struct twi_item *item, unsigned char *bytes) {
    twi_check((item->flags & TWI_ITEM_DISTINCT) != 0);
    twi_check(item->generation->turn.distinct);
    uint8_t registers[TWI_HLL_REGISTERS];
    twi_sketch_read(&item->family->engine->arena, item->cell, registers);
    return twi_hll_encode(registers, bytes);
}

/* Raises the registers that are higher in Redis. A sketch does not change without memory, or if it was
 * sealed meanwhile. */
static bool merge_back(const struct twi_item *item, const struct twi_merged *merged) {
    twi_check(merged->size != 0 && merged->bytes != NULL);
    tw_engine *engine = item->family->engine;
    const struct twi_sketch sketch = {&engine->arena, item->generation, &engine->unlinked.sketches, item->cell};
    uint8_t registers[TWI_HLL_REGISTERS];
    if (!twi_hll_decode(merged->bytes, merged->size, registers)) return false;
    for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++) {
        if (registers[i] == 0) continue;
        enum twi_raise raised = twi_sketch_raise(&sketch, (struct twi_hll_element){i, registers[i]});
        if (raised == TWI_RAISE_FROZEN || raised == TWI_RAISE_NO_ROOM) break;
    }
    return true;
}

bool twi_port_distinct_merged(const struct twi_item *item, const struct twi_merged *merged) {
    twi_check((item->flags & TWI_ITEM_DISTINCT) != 0);
    tw_engine *engine = item->family->engine;
    struct twi_cell *cell = item->cell;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    if (merged->size != 0 && !merge_back(item, merged)) return false;
    if (merged->is_missing && (item->flags & TWI_ITEM_SEALED) != 0) item->generation->turn.restore.is_short = true;
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + item->delta);
    twi_store_relaxed(&cold->total_state, engine->turn.mono_ms << 1 | 1);
    if (merged->estimate != 0 && twi_cell_is_frozen(cell)) {
        int64_t more = twi_saturated_sum(merged->estimate, -twi_load_relaxed(&cold->final));
        if (more > twi_load_relaxed(&cell->base)) twi_store_relaxed(&cell->base, more);
    }
    twi_item_let_go(item);
    return true;
}
