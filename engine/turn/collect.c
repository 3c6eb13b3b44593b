/* collect.c -- turns the unsent counts of counters into items (items.h). Runs in the turn.
 *
 * The collector takes whole lists, generation by generation and chunk by chunk. One operation reads the word of each
 * marked counter and clears its DIRTY (D2). An item freezes `handed`, and its delta is local - handed. dirty.c explains
 * the marks, and settle.c explains how an item ends.
 * Always true: from its collection until it is settled, an item counts in its generation's `outstanding`. A returned
 * delta that waits is counted there, too. So no window with unsent counts is dropped. */
#include "engine/turn/collect.h"

#include "engine/core/agenda.h"
#include "engine/core/family.h"
#include "engine/core/peers.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/limit/limit_stats.h"
#include "engine/port/items.h"
#include "engine/reserve/hold_book.h"
#include "engine/table/sketch.h"
#include "engine/table/stripe.h"
#include "engine/turn/closing_election.h"
#include "engine/turn/restore_notes.h"
#include "engine/turn/settle.h"
#include "engine/turn/windows.h"

/* ---- gauge ----
 * families of kind TW_KIND_GAUGE with Redis. This engine sends full statements of its contributions again
 * and again.
 *
 * In Redis the deltas of a counter stay, but a gauge's contribution must end with the engine that counts it. So a gauge
 * sends no deltas. The items of a gauge (items.h, TWI_ITEM_GAUGE) contain the whole count of this engine for the key.
 * Redis keeps one such contribution for each engine, with a separate expiry, and replies with the sum of the
 * contributions that have not expired. A repeated statement has no effect, so gauges need no batches, ledgers or
 * replays. The engine sends a contribution again before it expires (this file), when it has changed (dirty.c), and
 * after a stall or an outage, because then it is due. An engine that closes sends 0 last.
 * Always true: only the turn runs this file, in bounded pieces. A key is not sent if this engine has no count under
 * it and never had one. Without Redis, a gauge is a counter. */

bool twi_gauge_leaves(const struct tw_family *family) {
    return family->engine->turn.closing || twi_load_relaxed(&family->requests.close_requested);
}

struct walk {
    tw_engine *engine;
    struct twi_generation *generation;
};

static bool send_again(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk *walk = ctx;
    struct twi_cold *cold = twi_generation_cold(walk->generation, cell, meta);
    if (twi_load_relaxed(&cold->handed) != 0) twi_dirty_owe(walk->engine, walk->generation, cell, meta);
    return true;
}

/* Continues with the family's only window. */
static void send_some(tw_engine *engine, struct tw_family *family, struct twi_generation *generation) {
    twi_check(family->kind.gauge && generation->family == family);
    struct walk walk = {engine, generation};
    family->turn.gauge.cursor.looks = TWI_WORK_TURN;
    twi_table_walk(&engine->arena, generation, &family->turn.gauge.cursor, send_again, &walk);
    if (!family->turn.gauge.cursor.done) return;
    (void)send_again(&walk, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    family->turn.gauge.cursor = (struct twi_cursor){0};
    family->turn.gauge.last_ms = engine->turn.mono_ms;
    family->turn.gauge.runs = false;
    engine->collector.hurried = true; /* the interval may be longer than the lifetime of a contribution */
}

void twi_gauge_appoint(struct tw_family *family) {
    twi_check(family->kind.gauge);
    const struct twi_family_gauge *gauge = &family->turn.gauge;
    /* The search does not use `current`, which is set by a thread that finds the window. A gauge may be set only once,
     * by the thread that made the window. */
    bool has_any = family->turn.generations != 0 && !twi_gauge_leaves(family);
    twi_appointment_set(&family->engine->agenda.gauges, &family->agenda.special,
                        !has_any      ? TWI_APPOINTMENT_NEVER
                        : gauge->runs ? family->engine->turn.mono_ms
                                      : twi_time_add(gauge->last_ms, twi_presence_resend_ms(family->engine)));
}

/* If a family is not finished, its next piece follows in the next turn. Meanwhile the family is in no heap, so its
 * appointment can be used for a list. */
void twi_gauge_turn(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_appointment *done = NULL;
    for (struct tw_family *family;
         (family = twi_appointment_take(&engine->agenda.gauges, engine->turn.mono_ms)) != NULL;) {
        family->agenda.special.next = done;
        done = &family->agenda.special;
        if (family->turn.generations == 0 || twi_gauge_leaves(family)) continue;
        family->turn.gauge.runs = true;
        send_some(engine, family, twi_generation_at(&engine->arena, family->turn.generations));
    }
    while (done != NULL) {
        struct tw_family *family = done->family;
        done = done->next;
        family->agenda.special.next = NULL;
        twi_gauge_appoint(family);
    }
}

void twi_port_presence_resend(tw_engine *engine) {
    twi_hold_book_resend(engine);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        if (!family->kind.gauge) continue;
        family->turn.gauge.cursor = (struct twi_cursor){0};
        family->turn.gauge.runs = true;
        twi_gauge_appoint(family);
    }
}

