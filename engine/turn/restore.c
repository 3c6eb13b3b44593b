/* restore.c -- after Redis has lost all data, sends the contributions of live counters again (restore_notes.h).
 * sync/turn/settle.c begins a restoration through items.h. The turn then continues it in bounded steps, before it
 * collects.
 * Always true: until a listed generation is walked, its `outstanding` is one more, so that it is not dropped. */
#include "engine/turn/restore.h"
#include "engine/turn/restore_notes.h"

#include "engine/core/agenda.h"
#include "engine/turn/closing.h"
#include "engine/port/items.h"
#include "engine/count/dirty.h"
#include "engine/turn/windows.h"
#include "engine/turn/settle.h"
#include "engine/table/packed.h"
#include "engine/core/window_map.h"

#define REVIVE_WORK 16u /* the work of one packed counter */

/* ---- restoring ---- */

struct begin {
    tw_engine *engine;
    uint32_t store;
    int64_t now_ms;
    uint64_t lost;
};

/* The generation has counts to send again, whatever its phase was. Its hook is not called again. */
static void keep(tw_engine *engine, struct twi_generation *generation) {
    twi_check(generation->synced && !generation->turn.restore.listed);
    generation->turn.restore.listed = true;
    generation->turn.outstanding++;
    generation->turn.sealed_mono_ms = engine->turn.mono_ms; /* the time to drain it begins now */
    if (twi_load_relaxed(&generation->phase) > TWI_SEALED)
        twi_store_release(&generation->phase, (uint8_t)TWI_SEALED); /* no reader distinguishes these phases */
    /* The roll-over notices when the generation has no unsent counts any more. */
    generation->family->turn.look_mono_ms = engine->turn.mono_ms;
    twi_agenda_notify(generation->family);
}

/* The list is whole at each moment, so it is what the next process trusts. */
static void list_generation(tw_engine *engine, struct twi_generation *generation) {
    generation->turn.restore.next = engine->restore->listed;
    twi_fence_compiler();
    engine->restore->listed = twi_arena_line(&engine->arena, generation);
    twi_fence_compiler();
    keep(engine, generation);
}

/* The process before may have ended while it changed the cursor. To walk over a counter again changes nothing. But a
 * counter of a packed window may have a record already, and a second record would be sent, too. So records that are not
 * complete are given back first. */
void twi_restore_inherit(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    engine->restore->cursor = (struct twi_cursor){0};
    for (uint32_t line = engine->restore->listed; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        const struct twi_packed *packed = twi_packed_of(&engine->arena, generation);
        keep(engine, generation);
        if (packed != NULL && packed->table == TWI_TABLE_GONE && packed->revived.begun && !packed->revived.done)
            twi_history_begin_shed(engine, generation);
        line = generation->turn.restore.next;
    }
}

static void begin_generation(void *ctx, struct twi_generation *generation) {
    struct begin *begin = ctx;
    struct twi_restore_stores *stores = begin->engine->restore->stores;
    if (!generation->synced || generation->turn.distinct) return;
    uint64_t acked = twi_restore_acked(stores, generation, begin->store);
    if (acked == 0 && stores->map != NULL) return; /* that store has none of its counts */
    /* in these families each key has a separate end */
    bool ends = generation->expiry_ms != 0 && !generation->family->kind.from_first;
    bool over = generation->turn.restore.over || (ends && generation->expiry_ms <= begin->now_ms);
    if (generation->turn.restore.unrestorable && !over) begin->lost += acked;
    twi_closing_restart(generation);
    if (over || generation->turn.restore.unrestorable) {
        twi_restore_acked_less(stores, generation, begin->store, acked);
        return;
    }
    twi_restore_store_at(stores, begin->store)->to_resend += acked;
    if (acked != 0 && !generation->turn.restore.listed) list_generation(begin->engine, generation);
}

/* A packed window has only the estimates. */
static void list_distinct(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    bool over = generation->expiry_ms != 0 && generation->expiry_ms <= twi_restore_redis_now_ms(engine);
    if (!over && !twi_generation_is_packed(generation) && !generation->turn.restore.listed)
        list_generation(engine, generation);
}

void twi_port_distinct_again(tw_engine *engine, uint32_t store) {
    twi_check(store < twi_restore_store_count(engine->restore->stores));
    twi_restore_store_at(engine->restore->stores, store)->distinct_again = true;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        if (!family->kind.is_distinct || !family->kind.synced) continue;
        twi_window_visit(family, list_distinct, engine);
        engine->restore->cursor = (struct twi_cursor){0}; /* another generation is now the first of the list */
    }
}

