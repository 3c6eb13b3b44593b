/* rollover.c -- roll-over: what happens to a generation when its time is over, and how the next one is prepared.
 *
 *   open ─end▶ closed ─lateness▶ sealing ─every cell frozen▶ sealed ─nothing owed▶ drained ─hook▶ history ─▶ dropped
 *   ─grace▶ reused                                              windows in history are packed meanwhile (history.c)
 *
 * Expiry drops one generation, whatever the number of its keys. The turn does all of it in bounded pieces; threads that
 * count take no part. A family says when it has to be looked at next (due_ms, look_mono_ms; agenda.h), so idle families
 * and windows cost nothing.
 * Always true: a generation is dropped only when it owes Redis nothing, nothing of it is in flight, its hook has
 * returned true, and nobody walks it. Its memory is reused one grace period after it was unlinked. */
#include "engine/turn/rollover.h"

#include "engine/base/probe.h"
#include "engine/turn/idle_eviction.h"
#include "engine/base/lock.h"
#include "engine/core/agenda.h"
#include "engine/core/host.h"
#include "engine/turn/closing.h"
#include "engine/turn/closing_windows.h"
#include "engine/count/contention.h"
#include "engine/count/dirty.h"
#include "engine/limit/limit_stats.h"
#include "engine/turn/gauge.h"
#include "engine/table/record.h"
#include "engine/table/sketch.h"
#include "engine/turn/history.h"
#include "engine/limit/lease.h"
#include "engine/turn/lease_renewal.h"
#include "engine/limit/overshoot.h"
#include "engine/turn/restore_notes.h"
#include "engine/reserve/reserve_local.h"
#include "engine/core/roster.h"
#include "engine/limit/share.h"
#include "engine/core/window_map.h"

#include <stdlib.h>

#define HOOK_AGAIN_MS 100
#define EVICTION_PAUSE_MS 100 /* the default interval */
#define DRAIN_LOOK_MS 20      /* how soon a sealed window that still owes is looked at again */
#define ROOM_LOOKS 32         /* how often in a window's length there is a look whether the next one has room */

struct rollover {
    tw_engine *engine;
    struct tw_family *family;
    uint32_t work;   /* what is left of this turn's work */
    int64_t due_ms;  /* engine time */
    int64_t look_ms; /* monotonic */
    bool dropped;
    int64_t over_ms;      /* windows that end at this time or before are over: this turn uses no later time */
    bool arrives;         /* the generation at hand has not come to its place in the list yet */
    bool held_up;         /* the hook of an earlier window must be called first */
    bool swept, is_whole; /* the map was searched for windows that the list lacks; and it had none */
};

static void due(struct rollover *rollover, int64_t at_ms) {
    if (at_ms < rollover->due_ms) rollover->due_ms = at_ms;
}
static void look(struct rollover *rollover, int64_t after_ms) {
    int64_t at_ms = rollover->engine->turn.mono_ms + after_ms;
    if (at_ms < rollover->look_ms) rollover->look_ms = at_ms;
}
static void enter_phase(struct twi_generation *generation, enum twi_phase phase) {
    twi_store_release(&generation->phase, (uint8_t)phase);
}

static bool is_ending(const struct rollover *rollover) {
    return rollover->engine->turn.closing || twi_load_relaxed(&rollover->family->requests.close_requested);
}

/* How long after its end a generation still takes or shows counts. In TW_WINDOW_FROM_FIRST families, a key's life may
 * begin at the very end. */
static int64_t seal_at_ms(struct tw_family *family, const struct twi_generation *generation) {
    int64_t more = family->kind.from_first ? family->rule.window_ms : twi_family_open_for_ms(family);
    return twi_time_add(generation->end_ms, more);
}
/* A window that a watermark has closed stays readable as long as any other, counted from that time. */
static int64_t drop_at_ms(struct tw_family *family, const struct twi_generation *generation) {
    if (family->kind.evicts_idle || generation->turn.history.gives_way) return INT64_MIN;
    int64_t history_ms = family->kind.from_first ? 0 : twi_load_relaxed(&family->policy.history_ms);
    int64_t at_ms = twi_time_add(seal_at_ms(family, generation), history_ms);
    if (generation->end_ms > twi_load_relaxed(&family->marks.watermark_ms) || family->kind.from_first) return at_ms;
    const tw_engine *engine = family->engine;
    int64_t sealed_ms = engine->turn.now_ms - (engine->turn.mono_ms - generation->turn.sealed_mono_ms);
    int64_t early_ms = twi_time_add(sealed_ms > generation->end_ms ? sealed_ms : generation->end_ms, history_ms);
    return early_ms < at_ms ? early_ms : at_ms;
}

/* Compares values to find what a frozen counter still owes. Its mark is not enough: an adder may not have set it yet
 * (trap E8). */
