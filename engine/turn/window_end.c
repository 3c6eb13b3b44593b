/* window_end.c -- the end of a window, step by step (rollover.h): it is sealed, drained, shown to the closing hook,
 * kept as history, and dropped.
 * Always true: a generation is dropped only when none of its counts is unsent or in flight, its hook has returned true,
 * and no thread walks it. Hooks are called in order of time. */
#include "engine/turn/window_end.h"

#include "engine/base/probe.h"
#include "engine/core/host.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/limit/lease.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/share.h"
#include "engine/table/sketch.h"
#include "engine/turn/closing.h"
#include "engine/turn/closing_election.h"
#include "engine/turn/collect.h"
#include "engine/turn/idle_eviction.h"
#include "engine/turn/lease_renewal.h"
#include "engine/turn/restore_notes.h"
#include "engine/turn/windows.h"

#define HOOK_AGAIN_MS 100
#define EVICTION_PAUSE_MS 100 /* the default interval */
#define DRAIN_LOOK_MS 20      /* how soon a sealed window with unsent counts is examined again */

/* Returns how long after its end a generation still accepts or shows counts. In TW_WINDOW_FROM_FIRST families, the
 * lifetime of a key may begin at the very end of the generation. */
static int64_t seal_at_ms(struct tw_family *family, const struct twi_generation *generation) {
    twi_check(generation->family == family);
    int64_t more = family->kind.from_first ? family->rule.window_ms : twi_family_open_for_ms(family);
    return twi_time_add(generation->end_ms, more);
}
/* A window that was closed by a watermark stays readable as long as any other, from its closing on. */
static int64_t drop_at_ms(struct tw_family *family, const struct twi_generation *generation) {
    twi_check(generation->family == family);
    if (family->kind.evicts_idle || generation->turn.history.gives_way) return INT64_MIN;
    int64_t history_ms = family->kind.from_first ? 0 : twi_load_relaxed(&family->policy.history_ms);
    int64_t at_ms = twi_time_add(seal_at_ms(family, generation), history_ms);
    if (generation->end_ms > twi_load_relaxed(&family->marks.watermark_ms) || family->kind.from_first) return at_ms;
    const tw_engine *engine = family->engine;
    int64_t sealed_ms = engine->turn.now_ms - (engine->turn.mono_ms - generation->turn.sealed_mono_ms);
    int64_t early_ms = twi_time_add(sealed_ms > generation->end_ms ? sealed_ms : generation->end_ms, history_ms);
    return early_ms < at_ms ? early_ms : at_ms;
}

/* Compares values to find the unsent counts of a frozen counter. The mark of the counter is not enough, because an
 * adder may not have set it yet (trap E8). */
static void note_frozen(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final) {
    struct twi_rollover *rollover = ctx;
    struct twi_generation *generation =
        (meta & TWI_META_OVERFLOW) != 0
            ? (struct twi_generation *)((unsigned char *)cell - offsetof(struct twi_generation, overflow))
            : twi_generation_at(&rollover->engine->arena, twi_cell_chunk(cell, meta)->generation);
    generation->has_cells |= (meta & TWI_META_OVERFLOW) == 0;
    if (!generation->synced) return;
    struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    if (rollover->family->kind.gauge && twi_gauge_leaves(rollover->family)) final = 0;
    /* After the end of a window, Redis's estimate is needed, too, whatever this engine has to send (distinct_merge.c).
     */
    bool is_sketch = generation->turn.distinct && (meta & TWI_META_OVERFLOW) == 0;
    if (is_sketch) final = twi_sketch_sum(&rollover->engine->arena, cell);
    if (twi_load_relaxed(&cold->handed) != final || (is_sketch && !twi_rollover_is_ending(rollover)))
        twi_dirty_owe(rollover->engine, generation, cell, meta);
    if (rollover->family->kind.evicts_idle && (meta & TWI_META_OVERFLOW) == 0 && !twi_rollover_is_ending(rollover))
        twi_idle_eviction_frozen(rollover->family, generation, cell, &rollover->work);
}

/* Returns true if the window is closed only because its engine or family closes, and others may still count in it.
 * "Others" are other engines, or the same family opened again while the window accepts late counts. */
static bool is_before_its_time(const struct twi_rollover *rollover, const struct twi_generation *generation) {
    const struct tw_family *family = rollover->family;
    int64_t now_ms = rollover->engine->turn.now_ms;
    if (now_ms < generation->end_ms) return true;
    bool ends_with_us = !family->kind.synced && !twi_load_relaxed(&family->requests.close_requested);
    return !ends_with_us && now_ms < twi_family_takes_until(family, generation->end_ms);
}

