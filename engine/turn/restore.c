/* restore.c -- see restore.h. sync/turn/settle.c begins a restoration through port.h. The turn then continues it in
 * bounded steps, before it collects anything. Until then, each listed generation counts one more `outstanding`, so that
 * it is not dropped. */
#include "engine/turn/restore.h"

#include "engine/core/agenda.h"
#include "engine/turn/closing.h"
#include "engine/turn/delayed.h"
#include "engine/count/dirty.h"
#include "engine/turn/history.h"
#include "engine/turn/lost.h"
#include "engine/table/packed.h"
#include "engine/core/window_map.h"

#include <stdlib.h>

#define REVIVE_WORK 16u /* for one packed counter */

static int64_t redis_now_ms(tw_engine *engine) {
    return engine->turn_ms + twi_stat_get(engine, offsetof(tw_stats, redis_clock_offset_ms));
}

static struct twi_cold *cold_of(struct twi_generation *generation, struct twi_cell *cell) {
    return twi_generation_cold(generation, cell, twi_load_relaxed(&cell->meta));
}

static uint64_t magnitude(int64_t delta) {
    return delta < 0 ? -(uint64_t)delta : (uint64_t)delta;
}

/* ---- notes on single counters ---- */

static int compare_noted(const void *a, const void *b) {
    const struct twi_noted *x = a, *y = b;
    uintptr_t of_x = (uintptr_t)x->cell, of_y = (uintptr_t)y->cell;
    return of_x < of_y ? -1 : of_x > of_y;
}

/* Sorts by counter and merges the entries of each counter into one. */
static void notes_sort(struct twi_notes *notes) {
    if (notes->sorted || notes->count == 0) return;
    qsort(notes->items, notes->count, sizeof *notes->items, compare_noted);
    uint32_t last = 0;
    for (uint32_t i = 1; i < notes->count; i++) {
        if (notes->items[i].cell == notes->items[last].cell)
            notes->items[last].delta += notes->items[i].delta;
        else
            notes->items[++last] = notes->items[i];
    }
    notes->count = last + 1;
    notes->sorted = true;
}

static bool has_room(struct twi_notes *notes) {
    if (notes->count < notes->room) return true;
    notes_sort(notes);
    if (notes->count < notes->room) return true;
    uint32_t room = notes->room == 0 ? 64 : notes->room * 2;
    if (room > TWI_NOTED_MAX) return false;
    struct twi_noted *more = realloc(notes->items, room * sizeof *more);
    if (more == NULL) return false;
    notes->items = more;
    notes->room = room;
    return true;
}

static bool note(struct twi_notes *notes, struct twi_cell *cell, struct twi_generation *generation, int64_t delta) {
    if (!has_room(notes)) return false;
    notes->items[notes->count++] = (struct twi_noted){cell, generation, delta};
    notes->sorted = false;
    return true;
}

static struct twi_noted *find_noted(struct twi_notes *notes, const struct twi_cell *cell) {
    notes_sort(notes);
    uint32_t low = 0, high = notes->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (notes->items[middle].cell == cell) return &notes->items[middle];
        if ((uintptr_t)notes->items[middle].cell < (uintptr_t)cell)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int64_t noted_of(struct twi_notes *notes, const struct twi_cell *cell) {
    const struct twi_noted *noted = find_noted(notes, cell);
    return noted != NULL ? noted->delta : 0;
}

static void notes_forget(struct twi_notes *notes, const struct twi_generation *generation) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < notes->count; i++)
        if (notes->items[i].generation != generation) notes->items[kept++] = notes->items[i];
    notes->count = kept;
}

/* ---- what was given up ---- */

static void give_up(tw_engine *engine, struct twi_cell *cell, struct twi_generation *generation, int64_t delta) {
    if (note(&engine->restore->given_up, cell, generation, delta))
        generation->has_given_up = true;
    else
        generation->unrestorable = true;
}

static int64_t given_up_of(struct twi_generation *generation, const struct twi_cell *cell) {
    if (!generation->has_given_up) return 0;
    return noted_of(&generation->family->engine->restore->given_up, cell);
}

/* Fewer units are left to re-send: they were sent, or their window is over, or they count as something else from here
 * on. */
static void less_untold(struct twi_restore *restore, uint64_t units) {
    restore->untold -= units < restore->untold ? units : restore->untold;
}