static void note_frozen(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final) {
    struct rollover *rollover = ctx;
    struct twi_generation *generation =
        (meta & TWI_META_OVERFLOW) != 0
            ? (struct twi_generation *)((unsigned char *)cell - offsetof(struct twi_generation, overflow))
            : twi_generation_at(&rollover->engine->arena, twi_cell_chunk(cell, meta)->generation);
    generation->has_cells |= (meta & TWI_META_OVERFLOW) == 0;
    if (!generation->synced) return;
    struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    if (rollover->family->kind.gauge && twi_gauge_leaves(rollover->family)) final = 0;
    /* Of a window that is over, Redis's estimate is wanted, too, whatever this engine owes (distinct_merge.c). */
    bool is_sketch = generation->turn.distinct && (meta & TWI_META_OVERFLOW) == 0;
    if (is_sketch) final = twi_sketch_sum(&rollover->engine->arena, cell);
    if (twi_load_relaxed(&cold->handed) != final || (is_sketch && !is_ending(rollover)))
        twi_dirty_owe(rollover->engine, generation, cell, meta);
    if (rollover->family->kind.evicts_idle && (meta & TWI_META_OVERFLOW) == 0 && !is_ending(rollover))
        twi_idle_eviction_frozen(rollover->family, generation, cell, &rollover->work);
}

/* True if the window is closed only because its engine or its family closes, and others may still count in it. Others
 * are engines that use the same Redis, or the same family opened anew, as long as the window takes late counts. */
static bool is_before_its_time(const struct rollover *rollover, const struct twi_generation *generation) {
    const struct tw_family *family = rollover->family;
    int64_t now_ms = rollover->engine->turn.now_ms;
    if (now_ms < generation->end_ms) return true;
    bool ends_with_us = !family->kind.synced && !twi_load_relaxed(&family->requests.close_requested);
    return !ends_with_us && now_ms < twi_family_takes_until(family, generation->end_ms);
}

/* Calls the user's hook. Returns true if it need not be called again. */
static bool call_hook(struct rollover *rollover, struct twi_generation *generation, uint32_t flags) {
    tw_engine *engine = rollover->engine;
    if (!twi_generation_has_counted(generation)) return true;
    /* Once tw_close() is out of time there is no later time: a hook that returned false is called a last time. */
    if (engine->turn.mono_ms < generation->turn.hook_after_ms && !engine->turn.hooks_partial) return false;
    if (is_before_its_time(rollover, generation)) flags |= TW_CLOSED_PARTIAL;
    if (generation->turn.restore.is_short) flags |= TW_CLOSED_LOCAL;
    bool answered = twi_host_closed(rollover->family, generation->start_ms, generation->end_ms, flags);
    if (!answered) {
        generation->turn.hook_after_ms = twi_clock_mono_ms(&engine->clock) + HOOK_AGAIN_MS;
        twi_port_count(engine, hooks_again, 1);
    }
    return answered;
}

/* True if the family is being closed, and the hook has returned false for long enough. */
static bool is_refused_for_good(const struct rollover *rollover) {
    const struct tw_family *family = rollover->family;
    return twi_load_relaxed(&family->requests.close_requested) &&
           rollover->engine->turn.mono_ms - family->turn.close_mono_ms >=
               rollover->engine->remote.tuning.closing_wait_ms;
}

static void get_to_know(void *ctx, struct twi_generation *generation);

/* Hooks are called in order of time. A thread that opens a window looks at clock and watermark again before it counts
 * in it (lookup.c). So a window that is over by this turn's over_ms, and that the map does not hold after the fence,
 * never has counts. */
static bool is_its_turn(struct rollover *rollover) {
    if (rollover->arrives) look(rollover, 0);
    if (rollover->arrives || rollover->held_up) return false;
    if (!rollover->swept) {
        uint32_t held = rollover->family->turn.held;
        twi_fence_seqcst(); /* N5, pairs with N2 */
        twi_window_visit(rollover->family, get_to_know, rollover);
        rollover->swept = true;
        rollover->is_whole = rollover->family->turn.held == held;
        if (!rollover->is_whole) look(rollover, 0);
    }
    return rollover->is_whole;
}

/* True if later windows have to wait for this one. When tw_close() is out of time, they wait only until it is sealed: a
 * hook that returns false then is not called again. */
static bool holds_others_up(const struct rollover *rollover, struct twi_generation *generation) {
    uint32_t phase = twi_load_relaxed(&generation->phase);
    if (phase < TWI_SEALED) return true;
    return phase < TWI_HISTORY && !generation->turn.hook_done && !rollover->engine->turn.hooks_partial &&
           twi_generation_has_counted(generation);
}

static bool call_hook_or_give_up(struct rollover *rollover, struct twi_generation *generation, uint32_t flags) {
    if (twi_generation_has_counted(generation) && !is_its_turn(rollover)) return false;
    if (call_hook(rollover, generation, flags)) return true;
    if (!is_refused_for_good(rollover)) return false;
    twi_closing_note_unreported(generation, "its hook returned false until the family had to close");
    return true;
}

