/* settle.c -- applies the outcome of an item to its counter: Redis has replied, or will never reply (items.h). Runs in
 * the turn.
 *
 * Always true: each item is settled once. `acked` rises by the item's delta if Redis has the delta or if the delta
 * will never be sent. `handed` falls by the delta if the delta returns to its counter. */
#include "engine/turn/idle_eviction.h"

#include "engine/turn/collect.h"
#include "engine/port/rejected.h"
#include "engine/count/dirty.h"
#include "engine/turn/lost.h"
#include "engine/turn/restore_notes.h"
#include "engine/limit/share.h"

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
