/* lost.c -- see lost.h. */
#include "engine/turn/lost.h"

#include "engine/count/dirty.h"
#include "engine/port/rejected.h"
#include "engine/turn/restore_notes.h"
#include "engine/core/state.h"
#include "engine/core/family.h"
#include "engine/core/host.h"
#include "engine/table/sketch.h"

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