static void seal(struct rollover *rollover, struct twi_generation *generation) {
    if (!twi_table_seal(&rollover->engine->arena, generation, &rollover->work, note_frozen, rollover)) {
        look(rollover, 0);
        return;
    }
    enter_phase(generation, TWI_SEALED);
    TWI_PROBE3(window_sealed, rollover->family->options.name, generation->start_ms,
               twi_load_relaxed(&generation->keys));
    generation->turn.sealed_mono_ms = generation->turn.hurried_mono_ms = rollover->engine->turn.mono_ms;
    rollover->family->turn.keys_last = twi_load_relaxed(&generation->keys);
    if (rollover->family->turn.keys_last != 0) rollover->family->turn.bytes_last = twi_load_relaxed(&generation->bytes);
    if (rollover->engine->turn.now_ms >= generation->end_ms) twi_leases_end(rollover->engine, generation);
    if (twi_generation_has_counted(generation)) twi_port_count(rollover->engine, windows_closed, 1);
}

/* For families whose windows one engine closes for all. Returns true if nothing is left to do here for that. */
static bool close_by_one(struct rollover *rollover, struct twi_generation *generation) {
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
    return generation->turn.hook_done && twi_close_election_of(generation) == NULL;
}

/* There is a pause before each time that a window hurries: what Redis refuses stays owed. True: it is over, and the
 * next one begins. */
static bool is_pause_over(const struct rollover *rollover, struct twi_generation *generation, int64_t pause_ms) {
    int64_t now_ms = rollover->engine->turn.mono_ms;
    if (now_ms - generation->turn.hurried_mono_ms < pause_ms) return false;
    generation->turn.hurried_mono_ms = now_ms;
    return true;
}

/* The pause that leaves enough of the time for which Redis keeps a window. INT64_MAX: that has no end. */
static int64_t pause_while_kept_ms(const struct tw_family *family) {
    int64_t kept_ms = twi_load_relaxed(&family->policy.retention_ms);
    return kept_ms != 0 ? kept_ms / 4 : INT64_MAX;
}

/* The interval may be longer than the hook waits, or than Redis keeps the window, or than new keys can wait for the
 * room of idle ones. */
static void hurry(struct rollover *rollover, struct twi_generation *generation) {
    int64_t pause_ms = rollover->engine->remote.tuning.closing_wait_ms / 2;
    int64_t kept_ms = pause_while_kept_ms(rollover->family);
    if (kept_ms < pause_ms) pause_ms = kept_ms;
    if (rollover->family->kind.evicts_idle && pause_ms > EVICTION_PAUSE_MS) pause_ms = EVICTION_PAUSE_MS;
    if (is_pause_over(rollover, generation, pause_ms)) rollover->engine->collector.hurried = true;
}

static void drain(struct rollover *rollover, struct twi_generation *generation) {
    if (twi_generation_is_drained(generation)) {
        enter_phase(generation, TWI_DRAINED);
        return;
    }
    int64_t waited_ms = rollover->engine->turn.mono_ms - generation->turn.sealed_mono_ms;
    bool away = waited_ms >= rollover->engine->remote.tuning.closing_wait_ms || rollover->engine->turn.hooks_partial;
    hurry(rollover, generation);
    if (rollover->family->kind.closes_once) {
        if (rollover->engine->turn.hooks_partial || twi_closing_gives_up(rollover->engine, generation))
            (void)close_by_one(rollover, generation);
    } else if (!generation->turn.hook_done && away) {
        generation->turn.hook_done = call_hook_or_give_up(rollover, generation, TW_CLOSED_LOCAL);
    }
    look(rollover, DRAIN_LOOK_MS);
}

/* The closing hook has had the window, and its overshoot is known. */
static bool is_told(struct rollover *rollover, struct twi_generation *generation) {
    if (rollover->family->kind.closes_once) {
        if (!close_by_one(rollover, generation)) return false;
    } else if (!generation->turn.hook_done) {
        generation->turn.hook_done = call_hook_or_give_up(rollover, generation, 0);
    }
    return generation->turn.hook_done && twi_overshoot_measure(rollover->engine, generation, is_ending(rollover));
}

static void finish(struct rollover *rollover, struct twi_generation *generation) {
    if (!is_told(rollover, generation)) {
        if (!twi_generation_is_drained(generation)) hurry(rollover, generation); /* it owes again: totals are wanted */
        look(rollover, DRAIN_LOOK_MS);
        return;
    }
    enter_phase(generation, TWI_HISTORY);
    if (!is_ending(rollover) && rollover->engine->turn.now_ms < drop_at_ms(rollover->family, generation))
        twi_history_enter(rollover->engine, generation);
}

static void drop(struct rollover *rollover, struct twi_generation *generation) {
    int64_t at_ms = drop_at_ms(rollover->family, generation);
    if (rollover->engine->turn.closing) return; /* the whole arena is freed */
    if (rollover->engine->turn.now_ms >= at_ms || twi_load_relaxed(&rollover->family->requests.close_requested)) {
        if (is_ending(rollover) && !twi_leases_are_returned(rollover->engine, generation, &rollover->work)) {
            look(rollover, DRAIN_LOOK_MS); /* what a lease holds, only this engine can give back */
            return;
        }
        if (rollover->family->kind.evicts_idle && !is_ending(rollover))
            twi_idle_eviction_dropped(rollover->family, generation);
        /* A reader whose clock is a moment old, or was set back, must not take the window for an empty one. */
        if (rollover->family->kind.has_starts)
            (void)twi_family_raise(&rollover->family->marks.gone_ms, generation->end_ms);
        enter_phase(generation, TWI_DROPPED);
        twi_restore_note_dropped(rollover->engine, generation);
        rollover->dropped = true;
    } else {
        due(rollover, at_ms);
    }
}

