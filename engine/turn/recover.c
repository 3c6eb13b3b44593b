/* recover.c -- makes the turn's state whole after its owner ended in the middle of a turn: its process was killed, or
 * its thread ended in a hook. docs/CONCURRENCY.md has the table of this state.
 *
 * Three kinds of state. (1) What can be computed is computed again: all lists, by the maps of windows and the list of
 * dropped ones, and all families are examined. (2) Steps whose order leaves a valid state after each store: phases of a
 * window, giving memory back (table.h). They are continued; sealing begins again at the first tag, because freezing
 * twice changes nothing. (3) What was in the hands of the thread: a piece of memory leaks. It is never given back
 * twice. Stamps are renewed, because the thread may have ended between unlinking and stamping. So memory waits a grace
 * period longer.
 * Always true: threads that count go on meanwhile. A generation that is not dropped is in the map of its family. One
 * that is dropped and not given back is in the engine's list (twi_rollover_drop). */
#include "engine/turn/recover.h"
#include "engine/turn/recover_flags.h"

#include "engine/core/agenda.h"
#include "engine/core/host.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/turn/history.h"
#include "engine/turn/rollover_parts.h"

/* ---- windows ---- */

struct recovery {
    tw_engine *engine;
    uint64_t stamp;
};

/* A window that was just being dropped, and is not yet, is dropped again later. */
static void keep_dropped(tw_engine *engine) {
    for (uint32_t *link = &engine->unlinked.generations; *link != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        if (twi_load_relaxed(&generation->phase) == TWI_DROPPED)
            link = &generation->turn.dropped.next;
        else
            *link = generation->turn.dropped.next;
    }
}

static void meet(void *ctx, struct twi_generation *generation) {
    const struct recovery *recovery = ctx;
    struct twi_family_turn *turn = &generation->family->turn;
    generation->turn.known = true;
    if (twi_load_relaxed(&generation->phase) == TWI_DROPPED) return;
    generation->turn.next_all = turn->generations;
    turn->generations = twi_arena_line(&recovery->engine->arena, generation);
    turn->unsorted++;
    turn->held++;
    if (twi_load_relaxed(&generation->phase) == TWI_SEALING) generation->turn.seal_tag = 0;
    twi_history_recover(recovery->engine, generation, recovery->stamp);
}

static void find(void *ctx, struct twi_generation *generation) {
    struct twi_generation **wanted = ctx;
    if (*wanted == generation) *wanted = NULL;
}

/* It was published, or abandoned, or it stays the next window, which is begun again. */
static void recover_prepared(struct tw_family *family) {
    struct twi_family_prepared *prepared = &family->turn.prepared;
    struct twi_generation *generation = prepared->generation;
    if (generation == NULL) return;
    if (twi_load_relaxed(&generation->phase) == TWI_DROPPED) prepared->generation = NULL;
    twi_window_visit_entered(family, find, &prepared->generation);
    if (prepared->generation == NULL) return;
    generation->turn.announced = generation->turn.dropped.is_hidden = true;
    twi_rollover_drop(family->engine, generation);
    prepared->generation = NULL;
}

static void recover_family(struct recovery *recovery, struct tw_family *family) {
    struct twi_family_turn *turn = &family->turn;
    recover_prepared(family);
    turn->generations = turn->unsorted = turn->held = 0;
    turn->history = (struct twi_family_history){.packing = 0};
    twi_window_visit_entered(family, meet, recovery);
    twi_window_unlink_dropped(family);
    turn->map_requested = true;
    turn->due_ms = turn->look_mono_ms = INT64_MIN;
    turn->history.mono_ms = INT64_MIN;
}

/* Maps and sketches that were replaced, and dropped windows, wait for a stamp that is not older than their
 * unlinking. */
static void stamp_again(tw_engine *engine) {
    uint64_t stamp = twi_epoch_stamp();
    engine->unlinked.maps_stamp = engine->unlinked.sketches.stamp = stamp;
    for (uint32_t line = engine->unlinked.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        generation->turn.dropped.stamp = stamp;
        generation->family->turn.held++;
        line = generation->turn.dropped.next;
    }
}