/* Also records that Redis does not have these units. */
static void forget_units(const struct twi_item *item) {
    uint64_t units = magnitude(item->units), *acked = &item->generation->acked_units;
    less_untold(item->family->engine->restore, units);
    *acked -= units < *acked ? units : *acked;
}

/* A window that is over by Redis's clock is neither restored nor missed. In a live window, the part that was given up
 * is noted per counter: it was reported as lost, and must not come back with the rest. */
void twi_restore_note_given_up(tw_engine *engine, const struct twi_item *item, int reason) {
    struct twi_generation *generation = item->generation;
    if (reason == TW_LOST_CLOSED) return; /* the engine ends with it */
    if (reason == TW_LOST_LATE || reason == TW_LOST_EXPIRED || reason == TW_LOST_POISON) {
        if (!generation->family->from_first) generation->over = true; /* else each key has an end of its own */
        return;
    }
    if ((item->flags & TWI_ITEM_GAUGE) == 0) forget_units(item);
    give_up(engine, item->cell, generation, item->delta);
}

void twi_restore_note_shed(struct twi_generation *generation) {
    if (generation->has_given_up) generation->unrestorable = true;
    notes_forget(&generation->family->engine->restore->adrift, generation); /* everything of it was re-sent since */
}

/* ---- windows that are no longer held ---- */

static void forget_what_ended(struct twi_restore *restore, int64_t now_ms) {
    uint32_t ended = 0;
    while (ended < restore->dropped_count && restore->dropped[ended].expiry_ms <= now_ms) ended++;
    if (ended == 0) return;
    restore->dropped_count -= ended;
    memmove(restore->dropped, restore->dropped + ended, restore->dropped_count * sizeof *restore->dropped);
}

static void merge_into(struct twi_dropped_window *into, const struct twi_dropped_window *from) {
    into->units += from->units;
    if (from->expiry_ms > into->expiry_ms) into->expiry_ms = from->expiry_ms;
}

static bool make_room(struct twi_restore *restore) {
    if (restore->dropped_count < restore->dropped_room) return true;
    if (restore->dropped_room == TWI_DROPPED_MAX) {
        merge_into(&restore->dropped[1], &restore->dropped[0]);
        memmove(restore->dropped, restore->dropped + 1, --restore->dropped_count * sizeof *restore->dropped);
        return true;
    }
    uint32_t room = restore->dropped_room == 0 ? 16 : restore->dropped_room * 2;
    struct twi_dropped_window *more = realloc(restore->dropped, room * sizeof *more);
    if (more == NULL) return false;
    restore->dropped = more;
    restore->dropped_room = room;
    return true;
}

void twi_restore_note_dropped(tw_engine *engine, struct twi_generation *generation) {
    struct twi_restore *restore = engine->restore;
    if (generation->has_given_up) notes_forget(&restore->given_up, generation);
    notes_forget(&restore->adrift, generation);
    int64_t now_ms = redis_now_ms(engine);
    struct twi_dropped_window window = {generation->expiry_ms != 0 ? generation->expiry_ms : INT64_MAX,
                                        generation->acked_units};
    /* In a TW_WINDOW_FROM_FIRST family, a generation is dropped when the life of its last key is over. */
    if (window.units == 0 || generation->over || generation->family->from_first || window.expiry_ms <= now_ms) return;
    forget_what_ended(restore, now_ms);
    if (!make_room(restore)) {
        merge_into(&restore->dropped_rest, &window);
        return;
    }
    uint32_t at = restore->dropped_count++;
    for (; at > 0 && restore->dropped[at - 1].expiry_ms > window.expiry_ms; at--)
        restore->dropped[at] = restore->dropped[at - 1];
    restore->dropped[at] = window;
}

static uint64_t take_dropped(struct twi_restore *restore, int64_t now_ms) {
    uint64_t units = restore->dropped_rest.expiry_ms > now_ms ? restore->dropped_rest.units : 0;
    for (uint32_t i = 0; i < restore->dropped_count; i++)
        if (restore->dropped[i].expiry_ms > now_ms) units += restore->dropped[i].units;
    restore->dropped_count = 0;
    restore->dropped_rest = (struct twi_dropped_window){0};
    return units;
}

/* ---- restoring ---- */

struct begin {
    tw_engine *engine;
    int64_t now_ms;
    uint64_t lost;
};