/* With idle eviction, a window ends with its epoch, and idle_eviction.c decides when it is sealed. */
static bool stays_open(struct rollover *rollover, struct twi_generation *generation) {
    struct tw_family *family = rollover->family;
    if (is_ending(rollover)) return false;
    if (family->kind.evicts_idle) return twi_load_relaxed(&family->eviction_epoch) < generation->end_ms;
    if (rollover->engine->turn.now_ms >= generation->end_ms) return false;
    due(rollover, generation->end_ms);
    return true;
}
static bool stays_closed(struct rollover *rollover, struct twi_generation *generation) {
    struct tw_family *family = rollover->family;
    if (is_ending(rollover)) return false;
    if (family->kind.evicts_idle) return !twi_idle_eviction_is_due(family, generation);
    if (family->kind.has_starts && generation->end_ms <= rollover->over_ms) return false;
    int64_t at_ms =
        family->kind.has_starts ? twi_family_open_until(family, generation->end_ms) : seal_at_ms(family, generation);
    if (!family->kind.has_starts && rollover->engine->turn.now_ms >= at_ms) return false;
    due(rollover, at_ms);
    return true;
}

/* A closed window may take late counts for as long as Redis keeps it: what it owes does not wait until it is sealed. */
static void hurry_closed(struct rollover *rollover, struct twi_generation *generation) {
    int64_t pause_ms = pause_while_kept_ms(rollover->family);
    if (!rollover->family->kind.synced || pause_ms == INT64_MAX) return;
    if (is_pause_over(rollover, generation, pause_ms) && !twi_generation_is_drained(generation))
        rollover->engine->collector.hurried = true;
    look(rollover, generation->turn.hurried_mono_ms + pause_ms - rollover->engine->turn.mono_ms);
}

/* Takes as many steps as are possible now. */
static void step(struct rollover *rollover, struct twi_generation *generation) {
    if (twi_load_relaxed(&generation->phase) == TWI_OPEN) {
        if (stays_open(rollover, generation)) return;
        enter_phase(generation, TWI_CLOSED);
        generation->turn.hurried_mono_ms = rollover->engine->turn.mono_ms;
    }
    if (twi_load_relaxed(&generation->phase) == TWI_CLOSED) {
        if (stays_closed(rollover, generation)) {
            hurry_closed(rollover, generation);
            return;
        }
        enter_phase(generation, TWI_SEALING);
    }
    if (twi_load_relaxed(&generation->phase) == TWI_SEALING) seal(rollover, generation);
    if (twi_load_relaxed(&generation->phase) == TWI_SEALED) drain(rollover, generation);
    if (twi_load_relaxed(&generation->phase) == TWI_DRAINED) finish(rollover, generation);
    if (twi_load_relaxed(&generation->phase) == TWI_HISTORY) drop(rollover, generation);
}

static void get_to_know(void *ctx, struct twi_generation *generation) {
    struct rollover *rollover = ctx;
    if (generation->turn.known) return;
    generation->turn.known = true;
    generation->turn.next_all = rollover->family->turn.generations;
    rollover->family->turn.generations = twi_arena_line(&rollover->engine->arena, generation);
    rollover->family->turn.unsorted++;
    rollover->family->turn.held++;
    bool arrives = rollover->arrives;
    rollover->arrives = true;
    step(rollover, generation);
    rollover->arrives = arrives;
}

/* New generations join the family's list and are handled at once, so that many new ones do not cause a walk over all
 * others. */
static bool take_arrivals(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (twi_load_relaxed(&family->arrivals) == 0) return false;
    uint32_t line = twi_swap_acqrel(&family->arrivals, 0);
    while (line != 0) {
        struct twi_generation *generation = twi_generation_at(&rollover->engine->arena, line);
        line = twi_load_relaxed(&generation->next_arrival);
        generation->turn.announced = true;
        get_to_know(rollover, generation);
    }
    return true;
}

/* A thread that opens a window enters it into the map and then announces it. It may stall between the two, while others
 * count in that window. So from time to time the map is searched for windows that nobody has announced (search). */
static bool find_unannounced(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (!family->turn.map_requested) return false;
    family->turn.map_requested = false;
    uint32_t held = family->turn.held;
    twi_window_visit(family, get_to_know, rollover);
    return family->turn.held != held;
}

/* ---- generations in order of time ---- */

static uint32_t merge(struct twi_arena *arena, uint32_t a, uint32_t b) {
    uint32_t first = 0, *link = &first;
    while (a != 0 && b != 0) {
        bool takes_b = twi_generation_at(arena, b)->start_ms < twi_generation_at(arena, a)->start_ms;
        uint32_t line = takes_b ? b : a;
        *link = line;
        link = &twi_generation_at(arena, line)->turn.next_all;
        if (takes_b)
            b = *link;
        else
            a = *link;
    }
    *link = a != 0 ? a : b;
    return first;
}

