/* settle.c -- applies the outcome of an item to its counter: Redis has replied, or will never reply (items.h). Runs in
 * the turn.
 *
 * Always true: each item is settled once. `acked` rises by the item's delta if Redis has the delta or if the delta
 * will never be sent. `handed` falls by the delta if the delta returns to its counter. */
#include "engine/turn/settle.h"

#include "engine/base/grow.h"
#include "engine/base/hll.h"
#include "engine/core/family.h"
#include "engine/core/host.h"
#include "engine/core/state.h"
#include "engine/count/dirty.h"
#include "engine/limit/share.h"
#include "engine/port/items.h"
#include "engine/table/sketch.h"
#include "engine/turn/idle_eviction.h"
#include "engine/turn/restore_notes.h"

#include <stdlib.h>

/* ---- parked ----
 * deferred counters: their store accepts no counts for now (items.h).
 *
 *   collected ─▶ parked ─▶ the store can take them: to be sent again (dirty.c)
 * A deferred counter has PARKED in its meta word. The collector skips it and leaves its DIRTY set, so adders mark it at
 * most once. So an unreachable store costs one place in a list for each of its counters, however often threads count in
 * them.
 * Always true: a deferred counter is in one list, once, and its generation's `outstanding` includes it. */

#define PARKED_FIRST 64u

bool twi_port_park(struct twi_parking *parking, const struct twi_item *item) {
    twi_check((item->flags & TWI_ITEM_GAUGE) == 0);
    if (!twi_grow(&parking->items, sizeof *parking->items, &parking->room, (size_t)parking->count + 1, PARKED_FIRST))
        return false;
    struct twi_cell *cell = item->cell;
    uint64_t meta = twi_or_relaxed(&cell->meta, TWI_META_PARKED); /* only the turn reads it */
    struct twi_cold *cold = twi_generation_cold(item->generation, cell, meta);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) - item->delta);
    if (item->units != 0) twi_restore_note_returned(item, true);
    if ((item->flags & TWI_ITEM_ASKED) != 0) twi_store_relaxed(&cell->asked, 1);
    item->family->engine->collector.items_out -= item->delta != 0;
    if ((meta & TWI_META_PARKED) != 0) { /* counted again, so collected twice; the list has it already */
        item->generation->turn.outstanding--;
        return true;
    }
    parking->items[parking->count++] = (struct twi_parked){item->generation, cell};
    return true;
}

bool twi_port_unpark(tw_engine *engine, struct twi_parking *parking, uint32_t count_max) {
    twi_check(parking->count <= parking->room);
    for (; parking->count != 0 && count_max > 0; count_max--) {
        const struct twi_parked *parked = &parking->items[--parking->count];
        /* one instruction; no ordering is needed */
        uint64_t meta = twi_and_acqrel(&parked->cell->meta, ~TWI_META_PARKED);
        twi_dirty_owe(engine, parked->generation, parked->cell, meta);
        twi_check(parked->generation->turn.outstanding != 0);
        parked->generation->turn.outstanding--;
    }
    if (parking->count != 0) return true;
    twi_port_parking_free(parking);
    return false;
}

void twi_port_parking_free(struct twi_parking *parking) {
    free(parking->items);
    *parking = (struct twi_parking){0};
}

/* ---- lost ---- */

void twi_lost_report_distinct(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int reason) {
    twi_check(family->kind.is_distinct);
    engine->turn.lost_log.keys++;
    twi_host_lost(engine, family, key, start_ms, 0, reason);
}

void twi_lost_report(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                     int reason) {
    twi_check(family->engine == engine);
    int64_t units = delta < 0 ? -delta : delta;
    if (units == 0) return;
    engine->turn.lost_log.keys++;
    engine->turn.lost_log.units += (uint64_t)units;
    if (reason == TW_LOST_LATE) twi_port_count(engine, late_deltas, units);
    if (reason == TW_LOST_EXPIRED) twi_port_count(engine, expired_unsynced, units);
    if (reason == TW_LOST_UNCERTAIN)
        twi_port_count(engine, uncertain, units);
    else
        twi_port_count(engine, lost, units);
    twi_host_lost(engine, family, key, start_ms, delta, reason);
}

