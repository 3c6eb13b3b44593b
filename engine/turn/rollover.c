/* rollover.c -- roll-over ends a generation when its time has ended, and prepares the next one. This file decides which
 * families are looked at, and keeps the list of a family's windows. The steps of one window are in window_end.c, the
 * next window is made in windows.c, and memory is given back in window_end.c.
 *
 *   open ─end▶ closed ─lateness▶ sealing ─every cell frozen▶ sealed ─nothing unsent▶ drained ─hook▶ history ─▶ dropped
 *   ─grace▶ reused                                              windows in history are packed meanwhile (windows.c)
 *
 * Expiry drops one generation. Its cost does not depend on the number of keys. The turn does all of this in bounded
 * pieces. Threads that count take no part in it. A family stores when it has to be looked at next (due_ms,
 * look_mono_ms; agenda.h), so idle families and windows cost nothing.
 * Always true: a generation is dropped only when none of its counts is unsent or in flight, its hook has returned true,
 * and no thread walks it. Its memory is reused one grace period after it was unlinked. */
#include "engine/turn/rollover.h"

#include "engine/base/threads.h"
#include "engine/core/agenda.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/reserve/hold_book.h"
#include "engine/reserve/hold_shared.h"
#include "engine/reserve/reserve_local.h"
#include "engine/turn/closing.h"
#include "engine/turn/collect.h"
#include "engine/turn/windows.h"
#include "engine/turn/idle_eviction.h"
#include "engine/turn/window_end.h"

static void meet(void *ctx, struct twi_generation *generation) {
    twi_check(generation->family == ((struct twi_rollover *)ctx)->family);
    struct twi_rollover *rollover = ctx;
    if (generation->turn.known) return;
    generation->turn.known = true;
    generation->turn.next_all = rollover->family->turn.generations;
    rollover->family->turn.generations = twi_arena_line(&rollover->engine->arena, generation);
    rollover->family->turn.unsorted++;
    rollover->family->turn.held++;
    bool arrives = rollover->arrives;
    rollover->arrives = true;
    twi_window_step(rollover, generation);
    rollover->arrives = arrives;
}

/* New generations join the family's list and are handled at once, so that many new generations do not cause a walk
 * over all others. */
static bool take_arrivals(struct twi_rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (twi_load_relaxed(&family->arrivals) == 0) return false;
    uint32_t line = twi_swap_acqrel(&family->arrivals, 0);
    while (line != 0) {
        struct twi_generation *generation = twi_generation_at(&rollover->engine->arena, line);
        line = twi_load_relaxed(&generation->next_arrival);
        generation->turn.announced = true;
        meet(rollover, generation);
    }
    return true;
}

/* A thread that opens a window enters it into the map and then announces it. The thread may stall between these
 * two steps, while other threads count in that window. So the turn sometimes searches the map for such windows. */
static bool find_unannounced(struct twi_rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (!family->turn.map_requested) return false;
    family->turn.map_requested = false;
    uint32_t held = family->turn.held;
    twi_window_visit(family, meet, rollover);
    return family->turn.held != held;
}

/* ---- generations in order of time ---- */

static uint32_t *next_all(struct twi_generation *generation) {
    return &generation->turn.next_all;
}

static int64_t start_of(const struct twi_generation *generation) {
    return generation->start_ms;
}

static void put_in_order(struct twi_rollover *rollover) {
    twi_check(rollover->family->turn.unsorted <= rollover->family->turn.held);
    static const struct twi_generation_order by_start = {next_all, start_of};
    struct twi_family_turn *turn = &rollover->family->turn;
    turn->generations = twi_generations_sort(&rollover->engine->arena, &by_start, turn->generations, turn->unsorted);
    turn->unsorted = 0;
}

static void look_at_all(struct twi_rollover *rollover) {
    put_in_order(rollover);
    rollover->held_up = false;
    for (uint32_t line = rollover->family->turn.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&rollover->engine->arena, line);
        line = generation->turn.next_all;
        twi_window_step(rollover, generation);
        rollover->held_up = rollover->held_up || twi_window_holds_others_up(rollover, generation);
    }
}

