/* windows.c -- windows that are over and stay readable for a while. The turn packs them and frees their tables.
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
#include "engine/turn/windows.h"

#include "engine/core/family.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/table/area.h"
#include "engine/table/packed.h"
#include "engine/turn/restore_notes.h"

/* ---- generation list ----
 * The sort is a merge sort. */

static uint32_t merge(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t a, uint32_t b) {
    uint32_t head = 0, *link = &head;
    while (a != 0 && b != 0) {
        bool a_first = order->at_ms(twi_generation_at(arena, a)) <= order->at_ms(twi_generation_at(arena, b));
        uint32_t *first = a_first ? &a : &b;
        *link = *first;
        link = order->next(twi_generation_at(arena, *first));
        *first = *link;
    }
    *link = a != 0 ? a : b;
    return head;
}

/* Takes the first `count` generations from *list, and returns them sorted. */
static uint32_t take_sorted(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t *list,
                            uint32_t count) {
    twi_check(*list != 0); /* the list has as many generations as its owner has counted */
    if (count == 1) {
        uint32_t line = *list, *next = order->next(twi_generation_at(arena, line));
        *list = *next;
        *next = 0;
        return line;
    }
    uint32_t first = take_sorted(arena, order, list, count / 2);
    return merge(arena, order, first, take_sorted(arena, order, list, count - count / 2));
}

uint32_t twi_generations_sort(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t list,
                              uint32_t count) {
    if (count == 0) return list;
    uint32_t fresh = take_sorted(arena, order, &list, count);
    return merge(arena, order, fresh, list);
}

/* ---- window next ----
 * prepares the next window while the present one is open, so that no thread meets an unused page at
 * the end of the window.
 * Always true: a forecast uses no memory that present counters need. A window that cannot be finished is given back
 * at once. */

#define ROOM_LOOKS 32 /* how often in the length of a window to check whether the next window has room */

/* No other thread has ever seen this generation. The generation joins the dropped ones, and is given back in bounded
 * pieces. */
void twi_window_abandon(struct twi_rollover *rollover) {
    twi_check(rollover->family->turn.prepared.generation == NULL ||
              rollover->family->turn.prepared.generation->family == rollover->family);
    struct tw_family *family = rollover->family;
    struct twi_generation *generation = family->turn.prepared.generation;
    if (generation == NULL) return;
    generation->turn.announced = generation->turn.dropped.is_hidden = true;
    twi_rollover_drop(rollover->engine, generation);
    family->turn.prepared.generation = NULL;
    generation->turn.dropped.stamp = 0;
    family->turn.held++;
}

static bool has_share(const struct tw_family *family) {
    return twi_load_relaxed(&family->quota.bytes_max) != 0;
}

/* The memory of the family's windows, and the memory that the open window and the next one will still need if both
 * become as large as the largest of those windows and the last one. */
struct room {
    int64_t lives, needs;
    struct twi_generation *oldest; /* the oldest window in the history; NULL means that there is none */
};