struct report {
    tw_engine *engine;
    struct twi_generation *generation;
};

/* Registers are no units. As in collect.c, `handed` is a sum of registers. Registers that came back from Redis are
 * in the sum of the sketch, too, but their counter does not wait to be sent. */
static bool has_unsent_registers(tw_engine *engine, struct twi_cell *cell, uint64_t meta, bool is_rejected) {
    if ((meta & TWI_META_OVERFLOW) != 0) return false;
    bool waits = is_rejected || (meta & TWI_META_PARKED) != 0 || twi_dirty_is_marked(cell, meta);
    return waits && twi_sketch_sum(&engine->arena, cell) != twi_load_relaxed(&twi_cell_cold(cell, meta)->handed);
}

static bool report_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct report *report = ctx;
    struct twi_generation *generation = report->generation;
    tw_key key = tw_bytes(cell->key, meta & TWI_META_SIZE);
    int64_t start_ms = twi_generation_start_ms(generation);
    int reason =
        twi_rejected_waits(report->engine->collector.rejected, generation, cell) ? TW_LOST_POISON : TW_LOST_CLOSED;
    if (generation->turn.distinct) {
        if (!has_unsent_registers(report->engine, cell, meta, reason == TW_LOST_POISON)) return true;
        twi_lost_report_distinct(report->engine, generation->family, key, start_ms, reason);
        return true;
    }
    struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    int64_t delta = twi_cell_local(cell, meta) - twi_load_relaxed(&cold->handed);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) + delta);
    if ((meta & TWI_META_RESEND) != 0) delta += twi_restore_take(generation, cell, cold);
    if (generation->family->kind.gauge) return true; /* the contribution of a gauge expires without a message */
    twi_lost_report(report->engine, generation->family, key, start_ms, delta, reason);
    return true;
}

void twi_lost_report_unsent(tw_engine *engine) {
    struct report report = {engine, NULL};
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        for (uint32_t line = family->kind.synced ? family->turn.generations : 0; line != 0;) {
            report.generation = twi_generation_at(&engine->arena, line);
            struct twi_cursor cursor = {0};
            twi_table_walk(&engine->arena, report.generation, &cursor, report_cell, &report);
            (void)report_cell(&report, &report.generation->overflow,
                              twi_load_relaxed(&report.generation->overflow.meta));
            line = report.generation->turn.next_all;
        }
    }
}

/* Detects that Redis has less than it has acknowledged to this engine, without a known reason. Known reasons are
 * that this engine has counted down, that Redis has lost data since the last total, or that a part of the window was
 * given up. So the key was deleted, evicted or set by another client. Each fall is reported only once: `base` is the
 * total less the acknowledged units, so `base` falls by the missing units and stays there. */
static void check_regression(const struct twi_item *item, struct twi_cold *cold, int64_t total, int64_t acked) {
    const struct twi_generation *generation = item->generation;
    tw_engine *engine = item->family->engine;
    int64_t total_state = twi_load_relaxed(&cold->total_state), base = twi_saturated_sum(total, -acked);
    if (base >= 0 || total_state == 0 || base >= twi_load_relaxed(&item->cell->base)) return;
    if (generation->turn.restore.has_negative || generation->turn.restore.has_given_up ||
        generation->turn.restore.unrestorable || generation->turn.restore.over)
        return;
    if (item->family->kind.from_first || twi_total_state_ms(total_state) <= engine->collector.forgot_mono_ms) return;
    twi_port_count(engine, regressions, 1);
    char text[120];
    twi_port_title(item, text, sizeof text);
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_REGRESSION,
                 "the key %s in Redis is at %lld, though it has acknowledged %lld to this engine", text,
                 (long long)total, (long long)acked);
}

static struct twi_cold *cold_of(const struct twi_item *item) {
    return twi_generation_cold(item->generation, item->cell, twi_load_relaxed(&item->cell->meta));
}

static int64_t difference(int64_t a, int64_t b) {
    int64_t less;
    return __builtin_sub_overflow(a, b, &less) ? (a < b ? -TW_COUNT_MAX : TW_COUNT_MAX) : less;
}

