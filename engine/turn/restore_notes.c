/* restore_notes.c -- see restore_notes.h. */
#include "engine/turn/restore_notes.h"

#include "engine/base/grow.h"
#include "engine/base/key_slot.h"
#include "engine/core/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- restore stores ---- */

#define STORES_FIRST 8u /* the first size of an array of stores */
#define ROWS_FIRST 16u

/* the first store has a place of its own */

static bool make_map(tw_engine *engine) {
    twi_check(engine->peers.stores == NULL && engine->collector.stores->map == NULL);
    struct twi_store_map *map = calloc(1, sizeof *map);
    engine->collector.stores->map = map;
    engine->peers.stores = map;
    return map != NULL;
}

uint32_t twi_port_store(tw_engine *engine, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    struct twi_restore_stores *stores = engine->collector.stores;
    if (stores->map == NULL && !make_map(engine)) return TWI_STORE_NONE;
    uint32_t store = twi_store_map_at(stores->map, slot);
    if (store != TWI_STORE_NONE) return store;
    /* the first one has its place */
    if (!twi_grow(&stores->more, sizeof *stores->more, &stores->room, stores->map->count, STORES_FIRST))
        return TWI_STORE_NONE;
    store = twi_store_map_enter(engine, stores->map, slot);
    if (store != 0) stores->more[store - 1] = (struct twi_restore_store){0};
    return store;
}

static uint32_t store_of_name(const struct twi_restore_stores *stores, const char *name, size_t size) {
    twi_check(size != 0 && size <= TWI_REDIS_KEY_MAX);
    return twi_store_map_at(stores->map, twi_key_slot_of(name, size));
}

uint32_t twi_restore_store_of(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell) {
    twi_check(generation->family->engine == engine);
    const struct twi_restore_stores *stores = engine->collector.stores;
    if (stores->map == NULL) return 0;
    char name[TWI_REDIS_KEY_MAX];
    bool is_overflow = (twi_load_relaxed(&cell->meta) & TWI_META_OVERFLOW) != 0;
    struct twi_item item = {.family = generation->family, .generation = generation, .cell = cell};
    item.flags = is_overflow ? TWI_ITEM_OVERFLOW : 0;
    return store_of_name(stores, name, twi_port_render(&item, name));
}

uint32_t twi_restore_store_of_key(tw_engine *engine, const struct twi_generation *generation, tw_key key) {
    twi_check(generation->family->engine == engine);
    const struct twi_restore_stores *stores = engine->collector.stores;
    if (stores->map == NULL) return 0;
    char name[TWI_REDIS_KEY_MAX];
    return store_of_name(stores, name,
                         twi_key_template_render(&generation->family->template, key, generation->start_ms, name));
}

/* ---- rows ---- */

static uint32_t new_row(struct twi_restore_stores *stores) {
    twi_check(stores->row_count <= stores->row_room);
    twi_check(stores->rows_free <= stores->row_count);
    if (stores->rows_free != 0) {
        uint32_t row = stores->rows_free;
        stores->rows_free = stores->rows[row - 1].next_free;
        return row;
    }
    bool has_room = twi_grow(&stores->rows, sizeof *stores->rows, &stores->row_room, stores->row_count + 1, ROWS_FIRST);
    return has_room ? ++stores->row_count : 0;
}

/* Makes room for all stores that are known so far. Returns false if there is no memory. */
static bool widen(struct twi_restore_row *row, uint32_t count) {
    twi_check(count > row->room);
    uint32_t room = row->room;
    if (!twi_grow(&row->units, sizeof *row->units, &row->room, count, STORES_FIRST)) return false;
    memset(row->units + room, 0, (row->room - room) * sizeof *row->units);
    return true;
}

void twi_restore_row_free(struct twi_restore_stores *stores, uint32_t row) {
    twi_check(row <= stores->row_count);
    if (row == 0) return;
    free(stores->rows[row - 1].units);
    stores->rows[row - 1] = (struct twi_restore_row){.next_free = stores->rows_free};
    stores->rows_free = row;
}

bool twi_port_assign(struct twi_item *item, char *name, size_t *size) {
    twi_check(item->generation->family == item->family && name != NULL);
    struct twi_restore_stores *stores = item->family->engine->collector.stores;
    uint32_t *row = &item->generation->turn.restore.row;
    *size = twi_port_render(item, name);
    uint32_t store = twi_port_store(item->family->engine, twi_key_slot_of(name, *size));
    if (store == TWI_STORE_NONE) return false;
    if (*row == 0) {
        uint32_t fresh = new_row(stores);
        if (fresh == 0) return false;
        stores->rows[fresh - 1] = (struct twi_restore_row){0};
        if (!widen(&stores->rows[fresh - 1], stores->map->count)) {
            twi_restore_row_free(stores, fresh);
            return false;
        }
        *row = fresh;
    }
    if (stores->rows[*row - 1].room <= store && !widen(&stores->rows[*row - 1], stores->map->count)) return false;
    item->store = store;
    return true;
}

