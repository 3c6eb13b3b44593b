/* restore.c -- see restore.h. Begun by sync/settle.c through port.h, and then done in bounded steps, before anything is
 * collected again; until then each generation that is listed counts an `outstanding` more, so that it is not dropped. */
#include "engine/restore.h"

#include "engine/agenda.h"
#include "engine/closing.h"
#include "engine/delayed.h"
#include "engine/dirty.h"
#include "engine/history.h"
#include "engine/lost.h"
#include "engine/packed.h"
#include "engine/window.h"

#include <stdlib.h>

#define REVIVE_WORK 16u /* of a counter that was packed */

static int64_t redis_now_ms(tw_engine *engine) {
    return engine->turn_ms + twi_stat_get(engine, offsetof(tw_stats, redis_clock_offset_ms));
}

/* ---- what was given up ---- */

static int compare_given_up(const void *a, const void *b) {
    const struct twi_given_up *x = a, *y = b;
    uintptr_t of_x = (uintptr_t)x->cell, of_y = (uintptr_t)y->cell;
    return of_x < of_y ? -1 : of_x > of_y;
}

/* One entry for each counter, in order. */
static void sort_given_up(struct twi_restore *restore) {
    if (restore->given_up_sorted || restore->given_up_count == 0) return;
    qsort(restore->given_up, restore->given_up_count, sizeof *restore->given_up, compare_given_up);
    uint32_t last = 0;
    for (uint32_t i = 1; i < restore->given_up_count; i++) {
        if (restore->given_up[i].cell == restore->given_up[last].cell)
            restore->given_up[last].delta += restore->given_up[i].delta;
        else
            restore->given_up[++last] = restore->given_up[i];
    }
    restore->given_up_count = last + 1;
    restore->given_up_sorted = true;
}

static bool has_room(struct twi_restore *restore) {
    if (restore->given_up_count < restore->given_up_room) return true;
    sort_given_up(restore);
    if (restore->given_up_count < restore->given_up_room) return true;
    uint32_t room = restore->given_up_room == 0 ? 64 : restore->given_up_room * 2;
    if (room > TWI_GIVEN_UP_MAX) return false;
    struct twi_given_up *more = realloc(restore->given_up, room * sizeof *more);
    if (more == NULL) return false;
    restore->given_up = more;
    restore->given_up_room = room;
    return true;
}

/* A window that is over by Redis's clock is neither restored nor missed; of one that lives, what was given up is noted by
 * counter: it was reported, and must not come back with the rest. */
void twi_restore_note_given_up(tw_engine *engine, const struct twi_item *item, int reason) {
    struct twi_restore *restore = engine->restore;
    struct twi_generation *generation = item->generation;
    if (reason == TW_LOST_CLOSED) return; /* the engine goes with it */
    if (reason == TW_LOST_LATE || reason == TW_LOST_EXPIRED || reason == TW_LOST_POISON) {
        if (!generation->family->from_first) generation->over = true; /* else each life has its own end */
        return;
    }
    if (!has_room(restore)) {
        generation->unrestorable = true;
        return;
    }
    restore->given_up[restore->given_up_count++] = (struct twi_given_up){item->cell, generation, item->delta};
    restore->given_up_sorted = false;
    generation->has_given_up = true;
}

static int64_t given_up_of(struct twi_restore *restore, const struct twi_cell *cell) {
    uint32_t low = 0, high = restore->given_up_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (restore->given_up[middle].cell == cell) return restore->given_up[middle].delta;
        if ((uintptr_t)restore->given_up[middle].cell < (uintptr_t)cell)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
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

static void forget_given_up(struct twi_restore *restore, const struct twi_generation *generation) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < restore->given_up_count; i++)
        if (restore->given_up[i].generation != generation) restore->given_up[kept++] = restore->given_up[i];
    restore->given_up_count = kept;
}