void twi_port_forgotten(tw_engine *engine, uint32_t store) {
    engine->collector.forgot_mono_ms = engine->turn.mono_ms;
    twi_port_distinct_again(engine, store);
    twi_closing_doubt_names(engine);
}

uint64_t twi_port_restore(tw_engine *engine, uint32_t index) {
    twi_check(index < twi_restore_store_count(engine->restore->stores));
    struct begin begin = {engine, index, twi_restore_redis_now_ms(engine), 0};
    struct twi_restore_store *store = twi_restore_store_at(engine->restore->stores, index);
    begin.lost = twi_restore_take_dropped(engine->restore, index, begin.now_ms);
    engine->restore->cursor = (struct twi_cursor){0}; /* the generation that is being walked is walked from its start */
    store->walk = TWI_WALK_RESTORES;
    if (store->begun++ == 0 && !store->was_back) store->away = 0;
    if (store->lacked < store->to_resend) store->lacked = store->to_resend;
    store->to_resend = 0;
    twi_port_forgotten(engine, index);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.synced) twi_window_visit(family, begin_generation, &begin);
    /* Counters that Redis refused have no reason to wait any more. */
    twi_rejected_end_waits(engine->collector.rejected, engine->turn.mono_ms);
    return begin.lost;
}

struct twi_restore_before twi_port_restore_before(const tw_engine *engine, uint32_t index) {
    const struct twi_restore_store *store = twi_restore_store_at(engine->restore->stores, index);
    return (struct twi_restore_before){store->begun, store->to_resend, store->away, store->lacked};
}

void twi_port_restore_undo(tw_engine *engine, uint32_t index, const struct twi_restore_before *before) {
    struct twi_restore_store *store = twi_restore_store_at(engine->restore->stores, index);
    store->begun = before->begun;
    store->to_resend = before->to_resend;
    store->away = before->away;
    store->lacked = before->lacked;
}

struct walk {
    tw_engine *engine;
    struct twi_generation *generation;
    int64_t now_ms;
};

static enum twi_restore_walk walk_of(tw_engine *engine, uint32_t store) {
    return store == TWI_STORE_NONE ? TWI_WALK_PASSES : twi_restore_store_at(engine->restore->stores, store)->walk;
}

/* The registers of a counter of distinct elements no longer count as acknowledged. Registers in flight still count,
 * because their reply comes later. */
static bool owe_again(const struct walk *walk, struct twi_cell *cell, uint64_t meta) {
    twi_check(walk->generation->turn.distinct);
    if ((meta & TWI_META_OVERFLOW) != 0) return true;
    uint32_t store = twi_restore_store_of(walk->engine, walk->generation, cell);
    if (store == TWI_STORE_NONE || !twi_restore_store_at(walk->engine->restore->stores, store)->distinct_again)
        return true;
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) - twi_load_relaxed(&cold->acked));
    twi_store_relaxed(&cold->acked, 0);
    twi_dirty_owe(walk->engine, walk->generation, cell, meta);
    return true;
}

static bool restore_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk *walk = ctx;
    tw_engine *engine = walk->engine;
    if (walk->generation->turn.distinct) return owe_again(walk, cell, meta);
    enum twi_restore_walk what = walk_of(engine, twi_restore_store_of(engine, walk->generation, cell));
    bool is_overflow = (meta & TWI_META_OVERFLOW) != 0;
    struct twi_cold *cold = twi_generation_cold(walk->generation, cell, meta);
    if (what == TWI_WALK_PASSES) return true;
    if (what == TWI_WALK_KEEPS) {
        (void)twi_and_acqrel(&cell->meta, ~TWI_META_RESEND); /* one instruction; no ordering is needed */
        return true;
    }
    int64_t acked = twi_load_relaxed(&cold->acked), given_up = twi_restore_given_up_of(walk->generation, cell);
    if (acked == given_up || (meta & TWI_META_RESEND) != 0) return true;
    if (walk->generation->family->kind.from_first && !is_overflow && twi_load_relaxed(&cell->end_ms) <= walk->now_ms)
        return true; /* its lifetime in Redis has ended, too */
    twi_check(twi_load_relaxed(&cold->handed) == acked);
    (void)twi_or_relaxed(&cell->meta, TWI_META_RESEND); /* only the turn reads it */
    twi_dirty_owe(engine, walk->generation, cell, meta);
    twi_port_count(engine, restored, (int64_t)twi_restore_magnitude(acked - given_up));
    return true;
}