/* The generation owes again, whatever phase it was in; its hook is not called again. */
static void list_generation(tw_engine *engine, struct twi_generation *generation) {
    generation->listed_restore = true;
    generation->next_restore = engine->restore->listed;
    engine->restore->listed = twi_arena_line(&engine->arena, generation);
    generation->outstanding++;
    generation->sealed_mono_ms = engine->turn_mono_ms; /* the time to drain it begins now */
    if (twi_load_relaxed(&generation->phase) > TWI_SEALED)
        twi_store_release(&generation->phase, (uint32_t)TWI_SEALED); /* no reader distinguishes these phases */
    /* The roll-over notices when it owes nothing any more. */
    generation->family->look_mono_ms = engine->turn_mono_ms;
    twi_agenda_notify(generation->family);
}

static void begin_generation(void *ctx, struct twi_generation *generation) {
    struct begin *begin = ctx;
    if (!generation->synced) return;
    /* there, each key has an end of its own */
    bool ends = generation->expiry_ms != 0 && !generation->family->from_first;
    bool over = generation->over || (ends && generation->expiry_ms <= begin->now_ms);
    if (generation->unrestorable && !over) begin->lost += generation->acked_units;
    twi_closing_restart(generation);
    if (over || generation->unrestorable) generation->acked_units = 0;
    begin->engine->restore->untold += generation->acked_units;
    if (generation->acked_units != 0 && !generation->listed_restore) list_generation(begin->engine, generation);
}

void twi_port_forgotten(tw_engine *engine) {
    engine->forgot_mono_ms = engine->turn_mono_ms;
}

uint64_t twi_port_restore(tw_engine *engine) {
    struct begin begin = {engine, redis_now_ms(engine), 0};
    begin.lost = take_dropped(engine->restore, begin.now_ms);
    engine->restore->cursor = (struct twi_cursor){0}; /* the generation that is being walked is walked from its start */
    engine->restore->keeps = false;
    if (engine->restore->begun++ == 0 && !engine->restore->was_back) engine->restore->away = 0;
    if (engine->restore->lacked < engine->restore->untold) engine->restore->lacked = engine->restore->untold;
    engine->restore->untold = 0;
    twi_port_forgotten(engine);
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next))
        if (family->synced) twi_window_visit(family, begin_generation, &begin);
    /* Counters that Redis refused no longer have a reason to wait. */
    twi_delayed_all_due(engine->delayed, engine->turn_mono_ms);
    return begin.lost;
}

struct walk {
    tw_engine *engine;
    struct twi_generation *generation;
    int64_t now_ms;
};

static bool restore_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk *walk = ctx;
    tw_engine *engine = walk->engine;
    bool is_overflow = (meta & TWI_META_OVERFLOW) != 0;
    struct twi_cold *cold = twi_generation_cold(walk->generation, cell, meta);
    if (engine->restore->keeps) {
        (void)twi_and_acqrel(&cell->meta, ~TWI_META_UNTOLD); /* one instruction; no ordering is needed */
        return true;
    }
    int64_t acked = twi_load_relaxed(&cold->acked), given_up = given_up_of(walk->generation, cell);
    if (acked == given_up || (meta & TWI_META_UNTOLD) != 0) return true;
    if (walk->generation->family->from_first && !is_overflow && twi_load_relaxed(&cell->end_ms) <= walk->now_ms)
        return true; /* its life in Redis would be over, too */
    twi_check(twi_load_relaxed(&cold->handed) == acked);
    (void)twi_or_relaxed(&cell->meta, TWI_META_UNTOLD); /* only the turn reads it */
    twi_dirty_owe(engine, walk->generation, cell, meta);
    twi_port_count(engine, restored, (int64_t)magnitude(acked - given_up));
    return true;
}

/* A packed counter gets a record again, outside of the index: readers use the packed form. */
static bool revive_entry(void *ctx, tw_key key, struct twi_final final) {
    struct walk *walk = ctx;
    tw_engine *engine = walk->engine;
    struct twi_cursor *cursor = &engine->restore->cursor;
    if (cursor->looks <= REVIVE_WORK) {
        cursor->looks = 0;
        return false; /* this entry comes first next time */
    }
    cursor->looks -= REVIVE_WORK;
    if (final.local == 0) return true;
    struct twi_cell *cell = twi_table_revive(&engine->arena, walk->generation, key, final.local, final.base);
    if (cell == NULL) {
        twi_lost_report(engine, walk->generation->family, key, walk->generation->start_ms, final.local,
                        TW_LOST_ROLLBACK);
        return true;
    }
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    twi_store_relaxed(&cold->handed, final.local);
    twi_store_relaxed(&cold->acked, final.local);
    (void)twi_or_relaxed(&cell->meta, TWI_META_UNTOLD);
    twi_dirty_owe(engine, walk->generation, cell, meta);
    twi_port_count(engine, restored, (int64_t)magnitude(final.local));
    return true;
}

