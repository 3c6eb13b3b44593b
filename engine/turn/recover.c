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

#include "engine/core/agenda.h"
#include "engine/core/host.h"
#include "engine/core/processes.h"
#include "engine/core/state.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/limit/limit_stats.h"
#include "engine/port/items.h"
#include "engine/reserve/hold_shared.h"
#include "engine/table/sketch.h"
#include "engine/turn/closing.h"
#include "engine/turn/lease_stores.h"
#include "engine/turn/restore.h"
#include "engine/turn/windows.h"

/* ---- recover flags ----
 * flags of list members that promise a step which nobody will make any more, because the owner of
 * the turn had taken the list and ended (recover.c).
 *
 *   flag                               the member is in, or will be pushed to
 *   `listed` of a chunk                the chunks of its window
 *   `listed` of a window               the engine's list of windows with marks
 *   `is_news` of a family              the news
 *   a window that is not `announced`   the arrivals of its family
 *   `listed` of a lease                the leases that callers have requested
 * A flag that is set may also be that of a thread which pushes the member at this moment. Such a thread says so before
 * it sets the flag, and until it has pushed (twi_marking_begin). So the order is: the flag, then what the threads say,
 * then the list. If no thread says it and the list has not the member, the flag is cleared. If a thread says it, the
 * thread may also be one that found the flag set and will push nothing. Then the next turn looks again.
 * First the turn takes each list into its own, so that the lists are short: they have what is pushed meanwhile.
 * Always true: a flag is cleared only if no push is to come. After that the next thread that finds it clear pushes.
 * What threads marked while it was set has no push, so the turn lists the member itself (D4). */

/* Returns true if a thread may be about to push a window of this family to the arrivals, or the family to the news.
 * With a window, only that window counts. */
static bool is_said(tw_engine *engine, const struct tw_family *family, const struct twi_generation *window,
                    const void *first_cell, const void *end) {
    void *generation, *cell;
    for (uint32_t number = 0;
         twi_thread_next_marking(engine, twi_engine_process(engine), &number, &generation, &cell);) {
        if (generation == NULL && window == NULL && cell == family) return true;
        if (generation == NULL || !twi_arena_has(&engine->arena, generation)) continue;
        struct twi_generation *of = generation;
        if (window != NULL ? of != window : of->family != family || cell != &of->overflow) continue;
        if (first_cell == NULL ||
            ((const char *)cell >= (const char *)first_cell && (const char *)cell < (const char *)end))
            return true;
    }
    return false;
}

/* Returns true if the flag is to be cleared. */
static bool is_orphan(tw_engine *engine, bool said, bool in_list) {
    if (said) engine->turn.has_doubts = true;
    return !said && !in_list;
}

static bool has_chunk(tw_engine *engine, uint32_t line, uint32_t wanted) {
    while (line != 0 && line != wanted) line = ((struct twi_chunk *)twi_arena_at(&engine->arena, line))->next_marked;
    return line != 0;
}

static void check_chunk(tw_engine *engine, struct twi_generation *generation, uint32_t line) {
    struct twi_chunk *chunk = twi_arena_at(&engine->arena, line);
    if (twi_load_acquire(&chunk->listed) == 0) return;
    const char *end = (const char *)chunk + (size_t)TWI_SEGMENT_LINES * TWI_LINE_BYTES;
    bool said = is_said(engine, generation->family, generation, chunk, end);
    bool in_list = has_chunk(engine, generation->turn.taken, line) ||
                   has_chunk(engine, twi_load_acquire(&generation->marks.chunks), line); /* D8, with the links */
    if (is_orphan(engine, said, in_list)) twi_dirty_unlist(engine, generation, chunk);
}

static bool is_marked(tw_engine *engine, const struct twi_generation *wanted) {
    struct twi_generation *generation = twi_generation_at(&engine->arena, twi_load_acquire(&engine->collector.marked));
    while (generation != NULL && generation != wanted)
        generation = twi_generation_at(&engine->arena, generation->marks.next);
    return generation != NULL;
}

static bool is_requested(tw_engine *engine, uint32_t wanted) {
    uint32_t line = twi_load_acquire(&engine->leases.requested); /* J8, with the links */
    while (line != 0 && line != wanted) line = twi_load_relaxed(&twi_lease_at(&engine->arena, line)->next_requested);
    return line != 0;
}

static void check_leases(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        if (twi_load_acquire(&lease->listed) != 0) {
            const char *cell = twi_arena_at(&engine->arena, lease->cell);
            bool said = is_said(engine, generation->family, generation, cell, cell + 1);
            if (is_orphan(engine, said, is_requested(engine, line))) twi_lease_stores_unlist(engine, lease);
        }
        line = lease->attached.older;
    }
}