/* Calls the user's hook. Returns true if the hook need not be called again. */
static bool call_hook(struct twi_rollover *rollover, struct twi_generation *generation, uint32_t flags) {
    twi_check(twi_load_relaxed(&generation->phase) >= TWI_SEALED);
    tw_engine *engine = rollover->engine;
    if (!twi_generation_has_counted(generation)) return true;
    /* While the engine closes, its loop says when, because the clock of the host may not move. When the time of
     * tw_close() has ended, a hook that returned false is called a last time. */
    bool waits = engine->turn.closing ? generation->turn.hook_after_ms != 0 && !engine->turn.hooks_again
                                      : engine->turn.mono_ms < generation->turn.hook_after_ms;
    if (waits && !engine->turn.hooks_partial) return false;
    bool is_in_file = (generation->saved & TWI_SAVED_IN_FILE) != 0; /* then the next process reports it as final */
    if (is_in_file || is_before_its_time(rollover, generation)) flags |= TW_CLOSED_PARTIAL;
    if (generation->turn.restore.is_short) flags |= TW_CLOSED_LOCAL;
    if (generation->turn.hook_runs) flags |= TW_CLOSED_AGAIN; /* the thread that called it ended meanwhile */
    generation->turn.hook_runs = true;
    bool answered = twi_host_closed(rollover->family, generation->start_ms, generation->end_ms, flags);
    if (!answered) {
        generation->turn.hook_runs = false;
        generation->turn.hook_after_ms = twi_clock_mono_ms(&engine->clock) + HOOK_AGAIN_MS;
        twi_port_count(engine, hooks_again, 1);
    }
    return answered;
}

/* Returns true if the family is being closed and the hook has returned false for long enough. The family may have been
 * closed since the turn began, while the hook ran. So the thread that closed it has stored when. */
static bool is_refused_for_good(const struct twi_rollover *rollover) {
    const struct tw_family *family = rollover->family;
    return twi_load_acquire(&family->requests.close_requested) &&
           rollover->engine->turn.mono_ms - family->requests.close_mono_ms >=
               rollover->engine->here->remote.tuning.closing_wait_ms;
}

/* Hooks are called in order of time. A thread that opens a window looks at the clock and the watermark again before it
 * counts in the window (lookup.c). So if a window has ended by this turn's over_ms, and is not in the map after the
 * fence, it will never have counts. */
static bool is_its_turn(struct twi_rollover *rollover) {
    if (rollover->arrives) twi_rollover_look(rollover, 0);
    if (rollover->arrives || rollover->held_up) return false;
    if (!rollover->swept) {
        uint32_t held = rollover->family->turn.held;
        twi_fence_seqcst(); /* N5, pairs with N2 */
        twi_window_visit(rollover->family, rollover->meet, rollover);
        rollover->swept = true;
        rollover->is_whole = rollover->family->turn.held == held;
        if (!rollover->is_whole) twi_rollover_look(rollover, 0);
    }
    return rollover->is_whole;
}

/* Returns true if later windows have to wait for this one. When the time of tw_close() has ended, they wait only until
 * it is sealed, because a hook that then returns false is not called again. */
bool twi_window_holds_others_up(const struct twi_rollover *rollover, struct twi_generation *generation) {
    uint32_t phase = twi_load_relaxed(&generation->phase);
    if (phase < TWI_SEALED) return true;
    return phase < TWI_HISTORY && !generation->turn.hook_done && !rollover->engine->turn.hooks_partial &&
           twi_generation_has_counted(generation);
}

static bool call_hook_or_give_up(struct twi_rollover *rollover, struct twi_generation *generation, uint32_t flags) {
    if (twi_generation_has_counted(generation) && !is_its_turn(rollover)) return false;
    if (call_hook(rollover, generation, flags)) return true;
    if (!is_refused_for_good(rollover)) return false;
    twi_closing_note_unreported(generation, "its hook returned false until the family had to close");
    return true;
}

static void seal(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_SEALING);
    if (!twi_table_seal(&rollover->engine->arena, generation, &rollover->work, note_frozen, rollover)) {
        twi_rollover_look(rollover, 0);
        return;
    }
    twi_rollover_enter(generation, TWI_SEALED);
    TWI_PROBE3(window_sealed, rollover->family->options.name, generation->start_ms,
               twi_load_relaxed(&generation->keys));
    generation->turn.sealed_mono_ms = generation->turn.hurried_mono_ms = rollover->engine->turn.mono_ms;
    rollover->family->turn.keys_last = twi_load_relaxed(&generation->keys);
    if (rollover->family->turn.keys_last != 0) rollover->family->turn.bytes_last = twi_load_relaxed(&generation->bytes);
    if (rollover->engine->turn.now_ms >= generation->end_ms) twi_leases_end(rollover->engine, generation);
    if (!twi_generation_has_counted(generation)) return;
    twi_store_relaxed(&rollover->family->marks.had_counts, true);
    twi_port_count(rollover->engine, windows_closed, 1);
}