/* A packed counter gets a record again. The record is outside of the index, because readers use the packed form.
 * Packed counters of the other stores get records, too, because a packed window is walked only once. A new record is
 * as if acknowledged until restore_cell() comes to it. */
static bool revive_entry(void *ctx, tw_key key, struct twi_final final) {
    struct walk *walk = ctx;
    tw_engine *engine = walk->engine;
    struct twi_cursor *cursor = &engine->restore->cursor;
    if (cursor->looks <= REVIVE_WORK) {
        cursor->looks = 0;
        return false; /* the next call begins with this entry */
    }
    cursor->looks -= REVIVE_WORK;
    if (final.local == 0) return true;
    if (twi_table_revive(&engine->arena, walk->generation, key, final.local, final.base) != NULL) return true;
    if (walk_of(engine, twi_restore_store_of_key(engine, walk->generation, key)) == TWI_WALK_RESTORES)
        twi_lost_report(engine, walk->generation->family, key, walk->generation->start_ms, final.local,
                        TW_LOST_ROLLBACK);
    else
        walk->generation->turn.restore.unrestorable = true; /* if its store forgets it */
    return true;
}

static bool any_restores(tw_engine *engine) {
    struct twi_restore_stores *stores = engine->restore->stores;
    for (uint32_t i = 0; i < twi_restore_store_count(stores); i++)
        if (twi_restore_store_at(stores, i)->walk == TWI_WALK_RESTORES) return true;
    return false;
}

/* Returns true when all counters of the generation that must be restored will send all their counts again, and no
 * counter of a store that is kept is marked TWI_META_RESEND any more. */
static bool restore_generation(tw_engine *engine, struct twi_generation *generation) {
    twi_check(generation->turn.restore.listed);
    struct twi_cursor *cursor = &engine->restore->cursor;
    struct walk walk = {engine, generation, engine->turn.now_ms};
    struct twi_packed *packed = twi_packed_of(&engine->arena, generation);
    if (packed != NULL && packed->table == TWI_TABLE_GOING &&
        !twi_history_shed(&engine->arena, generation, &cursor->looks)) {
        cursor->looks = 0;
        return false;
    }
    if (packed != NULL && packed->table == TWI_TABLE_GONE && !packed->revived.done && any_restores(engine)) {
        if (cursor->looks == 0) return false;
        twi_packed_walk(&engine->arena, twi_load_relaxed(&generation->packed), &packed->revived, revive_entry, &walk);
        if (!packed->revived.done) return false;
    }
    if (cursor->looks == 0) return false; /* it would mean a walk without a bound */
    twi_table_walk(&engine->arena, generation, cursor, restore_cell, &walk);
    return cursor->done;
}

static void end_walk(struct twi_restore_stores *stores) {
    for (uint32_t i = 0; i < twi_restore_store_count(stores); i++) {
        twi_restore_store_at(stores, i)->walk = TWI_WALK_PASSES;
        twi_restore_store_at(stores, i)->distinct_again = false;
    }
}

bool twi_port_restore_some(tw_engine *engine) {
    struct twi_restore *restore = engine->restore;
    restore->cursor.looks = TWI_WORK_TURN;
    while (restore->listed != 0 && restore->cursor.looks != 0) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, restore->listed);
        struct walk walk = {engine, generation, engine->turn.now_ms};
        if (!restore_generation(engine, generation)) break;
        (void)restore_cell(&walk, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
        restore->listed = generation->turn.restore.next;
        generation->turn.restore.listed = false;
        twi_check(generation->turn.outstanding != 0);
        generation->turn.outstanding--;
        restore->cursor = (struct twi_cursor){.looks = restore->cursor.looks};
    }
    if (restore->listed == 0) end_walk(restore->stores);
    return restore->listed != 0;
}

/* ---- an earlier store has come back ---- */

void twi_port_adrift(const struct twi_item *item) {
    struct twi_restore *restore = item->family->engine->restore;
    int64_t fresh = item->delta - item->units;
    if ((item->flags & TWI_ITEM_GAUGE) != 0 || fresh == 0) return;
    if (!twi_notes_add(&restore->adrift, item->cell, item->generation, fresh))
        twi_restore_store_at(restore->stores, item->store)->twice += twi_restore_magnitude(fresh);
}

void twi_port_keep_item(struct twi_item *item) {
    twi_check(item->generation->family == item->family);
    struct twi_generation *generation = item->generation;
    struct twi_cell *cell = item->cell;
    struct twi_cold *cold = twi_restore_cold_of(generation, cell);
    if ((item->flags & TWI_ITEM_GAUGE) != 0 || item->units == 0) return;
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + item->units);
    item->delta -= item->units;
    item->units = 0;
}