static void check_window(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    struct tw_family *family = generation->family;
    if (!generation->turn.announced) {
        bool said = is_said(engine, family, generation, &generation->overflow, &generation->overflow + 1);
        if (is_orphan(engine, said, twi_window_is_arriving(family, generation))) generation->turn.announced = true;
    }
    if (twi_load_acquire(&generation->marks.listed) != 0) {
        bool said = is_said(engine, family, generation, NULL, NULL);
        if (is_orphan(engine, said, is_marked(engine, generation))) twi_dirty_unlist(engine, generation, NULL);
    }
    bool may_be_sent = twi_dirty_may_be_sent(generation);
    if (may_be_sent) twi_dirty_owe_listed(engine, generation);
    if (family->kind.is_hard && may_be_sent) check_leases(engine, generation);
    for (uint32_t kind = 0; generation->synced && kind < TWI_KINDS; kind++)
        for (uint32_t line = twi_load_acquire(&generation->chunks[kind]); line != 0;) {
            check_chunk(engine, generation, line);
            line = ((struct twi_chunk *)twi_arena_at(&engine->arena, line))->older;
        }
}

static void check_family(tw_engine *engine, struct tw_family *family) {
    twi_window_visit_entered(family, check_window, engine);
    if (twi_load_acquire(&family->agenda.is_news) == 0) return;
    if (!is_orphan(engine, is_said(engine, family, NULL, NULL, NULL), twi_agenda_has_news(family))) return;
    (void)twi_swap_acqrel(&family->agenda.is_news, 0); /* D4 */
    twi_agenda_notify(family);
}

void twi_recover_flags(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    engine->turn.has_doubts = false;
    twi_dirty_take_marked(engine);
    twi_lease_stores_sort(engine);
    for (uint32_t line = engine->unlinked.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        line = generation->turn.dropped.next;
        check_window(engine, generation);
    }
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        check_family(engine, family);
}

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

/* ---- recover process ----
 * Once a second, or at once if a process says that one has gone, the leader
 * looks at the places (core/processes.h). */

static void note_death(tw_engine *engine, uint32_t place) {
    twi_port_count(engine, processes_died, 1);
    twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_DIED,
                 "process %u, which shared this engine, ended without tw_close()", twi_process_id(engine, place));
}

void twi_recover_processes(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    uint32_t place = engine->here->recovery.place;
    if (!engine->life.is_shared || (place == 0 && !twi_leader_is_due(engine))) return;
    if (place == 0) place = twi_process_next_gone(engine, 0);
    for (; place != 0; place = twi_process_next_gone(engine, place)) {
        if (!twi_hold_shared_recover(engine, place)) return; /* the next turn continues */
        if (twi_process_ended_early(engine, place)) note_death(engine, place);
        twi_process_clear(engine, place);
    }
}

/* ---- heal ----
 * finishes what threads that have ended left unfinished: flags that they set, and that promise a step which
 * nobody else makes.
 *
 *   flag                     promises                                             finished by
 *   DIRTY, `listed`          the other marks, and a push of chunk and window      count/dirty.c
 *   in the map of windows    the announcement of the window                       core/window_map.c
 *   `is_news`                a push of the family                                 core/agenda.c
 *   `listed` of a lease      a push of the lease                                  lease_stores.c
 *   a request for stripes    the request's content                                count/dirty.c
 *   a note                   the note's content                                   limit/limit_stats.c
 * A thread says in its slot for which counter it sets such flags, before it sets one (twi_marking_begin). Each flag has
 * the number of that thread. So the turn looks at a few words, and at no other counter.
 * Always true: the slot of a thread that has ended serves no other thread before this is done, because the number would
 * mean another thread, and because the memory that is named here must stay. */

static void heal_counter(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint32_t number) {
    struct tw_family *family = generation->family;
    /* If the thread made a window and did not enter it, nobody else has seen that window. */
    if (cell == &generation->overflow && !twi_window_heal(family, generation)) return;
    twi_agenda_heal(family, number);
    twi_contention_heal(engine, number);
    if (twi_overshoot_is_measured(family)) twi_overshoot_heal(engine, generation, cell, number);
    if (family->kind.is_hard && generation->synced && cell != &generation->overflow)
        twi_lease_stores_heal(engine, cell, number);
    twi_dirty_heal(engine, generation, cell, number);
    twi_port_count(engine, recovered_keys, cell != &generation->overflow);
}