/* The default interval. Families that hurry make batches no more often than this. */
#define HURRY_PAUSE_MS 100

/* Returns the time after which the unsent counts of a generation can no longer be sent. */
static int64_t deadline_of(const struct twi_generation *generation) {
    if (generation->family->kind.from_first) return generation->end_ms;
    return generation->expiry_ms != 0 ? generation->expiry_ms : INT64_MAX;
}

static uint32_t *next_pending(struct twi_generation *generation) {
    return &generation->turn.next_pending;
}

/* After an outage, the window that expires first is sent first (trap S10). */
static void sort_pending(tw_engine *engine) {
    static const struct twi_generation_order by_deadline = {next_pending, deadline_of};
    struct twi_collector *collector = &engine->collector;
    collector->pending = twi_generations_sort(&engine->arena, &by_deadline, collector->pending, collector->pending_new);
    collector->pending_new = 0;
}

/* Makes the item of a counter of distinct elements. Its `delta` only shows whether there are new elements. */
static bool make_distinct(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                          struct twi_item *item) {
    twi_check(generation->turn.distinct && generation->synced);
    uint64_t word = twi_and_acqrel(&cell->local, ~TWI_DIRTY); /* D2, same as in make_item() */
    struct twi_cold *cold = twi_cell_cold(cell, twi_load_relaxed(&cell->meta));
    bool asked = twi_load_relaxed(&cell->asked) != 0, sealed = (word & TWI_FROZEN) != 0;
    int64_t sum = twi_sketch_sum(&engine->arena, cell), delta = sum - twi_load_relaxed(&cold->handed);
    if (delta == 0 && !asked && !sealed) return false;
    if (asked) twi_store_relaxed(&cell->asked, 0);
    twi_store_relaxed(&cold->handed, sum);
    *item = (struct twi_item){.family = generation->family, .generation = generation, .cell = cell, .delta = delta};
    item->expiry_ms = generation->expiry_ms;
    item->flags = (uint16_t)(TWI_ITEM_DISTINCT | (sealed ? TWI_ITEM_SEALED : asked ? TWI_ITEM_ASKED : 0));
    generation->turn.outstanding++;
    engine->collector.items_out += delta != 0;
    return true;
}

/* Returns true if Redis may lack the name of this key, in a window that one engine closes for all. The closer of a
 * window that is not closed yet needs the names also of counts that are only restored. */
static bool needs_name(struct twi_generation *generation, struct twi_cell *cell, const struct twi_item *item) {
    twi_check(generation->family->kind.closes_once);
    if (cell == &generation->overflow) return false;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    const struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    if (generation->turn.closing.names_again) /* of a key that was only read, Redis has nothing */
        return twi_load_relaxed(&cold->handed) != 0 || twi_load_relaxed(&cold->acked) != 0;
    if (item->delta == 0) return false;
    return item->units != 0 ? !generation->turn.hook_done : twi_load_relaxed(&cold->acked) == 0;
}

