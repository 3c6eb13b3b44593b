/* history.c -- windows that are over and stay readable for a while. The turn packs them and frees their tables.
 *
 *   history ─▶ packing (one turn's work at a time) ─▶ published ─grace, no walker in the table▶ table given back
 *                 └─ no memory: stays as it was, tried again later
 *
 * One generation of a family is packed at a time. The table stays while the packed form is built. Then one store
 * publishes the packed form (K1). A reader whose section begins later sees the packed form and does not touch the table
 * (K2). A reader whose section began earlier keeps the table until its section ends. A walk of tw_each() keeps the
 * table until the walk ends. Exactly one of the table and the packed form is valid, so a reader never has to decide
 * between them.
 * Always true: a window is packed only if it can no longer change: it is sealed and drained, and its hook is done.
 * Windows of TW_WINDOW_FROM_FIRST and of TW_SHAPE_GCRA are never packed. The table is given back after the end of every
 * section that began before the publication. The generation itself, with its overflow counter, stays until it is
 * dropped. */
#include "engine/turn/history.h"

#include "engine/count/dirty.h"
#include "engine/core/family.h"
#include "engine/core/window_map.h"
#include "engine/table/packed.h"
#include "engine/turn/restore_notes.h"

#define TABLE_BYTES_MIN 2048u /* below this, packing saves no memory */
#define AGAIN_MS 60000        /* after a lack of memory, packing is tried again after this time */
#define AGAIN_PART 16         /* with a memory_share, packing is tried again after this part of the window */
#define GRACE_MS 5            /* how soon to check again whether a section still uses the table */

static void push(struct twi_arena *arena, struct twi_generation *generation) {
    twi_check(generation->turn.history.in_hand);
    struct tw_family *family = generation->family;
    generation->turn.history.next = family->turn.history.waiting;
    family->turn.history.waiting = twi_arena_line(arena, generation);
}

void twi_history_enter(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_HISTORY);
    struct tw_family *family = generation->family;
    bool packed = twi_generation_is_packed(generation); /* packed before; it has records again for a restoration */
    if (!packed && (!family->kind.has_starts || twi_load_relaxed(&generation->bytes) < TABLE_BYTES_MIN)) return;
    if (family->kind.is_gcra) return; /* a packed form has no room for the limits of its keys */
    /* Units of single counters that were given up are noted by the address of their records (restore_notes.h). */
    if (!packed && generation->turn.restore.has_given_up) return;
    if (generation->turn.history.in_hand) return;
    generation->turn.history.in_hand = true;
    generation->turn.pack_after_ms = 0;
    push(&engine->arena, generation);
    family->turn.history.mono_ms = engine->turn.mono_ms;
}

/* Returns the next generation that is due. 0 means that none is due; then pack_mono_ms is the time of the next one. */
static uint32_t take_due(tw_engine *engine, struct tw_family *family) {
    family->turn.history.mono_ms = INT64_MAX;
    for (uint32_t *link = &family->turn.history.waiting; *link != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        if (generation->turn.pack_after_ms <= engine->turn.mono_ms) {
            uint32_t line = *link;
            *link = generation->turn.history.next;
            family->turn.history.mono_ms = engine->turn.mono_ms;
            return line;
        }
        if (generation->turn.pack_after_ms < family->turn.history.mono_ms)
            family->turn.history.mono_ms = generation->turn.pack_after_ms;
        link = &generation->turn.history.next;
    }
    return 0;
}

static void publish(tw_engine *engine, struct twi_generation *generation) {
    twi_check(generation->turn.history.packing != 0 && !twi_generation_is_packed(generation));
    struct twi_packed *packed = twi_arena_at(&engine->arena, generation->turn.history.packing);
    uint32_t line = generation->turn.history.packing;
    packed->stamp = UINT64_MAX;
    twi_store_release(&generation->packed, line); /* K1, pairs with K2: a reader that sees the line sees its contents */
    TWI_RACE_POINT(packed_published);
    generation->turn.history.packing = 0;
    packed->stamp = twi_epoch_stamp();
    packed->table = TWI_TABLE_WHOLE;
    twi_port_count(engine, windows_packed, 1);
}

/* Returns false if its counts are sent again to a Redis that forgot them (restore.c). */
static bool is_over(struct twi_generation *generation) {
    return twi_load_relaxed(&generation->phase) == TWI_HISTORY && !generation->turn.restore.listed;
}