void twi_heal(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_thread_slot *slot;
    for (uint32_t number = 0; (slot = twi_thread_next_ended(engine, twi_engine_process(engine), &number)) != NULL;
         twi_thread_let_go(engine, slot)) {
        struct twi_generation *generation = twi_load_relaxed(&slot->marking.generation);
        void *of = twi_load_relaxed(&slot->marking.cell);
        if (of == NULL || twi_load_relaxed(&slot->marking.engine) != engine) continue; /* it only made a turn */
        if (generation == NULL)
            twi_agenda_heal(of, number);
        else
            heal_counter(engine, generation, of, number);
    }
}

/* ---- recount ----
 * A thread that inserts a key raises `keys` of the window before the key is there. If it
 * ends in between, `keys` is one too high for as long as the window exists. An endless window exists as long as its
 * engine, so in the end keys_max would be reached without keys.
 * Always true: `keys` falls at most by keys that do not exist. The sections in which keys were being inserted when the
 * count began have ended before the walk. Keys that come during the walk are found or not, so the walk finds too many
 * rather than too few. */

#define LOOKS_TURN 4096u /* records that one turn looks at: a cache miss each */

static bool is_bounded_for_ever(const struct tw_family *family) {
    return family->rule.window == TW_WINDOW_FOREVER && !family->kind.evicts_idle &&
           twi_load_relaxed(&family->quota.keys_max) != 0;
}

static bool count(void *ctx, struct twi_cell *cell, uint64_t meta) {
    (void)cell, (void)meta;
    ++*(uint64_t *)ctx;
    return true;
}

/* Returns the next family whose keys are to be counted: the first one, or one after `family`. */
static struct tw_family *next_bounded(tw_engine *engine, const struct tw_family *family) {
    struct tw_family *next = twi_load_acquire(family == NULL ? &engine->roster.first : &family->entry.next);
    while (next != NULL && (!is_bounded_for_ever(next) || next->turn.generations == 0))
        next = twi_load_acquire(&next->entry.next);
    return next;
}

static void begin(tw_engine *engine, const struct tw_family *family) {
    struct twi_recount *recount = &engine->turn.recount;
    recount->serial = family != NULL ? family->serial : 0;
    if (family == NULL) return;
    recount->before = twi_load_relaxed(&twi_generation_at(&engine->arena, family->turn.generations)->keys);
    recount->found = 0;
    recount->cursor = (struct twi_cursor){.begun = false};
    recount->stamp = twi_epoch_stamp();
}

/* Returns true when all keys of the family have been counted. */
static bool continue_count(tw_engine *engine, const struct tw_family *family) {
    struct twi_recount *recount = &engine->turn.recount;
    struct twi_generation *generation = twi_generation_at(&engine->arena, family->turn.generations);
    if (generation == NULL) return true;
    if (recount->stamp >= twi_epoch_reached()) return false;
    recount->cursor.looks = LOOKS_TURN;
    twi_table_walk(&engine->arena, generation, &recount->cursor, count, &recount->found);
    if (!recount->cursor.done) return false;
    if (recount->found < recount->before) (void)twi_sub_relaxed(&generation->keys, recount->before - recount->found);
    return true;
}

void twi_recount_turn(tw_engine *engine) {
    struct twi_recount *recount = &engine->turn.recount;
    uint32_t ended = twi_threads_ended_inside();
    if (recount->serial == 0 && ended == recount->ended_inside) return;
    if (recount->serial == 0) {
        recount->ended_inside = ended; /* threads that end from now on are for the next count */
        begin(engine, next_bounded(engine, NULL));
    }
    const struct tw_family *family = twi_load_acquire(&engine->roster.first);
    while (family != NULL && family->serial != recount->serial) family = twi_load_acquire(&family->entry.next);
    if (family == NULL)
        recount->serial = 0; /* none is left, or it was closed meanwhile */
    else if (continue_count(engine, family))
        begin(engine, next_bounded(engine, family));
}

/* ---- inherit ----
 * the counters of a shared engine that has Redis, when another process begins to make its turns: what was
 * in flight, or waited, in the process before (items.h). Runs in the turn, before the first one of this process.
 *
 * Every counter keeps the invariant handed == acked + what is in flight. So `handed` is computed again from `acked` and
 * from the items that sync still has. An item that was collected and not sent becomes unsent by that.
 * recover.c makes the lists of what is marked again, because the process before may have ended while it changed them.
 * Always true: `acked` changes here in two cases only. One item may have been in the middle of being settled. And each
 * distinct counter begins at 0 again, because its registers are sent whole (begin_cell()). A counter with unsent units
 * is marked on the turn's own lists. */

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