static uint64_t *units_at(const struct twi_restore_stores *stores, uint32_t row, uint32_t store) {
    twi_check(row <= stores->row_count);
    if (row == 0 || store >= stores->rows[row - 1].room) return NULL;
    return &stores->rows[row - 1].units[store];
}

uint64_t twi_restore_acked(const struct twi_restore_stores *stores, const struct twi_generation *generation,
                           uint32_t store) {
    if (stores->map == NULL) return generation->turn.acked_units;
    const uint64_t *units = units_at(stores, generation->turn.restore.row, store);
    return units != NULL ? *units : 0;
}

void twi_restore_row_add(struct twi_restore_stores *stores, uint32_t row, uint32_t store, uint64_t units) {
    uint64_t *of_store = units_at(stores, row, store);
    if (of_store != NULL) *of_store += units;
}

void twi_restore_acked_less(struct twi_restore_stores *stores, struct twi_generation *generation, uint32_t store,
                            uint64_t units) {
    uint64_t acked = twi_restore_acked(stores, generation, store);
    if (units > acked) units = acked;
    uint64_t *of_store = units_at(stores, generation->turn.restore.row, store);
    generation->turn.acked_units -= units;
    if (of_store != NULL) *of_store -= units;
}

uint64_t twi_restore_row_take(struct twi_restore_stores *stores, uint32_t row, uint32_t store) {
    uint64_t *of_store = units_at(stores, row, store), units = of_store != NULL ? *of_store : 0;
    if (of_store != NULL) *of_store = 0;
    return units;
}

uint32_t twi_restore_rows_merge(struct twi_restore_stores *stores, uint32_t into, uint32_t from) {
    twi_check(into == 0 || into != from);
    twi_check(into <= stores->row_count && from <= stores->row_count);
    if (into == 0 || from == 0) return into != 0 ? into : from;
    if (stores->rows[into - 1].room < stores->rows[from - 1].room) { /* the larger array has room for both */
        uint32_t wider = from;
        from = into;
        into = wider;
    }
    const struct twi_restore_row *source = &stores->rows[from - 1];
    for (uint32_t i = 0; i < source->room; i++) stores->rows[into - 1].units[i] += source->units[i];
    twi_restore_row_free(stores, from);
    return into;
}

/* ---- the end ---- */

void twi_restore_stores_free(struct twi_restore_stores *stores) {
    for (uint32_t i = 0; i < stores->row_count; i++) free(stores->rows[i].units);
    free(stores->rows);
    free(stores->more);
    free(stores->map);
    *stores = (struct twi_restore_stores){0};
}

#define NOTES_FIRST 64u /* room at first */
#define DROPPED_FIRST 16u

int64_t twi_restore_redis_now_ms(tw_engine *engine) {
    return engine->turn.now_ms + engine->peers.clock_offset_ms;
}

/* ---- notes on single counters ---- */

static int compare_noted(const void *a, const void *b) {
    const struct twi_noted *x = a, *y = b;
    uintptr_t of_x = (uintptr_t)x->cell, of_y = (uintptr_t)y->cell;
    return of_x < of_y ? -1 : of_x > of_y;
}

/* Sorts by counter and merges the entries of each counter into one. */
void twi_notes_sort(struct twi_notes *notes) {
    twi_check(notes->count <= notes->room);
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
    twi_check(notes->count <= notes->room);
    if (notes->count < notes->room) return true;
    twi_notes_sort(notes);
    return notes->count < TWI_NOTED_MAX &&
           twi_grow(&notes->items, sizeof *notes->items, &notes->room, notes->count + 1, NOTES_FIRST);
}

bool twi_notes_add(struct twi_notes *notes, struct twi_cell *cell, struct twi_generation *generation, int64_t delta) {
    twi_check(cell != NULL && generation != NULL);
    if (!has_room(notes)) return false;
    notes->sorted = false;
    notes->items[notes->count] = (struct twi_noted){cell, generation, delta};
    twi_fence_compiler(); /* if this process ends in between, there is no note, and not one without a counter */
    notes->count++;
    return true;
}

struct twi_noted *twi_notes_find(struct twi_notes *notes, const struct twi_cell *cell) {
    twi_notes_sort(notes);
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
    const struct twi_noted *noted = twi_notes_find(notes, cell);
    return noted != NULL ? noted->delta : 0;
}

static void notes_forget(struct twi_notes *notes, const struct twi_generation *generation) {
    twi_check(notes->count <= notes->room);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < notes->count; i++)
        if (notes->items[i].generation != generation) notes->items[kept++] = notes->items[i];
    notes->count = kept;
}