/* Dropped generations are on the engine's list already. Their grace period begins. */
static void retire_dropped(struct twi_rollover *rollover) {
    twi_check(rollover->dropped);
    struct tw_family *family = rollover->family;
    tw_engine *engine = rollover->engine;
    twi_window_unlink_dropped(family);
    twi_history_forget_dropped(&engine->arena, family);
    uint64_t stamp = twi_epoch_stamp();
    TWI_RACE_POINT(unlinked_still_current);
    uint32_t *link = &family->turn.generations, unsorted = family->turn.unsorted;
    for (uint32_t i = 0; *link != 0; i++) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        if (twi_load_relaxed(&generation->phase) != TWI_DROPPED) {
            link = &generation->turn.next_all;
            continue;
        }
        *link = generation->turn.next_all;
        if (i < unsorted) family->turn.unsorted--;
        generation->turn.dropped.stamp = stamp;
    }
}

void twi_rollover_take_away(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_turn_is_owned(engine) && twi_load_relaxed(&generation->phase) >= TWI_SEALING);
    twi_check(generation->turn.known);
    struct twi_rollover rollover = {.engine = engine, .family = generation->family, .dropped = true};
    twi_rollover_drop(engine, generation);
    retire_dropped(&rollover);
}

/* ---- a family's turn ---- */

/* Logs once that late counts were refused, for a family that counts by event time without a lateness_ms. */
static void log_late(struct twi_rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (!twi_load_relaxed(&family->marks.is_late) || family->turn.is_late_logged) return;
    family->turn.is_late_logged = true;
    twi_port_log(
        rollover->engine, TW_LOG_WARNING, TW_EVENT_LATE,
        "counts by event time came after the end of their window, and family \"%s\" has no lateness_ms: they were "
        "refused (TW_ERR_LATE; tw_stats.late_increments counts them)",
        family->options.name);
}

/* Returns how much work was done. */
static uint32_t family_turn(tw_engine *engine, struct tw_family *family) {
    twi_check(family->engine == engine && family->agenda.in_round);
    struct twi_rollover rollover = {meet, engine, family, TWI_WORK_TURN, .due_ms = INT64_MAX, .look_ms = INT64_MAX};
    bool changed = twi_load_relaxed(&family->requests.changed) && twi_swap_acqrel(&family->requests.changed, false);
    rollover.over_ms = twi_family_over_by(family, engine->turn.now_ms);
    bool arrived = take_arrivals(&rollover);
    arrived = find_unannounced(&rollover) || arrived;
    if (changed || engine->turn.now_ms >= family->turn.due_ms || engine->turn.mono_ms >= family->turn.look_mono_ms ||
        twi_rollover_is_ending(&rollover) || family->kind.evicts_idle) {
        rollover.due_ms = rollover.look_ms = INT64_MAX;
        look_at_all(&rollover);
        if (changed) log_late(&rollover);
    } else if (arrived) {
        twi_rollover_due(&rollover, family->turn.due_ms);
        if (family->turn.look_mono_ms < rollover.look_ms) rollover.look_ms = family->turn.look_mono_ms;
    } else {
        return 0;
    }
    if (rollover.dropped) retire_dropped(&rollover);
    if (family->kind.has_starts && !twi_rollover_is_ending(&rollover)) twi_window_prepare(&rollover);
    if (family->kind.evicts_idle && !twi_rollover_is_ending(&rollover))
        twi_rollover_look(&rollover, twi_idle_eviction_turn(family));
    if (twi_rollover_is_ending(&rollover)) twi_window_abandon(&rollover);
    family->turn.due_ms = rollover.due_ms;
    family->turn.look_mono_ms = rollover.look_ms;
    return TWI_WORK_TURN - rollover.work;
}

/* Returns false if the family is among the news or is being watched, or if its reservations still exist, or if not
 * all of its share was given back. Then a later turn tries it again. */