void twi_restore_note_dropped(tw_engine *engine, struct twi_generation *generation) {
    struct twi_restore *restore = engine->restore;
    if (generation->has_given_up) forget_given_up(restore, generation);
    int64_t now_ms = redis_now_ms(engine);
    struct twi_dropped_window window = {generation->expiry_ms != 0 ? generation->expiry_ms : INT64_MAX,
                                        generation->acked_units};
    /* Where lives begin with the first count, a generation is dropped when the last of them is over. */
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

/* It owes again, whatever it had been through; its hook is not called anew. */
static void list_generation(tw_engine *engine, struct twi_generation *generation) {
    generation->listed_restore = true;
    generation->next_restore = engine->restore->listed;
    engine->restore->listed = twi_arena_line(&engine->arena, generation);
    generation->outstanding++;
    generation->sealed_mono_ms = engine->turn_mono_ms; /* from here on it has time to be drained */
    if (twi_load_relaxed(&generation->phase) > TWI_SEALED)
        twi_store_release(&generation->phase, (uint32_t)TWI_SEALED); /* nobody reads a difference between these */
    /* the wheel sees when it owes no more */
    generation->family->look_mono_ms = engine->turn_mono_ms;
    twi_agenda_tell(generation->family);
}

static void begin_generation(void *ctx, struct twi_generation *generation) {
    struct begin *begin = ctx;
    if (!generation->synced) return;
    bool ends = generation->expiry_ms != 0 && !generation->family->from_first; /* there each life has its own end */
    bool over = generation->over || (ends && generation->expiry_ms <= begin->now_ms);
    if (generation->unrestorable && !over) begin->lost += generation->acked_units;
    twi_closing_again(generation);
    if (!over && !generation->unrestorable && generation->acked_units != 0 && !generation->listed_restore)
        list_generation(begin->engine, generation);
    generation->acked_units = 0;
}

void twi_port_forgotten(tw_engine *engine) {
    engine->forgot_mono_ms = engine->turn_mono_ms;
}

uint64_t twi_port_restore(tw_engine *engine) {
    struct begin begin = {engine, redis_now_ms(engine), 0};
    begin.lost = take_dropped(engine->restore, begin.now_ms);
    engine->restore->cursor = (struct twi_cursor){0}; /* the one being walked is walked anew */
    twi_port_forgotten(engine);
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next))
        if (family->synced) twi_window_visit(family, begin_generation, &begin);
    /* Counters that Redis refused have nothing to wait for any more. */
    twi_delayed_hurry(engine->delayed, engine->turn_mono_ms);
    sort_given_up(engine->restore);
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
    int64_t acked = twi_load_relaxed(&cold->acked), given_up = 0;
    if (walk->generation->has_given_up) given_up = given_up_of(engine->restore, cell);
    if (acked == given_up) return true;
    if (walk->generation->family->from_first && !is_overflow && twi_load_relaxed(&cell->end_ms) <= walk->now_ms)
        return true; /* its life in Redis would be over, too */
    twi_check(twi_load_relaxed(&cold->handed) == acked);
    twi_store_relaxed(&cold->handed, given_up);
    twi_store_relaxed(&cold->acked, given_up);
    twi_dirty_owe(engine, walk->generation, cell, meta);
    twi_port_count(engine, restored, acked > given_up ? acked - given_up : given_up - acked);
    return true;
}

/* A counter that was packed gets a record again, outside of the index: those who read go by the packed form. */
static bool revive_entry(void *ctx, tw_key key, struct twi_final final) {
    struct walk *walk = ctx;
    tw_engine *engine = walk->engine;
    struct twi_cursor *cursor = &engine->restore->cursor;
    if (cursor->looks <= REVIVE_WORK) {
        cursor->looks = 0;
        return false; /* it comes first next time */
    }
    cursor->looks -= REVIVE_WORK;
    if (final.local == 0) return true;
    struct twi_cell *cell = twi_table_revive(&engine->arena, walk->generation, key, final.local, final.base);
    if (cell == NULL) {
        twi_lost_report(engine, walk->generation->family, key, walk->generation->start_ms, final.local,
                        TW_LOST_ROLLBACK);
        return true;
    }
    twi_dirty_owe(engine, walk->generation, cell, twi_load_relaxed(&cell->meta));
    twi_port_count(engine, restored, final.local < 0 ? -final.local : final.local);
    return true;
}

/* True when every counter of the generation owes all that it holds. */
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
    if (!cursor->done || line == 0 || packed->table == TWI_TABLE_WHOLE) return cursor->done;
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
    return restore->listed != 0;
}

/* ---- the end ---- */

void twi_restore_forget(struct twi_restore *restore) {
    restore->listed = 0;
    restore->cursor = (struct twi_cursor){0};
    restore->given_up_count = restore->dropped_count = 0;
    restore->dropped_rest = (struct twi_dropped_window){0};
}

void twi_restore_free(struct twi_restore *restore) {
    free(restore->given_up);
    free(restore->dropped);
}