/* ---- units that were given up ---- */

void twi_restore_give_up(tw_engine *engine, struct twi_cell *cell, struct twi_generation *generation, int64_t delta) {
    twi_check(generation->synced);
    if (twi_notes_add(&engine->restore->given_up, cell, generation, delta))
        generation->turn.restore.has_given_up = true;
    else
        generation->turn.restore.unrestorable = true;
}

int64_t twi_restore_given_up_of(struct twi_generation *generation, const struct twi_cell *cell) {
    if (!generation->turn.restore.has_given_up) return 0;
    return noted_of(&generation->family->engine->restore->given_up, cell);
}

void twi_restore_less_to_resend(struct twi_restore *restore, uint32_t store, uint64_t units) {
    uint64_t *to_resend = &twi_restore_store_at(restore->stores, store)->to_resend;
    *to_resend -= units < *to_resend ? units : *to_resend;
}

/* Also records that Redis does not have these units. */
static void forget_units(const struct twi_item *item) {
    struct twi_restore *restore = item->family->engine->restore;
    uint64_t units = twi_restore_magnitude(item->units);
    twi_restore_less_to_resend(restore, item->store, units);
    twi_restore_acked_less(restore->stores, item->generation, item->store, units);
}

/* A window that is over by Redis's clock is not restored, and does not count as missing. In a live window, each counter
 * notes the part that was given up. This part was reported as lost, so it must not be sent again with the rest. */
void twi_restore_note_given_up(tw_engine *engine, const struct twi_item *item, int reason) {
    twi_check(item->generation->family->engine == engine);
    struct twi_generation *generation = item->generation;
    if (reason == TW_LOST_CLOSED) return; /* the note would end with the engine */
    if (reason == TW_LOST_LATE || reason == TW_LOST_EXPIRED || reason == TW_LOST_POISON) {
        if (!generation->family->kind.from_first)
            generation->turn.restore.over = true; /* otherwise each key has a separate end */
        return;
    }
    if ((item->flags & TWI_ITEM_GAUGE) == 0) forget_units(item);
    twi_restore_give_up(engine, item->cell, generation, item->delta);
}

void twi_restore_note_shed(struct twi_generation *generation) {
    twi_check(twi_generation_is_packed(generation));
    if (generation->turn.restore.has_given_up) generation->turn.restore.unrestorable = true;
    notes_forget(&generation->family->engine->restore->adrift, generation); /* all of it was sent again since then */
}

/* ---- windows that no longer exist here ---- */

static void forget_what_ended(struct twi_restore *restore, int64_t now_ms) {
    twi_check(restore->dropped_count <= restore->dropped_room);
    uint32_t ended = 0;
    for (; ended < restore->dropped_count && restore->dropped[ended].expiry_ms <= now_ms; ended++)
        twi_restore_row_free(restore->stores, restore->dropped[ended].row);
    if (ended == 0) return;
    restore->dropped_count -= ended;
    memmove(restore->dropped, restore->dropped + ended, restore->dropped_count * sizeof *restore->dropped);
}

static void merge_into(struct twi_restore *restore, struct twi_dropped_window *into,
                       const struct twi_dropped_window *from) {
    twi_check(into != from);
    into->units += from->units;
    into->row = twi_restore_rows_merge(restore->stores, into->row, from->row);
    if (from->expiry_ms > into->expiry_ms) into->expiry_ms = from->expiry_ms;
}

static bool make_room(struct twi_restore *restore) {
    twi_check(restore->dropped_count <= restore->dropped_room && restore->dropped_room <= TWI_DROPPED_MAX);
    if (restore->dropped_count < restore->dropped_room) return true;
    if (restore->dropped_room == TWI_DROPPED_MAX) {
        merge_into(restore, &restore->dropped[1], &restore->dropped[0]);
        memmove(restore->dropped, restore->dropped + 1, --restore->dropped_count * sizeof *restore->dropped);
        return true;
    }
    return twi_grow(&restore->dropped, sizeof *restore->dropped, &restore->dropped_room, restore->dropped_count + 1,
                    DROPPED_FIRST);
}