/* Makes the item of one counter. Returns false if there are no counts to send. */
static bool make_item(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                      struct twi_item *item) {
    twi_check(generation->synced);
    /* Redis refused this counter a short time ago. Its DIRTY stays set, so that no thread marks it again too early. */
    if (twi_unlikely(engine->collector.rejected->count != 0) &&
        twi_rejected_waits(engine->collector.rejected, generation, cell))
        return false;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    if (twi_unlikely((meta & TWI_META_PARKED) != 0)) return false; /* as above */
    if (generation->turn.distinct && (meta & TWI_META_OVERFLOW) == 0)
        return make_distinct(engine, generation, cell, item);
    struct twi_cold *cold = twi_generation_cold(generation, cell, meta);
    uint64_t word = twi_and_acqrel(&cell->local, ~TWI_DIRTY); /* D2, pairs with D1. One operation reads and clears */
    bool sealed = (word & TWI_FROZEN) != 0;
    int64_t value = sealed ? twi_load_relaxed(&cold->final) : twi_word_value(word);
    if ((meta & TWI_META_STRIPED) != 0) value += twi_stripes_take_dirty(cell, &sealed);
    bool part = generation->family->kind.gauge;
    if (part && twi_gauge_leaves(generation->family)) value = 0;
    int64_t to_resend = 0;
    if (twi_unlikely((meta & TWI_META_RESEND) != 0)) to_resend = twi_restore_take(generation, cell, cold);
    int64_t delta = value - twi_load_relaxed(&cold->handed) + to_resend;
    if (to_resend != 0) twi_store_relaxed(&cold->handed, value);
    bool asked = twi_load_relaxed(&generation->turn.wants_totals);
    if (delta == 0 && !asked && (sealed || (cell == &generation->overflow && !part))) return false;
    twi_store_relaxed(&cold->handed, value);
    if (delta < 0) generation->turn.restore.has_negative = true;
    *item = (struct twi_item){.family = generation->family, .generation = generation, .cell = cell, .delta = delta};
    item->expiry_ms = generation->expiry_ms;
    item->units = to_resend;
    if (generation->family->kind.from_first) {
        item->expiry_ms = cell == &generation->overflow
                              ? twi_time_add(generation->end_ms, generation->family->rule.window_ms)
                              : twi_load_relaxed(&cell->end_ms);
        item->flags |= TWI_ITEM_FROM_FIRST;
    }
    if (twi_load_relaxed(&cold->total_state) == 0) item->flags |= TWI_ITEM_FIRST;
    if (twi_unlikely(generation->family->kind.closes_once) && needs_name(generation, cell, item))
        item->flags |= TWI_ITEM_NAMED;
    item->flags |= (meta & TWI_META_OVERFLOW) != 0 ? TWI_ITEM_OVERFLOW : generation->family->kind.item_flags;
    if (part) {
        item->flags |= TWI_ITEM_GAUGE;
        item->units = value;
    }
    generation->turn.outstanding++;
    engine->collector.items_out += delta != 0;
    return true;
}

/* Collects the marked counters of a chunk that is no longer on its list. Counters without room are marked again. */
static size_t collect_chunk(tw_engine *engine, struct twi_generation *generation, struct twi_chunk *chunk,
                            struct twi_item *items, size_t room) {
    twi_check(chunk->generation == twi_arena_line(&engine->arena, generation));
    size_t count = 0;
    for (uint32_t word = 0; word < TWI_CHUNK_MARKS; word++) {
        /* D6, pairs with D5 */
        uint64_t bits = twi_load_relaxed(&chunk->marks[word]) != 0 ? twi_swap_acqrel(&chunk->marks[word], 0) : 0;
        for (; bits != 0; bits &= bits - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            struct twi_cell *cell = twi_chunk_cell(chunk, index, true);
            if (count < room)
                count += make_item(engine, generation, cell, &items[count]);
            else
                twi_dirty_owe(engine, generation, cell, twi_load_relaxed(&cell->meta));
        }
    }
    return count;
}