/* Called without memory, or if packing would save none. Returns true when the pieces that were built are given back. */
static bool give_up(tw_engine *engine, struct twi_generation *generation, uint32_t *work) {
    twi_check(generation->turn.history.in_hand);
    generation->turn.history.unpacking = true;
    if (!twi_packed_unmake(&engine->arena, generation, &generation->turn.history.packing, work)) return false;
    generation->turn.history.unpacking = false;
    generation->turn.history.in_hand = generation->turn.pack_after_ms != INT64_MAX && is_over(generation);
    if (generation->turn.history.in_hand) push(&engine->arena, generation);
    return true;
}

static void refuse(tw_engine *engine, struct twi_generation *generation, enum twi_packing why) {
    twi_check(why == TWI_PACK_USELESS || why == TWI_PACK_REFUSED);
    int64_t again_ms = (generation->end_ms - generation->start_ms) / AGAIN_PART;
    if (again_ms > AGAIN_MS || twi_load_relaxed(&generation->quota->bytes_max) == 0) again_ms = AGAIN_MS;
    generation->turn.pack_after_ms = why == TWI_PACK_USELESS ? INT64_MAX : engine->turn.mono_ms + again_ms;
    if (why == TWI_PACK_REFUSED) twi_port_count(engine, packs_refused, 1);
}

static int64_t bytes_at(struct tw_family *family, int64_t start_ms) {
    const struct twi_generation *generation = twi_window_find(family, start_ms);
    return generation != NULL ? twi_load_relaxed(&generation->bytes) : 0;
}

/* With a memory_share, packing must not use memory that the keys of the open window will need. From the middle of that
 * window on, the same is true for the keys of the next window (rollover.c), if as many keys come as in this one. */
static int64_t kept_bytes(tw_engine *engine, struct twi_generation *generation) {
    struct tw_family *family = generation->family;
    if (twi_load_relaxed(&generation->quota->bytes_max) == 0) return 0;
    struct twi_span span = twi_calendar_span(&family->rule, engine->turn.now_ms);
    int64_t bytes = twi_load_relaxed(&generation->bytes), lacks = bytes - bytes_at(family, span.start_ms);
    if (lacks < 0) lacks = 0;
    if (engine->turn.now_ms - span.start_ms < (span.end_ms - span.start_ms) / 2) return lacks;
    int64_t more = bytes - bytes_at(family, span.end_ms);
    return more > 0 ? lacks + more : lacks;
}

/* Returns true when packing of this generation has ended, with or without success. */
static bool build(tw_engine *engine, struct twi_generation *generation, uint32_t *work) {
    twi_check(generation->turn.history.in_hand);
    const struct twi_packer packer = {&engine->arena, generation, engine->hashing.fn, &engine->hashing.secret,
                                      kept_bytes(engine, generation)};
    if (generation->turn.history.unpacking) return give_up(engine, generation, work);
    if (!is_over(generation)) return give_up(engine, generation, work); /* the window is entered again later */
    enum twi_packing answer = TWI_PACK_REFUSED;
    if (generation->turn.history.packing == 0) generation->turn.history.packing = twi_packed_begin(&packer);
    if (generation->turn.history.packing != 0)
        answer = twi_packed_build(&packer, generation->turn.history.packing, work);
    if (answer == TWI_PACK_DONE) publish(engine, generation);
    if (answer == TWI_PACK_DONE || answer == TWI_PACK_ON) return false;
    refuse(engine, generation, answer);
    return give_up(engine, generation, work);
}

/* An adder that stopped between its DIRTY and its marks may have listed counters of the table long after the table
 * was drained. That adder has left its section by now, and no later adder can reach this table. */
static void forget_marks(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_generation_is_packed(generation));
    if (generation->turn.pending || twi_load_acquire(&generation->marks.listed) != 0)
        twi_dirty_forget(engine, generation);
    twi_store_relaxed(&generation->marks.chunks, 0);
    generation->turn.taken = generation->turn.owed = 0;
}

bool twi_history_shed(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    twi_check(twi_generation_is_packed(generation));
    struct twi_packed *packed = twi_packed_of(arena, generation);
    if (!twi_table_shed(arena, generation, work)) return false;
    packed->revived = (struct twi_packed_cursor){0};
    twi_fence_compiler(); /* if this thread ends in between, the empty table is given back once more */
    packed->table = TWI_TABLE_GONE;
    return true;
}

