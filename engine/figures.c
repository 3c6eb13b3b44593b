/* figures.c -- tw_stats_read() and tw_metrics_write(): the figures of an engine.
 * Always true: each figure is read once, without stopping any thread that counts. */
#include "engine/base/lock.h"
#include "engine/base/sized.h"
#include "engine/core/leader.h"
#include "engine/core/processes.h"
#include "engine/core/report.h"
#include "engine/core/state.h"
#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/stats.h"

#include <stdlib.h>

static void gather_windows(struct twi_roster *roster, tw_stats *stats) {
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return;
    twi_section_enter(self); /* keeps their windows */
    for (struct tw_family *family = twi_load_acquire(&roster->first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_window_count(family, &stats->generations, &stats->entries);
    twi_section_leave(self);
}

/* The statistics by family, and the sums that the engine has kept of closed families. The lock keeps other families
 * from closing meanwhile. */
static void gather_families(tw_engine *engine, tw_stats *stats) {
    int64_t *fields = (int64_t *)stats;
    twi_lock(&engine->roster.lock); /* families stay */
    for (size_t i = 0; i < offsetof(tw_stats, last_error) / sizeof(int64_t); i++)
        fields[i] = twi_load_relaxed(&engine->report.stats[i]);
    twi_limit_stats_read(engine, stats);
    gather_windows(&engine->roster, stats);
    twi_unlock(&engine->roster.lock);
}

static void gather_all(tw_engine *engine, tw_stats *stats) {
    (void)twi_thread_here(); /* a forked child must not show its parent's statistics */
    memset(stats, 0, sizeof *stats);
    gather_families(engine, stats);
    for (uint32_t i = 0; i < TWI_SHARDS; i++) stats->increments += twi_load_relaxed(&engine->shards[i].increments);
    stats->memory_bytes = twi_arena_bytes_used(&engine->arena);
    struct twi_arena_usage room = twi_arena_usage(&engine->arena);
    stats->memory_free_bytes = room.free_bytes;
    stats->memory_usable_bytes = room.usable_bytes;
    stats->memory_bytes_high = twi_arena_bytes_high(&engine->arena);
    stats->memory_bytes_max = (int64_t)engine->arena.bytes_max;
    stats->clock_held_ms = twi_clock_held_ms(&engine->clock);
    stats->clock_lag_max_ms = twi_clock_lag_max_ms(&engine->clock);
    stats->clock_ahead_ms = -twi_clock_drift_ms(&engine->clock);
    stats->processes = engine->life.is_shared ? twi_processes_count(engine) : 1;
    stats->leader_age_ms = twi_leader_age_ms(engine);
    stats->redis_configured = engine->life.has_redis;
    if (engine->here->remote.sync != NULL) engine->here->remote.driver->stats(engine->here->remote.sync, stats);
    twi_report_error_text(&engine->report, stats->last_error);
}

tw_status tw_stats_read_sized(tw_engine *engine, tw_stats *stats, size_t size) {
    tw_stats whole;
    twi_check(engine != NULL && stats != NULL);
    if (!twi_epoch_look_at_users()) return twi_refuse_for(TWI_WHY_ROOT);
    gather_all(engine, &whole);
    twi_sized_copy(stats, size, &whole, sizeof whole);
    return TW_OK;
}

tw_status tw_metrics_write(tw_engine *engine, uint32_t format, bool (*write)(void *ctx, const char *text, size_t size),
                           void *ctx) {
    twi_check(engine != NULL && write != NULL);
    struct twi_metrics_page page = {.labels = engine->options.metrics_labels, .write = write, .ctx = ctx};
    if (!twi_metrics_page_of(format, &page))
        return twi_refuse_with(TW_ERR_OPTIONS, "format: %u is no TW_METRICS_ value", format);
    tw_stats stats;
    struct twi_family_limit_stats *families;
    size_t count;
    tw_status status = tw_stats_read(engine, &stats);
    if (status != TW_OK) return status;
    if (!twi_limit_stats_list(engine, &families, &count)) return twi_refuse(TW_ERR_MEMORY, NULL);
    status = twi_stats_write(&stats, families, count, &page);
    free(families);
    return status;
}