/* Returns the part of the note that `delta` contains. */
static int64_t part_of(const struct twi_noted *noted, int64_t delta) {
    if ((noted->delta > 0) != (delta > 0)) return 0;
    return twi_restore_magnitude(noted->delta) > twi_restore_magnitude(delta) ? delta : noted->delta;
}

/* Settles the adrift units and reports them as uncertain. */
static void give_up_adrift(struct twi_generation *generation, struct twi_cell *cell, int64_t adrift) {
    twi_check(generation->synced);
    tw_engine *engine = generation->family->engine;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = twi_restore_cold_of(generation, cell);
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + adrift);
    twi_restore_give_up(engine, cell, generation, adrift);
    twi_lost_report(engine, generation->family, tw_bytes(cell->key, meta & TWI_META_SIZE),
                    twi_generation_start_ms(generation), adrift, TW_LOST_UNCERTAIN);
}

bool twi_port_end_item(struct twi_item *item) {
    twi_check(item->generation->family == item->family);
    struct twi_restore *restore = item->family->engine->restore;
    if ((item->flags & TWI_ITEM_GAUGE) != 0) return false;
    twi_restore_less_to_resend(restore, item->store, twi_restore_magnitude(item->units));
    twi_port_keep_item(item);
    struct twi_noted *noted = restore->adrift.count != 0 ? twi_notes_find(&restore->adrift, item->cell) : NULL;
    int64_t adrift = noted != NULL ? part_of(noted, item->delta) : 0;
    if (adrift == 0) return false;
    noted->delta -= adrift;
    item->delta -= adrift;
    give_up_adrift(item->generation, item->cell, adrift);
    return true;
}

/* The adrift units may have arrived in the earlier store. If no other store received them, they are given up. */
static void keep_adrift(const struct twi_noted *noted) {
    struct twi_cell *cell = noted->cell;
    struct twi_cold *cold = twi_restore_cold_of(noted->generation, cell);
    int64_t handed = twi_load_relaxed(&cold->handed);
    int64_t adrift = part_of(noted, twi_cell_local(cell, twi_load_relaxed(&cell->meta)) - handed);
    if (adrift == 0) return;
    twi_store_relaxed(&cold->handed, handed + adrift);
    give_up_adrift(noted->generation, cell, adrift);
}

struct keep {
    tw_engine *engine;
    uint32_t store;
};

static void keep_generation(void *ctx, struct twi_generation *generation) {
    const struct keep *keep = ctx;
    const struct twi_restore_stores *stores = keep->engine->restore->stores;
    if (generation->synced && !generation->turn.restore.listed &&
        twi_restore_acked(stores, generation, keep->store) != 0)
        list_generation(keep->engine, generation);
}

/* Gives up the adrift units of the given store. */
static void keep_all_adrift(tw_engine *engine, uint32_t store) {
    struct twi_notes *notes = &engine->restore->adrift;
    uint32_t others = 0;
    twi_notes_sort(notes);
    for (uint32_t i = 0; i < notes->count; i++) {
        const struct twi_noted *noted = &notes->items[i];
        if (twi_restore_store_of(engine, noted->generation, noted->cell) == store)
            keep_adrift(noted);
        else
            notes->items[others++] = *noted;
    }
    notes->count = others;
}

/* If there was more than one earlier store, it is unknown which one is back. It may be a store that the engine left
 * in the middle of a restoration, or one that lacks units that the others acknowledged since then. So the uncertain
 * amount is an upper bound. */
bool twi_port_keep(tw_engine *engine, uint32_t index, uint64_t *uncertain) {
    twi_check(uncertain != NULL);
    twi_check(index < twi_restore_store_count(engine->restore->stores));
    struct twi_restore *restore = engine->restore;
    struct twi_restore_store *store = twi_restore_store_at(restore->stores, index);
    bool was_left = store->begun != 0;
    keep_all_adrift(engine, index);
    twi_port_distinct_again(engine, index);
    *uncertain = store->lacked + (was_left ? store->away + store->twice : 0);
    store->lacked = store->to_resend; /* by the store that is left now */
    store->was_back = true;
    if (store->to_resend != 0) {
        struct keep keep = {engine, index};
        store->walk = TWI_WALK_KEEPS;
        restore->cursor = (struct twi_cursor){0};
        for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
             family = twi_load_acquire(&family->entry.next))
            if (family->kind.synced) twi_window_visit(family, keep_generation, &keep);
    }
    store->begun = 0;
    store->away = store->twice = store->to_resend = 0;
    return was_left;
}