/* Takes `count` off the list *rest, and returns them sorted. */
static uint32_t sorted(tw_engine *engine, uint32_t *rest, uint32_t count) {
    if (count == 1) {
        uint32_t line = *rest;
        *rest = twi_generation_at(&engine->arena, line)->turn.next_all;
        twi_generation_at(&engine->arena, line)->turn.next_all = 0;
        return line;
    }
    uint32_t half = sorted(engine, rest, count / 2);
    return merge(&engine->arena, half, sorted(engine, rest, count - count / 2));
}

static void put_in_order(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (family->turn.unsorted == 0) return;
    uint32_t rest = family->turn.generations, newer = sorted(rollover->engine, &rest, family->turn.unsorted);
    family->turn.generations = merge(&rollover->engine->arena, rest, newer);
    family->turn.unsorted = 0;
}

static void look_at_all(struct rollover *rollover) {
    put_in_order(rollover);
    rollover->held_up = false;
    for (uint32_t line = rollover->family->turn.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&rollover->engine->arena, line);
        line = generation->turn.next_all;
        step(rollover, generation);
        rollover->held_up = rollover->held_up || holds_others_up(rollover, generation);
    }
}

/* Unlinked generations wait on the engine's list for their grace period. */
static void retire_dropped(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    tw_engine *engine = rollover->engine;
    twi_window_unlink_dropped(family);
    twi_history_forget_dropped(&engine->arena, family);
    uint64_t stamp = twi_epoch_stamp();
    TWI_RACE_POINT(unlinked_still_current);
    uint32_t *link = &family->turn.generations, unsorted = family->turn.unsorted;
    for (uint32_t i = 0; *link != 0; i++) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        uint32_t line = *link;
        if (twi_load_relaxed(&generation->phase) != TWI_DROPPED) {
            link = &generation->turn.next_all;
            continue;
        }
        *link = generation->turn.next_all;
        if (i < unsorted) family->turn.unsorted--;
        generation->turn.retired = stamp;
        generation->turn.next_all = engine->unlinked.generations;
        engine->unlinked.generations = line;
    }
}

/* ---- the next window ---- */

/* No other thread has ever seen this generation. It joins the dropped ones, and is given back in bounded pieces like
 * them. */
static void abandon_prepared(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    struct twi_generation *generation = family->turn.prepared.generation;
    if (generation == NULL) return;
    if (twi_tag_groups_chunks(generation) == 0) twi_tag_groups_abandon(generation, &family->turn.prepared.groups);
    family->turn.prepared.generation = NULL;
    enter_phase(generation, TWI_DROPPED);
    generation->turn.announced = generation->turn.hidden = true;
    generation->turn.retired = 0;
    generation->turn.next_all = rollover->engine->unlinked.generations;
    rollover->engine->unlinked.generations = twi_arena_line(&rollover->engine->arena, generation);
    family->turn.held++;
}

static bool has_share(const struct tw_family *family) {
    return twi_load_relaxed(&family->quota.bytes_max) != 0;
}

/* What the windows of a family have, and what the open one and the next will still take if both become as large as the
 * largest of those and the last one. */
struct room {
    int64_t lives, needs;
    struct twi_generation *oldest; /* in history; NULL: none */
};

static struct room room_of(struct rollover *rollover, struct twi_span span) {
    struct tw_family *family = rollover->family;
    int64_t size = family->turn.bytes_last, now = 0, next = 0;
    struct room room = {0, 0, NULL};
    for (uint32_t line = family->turn.generations; line != 0;) {
        struct twi_generation *each = twi_generation_at(&rollover->engine->arena, line);
        int64_t bytes = twi_load_relaxed(&each->bytes);
        line = each->turn.next_all;
        if (each->start_ms == span.start_ms) now = bytes;
        if (each->start_ms == span.end_ms) next = bytes;
        if (bytes > size) size = bytes;
        room.lives += bytes;
        if (room.oldest == NULL && twi_load_relaxed(&each->phase) == TWI_HISTORY) room.oldest = each;
    }
    room.needs = 2 * size - now - next;
    return room;
}

/* In a share, history gives way to counters. From the middle of a window on there is to be room for all that may still
 * come in it and for a next one: the keys of both may come around the moment when one ends and the other begins, and no
 * turn can make room then. Else the oldest window in history goes before its time, one in each turn. False: memory of
 * dropped windows is on its way back. */
static bool make_room_for_next(struct rollover *rollover, struct twi_span span) {
    struct tw_family *family = rollover->family;
    if (!has_share(family)) return true;
    struct room room = room_of(rollover, span);
    /* While keys come, they are looked at again; a window that opens is looked at anyway. */
    if (twi_window_find(family, span.start_ms) != NULL)
        due(rollover, twi_time_add(rollover->engine->turn.now_ms, (span.end_ms - span.start_ms) / ROOM_LOOKS));
    struct twi_quota_use use = twi_quota_use(&rollover->engine->arena, &family->quota);
    if (room.oldest != NULL && room.lives + room.needs > use.most) {
        room.oldest->turn.history.gives_way = true;
        look(rollover, 0);
        rollover->due_ms = INT64_MIN; /* every window is looked at again */
        return false;
    }
    if (room.lives + room.needs > use.most || use.used + room.needs <= use.most) return true;
    look(rollover, 0);
    return false;
}