/* Returns true when every counter of the generation owes all that it holds. If the walk ends a restoration (`keeps`),
 * no counter is UNTOLD any more. */
static bool restore_generation(tw_engine *engine, struct twi_generation *generation) {
    struct twi_cursor *cursor = &engine->restore->cursor;
    struct walk walk = {engine, generation, engine->turn_ms};
    uint32_t line = twi_load_relaxed(&generation->packed);
    struct twi_packed *packed = twi_arena_at(&engine->arena, line);
    if (line != 0 && packed->table == TWI_TABLE_GOING && !twi_history_shed(engine, generation, &cursor->looks)) {
        cursor->looks = 0;
        return false;
    }
    if (!cursor->done) twi_table_walk(&engine->arena, generation, cursor, restore_cell, &walk);
    if (!cursor->done || line == 0 || packed->table == TWI_TABLE_WHOLE || engine->restore->keeps) return cursor->done;
    if (cursor->looks == 0) return false;
    twi_packed_walk(&engine->arena, line, &packed->revived, revive_entry, &walk);
    return packed->revived.done;
}

bool twi_port_restore_some(tw_engine *engine) {
    struct twi_restore *restore = engine->restore;
    restore->cursor.looks = TWI_WORK_TURN;
    while (restore->listed != 0 && restore->cursor.looks != 0) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, restore->listed);
        struct walk walk = {engine, generation, engine->turn_ms};
        if (!restore_generation(engine, generation)) break;
        (void)restore_cell(&walk, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
        restore->listed = generation->next_restore;
        generation->listed_restore = false;
        twi_check(generation->outstanding != 0);
        generation->outstanding--;
        restore->cursor = (struct twi_cursor){.looks = restore->cursor.looks};
    }
    if (restore->listed == 0) restore->keeps = false;
    return restore->listed != 0;
}

/* ---- what of a counter an earlier store has ---- */

int64_t twi_restore_take(struct twi_generation *generation, struct twi_cell *cell, struct twi_cold *cold) {
    int64_t acked = twi_load_relaxed(&cold->acked), given_up = given_up_of(generation, cell);
    (void)twi_and_acqrel(&cell->meta, ~TWI_META_UNTOLD); /* one instruction; no ordering is needed */
    twi_store_relaxed(&cold->acked, given_up);
    return acked - given_up;
}

void twi_restore_note_told(const struct twi_item *item) {
    struct twi_restore *restore = item->family->engine->restore;
    uint64_t fresh = magnitude(item->delta - item->units);
    item->generation->acked_units += fresh; /* the earlier store had the remainder, which is already counted */
    less_untold(restore, magnitude(item->units));
    restore->away += fresh;
}

/* The counter becomes UNTOLD again if nothing else of it is in flight. (A sum of positive deltas is zero only if there
 * are none.) Otherwise its units are owed like new counts; if the earlier store is back by then, it gets them twice. */
void twi_restore_note_returned(const struct twi_item *item, bool whole) {
    struct twi_generation *generation = item->generation;
    struct twi_cell *cell = item->cell;
    struct twi_cold *cold = cold_of(generation, cell);
    int64_t handed = twi_load_relaxed(&cold->handed), acked = twi_load_relaxed(&cold->acked);
    if (!whole && (handed != acked || generation->has_negative)) {
        item->family->engine->restore->twice += magnitude(item->units);
        forget_units(item);
        return;
    }
    twi_store_relaxed(&cold->handed, handed + item->units);
    twi_store_relaxed(&cold->acked, acked + item->units);
    (void)twi_or_relaxed(&cell->meta, TWI_META_UNTOLD);
}

/* ---- a store that was left is back ---- */

void twi_port_adrift(const struct twi_item *item) {
    struct twi_restore *restore = item->family->engine->restore;
    int64_t fresh = item->delta - item->units;
    if ((item->flags & TWI_ITEM_GAUGE) != 0 || fresh == 0) return;
    if (!note(&restore->adrift, item->cell, item->generation, fresh)) restore->twice += magnitude(fresh);
}