void twi_port_acknowledge(const struct twi_item *item, const struct twi_reply *answer) {
    twi_check(item->generation->turn.outstanding != 0);
    struct twi_cold *cold = cold_of(item);
    tw_engine *engine = item->family->engine;
    int64_t acked = twi_load_relaxed(&cold->acked) + item->delta;
    twi_store_relaxed(&cold->acked, acked);
    if ((item->flags & TWI_ITEM_NAMED) != 0) item->generation->turn.closing.names_recorded = true;
    if ((item->flags & TWI_ITEM_GAUGE) == 0) /* contributions of gauges are sent again, but not restored */
        twi_restore_note_resent(item);
    if (answer->has_total && (item->flags & TWI_ITEM_GAUGE) != 0) {
        twi_store_relaxed(&item->cell->base, twi_saturated_sum(answer->total, -item->units));
        twi_store_relaxed(&cold->total_state, engine->turn.mono_ms << 1 | 1);
    } else if (answer->has_total && item->family->kind.evicts_idle) {
        twi_idle_eviction_take_total(item, answer->total, acked);
    } else if (answer->has_total) {
        check_regression(item, cold, answer->total, acked);
        /* one store, so that no reader sees half of a view (trap E6) */
        int64_t base = twi_saturated_sum(answer->total, -acked), before = twi_load_relaxed(&item->cell->base);
        twi_store_relaxed(&item->cell->base, base);
        twi_store_relaxed(&cold->total_state,
                          twi_share_take_total(engine, twi_load_relaxed(&cold->total_state), difference(base, before)));
    }
    if (answer->end_ms != 0 && (item->flags & TWI_ITEM_FROM_FIRST) != 0)
        twi_store_relaxed(&item->cell->end_ms, answer->end_ms);
    twi_item_let_go(item);
}

void twi_port_return(const struct twi_item *item, uint32_t after_ms) {
    twi_check(item->generation->turn.outstanding != 0);
    tw_engine *engine = item->family->engine;
    struct twi_cold *cold = cold_of(item);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) - item->delta);
    if ((item->flags & TWI_ITEM_ASKED) != 0) twi_store_relaxed(&item->cell->asked, 1);
    if ((item->flags & TWI_ITEM_GAUGE) == 0 && item->units != 0) twi_restore_note_returned(item, after_ms == 0);
    enum twi_waiting_since waits = TWI_WAITS_NOT;
    if (after_ms != 0) waits = twi_rejected_wait(engine->collector.rejected, item, engine->turn.mono_ms + after_ms);
    if (waits == TWI_WAITS_FROM_NOW) return;
    if (waits == TWI_WAITS_NOT)
        twi_dirty_owe(engine, item->generation, item->cell, twi_load_relaxed(&item->cell->meta));
    twi_item_let_go(item);
}

void twi_port_give_up(const struct twi_item *item, int reason) {
    twi_check(item->generation->turn.outstanding != 0);
    twi_check(reason >= TW_LOST_EXPIRED && reason <= TW_LOST_CLOSED);
    struct twi_cold *cold = cold_of(item);
    item->generation->turn.restore.is_short = true;
    /* A flush reports the items that on_lost gets. It does not report items that only request a total. */
    bool is_lost = item->delta != 0 || (item->flags & TWI_ITEM_DISTINCT) != 0;
    if (is_lost && reason != TW_LOST_CLOSED) (void)twi_add_relaxed(&item->family->engine->collector.given_up, 1);
    /* the item is settled, so it is never sent again */
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + item->delta);
    twi_item_let_go(item);
    twi_restore_note_given_up(item->family->engine, item, reason);
    int64_t start_ms = twi_generation_start_ms(item->generation);
    if ((item->flags & TWI_ITEM_DISTINCT) != 0)
        twi_lost_report_distinct(item->family->engine, item->family, twi_port_key(item), start_ms, reason);
    else
        twi_lost_report(item->family->engine, item->family, twi_port_key(item), start_ms, item->delta, reason);
}

/* ---- distinct merge ----
 * counters of distinct elements with Redis: the registers that are sent to Redis, and the registers
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