/* There is no memory for the prepared window, or not enough to finish it. Nothing of it is kept, and the window starts
 * small, like any other. */
static void give_forecast_up(struct rollover *rollover, struct twi_span span) {
    abandon_prepared(rollover);
    rollover->family->turn.prepared.start_ms = span.end_ms;
}

/* A forecast takes no memory from live counters. It uses what is left after what the open window will still need. The
 * open window needs room for `more` keys, or for the keys that it lacks of the forecast, whichever is more. Keys that
 * find room in its tag groups need nothing. Returns a value below 0 if nothing is left. */
static int64_t spare_bytes(struct tw_family *family, const struct twi_generation *now, uint64_t forecast,
                           uint64_t more) {
    int64_t room = twi_piece_room(&family->engine->arena, &family->quota);
    uint64_t keys = twi_load_relaxed(&now->keys), to_come = forecast > keys + more ? forecast : keys + more,
             held = keys;
    uint64_t chunks = twi_tag_groups_chunks(now) & ~TWI_TAG_GROUPS_LONG;
    uint64_t grouped = chunks != 0 ? chunks * now->tag_groups.groups * TWI_TAG_GROUP_SIZE : 0;
    if (grouped > held) held = grouped;
    if (to_come <= held) return room;
    double rest = (double)twi_load_relaxed(&now->bytes) * (double)(to_come - held) / (double)held;
    return rest < (double)room ? room - (int64_t)rest : -1;
}

static void begin_next(struct tw_family *family, struct twi_span span, uint64_t forecast,
                       struct twi_tag_groups_forecast grouped, int64_t spare) {
    struct twi_arena *arena = &family->engine->arena;
    family->turn.prepared.generation = twi_window_make(family, span, 0);
    family->turn.prepared.leaves = 0;
    family->turn.prepared.root = 0;
    family->turn.prepared.groups.at.directory = 0;
    if (family->turn.prepared.generation == NULL) return;
    family->turn.prepared.root = twi_index_begin(arena, family->turn.prepared.generation, forecast);
    if (family->kind.from_first) return;
    (void)twi_tag_groups_begin(arena, family->turn.prepared.generation, grouped, spare - twi_index_bytes(forecast),
                               &family->turn.prepared.groups);
    family->turn.prepared.groups.ahead = true;
}

/* How many keys the next window will have, by those of this one and the last and by what the caller expects; 0: nobody
 * knows yet. */
static uint64_t forecast_keys(const struct tw_family *family, const struct twi_generation *now, struct twi_span span) {
    uint64_t forecast = now != NULL ? twi_load_relaxed(&now->keys) : 0;
    uint64_t expected = twi_load_relaxed(&family->policy.keys_expected);
    if (forecast == 0) return 0;
    /* A family that began in the second half of the window: nobody knows yet how many keys will come in this window or
     * the next. */
    if (expected == 0 && family->turn.opened_ms >= span.start_ms + (span.end_ms - span.start_ms) / 2) return 0;
    if (family->turn.keys_last > forecast) forecast = family->turn.keys_last;
    return expected > forecast ? expected : forecast;
}

enum prepared { PREPARED, TO_GO_ON, NO_ROOM };

/* Builds the next window's index, a piece in each turn. */
static enum prepared prepare_index(struct rollover *rollover, struct twi_generation *now, struct twi_span span,
                                   uint64_t forecast) {
    struct tw_family *family = rollover->family;
    struct twi_arena *arena = &rollover->engine->arena;
    if (family->turn.prepared.generation == NULL) {
        uint64_t keys = twi_load_relaxed(&now->keys);
        int64_t spare = spare_bytes(family, now, forecast, keys);
        /* A share is made for windows that are alike. An index that grows takes twice as much in the end. */
        bool fits =
            twi_index_bytes(forecast) <= (has_share(family) ? spare_bytes(family, now, forecast, keys / 4) : spare);
        if (!fits) return NO_ROOM;
        begin_next(family, twi_calendar_span(&family->rule, span.end_ms), forecast,
                   twi_tag_groups_forecast(now, forecast), spare);
    }
    if (family->turn.prepared.root == 0) return NO_ROOM;
    if (!twi_index_fill(arena, family->turn.prepared.generation, family->turn.prepared.root,
                        &family->turn.prepared.leaves, &rollover->work))
        return rollover->work < TWI_SEGMENT_LINES ? TO_GO_ON : NO_ROOM;
    twi_store_relaxed(&family->turn.prepared.generation->root, family->turn.prepared.root);
    return PREPARED;
}