void twi_port_keep_item(struct twi_item *item) {
    struct twi_generation *generation = item->generation;
    struct twi_cell *cell = item->cell;
    struct twi_cold *cold = cold_of(generation, cell);
    if ((item->flags & TWI_ITEM_GAUGE) != 0 || item->units == 0) return;
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + item->units);
    item->delta -= item->units;
    item->units = 0;
}

/* The part of the note that is contained in `delta`. */
static int64_t part_of(const struct twi_noted *noted, int64_t delta) {
    if ((noted->delta > 0) != (delta > 0)) return 0;
    return magnitude(noted->delta) > magnitude(delta) ? delta : noted->delta;
}

/* Settles the adrift units and reports them as uncertain. */
static void give_up_adrift(struct twi_generation *generation, struct twi_cell *cell, int64_t adrift) {
    tw_engine *engine = generation->family->engine;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = cold_of(generation, cell);
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + adrift);
    give_up(engine, cell, generation, adrift);
    twi_lost_report(engine, generation->family, tw_bytes(cell->key, meta & TWI_META_SIZE),
                    twi_generation_start_ms(generation), adrift, TW_LOST_UNCERTAIN);
}

bool twi_port_end_item(struct twi_item *item) {
    struct twi_restore *restore = item->family->engine->restore;
    if ((item->flags & TWI_ITEM_GAUGE) != 0) return false;
    less_untold(restore, magnitude(item->units));
    twi_port_keep_item(item);
    struct twi_noted *noted = restore->adrift.count != 0 ? find_noted(&restore->adrift, item->cell) : NULL;
    int64_t adrift = noted != NULL ? part_of(noted, item->delta) : 0;
    if (adrift == 0) return false;
    noted->delta -= adrift;
    item->delta -= adrift;
    give_up_adrift(item->generation, item->cell, adrift);
    return true;
}

/* Nobody knows whether the adrift units arrived in that store. What no other store got of them is given up. */
static void keep_adrift(const struct twi_noted *noted) {
    struct twi_cell *cell = noted->cell;
    struct twi_cold *cold = cold_of(noted->generation, cell);
    int64_t handed = twi_load_relaxed(&cold->handed);
    int64_t adrift = part_of(noted, twi_cell_local(cell, twi_load_relaxed(&cell->meta)) - handed);
    if (adrift == 0) return;
    twi_store_relaxed(&cold->handed, handed + adrift);
    give_up_adrift(noted->generation, cell, adrift);
}

static void keep_generation(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    if (generation->synced && generation->acked_units != 0 && !generation->listed_restore)
        list_generation(engine, generation);
}

/* If there was more than one earlier store, nobody knows which one is back. It may be a store that was left in the
 * middle of a restoration, or one that lacks what the others acknowledged since. So the uncertain amount is an upper
 * bound. */
bool twi_port_keep(tw_engine *engine, uint64_t *uncertain) {
    struct twi_restore *restore = engine->restore;
    bool was_left = restore->begun != 0;
    notes_sort(&restore->adrift);
    for (uint32_t i = 0; i < restore->adrift.count; i++) keep_adrift(&restore->adrift.items[i]);
    restore->adrift.count = 0;
    *uncertain = restore->lacked + (was_left ? restore->away + restore->twice : 0);
    restore->lacked = restore->untold; /* by the store that is left now */
    restore->was_back = true;
    if (restore->untold != 0) {
        restore->keeps = true;
        restore->cursor = (struct twi_cursor){0};
        for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
             family = twi_load_acquire(&family->next))
            if (family->synced) twi_window_visit(family, keep_generation, engine);
    }
    restore->begun = 0;
    restore->away = restore->twice = restore->untold = 0;
    return was_left;
}

/* ---- the end ---- */

void twi_restore_forget(struct twi_restore *restore) {
    restore->listed = 0;
    restore->cursor = (struct twi_cursor){0};
    restore->keeps = restore->was_back = false;
    restore->given_up.count = restore->adrift.count = restore->dropped_count = 0;
    restore->begun = 0;
    restore->away = restore->twice = restore->lacked = restore->untold = 0;
    restore->dropped_rest = (struct twi_dropped_window){0};
}

void twi_restore_free(struct twi_restore *restore) {
    free(restore->given_up.items);
    free(restore->adrift.items);
    free(restore->dropped);
}