/* Returns the next marked chunk. Chunks of the turn's own list come first. Returns NULL if there is no marked chunk. */
static struct twi_chunk *next_chunk(tw_engine *engine, struct twi_generation *generation) {
    twi_check(generation->synced);
    struct twi_chunk *chunk = twi_arena_at(&engine->arena, generation->turn.owed);
    if (generation->turn.owed != 0) {
        generation->turn.owed = (uint32_t)twi_load_relaxed(&chunk->owed);
        twi_store_relaxed(&chunk->owed, 0);
        return chunk;
    }
    if (generation->turn.taken == 0 && twi_load_relaxed(&generation->marks.chunks) != 0)
        generation->turn.taken = twi_swap_acqrel(&generation->marks.chunks, 0); /* D8 */
    if (generation->turn.taken == 0) return NULL;
    chunk = twi_arena_at(&engine->arena, generation->turn.taken);
    generation->turn.taken = chunk->next_marked; /* the chunk is still listed, so no other thread changes the link */
    (void)twi_swap_acqrel(&chunk->listed, 0);    /* D4 */
    return chunk;
}

static size_t collect_generation(tw_engine *engine, struct twi_generation *generation, struct twi_item *items,
                                 size_t room) {
    twi_check(generation->turn.pending);
    size_t count = 0;
    if (room != 0 && twi_swap_acqrel(&generation->marks.overflow, 0) != 0)
        count += make_item(engine, generation, &generation->overflow, &items[0]);
    while (count < room) {
        struct twi_chunk *chunk = next_chunk(engine, generation);
        if (chunk == NULL) break;
        count += collect_chunk(engine, generation, chunk, items + count, room - count);
    }
    return count;
}

static bool is_exhausted(struct twi_generation *generation) {
    return generation->turn.owed == 0 && generation->turn.taken == 0 &&
           twi_load_relaxed(&generation->marks.chunks) == 0 && twi_load_relaxed(&generation->marks.overflow) == 0;
}

/* Makes one pass over the pending generations, either over the closed or over the open ones. *is_whole becomes false
 * if one of them must wait. */
static size_t collect_pass(tw_engine *engine, bool closed, struct twi_item *items, size_t room, bool *is_whole) {
    twi_check(items != NULL || room == 0);
    size_t count = 0;
    for (uint32_t *link = &engine->collector.pending; *link != 0 && count < room;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        if ((twi_load_relaxed(&generation->phase) >= TWI_CLOSED) != closed) {
            link = &generation->turn.next_pending;
            continue;
        }
        if (!twi_closing_may_collect(engine, generation)) {
            *is_whole = false;
            link = &generation->turn.next_pending;
            continue;
        }
        count += collect_generation(engine, generation, items + count, room - count);
        TWI_RACE_POINT(generation_collected);
        if (is_exhausted(generation)) {
            generation->turn.pending = false;
            *link = generation->turn.next_pending;
        } else {
            /* no room is left, or the generation was marked again meanwhile, so the next generations get their share */
            link = &generation->turn.next_pending;
        }
    }
    return count;
}

static void bring_back_rejected(tw_engine *engine) {
    struct twi_rejected_key key;
    for (uint32_t at = 0; twi_rejected_take(engine->collector.rejected, engine->turn.mono_ms, &at, &key);) {
        twi_dirty_owe(engine, key.generation, key.cell, twi_load_relaxed(&key.cell->meta));
        twi_item_let_go(
            &(struct twi_item){.family = key.generation->family, .generation = key.generation, .delta = key.has_delta});
    }
}

static void pend_if_marked(void *ctx, struct twi_generation *generation) {
    if (twi_load_relaxed(&generation->marks.chunks) != 0 || twi_load_relaxed(&generation->marks.overflow) != 0)
        twi_dirty_pend(ctx, generation);
}