/* Prepares where its records will lie: its tag groups, or memory for a part of the records. */
static enum prepared prepare_records(struct rollover *rollover, uint64_t forecast) {
    struct tw_family *family = rollover->family;
    struct twi_arena *arena = &rollover->engine->arena;
    if (family->turn.prepared.groups.at.directory != 0)
        return twi_tag_groups_fill(arena, family->turn.prepared.generation, &family->turn.prepared.groups,
                                   &rollover->work)
                   ? PREPARED
                   : TO_GO_ON;
    uint64_t records = forecast / 1000 + 1;
    if (forecast > 1000 &&
        twi_arena_stock(twi_quota_arena(arena, &family->quota),
                        family->kind.synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES,
                        records > 65536 ? 65536 : (uint32_t)records, &rollover->work) &&
        rollover->work < TWI_SEGMENT_LINES)
        return TO_GO_ON;
    return PREPARED;
}

/* From the middle of a window on: builds the next window's index, sized by this window and the last, and prepares
 * record memory. So no thread meets an untouched page at the boundary. If nobody counts in a window, no next one is
 * prepared. */
static void prepare(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    int64_t now_ms = rollover->engine->turn.now_ms;
    struct twi_span span = twi_calendar_span(&family->rule, now_ms);
    if (family->turn.prepared.generation != NULL && family->turn.prepared.generation->start_ms < span.end_ms)
        abandon_prepared(rollover); /* too late */
    if (now_ms < span.start_ms + (span.end_ms - span.start_ms) / 2) {
        due(rollover, span.start_ms + (span.end_ms - span.start_ms) / 2);
        return;
    }
    bool has_room = make_room_for_next(rollover, span);
    if (family->turn.prepared.start_ms == span.end_ms || !has_room) return;
    /* opened early, by event time: the threads that count there build it already */
    if (twi_window_find(family, span.end_ms) != NULL) {
        give_forecast_up(rollover, span);
        return;
    }
    struct twi_generation *now = twi_window_find(family, span.start_ms);
    uint64_t forecast = forecast_keys(family, now, span);
    if (forecast == 0) return;
    enum prepared done = prepare_index(rollover, now, span, forecast);
    if (done == PREPARED) done = prepare_records(rollover, forecast);
    if (done == TO_GO_ON) {
        look(rollover, 0);
        return;
    }
    if (done == NO_ROOM) {
        give_forecast_up(rollover, span);
        return;
    }
    family->turn.prepared.start_ms = span.end_ms;
    if (twi_window_publish(family, family->turn.prepared.generation))
        family->turn.prepared.generation = NULL;
    else
        abandon_prepared(rollover);
}

/* ---- a family's turn ---- */

/* Logs once that late counts were refused, for a family that counts by event time without lateness_ms. */
static void log_late(struct rollover *rollover) {
    struct tw_family *family = rollover->family;
    if (!twi_load_relaxed(&family->marks.is_late) || family->turn.is_late_logged) return;
    family->turn.is_late_logged = true;
    twi_port_log(
        rollover->engine, TW_LOG_WARNING, TW_EVENT_LATE,
        "counts by event time came after the end of their window, and family \"%s\" has no lateness_ms: they were "
        "refused (TW_ERR_LATE; tw_stats.late_increments counts them)",
        family->options.name);
}

/* Returns the work that was done. */
static uint32_t family_turn(tw_engine *engine, struct tw_family *family) {
    struct rollover rollover = {engine, family, TWI_WORK_TURN, .due_ms = INT64_MAX, .look_ms = INT64_MAX};
    bool changed = twi_load_relaxed(&family->requests.changed) && twi_swap_acqrel(&family->requests.changed, false);
    rollover.over_ms = twi_family_over_by(family, engine->turn.now_ms);
    if (is_ending(&rollover) && !twi_load_relaxed(&family->requests.close_seen))
        family->turn.close_mono_ms = engine->turn.mono_ms;
    bool arrived = take_arrivals(&rollover);
    arrived = find_unannounced(&rollover) || arrived;
    if (changed || engine->turn.now_ms >= family->turn.due_ms || engine->turn.mono_ms >= family->turn.look_mono_ms ||
        is_ending(&rollover) || family->kind.evicts_idle) {
        rollover.due_ms = rollover.look_ms = INT64_MAX;
        look_at_all(&rollover);
        if (changed) log_late(&rollover);
    } else if (arrived) {
        due(&rollover, family->turn.due_ms);
        if (family->turn.look_mono_ms < rollover.look_ms) rollover.look_ms = family->turn.look_mono_ms;
    } else {
        return 0;
    }
    if (rollover.dropped) retire_dropped(&rollover);
    if (family->kind.has_starts && !is_ending(&rollover)) prepare(&rollover);
    if (family->kind.evicts_idle && !is_ending(&rollover)) look(&rollover, twi_idle_eviction_turn(family));
    if (is_ending(&rollover)) {
        abandon_prepared(&rollover);
        twi_store_relaxed(&family->requests.close_seen, true);
    }
    family->turn.due_ms = rollover.due_ms;
    family->turn.look_mono_ms = rollover.look_ms;
    return TWI_WORK_TURN - rollover.work;
}