void twi_history_begin_shed(tw_engine *engine, struct twi_generation *generation) {
    struct twi_packed *packed = twi_packed_of(&engine->arena, generation);
    forget_marks(engine, generation);
    twi_restore_note_shed(generation);
    twi_fence_compiler(); /* if this thread ends in between, the next owner of the turn does both again */
    packed->table = TWI_TABLE_GOING;
}

/* Returns true if the table is given back, or must not be given back now. *wait means that the table is still in
 * use. */
static bool shed(tw_engine *engine, struct twi_generation *generation, uint32_t *work, bool *wait) {
    twi_check(twi_generation_is_packed(generation));
    struct twi_packed *packed = twi_packed_of(&engine->arena, generation);
    generation->turn.history.in_hand = is_over(generation);
    if (!generation->turn.history.in_hand) return true; /* the window is entered again later */
    if (packed->table != TWI_TABLE_GOING) {
        *wait = packed->table == TWI_TABLE_WHOLE &&
                (packed->stamp >= twi_epoch_reached() || twi_threads_hold(generation, TWI_HOLDS_TABLE));
        if (*wait) return false;
        twi_history_begin_shed(engine, generation);
    }
    if (!twi_history_shed(&engine->arena, generation, work)) return false;
    generation->turn.history.in_hand = false;
    return true;
}

void twi_history_turn(tw_engine *engine, struct tw_family *family) {
    twi_check(twi_turn_is_owned(engine));
    if (engine->turn.mono_ms < family->turn.history.mono_ms) return;
    if (engine->turn.closing || twi_load_relaxed(&family->requests.close_requested)) {
        family->turn.history.mono_ms = INT64_MAX; /* all memory is given back with the family */
        return;
    }
    uint32_t work = TWI_WORK_TURN, before;
    do {
        before = work;
        if (family->turn.history.packing == 0) family->turn.history.packing = take_due(engine, family);
        if (family->turn.history.packing == 0) return;
        struct twi_generation *generation = twi_generation_at(&engine->arena, family->turn.history.packing);
        bool wait = false, over = twi_generation_is_packed(generation) ? shed(engine, generation, &work, &wait)
                                                                       : build(engine, generation, &work);
        family->turn.history.mono_ms = engine->turn.mono_ms + (wait ? GRACE_MS : 0);
        if (wait) return;
        if (over) family->turn.history.packing = 0;
    } while (work != before);
}

void twi_history_recover(tw_engine *engine, struct twi_generation *generation, uint64_t stamp) {
    struct twi_generation_history *history = &generation->turn.history;
    uint32_t line = twi_load_relaxed(&generation->packed);
    struct twi_packed *packed = twi_packed_of(&engine->arena, generation);
    if (history->packing == line) history->packing = 0; /* it was just published */
    history->in_hand = false;
    generation->turn.pack_after_ms = 0;
    if (packed != NULL && packed->table == TWI_TABLE_WHOLE) packed->stamp = stamp;
    if (history->packing != 0) history->unpacking = true; /* a piece of it may be missing */
    if (history->packing == 0 && (packed == NULL || packed->table == TWI_TABLE_GONE)) {
        if (twi_load_relaxed(&generation->phase) == TWI_HISTORY && packed == NULL)
            twi_history_enter(engine, generation);
        return;
    }
    history->in_hand = true;
    push(&engine->arena, generation);
}

void twi_history_forget_dropped(struct twi_arena *arena, struct tw_family *family) {
    if (family->turn.history.packing != 0 &&
        twi_load_relaxed(&twi_generation_at(arena, family->turn.history.packing)->phase) == TWI_DROPPED)
        family->turn.history.packing = 0;
    for (uint32_t *link = &family->turn.history.waiting; *link != 0;) {
        struct twi_generation *generation = twi_generation_at(arena, *link);
        if (twi_load_relaxed(&generation->phase) == TWI_DROPPED)
            *link = generation->turn.history.next;
        else
            link = &generation->turn.history.next;
    }
}

bool twi_history_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    uint32_t packed = twi_load_relaxed(&generation->packed), *packing = &generation->turn.history.packing;
    /* They are the same if the last owner of the turn ended just below, or in publish(). */
    if (*packing != packed && !twi_packed_unmake(arena, generation, packing, work)) return false;
    if (packed != 0) *packing = packed;
    twi_store_release(&generation->packed, 0);
    return twi_packed_unmake(arena, generation, packing, work);
}