void twi_recover(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct recovery recovery = {engine, twi_epoch_stamp()};
    engine->turn.closing = engine->turn.hooks_partial = false;
    twi_host_hook_has_ended(engine);
    engine->turn.recount.serial = 0;
    engine->turn.recount.ended_inside--; /* begins again, because it may not have ended */
    keep_dropped(engine);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        recover_family(&recovery, family);
    stamp_again(engine);
    twi_agenda_recover(engine);
    twi_recover_collected(engine);
}

/* ---- what was collected ---- */

/* In an engine of one process, the items that are out are still known to its sync, and come back. */

struct marking {
    tw_engine *engine;
    struct twi_generation *generation;
};

/* The collector may have taken the bit of the counter, and not cleared its DIRTY. Then no thread would mark it
 * again. */
static bool mark_again(void *ctx, struct twi_cell *cell, uint64_t meta) {
    const struct marking *marking = ctx;
    bool is_shared = marking->engine->life.is_shared;
    if (is_shared && (meta & TWI_META_PARKED) != 0) (void)twi_and_acqrel(&cell->meta, ~TWI_META_PARKED);
    if ((meta & TWI_META_STRIPED) != 0 || (twi_load_relaxed(&cell->local) & TWI_DIRTY) != 0)
        twi_dirty_owe(marking->engine, marking->generation, cell, meta);
    return true;
}

static bool has_bits(const struct twi_chunk *chunk) {
    uint64_t bits = 0;
    for (uint32_t word = 0; word < TWI_CHUNK_MARKS; word++) bits |= twi_load_relaxed(&chunk->marks[word]);
    return bits != 0;
}

/* Moves every chunk with marks to the turn's own list. */
static void owe_chunks(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_swap_acqrel(&generation->marks.chunks, 0); line != 0;) { /* D8 */
        struct twi_chunk *chunk = twi_arena_at(&engine->arena, line);
        line = chunk->next_marked;
        (void)twi_swap_acqrel(&chunk->listed, 0); /* D4 */
    }
    for (uint32_t kind = 0; kind < TWI_KINDS; kind++)
        for (uint32_t line = twi_load_acquire(&generation->chunks[kind]); line != 0;) {
            struct twi_chunk *chunk = twi_arena_at(&engine->arena, line);
            bool marked = has_bits(chunk);
            twi_store_relaxed(&chunk->owed, marked ? TWI_CHUNK_OWED | generation->turn.owed : 0);
            if (marked) generation->turn.owed = line;
            line = chunk->older;
        }
}

static void take_back(tw_engine *engine, struct twi_generation *generation) {
    if (engine->life.is_shared) generation->turn.outstanding = 0;
    generation->turn.taken = generation->turn.owed = 0;
    generation->turn.pending = false;
    if (!twi_dirty_may_be_sent(generation)) return;
    struct marking marking = {engine, generation};
    struct twi_cursor cursor = {.begun = false};
    owe_chunks(engine, generation);
    (void)mark_again(&marking, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    twi_table_walk(&engine->arena, generation, &cursor, mark_again, &marking);
    twi_dirty_pend(engine, generation);
}

static void take_back_entered(void *ctx, struct twi_generation *generation) {
    if (twi_load_relaxed(&generation->phase) != TWI_DROPPED) take_back(ctx, generation);
}

void twi_recover_collected(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_collector *collector = &engine->collector;
    collector->pending = collector->pending_new = 0;
    if (engine->life.is_shared) {
        collector->requested = collector->running = false;
        collector->items_out = 0;
    }
    for (uint32_t line = engine->unlinked.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        take_back(engine, generation);
        line = generation->turn.dropped.next;
    }
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_window_visit_entered(family, take_back_entered, engine);
    twi_recover_flags(engine);
}