/* Continues a window that one engine closes for all. Returns true if the window needs no more work here for that. */
static bool close_by_one(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(rollover->family->kind.closes_once);
    if (!twi_generation_has_counted(generation)) {
        generation->turn.hook_done = generation->turn.hook_done || !twi_closing_awaits_word(generation);
        return generation->turn.hook_done;
    }
    enum twi_closing next =
        twi_closing_step(rollover->engine, generation, twi_generation_is_drained(generation), &rollover->work);
    if (next == TWI_CLOSING_OVER) return true;
    if (next == TWI_CLOSING_WAIT || !is_its_turn(rollover)) return false;
    bool again = twi_closing_is_repeat(generation);
    uint32_t flags = (next == TWI_CLOSING_LOCAL ? TW_CLOSED_LOCAL : 0) | (again ? TW_CLOSED_AGAIN : 0);
    bool answered = call_hook(rollover, generation, flags);
    if (answered && again) twi_port_count(rollover->engine, windows_again, 1);
    if (answered || !is_refused_for_good(rollover))
        twi_closing_hook_answered(rollover->engine, generation, answered);
    else
        twi_closing_refused(rollover->engine, generation);
    generation->turn.hook_runs = false;
    return generation->turn.hook_done && twi_close_election_of(generation) == NULL;
}

/* A window pauses each time before it hurries, because counts that Redis refuses stay unsent. Returns true if the pause
 * has ended. Then the next pause begins. */
static bool is_pause_over(const struct twi_rollover *rollover, struct twi_generation *generation, int64_t pause_ms) {
    twi_check(pause_ms >= 0);
    int64_t now_ms = rollover->engine->turn.mono_ms;
    if (now_ms - generation->turn.hurried_mono_ms < pause_ms) return false;
    generation->turn.hurried_mono_ms = now_ms;
    return true;
}

/* Returns the pause that leaves enough of the time for which Redis keeps a window. INT64_MAX means that Redis keeps
 * the window without end. */
static int64_t pause_while_kept_ms(const struct tw_family *family) {
    int64_t kept_ms = twi_load_relaxed(&family->policy.retention_ms);
    return kept_ms != 0 ? kept_ms / 4 : INT64_MAX;
}

/* The interval may be longer than the hook waits, than Redis keeps the window, or than new keys can wait for the
 * room of idle keys. */
static void hurry(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) >= TWI_SEALED);
    int64_t pause_ms = rollover->engine->here->remote.tuning.closing_wait_ms / 2;
    int64_t kept_ms = pause_while_kept_ms(rollover->family);
    if (kept_ms < pause_ms) pause_ms = kept_ms;
    if (rollover->family->kind.evicts_idle && pause_ms > EVICTION_PAUSE_MS) pause_ms = EVICTION_PAUSE_MS;
    if (is_pause_over(rollover, generation, pause_ms)) rollover->engine->collector.hurried = true;
}

static void drain(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_SEALED);
    if (twi_generation_is_drained(generation)) {
        twi_rollover_enter(generation, TWI_DRAINED);
        return;
    }
    int64_t waited_ms = rollover->engine->turn.mono_ms - generation->turn.sealed_mono_ms;
    bool away =
        waited_ms >= rollover->engine->here->remote.tuning.closing_wait_ms || rollover->engine->turn.hooks_partial;
    hurry(rollover, generation);
    if (rollover->family->kind.closes_once) {
        if (rollover->engine->turn.hooks_partial || twi_closing_gives_up(rollover->engine, generation))
            (void)close_by_one(rollover, generation);
    } else if (!generation->turn.hook_done && away) {
        generation->turn.hook_done = call_hook_or_give_up(rollover, generation, TW_CLOSED_LOCAL);
    }
    twi_rollover_look(rollover, DRAIN_LOOK_MS);
}

/* Returns true if the closing hook has got the window and the overshoot is known. */
static bool is_told(struct twi_rollover *rollover, struct twi_generation *generation) {
    if (rollover->family->kind.closes_once) {
        if (!close_by_one(rollover, generation)) return false;
    } else if (!generation->turn.hook_done) {
        generation->turn.hook_done = call_hook_or_give_up(rollover, generation, 0);
    }
    return generation->turn.hook_done &&
           twi_overshoot_measure(rollover->engine, generation, twi_rollover_is_ending(rollover));
}