void twi_restore_note_dropped(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_DROPPED);
    twi_check(!generation->turn.restore.listed);
    struct twi_restore *restore = engine->restore;
    if (generation->turn.restore.has_given_up) notes_forget(&restore->given_up, generation);
    notes_forget(&restore->adrift, generation);
    int64_t now_ms = twi_restore_redis_now_ms(engine);
    struct twi_dropped_window window = {generation->expiry_ms != 0 ? generation->expiry_ms : INT64_MAX,
                                        generation->turn.acked_units, generation->turn.restore.row};
    generation->turn.restore.row = 0;
    /* In a TW_WINDOW_FROM_FIRST family, a generation is dropped at the end of the lifetime of its last key. */
    if (window.units == 0 || generation->turn.restore.over || generation->family->kind.from_first ||
        window.expiry_ms <= now_ms) {
        twi_restore_row_free(restore->stores, window.row);
        return;
    }
    forget_what_ended(restore, now_ms);
    if (!make_room(restore)) {
        merge_into(restore, &restore->dropped_rest, &window);
        return;
    }
    uint32_t at = restore->dropped_count++;
    for (; at > 0 && restore->dropped[at - 1].expiry_ms > window.expiry_ms; at--)
        restore->dropped[at] = restore->dropped[at - 1];
    restore->dropped[at] = window;
}

static uint64_t take_of(struct twi_restore *restore, struct twi_dropped_window *window, uint32_t store,
                        int64_t now_ms) {
    uint64_t units =
        restore->stores->map != NULL ? twi_restore_row_take(restore->stores, window->row, store) : window->units;
    window->units -= units;
    return window->expiry_ms > now_ms ? units : 0;
}

uint64_t twi_restore_take_dropped(struct twi_restore *restore, uint32_t store, int64_t now_ms) {
    uint64_t units = take_of(restore, &restore->dropped_rest, store, now_ms);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < restore->dropped_count; i++) {
        units += take_of(restore, &restore->dropped[i], store, now_ms);
        if (restore->dropped[i].units != 0) /* units of the other stores */
            restore->dropped[kept++] = restore->dropped[i];
        else
            twi_restore_row_free(restore->stores, restore->dropped[i].row);
    }
    restore->dropped_count = kept;
    return units;
}

/* ---- the part of a counter that an earlier store has ---- */

int64_t twi_restore_take(struct twi_generation *generation, struct twi_cell *cell, struct twi_cold *cold) {
    twi_check((twi_load_relaxed(&cell->meta) & TWI_META_RESEND) != 0);
    int64_t acked = twi_load_relaxed(&cold->acked), given_up = twi_restore_given_up_of(generation, cell);
    twi_store_relaxed(&cold->acked, given_up);
    twi_fence_compiler(); /* if this process ends in between, the counter is still to be sent again */
    (void)twi_and_acqrel(&cell->meta, ~TWI_META_RESEND); /* one instruction; no ordering is needed */
    return acked - given_up;
}

void twi_restore_note_resent(const struct twi_item *item) {
    twi_check((item->flags & TWI_ITEM_GAUGE) == 0);
    struct twi_restore *restore = item->family->engine->restore;
    uint64_t fresh = twi_restore_magnitude(item->delta - item->units);
    /* the earlier store had the remainder, and acked_units already includes it */
    twi_restore_acked_add(restore->stores, item->generation, item->store, fresh);
    twi_restore_less_to_resend(restore, item->store, twi_restore_magnitude(item->units));
    twi_restore_store_at(restore->stores, item->store)->away += fresh;
}

/* If no other part of the counter is in flight, the counter is marked again. (Only without deltas is a sum of
 * positive deltas zero.) Otherwise its units become unsent. An earlier store that is back by then gets them twice. */
void twi_restore_note_returned(const struct twi_item *item, bool whole) {
    twi_check(item->units != 0 && (item->flags & TWI_ITEM_GAUGE) == 0);
    struct twi_generation *generation = item->generation;
    struct twi_cell *cell = item->cell;
    struct twi_cold *cold = twi_restore_cold_of(generation, cell);
    int64_t handed = twi_load_relaxed(&cold->handed), acked = twi_load_relaxed(&cold->acked);
    if (!whole && (handed != acked || generation->turn.restore.has_negative)) {
        twi_restore_store_at(item->family->engine->restore->stores, item->store)->twice +=
            twi_restore_magnitude(item->units);
        forget_units(item);
        return;
    }
    (void)twi_or_relaxed(&cell->meta, TWI_META_RESEND);
    twi_fence_compiler(); /* if this process ends in between, the counter does not count as acknowledged */
    twi_store_relaxed(&cold->handed, handed + item->units);
    twi_store_relaxed(&cold->acked, acked + item->units);
}

/* ---- forgetting ---- */

void twi_restore_forget(struct twi_restore *restore) {
    restore->listed = 0;
    restore->cursor = (struct twi_cursor){0};
    restore->given_up.count = restore->adrift.count = restore->dropped_count = 0;
    twi_restore_stores_free(restore->stores);
    restore->dropped_rest = (struct twi_dropped_window){0};
}

void twi_restore_free(struct twi_restore *restore) {
    if (restore->is_shared) return;
    free(restore->given_up.items);
    free(restore->adrift.items);
    free(restore->dropped);
    twi_restore_stores_free(restore->stores);
}