/* Called when the grace period of a ticket has ended. Every adder that began before it has then set its last mark. Such
 * an adder may have found its window already listed by a thread that began after the ticket and stalls before its push.
 * So the function checks the windows, and not the list. */
static void begin_full_collection(tw_engine *engine) {
    twi_check(!engine->collector.running);
    engine->collector.requested = false;
    engine->collector.running = true;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_window_visit(family, pend_if_marked, engine);
}

size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max) {
    twi_check(items != NULL || count_max == 0);
    bring_back_rejected(engine);
    if (engine->collector.requested && engine->collector.stamp < twi_epoch_reached()) begin_full_collection(engine);
    twi_dirty_take_marked(engine);
    sort_pending(engine);
    /* A quarter is reserved for open windows, because limits are decided by their totals. */
    bool is_whole = true;
    size_t count = collect_pass(engine, true, items, count_max - count_max / 4, &is_whole);
    count += collect_pass(engine, false, items + count, count_max - count, &is_whole);
    count += collect_pass(engine, true, items + count, count_max - count, &is_whole);
    if (count == count_max) return count; /* there may be more */
    engine->collector.hurried = false;
    engine->collector.whole_at_ms = engine->turn.mono_ms;
    if (engine->collector.running && is_whole) {
        engine->collector.running = false;
        twi_store_release(&engine->collector.done, true);
    }
    return count;
}

bool twi_port_is_near_limit(tw_engine *engine) {
    return twi_load_relaxed(&engine->near_ring.any);
}

size_t twi_port_collect_near_limit(tw_engine *engine, struct twi_item *items) {
    twi_check(items != NULL);
    size_t count = 0;
    (void)twi_swap_acqrel(&engine->near_ring.any, false); /* Q4, pairs with Q3 */
    for (uint32_t i = 0; i < TWI_NEAR_LIMIT_MAX; i++) {
        uint64_t near = twi_load_relaxed(&engine->near_ring.slots[i]) != 0
                            ? twi_swap_acqrel(&engine->near_ring.slots[i], 0)
                            : 0; /* Q2 */
        if (near == 0) continue;
        struct twi_generation *generation = twi_generation_at(&engine->arena, (uint32_t)(near >> 32));
        /* A sealed window sends all of its counts anyway, and its table may already be freed (windows.c). */
        if (twi_load_relaxed(&generation->phase) >= TWI_SEALING) continue;
        if (!twi_closing_may_collect(engine, generation)) continue; /* it is collected with the others */
        struct twi_cell *cell = twi_arena_at(&engine->arena, (uint32_t)near);
        count += make_item(engine, generation, cell, &items[count]);
    }
    return count + twi_overshoot_requests(engine, items + count, TWI_NEAR_LIMIT_MAX - count);
}

void twi_port_collect_begin(tw_engine *engine) {
    twi_store_release(&engine->collector.done, false);
    engine->collector.running = false;
    engine->collector.requested = true;
    engine->collector.stamp = twi_epoch_stamp();
    /* Counters that Redis refused a short time ago are sent again, because a caller waits. */
    twi_rejected_end_waits(engine->collector.rejected, engine->turn.mono_ms);
}
bool twi_port_collect_is_done(tw_engine *engine) {
    return twi_load_acquire(&engine->collector.done);
}
bool twi_port_is_dirty(tw_engine *engine) {
    return twi_load_relaxed(&engine->collector.marked) != 0 || engine->collector.pending != 0 ||
           (engine->collector.rejected->count != 0 &&
            engine->collector.rejected->due_ms <= twi_clock_mono_ms(&engine->clock));
}
bool twi_port_cannot_wait(tw_engine *engine) {
    if (engine->turn.closing) return true;
    return engine->collector.hurried && engine->turn.mono_ms - engine->collector.whole_at_ms >= HURRY_PAUSE_MS;
}