static bool free_family(tw_engine *engine, struct tw_family *family) {
    twi_check(family->turn.held == 0 && family->turn.generations == 0);
    /* the thread that requested the close has released the lock, so the family is or was among the news */
    twi_lock(&engine->roster.lock);
    bool stays = twi_load_acquire(&family->agenda.is_news) || engine->here->watcher.held == family ||
                 !twi_reserve_local_is_gone(family) ||
                 twi_load_acquire(&family->started) != 0; /* AN2, pairs with AN1 */
    if (!stays) twi_window_map_give(family);
    stays = stays || !twi_parts_are_empty(&family->quota.parts);
    if (!stays) {
        twi_parts_give(&engine->arena, &family->quota.parts);
        twi_limit_stats_keep(family);
        twi_agenda_leave(&engine->agenda, family);
        twi_roster_remove(engine, family);
    }
    twi_unlock(&engine->roster.lock); /* other threads walk the list under the lock */
    if (stays) return false;
    twi_limit_stats_free(family);
    twi_closing_free(family);
    twi_hold_shared_forget(family);
    twi_family_free(family);
    return true;
}

static uint32_t look_at(tw_engine *engine, struct tw_family *family) {
    uint32_t work = family_turn(engine, family);
    twi_history_turn(engine, family);
    twi_limit_stats_turn(family);
    family->turn.is_ending = twi_load_relaxed(&family->requests.close_requested) ||
                             (engine->turn.closing && !twi_family_has_reached(family, TWI_HISTORY));
    if (family->kind.gauge) twi_gauge_appoint(family);
    if (family->kind.closes_once) twi_closing_appoint(family);
    bool has_holds = twi_load_acquire(&family->requests.close_requested) && !twi_hold_book_forget(family);
    bool is_over = !has_holds && twi_load_acquire(&family->requests.close_requested) && family->turn.held == 0 &&
                   twi_load_relaxed(&family->arrivals) == 0 && !engine->turn.closing &&
                   !(family->kind.closes_once && twi_closing_is_busy(family));
    if (!is_over || !free_family(engine, family)) twi_agenda_enter(&engine->agenda, family);
    return work;
}

static void note_unannounced(void *ctx, struct twi_generation *generation) {
    if (!generation->turn.known) *(bool *)ctx = true;
}

static void search(tw_engine *engine) {
    uint32_t left = 0;
    for (struct tw_family *family; (family = twi_agenda_search(engine, &left)) != NULL;) {
        if (twi_load_relaxed(&family->map) == 0) continue;
        twi_window_visit(family, note_unannounced, &family->turn.map_requested);
        if (family->turn.map_requested) twi_agenda_notify(family);
    }
}

/* The work of all families in one turn. It is one or two milliseconds. The next turns do the rest of the round.
 * While the engine closes, no thread waits for the end of a turn. */
#define ROUND_WORK (16 * TWI_WORK_TURN)
#define FAMILY_WORK 384 /* the work of a family that needs hardly any */

void twi_rollover_turn(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    search(engine);
    twi_agenda_begin_round(engine);
    for (uint32_t work = 0; work < ROUND_WORK || engine->turn.closing;) {
        struct tw_family *family = twi_agenda_take(&engine->agenda);
        if (family == NULL) return;
        work += FAMILY_WORK + look_at(engine, family);
        twi_clock_tick();
    }
}

static bool all_have_reached(tw_engine *engine, enum twi_phase phase) {
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        if (twi_load_relaxed(&family->arrivals) != 0 || !twi_family_has_reached(family, phase)) return false;
    }
    return true;
}
/* A family that is finished is examined again only if it has news. */
void twi_rollover_begin_end(tw_engine *engine) {
    engine->turn.closing = true;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_agenda_notify(family);
}

uint64_t twi_rollover_windows(tw_engine *engine) {
    uint64_t count = 0;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        count += family->turn.held;
    return count;
}

bool twi_rollover_is_done(tw_engine *engine) {
    return all_have_reached(engine, TWI_HISTORY);
}
bool twi_rollover_is_sealed(tw_engine *engine) {
    return all_have_reached(engine, TWI_SEALED);
}