/* Returns false if the family is among the news, or is being watched, or if its reservations are not forgotten yet, or
 * not all of its share has come back: a later turn looks at it again. */
static bool free_family(tw_engine *engine, struct tw_family *family) {
    /* the thread that requested the close has left the lock, so the family is, or was, among the news */
    twi_lock(&engine->roster.lock);
    bool stays = twi_load_acquire(&family->agenda.is_news) || engine->background.watcher.held == family ||
                 !twi_reserve_local_is_gone(family);
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
    twi_family_free(family);
    return true;
}

static uint32_t look_at(tw_engine *engine, struct tw_family *family) {
    uint32_t work = family_turn(engine, family);
    twi_history_turn(engine, family);
    twi_limit_stats_turn(family);
    bool is_over = twi_load_acquire(&family->requests.close_requested) && family->turn.held == 0 &&
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

/* The work of all families in one turn: one or two milliseconds. What is left of the round, the next turns do. While
 * the engine closes, nobody waits for a turn to end. */
#define ROUND_WORK (16 * TWI_WORK_TURN)
#define FAMILY_WORK 384 /* of a family that needs hardly any */

void twi_rollover_turn(tw_engine *engine) {
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
        if (twi_load_relaxed(&family->arrivals) != 0) return false;
        for (uint32_t line = family->turn.generations; line != 0;) {
            struct twi_generation *generation = twi_generation_at(&engine->arena, line);
            if (twi_load_relaxed(&generation->phase) < (uint32_t)phase) return false;
            line = generation->turn.next_all;
        }
    }
    return true;
}
bool twi_rollover_is_done(tw_engine *engine) {
    return all_have_reached(engine, TWI_HISTORY);
}
bool twi_rollover_is_sealed(tw_engine *engine) {
    return all_have_reached(engine, TWI_SEALED);
}

/* ---- giving memory back ---- */

/* The first grace period is over: nobody has the generation from the map any more, so nobody makes it `current` again.
 * A thread that began after it was unlinked may have it from `current`, even if that names another one by now. So it
 * waits for a second grace period, always. */
static void hide(struct twi_generation *generation) {
    struct tw_family *family = generation->family;
    if (twi_load_acquire(&family->current) == generation) twi_store_release(&family->current, &twi_generation_none);
    generation->turn.hidden = true;
    generation->turn.retired = twi_epoch_stamp();
}

static bool give_back(tw_engine *engine, struct twi_generation *generation, uint32_t *work) {
    struct tw_family *family = generation->family;
    if (!generation->turn.hidden) {
        hide(generation);
        engine->turn.reclaimed = true; /* the next turn need not wait to look again */
        return false;
    }
    if (twi_load_acquire(&generation->readers.all) != 0) return false;
    /* it is on the list of arrivals, or about to be: the next turn takes it; or a reply names it */
    if (!generation->turn.announced || generation->turn.outstanding != 0) return false;
    /* An adder that slept between its DIRTY and its marks may have listed the generation long after it was drained. */
    if (generation->turn.pending || twi_load_acquire(&generation->marks.listed) != 0)
        twi_dirty_forget(engine, generation);
    if (!twi_history_unmake(&engine->arena, generation, work)) return false;
    twi_contention_forget(engine, generation);
    twi_leases_forget(engine, generation);
    twi_share_forget(engine, generation);
    twi_overshoot_forget(engine, generation);
    if (!twi_table_unmake(&engine->arena, generation, work)) return false;
    family->turn.held--;
    return true;
}

static void reclaim_maps(tw_engine *engine, uint64_t reached) {
    if (engine->unlinked.maps != 0 && engine->unlinked.maps_stamp < reached) {
        for (uint32_t line = engine->unlinked.maps; line != 0;) {
            uint32_t next = twi_window_map_next(&engine->arena, line);
            twi_arena_give(&engine->arena, line, twi_window_map_lines(&engine->arena, line));
            line = next;
        }
        engine->unlinked.maps = 0;
    }
    if (engine->unlinked.maps == 0 && twi_load_relaxed(&engine->unlinked.new_maps) != 0) {
        engine->unlinked.maps = twi_swap_acqrel(&engine->unlinked.new_maps, 0);
        engine->unlinked.maps_stamp = twi_epoch_stamp();
        engine->turn.reclaimed = true;
    }
}

void twi_rollover_reclaim(tw_engine *engine) {
    engine->turn.reclaimed = false;
    if (engine->unlinked.generations == 0 && engine->unlinked.maps == 0 &&
        twi_load_relaxed(&engine->unlinked.new_maps) == 0)
        return;
    uint64_t reached = twi_epoch_reached();
    uint32_t work = 4 * TWI_WORK_TURN, *link = &engine->unlinked.generations;
    while (*link != 0 && work != 0) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        uint32_t next = generation->turn.next_all;
        if (generation->turn.retired < reached && give_back(engine, generation, &work))
            *link = next;
        else
            link = &generation->turn.next_all;
    }
    reclaim_maps(engine, reached);
    engine->turn.reclaimed = engine->turn.reclaimed || work != 4 * TWI_WORK_TURN;
}