static struct room room_of(struct twi_rollover *rollover, struct twi_span span) {
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

/* With a memory_share, windows of the history give their memory to counters. From the middle of a window on, there must
 * be room for all keys that may still come in it and for the next window. The keys of both may come around the moment
 * at which one window ends and the next one begins. Then no turn can make room. If there is no room, each turn drops
 * the oldest window of the history before its time. Returns false while memory of dropped windows comes back. */
static bool make_room_for_next(struct twi_rollover *rollover, struct twi_span span) {
    twi_check(span.start_ms < span.end_ms);
    struct tw_family *family = rollover->family;
    if (!has_share(family)) return true;
    struct room room = room_of(rollover, span);
    /* The function is called again while keys come, and when a window opens. */
    if (twi_window_find(family, span.start_ms) != NULL)
        twi_rollover_due(rollover,
                         twi_time_add(rollover->engine->turn.now_ms, (span.end_ms - span.start_ms) / ROOM_LOOKS));
    struct twi_quota_use use = twi_quota_use(&rollover->engine->arena, &family->quota);
    if (room.oldest != NULL && room.lives + room.needs > use.most) {
        room.oldest->turn.history.gives_way = true;
        twi_rollover_look(rollover, 0);
        rollover->due_ms = INT64_MIN; /* every window is examined again */
        return false;
    }
    if (room.lives + room.needs > use.most || use.used + room.needs <= use.most) return true;
    twi_rollover_look(rollover, 0);
    return false;
}

/* Called if there is no memory for the prepared window, or not enough to finish it. The prepared window is not kept,
 * and the window begins small, like any other. */
static void give_forecast_up(struct twi_rollover *rollover, struct twi_span span) {
    twi_check(span.start_ms < span.end_ms);
    twi_window_abandon(rollover);
    rollover->family->turn.prepared.start_ms = span.end_ms;
}

/* A forecast uses no memory that live counters need. The forecast uses the memory that the open window will not need.
 * The open window needs room for `more` keys, or for the keys that it lacks to reach the forecast, whichever is more.
 * Keys that find room in the area of the window need no more memory. Returns a value below 0 if no memory is left. */
static int64_t spare_bytes(struct tw_family *family, const struct twi_generation *now, uint64_t forecast,
                           uint64_t more) {
    int64_t room = twi_piece_room(&family->engine->arena, &family->quota);
    uint64_t keys = twi_load_relaxed(&now->keys), to_come = forecast > keys + more ? forecast : keys + more,
             held = keys;
    uint64_t places = (uint64_t)twi_load_relaxed(&now->area.places[0]) + twi_load_relaxed(&now->area.places[1]);
    if (places > held) held = places;
    if (to_come <= held) return room;
    double rest = (double)twi_load_relaxed(&now->bytes) * (double)(to_come - held) / (double)held;
    return rest < (double)room ? room - (int64_t)rest : -1;
}

static void begin_next(struct tw_family *family, struct twi_span span, uint64_t forecast,
                       struct twi_area_forecast in_area, int64_t spare) {
    twi_check(family->turn.prepared.generation == NULL);
    twi_check(span.start_ms < span.end_ms);
    struct twi_arena *arena = &family->engine->arena;
    family->turn.prepared.generation = twi_window_make(family, span, 0);
    family->turn.prepared.leaves = 0;
    family->turn.prepared.root = 0;
    family->turn.prepared.area.chunks = 0;
    if (family->turn.prepared.generation == NULL) return;
    family->turn.prepared.root = twi_index_begin(arena, family->turn.prepared.generation, forecast);
    if (family->kind.from_first) return;
    (void)twi_area_begin(arena, family->turn.prepared.generation, in_area, spare - twi_index_bytes(forecast),
                         &family->turn.prepared.area);
    family->turn.prepared.area.ahead = true;
}

/* Returns how many keys the next window will have, by the keys of this window and the last one and by keys_expected.
 * 0 means that this is not known yet. */
static uint64_t forecast_keys(const struct tw_family *family, const struct twi_generation *now, struct twi_span span) {
    uint64_t forecast = now != NULL ? twi_load_relaxed(&now->keys) : 0;
    uint64_t expected = twi_load_relaxed(&family->policy.keys_expected);
    if (forecast == 0) return 0;
    /* If a family began in the second half of the window, it is not known yet how many keys will come in this window or
     * the next. */
    if (expected == 0 && family->turn.opened_ms >= span.start_ms + (span.end_ms - span.start_ms) / 2) return 0;
    if (family->turn.keys_last > forecast) forecast = family->turn.keys_last;
    return expected > forecast ? expected : forecast;
}

enum prepared { PREPARED, TO_GO_ON, NO_ROOM };

/* Builds the next window's index, a piece in each turn. */
static enum prepared prepare_index(struct twi_rollover *rollover, struct twi_generation *now, struct twi_span span,
                                   uint64_t forecast) {
    twi_check(now != NULL && now->family == rollover->family);
    struct tw_family *family = rollover->family;
    struct twi_arena *arena = &rollover->engine->arena;
    if (family->turn.prepared.generation == NULL) {
        uint64_t keys = twi_load_relaxed(&now->keys);
        int64_t spare = spare_bytes(family, now, forecast, keys);
        /* A share is dimensioned for windows of equal size. An index that grows needs twice as much in the end. */
        bool fits =
            twi_index_bytes(forecast) <= (has_share(family) ? spare_bytes(family, now, forecast, keys / 4) : spare);
        if (!fits) return NO_ROOM;
        begin_next(family, twi_calendar_span(&family->rule, span.end_ms), forecast, twi_area_forecast(now, forecast),
                   spare);
    }
    if (family->turn.prepared.root == 0) return NO_ROOM;
    if (!twi_index_fill(arena, family->turn.prepared.generation, family->turn.prepared.root,
                        &family->turn.prepared.leaves, &rollover->work))
        return rollover->work < TWI_SEGMENT_LINES ? TO_GO_ON : NO_ROOM;
    twi_store_relaxed(&family->turn.prepared.generation->root, family->turn.prepared.root);
    return PREPARED;
}

/* Prepares the memory for the next window's records, which is its area, or memory for a part of the records. */
static enum prepared prepare_records(struct twi_rollover *rollover, uint64_t forecast) {
    struct tw_family *family = rollover->family;
    struct twi_arena *arena = &rollover->engine->arena;
    if (family->turn.prepared.area.chunks != 0)
        return twi_area_fill(arena, family->turn.prepared.generation, &family->turn.prepared.area, &rollover->work)
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

/* Called from the middle of a window on. It builds the index of the next window, sized by this window and the last
 * one, and prepares memory for records. So no thread meets an unused page at the end of the window. If no thread
 * counts in a window, no next one is prepared. */
void twi_window_prepare(struct twi_rollover *rollover) {
    twi_check(rollover->family->kind.has_starts);
    struct tw_family *family = rollover->family;
    int64_t now_ms = rollover->engine->turn.now_ms;
    struct twi_span span = twi_calendar_span(&family->rule, now_ms);
    if (family->turn.prepared.generation != NULL && family->turn.prepared.generation->start_ms < span.end_ms)
        twi_window_abandon(rollover); /* too late */
    if (now_ms < span.start_ms + (span.end_ms - span.start_ms) / 2) {
        twi_rollover_due(rollover, span.start_ms + (span.end_ms - span.start_ms) / 2);
        return;
    }
    bool has_room = make_room_for_next(rollover, span);
    if (family->turn.prepared.start_ms == span.end_ms || !has_room) return;
    /* the next window was opened early, by event time, so the threads that count in it already build it */
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
        twi_rollover_look(rollover, 0);
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
        twi_window_abandon(rollover);
}

#define TABLE_BYTES_MIN 2048u /* below this, packing saves no memory */
#define AGAIN_MS 60000        /* after a lack of memory, packing is tried again after this time */
#define AGAIN_PART 16         /* with a memory_share, packing is tried again after this part of the window */
#define LOOK_MS 1000          /* how soon to look again whether a window that a sliding limit reads is packed */
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

/* Returns true if each decision of a sliding limit reads this window, and there is much memory. A counter is found in
 * its table with a tenth of the instructions that a packed form needs. The next look is when the window is no longer
 * read, or earlier, because memory may get short. */
static bool stays_unpacked(const tw_engine *engine, struct twi_generation *generation) {
    const struct tw_family *family = generation->family;
    if (!family->kind.slides || family->kind.sub_windows != 1) return false;
    int64_t left_ms = 2 * generation->end_ms - generation->start_ms - engine->turn.now_ms;
    if (left_ms <= 0) return false;
    const struct twi_quota *quota = generation->quota;
    int64_t most = twi_load_relaxed(&quota->bytes_max);
    if (twi_arena_bytes_used(&engine->arena) > (int64_t)(engine->arena.bytes_max / 2)) return false;
    if (most != 0 && twi_load_relaxed(&quota->bytes) > most / 2) return false;
    generation->turn.pack_after_ms = engine->turn.mono_ms + (left_ms < LOOK_MS ? left_ms : LOOK_MS);
    return true;
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
    if (generation->turn.history.packing == 0) {
        if (stays_unpacked(engine, generation)) return give_up(engine, generation, work);
        generation->turn.history.packing = twi_packed_begin(&packer);
    }
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