static void finish(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_DRAINED);
    if (!is_told(rollover, generation)) {
        if (!twi_generation_is_drained(generation)) hurry(rollover, generation); /* it waits for totals */
        twi_rollover_look(rollover, DRAIN_LOOK_MS);
        return;
    }
    twi_rollover_enter(generation, TWI_HISTORY);
    if (!twi_rollover_is_ending(rollover) && rollover->engine->turn.now_ms < drop_at_ms(rollover->family, generation))
        twi_history_enter(rollover->engine, generation);
}

static void drop(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_HISTORY);
    int64_t at_ms = drop_at_ms(rollover->family, generation);
    if (rollover->engine->turn.closing) return; /* the whole arena is freed */
    bool is_closed = twi_load_relaxed(&rollover->family->requests.close_requested);
    if (!is_closed && (generation->saved & TWI_SAVED_IN_FILE) != 0) return; /* tw_save() may be called again */
    if (rollover->engine->turn.now_ms >= at_ms || is_closed) {
        if (twi_rollover_is_ending(rollover) &&
            !twi_leases_are_returned(rollover->engine, generation, &rollover->work)) {
            twi_rollover_look(rollover, DRAIN_LOOK_MS); /* only this engine can return the units of a lease */
            return;
        }
        if (rollover->family->kind.evicts_idle && !twi_rollover_is_ending(rollover))
            twi_idle_eviction_dropped(rollover->family, generation);
        /* If a reader's clock is a moment old, or was set back, the reader must not assume that the window is empty. */
        if (rollover->family->kind.has_starts)
            (void)twi_family_raise(&rollover->family->marks.gone_ms, generation->end_ms);
        twi_rollover_drop(rollover->engine, generation);
        twi_restore_note_dropped(rollover->engine, generation);
        rollover->dropped = true;
    } else {
        twi_rollover_due(rollover, at_ms);
    }
}

/* With idle eviction, a window ends with its epoch. Then idle_eviction.c decides when it is sealed. */
static bool stays_open(struct twi_rollover *rollover, struct twi_generation *generation) {
    struct tw_family *family = rollover->family;
    if (twi_rollover_is_ending(rollover)) return false;
    if (family->kind.evicts_idle) return twi_load_relaxed(&family->eviction_epoch) < generation->end_ms;
    if (rollover->engine->turn.now_ms >= generation->end_ms) return false;
    twi_rollover_due(rollover, generation->end_ms);
    return true;
}
static bool stays_closed(struct twi_rollover *rollover, struct twi_generation *generation) {
    struct tw_family *family = rollover->family;
    if (twi_rollover_is_ending(rollover)) return false;
    if (family->kind.evicts_idle) return !twi_idle_eviction_is_due(family, generation);
    if (family->kind.has_starts && generation->end_ms <= rollover->over_ms) return false;
    int64_t at_ms =
        family->kind.has_starts ? twi_family_open_until(family, generation->end_ms) : seal_at_ms(family, generation);
    if (!family->kind.has_starts && rollover->engine->turn.now_ms >= at_ms) return false;
    twi_rollover_due(rollover, at_ms);
    return true;
}

/* A closed window may accept late counts for as long as Redis keeps it, so its unsent counts do not wait until the
 * window is sealed. */
static void hurry_closed(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_CLOSED);
    int64_t pause_ms = pause_while_kept_ms(rollover->family);
    if (!rollover->family->kind.synced || pause_ms == INT64_MAX) return;
    if (is_pause_over(rollover, generation, pause_ms) && !twi_generation_is_drained(generation))
        rollover->engine->collector.hurried = true;
    twi_rollover_look(rollover, generation->turn.hurried_mono_ms + pause_ms - rollover->engine->turn.mono_ms);
}

/* Makes as many steps as are possible now. */
void twi_window_step(struct twi_rollover *rollover, struct twi_generation *generation) {
    twi_check(generation->family == rollover->family);
    if (twi_load_relaxed(&generation->phase) == TWI_OPEN) {
        if (stays_open(rollover, generation)) return;
        twi_rollover_enter(generation, TWI_CLOSED);
        generation->turn.hurried_mono_ms = rollover->engine->turn.mono_ms;
    }
    if (twi_load_relaxed(&generation->phase) == TWI_CLOSED) {
        if (stays_closed(rollover, generation)) {
            hurry_closed(rollover, generation);
            return;
        }
        twi_rollover_enter(generation, TWI_SEALING);
    }
    if (twi_load_relaxed(&generation->phase) == TWI_SEALING) seal(rollover, generation);
    if (twi_load_relaxed(&generation->phase) == TWI_SEALED) drain(rollover, generation);
    if (twi_load_relaxed(&generation->phase) == TWI_DRAINED) finish(rollover, generation);
    if (twi_load_relaxed(&generation->phase) == TWI_HISTORY) drop(rollover, generation);
}

/* ---- window reclaim ----
 * gives back the memory of dropped windows, in bounded pieces.
 * Always true: the memory is reused no sooner than one grace period after its window was unlinked and one more after
 * it was hidden, and not while a thread reads the window. */

/* Called when the first grace period is over. No thread has the generation from the map any more, so no thread can
 * make it `current` again. A thread that began after the generation was unlinked may have it from `current`, even if
 * `current` is another one by now. So the generation always waits for a second grace period. */
static void hide(struct twi_generation *generation) {
    twi_check(!generation->turn.dropped.is_hidden);
    struct tw_family *family = generation->family;
    if (twi_load_acquire(&family->current) == generation) twi_store_release(&family->current, &twi_generation_none);
    generation->turn.dropped.stamp = TWI_NOT_RETIRED;
    twi_fence_compiler();
    generation->turn.dropped.is_hidden = true;
    generation->turn.dropped.stamp = twi_epoch_stamp();
}

/* Gives back all but the generation itself. is_walked means that some generation is held. */
static bool empty(tw_engine *engine, struct twi_generation *generation, bool is_walked, uint32_t *work) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_DROPPED);
    if (!generation->turn.dropped.is_hidden) {
        hide(generation);
        engine->turn.reclaimed = true; /* the next turn looks again without a wait */
        return false;
    }
    if (is_walked && twi_threads_hold(generation, 0)) return false;
    /* The generation is kept, because it is or soon will be on the list of arrivals, or a reply names it. */
    if (!generation->turn.announced || generation->turn.outstanding != 0) return false;
    /* An adder that stopped between DIRTY and its marks may have listed the generation after it was drained. */
    if (generation->turn.pending || twi_load_acquire(&generation->marks.listed) != 0)
        twi_dirty_forget(engine, generation);
    if (!twi_history_unmake(&engine->arena, generation, work)) return false;
    twi_contention_forget(engine, generation);
    twi_leases_forget(engine, generation);
    twi_share_forget(engine, generation);
    twi_overshoot_forget(engine, generation);
    return twi_table_empty(&engine->arena, generation, work);
}

static void reclaim_maps(tw_engine *engine, uint64_t reached) {
    if (engine->unlinked.maps != 0 && engine->unlinked.maps_stamp < reached) {
        while (engine->unlinked.maps != 0) {
            uint32_t line = engine->unlinked.maps, lines = twi_window_map_lines(&engine->arena, line);
            engine->unlinked.maps = twi_window_map_next(&engine->arena, line);
            twi_arena_give(&engine->arena, line, lines);
        }
    }
    if (engine->unlinked.maps == 0 && twi_load_relaxed(&engine->unlinked.new_maps) != 0) {
        engine->unlinked.maps_stamp = UINT64_MAX;
        engine->unlinked.maps = twi_swap_acqrel(&engine->unlinked.new_maps, 0);
        engine->unlinked.maps_stamp = twi_epoch_stamp();
        engine->turn.reclaimed = true;
    }
}

void twi_window_reclaim(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    engine->turn.reclaimed = false;
    if (engine->unlinked.generations == 0 && engine->unlinked.maps == 0 &&
        twi_load_relaxed(&engine->unlinked.new_maps) == 0)
        return;
    uint64_t reached = twi_epoch_reached();
    bool is_walked = twi_threads_hold(NULL, 0); /* what may be given back now gets no new holds */
    uint32_t work = 4 * TWI_WORK_TURN, *link = &engine->unlinked.generations;
    while (*link != 0 && work != 0) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        if (generation->turn.dropped.stamp < reached && empty(engine, generation, is_walked, &work)) {
            /* If this thread ends in between, it leaks some hundred bytes. Nothing is ever given back twice. */
            *link = generation->turn.dropped.next;
            generation->family->turn.held--;
            twi_table_give(&engine->arena, generation);
        } else {
            link = &generation->turn.dropped.next;
        }
    }
    reclaim_maps(engine, reached);
    engine->turn.reclaimed = engine->turn.reclaimed || work != 4 * TWI_WORK_TURN;
}
