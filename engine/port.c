/* port.c -- the engine's side of port.h: collecting what is owed, and settling it. By the owner of the turn.
 *
 * The collector takes lists whole, generation by generation, chunk by chunk, and reads each marked counter's word with
 * the operation that clears its DIRTY (D2). What it freezes into an item is `handed`: delta = local - handed. See
 * dirty.c for the marks.
 * Always true: an item counts in its generation's `outstanding` from its collection until it is settled, and a delta
 * that goes back waits there too, so that no window is dropped that still owes. */
#include "engine/port.h"

#include "engine/ageing.h"
#include "engine/overshoot.h"
#include "engine/random.h"
#include "engine/share.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct twi_generation *generation_at(tw_engine *engine, uint32_t line) {
    return twi_arena_at(&engine->arena, line);
}

static struct twi_cold *cold_of(struct twi_generation *generation, struct twi_cell *cell) {
    if (cell == &generation->overflow) return &generation->overflow_cold;
    return twi_cell_cold(cell, twi_load_relaxed(&cell->meta));
}

/* The item is settled, or waits for nothing any more. */
static void let_go(const struct twi_item *item) {
    twi_check(item->generation->outstanding != 0);
    item->generation->outstanding--;
    item->family->engine->items_out -= item->delta != 0;
}

/* ---- collecting ---- */

static void take_marked_generations(tw_engine *engine) {
    if (twi_load_relaxed(&engine->marked) == 0) return;
    uint32_t line = twi_swap_acqrel(&engine->marked, 0); /* D8, pairs with D7 */
    while (line != 0) {
        struct twi_generation *generation = generation_at(engine, line);
        uint32_t next = generation->next_marked;
        (void)twi_swap_acqrel(&generation->listed, 0); /* D4, pairs with D3: marks made from here on list it again */
        twi_dirty_pend(engine, generation);
        line = next;
    }
}

void twi_port_forget(tw_engine *engine, struct twi_generation *generation) {
    take_marked_generations(engine);
    uint32_t line = twi_arena_line(&engine->arena, generation), *link = &engine->pending;
    uint32_t before = 0;
    for (; *link != line && *link != 0; before++) link = &generation_at(engine, *link)->next_pending;
    if (*link == line) {
        *link = generation->next_pending;
        if (before < engine->pending_new) engine->pending_new--;
    }
    generation->pending = false;
}

/* When what a generation owes can no longer be sent. */
static int64_t deadline_of(const struct twi_generation *generation) {
    if (generation->family->from_first) return generation->end_ms;
    return generation->expiry_ms != 0 ? generation->expiry_ms : INT64_MAX;
}

static uint32_t merge(tw_engine *engine, uint32_t a, uint32_t b) {
    uint32_t head = 0, *link = &head;
    while (a != 0 && b != 0) {
        bool a_first = deadline_of(generation_at(engine, a)) <= deadline_of(generation_at(engine, b));
        uint32_t *first = a_first ? &a : &b;
        *link = *first;
        link = &generation_at(engine, *first)->next_pending;
        *first = *link;
    }
    *link = a != 0 ? a : b;
    return head;
}

/* The first `count` of the list, in order; `*list` becomes the rest. */
static uint32_t take_sorted(tw_engine *engine, uint32_t *list, uint32_t count) {
    uint32_t line = *list;
    if (count == 1) {
        *list = generation_at(engine, line)->next_pending;
        generation_at(engine, line)->next_pending = 0;
        return line;
    }
    uint32_t first = take_sorted(engine, list, count / 2);
    return merge(engine, first, take_sorted(engine, list, count - count / 2));
}

/* After an outage what dies first goes first (trap S10). */
static void sort_pending(tw_engine *engine) {
    if (engine->pending_new == 0) return;
    uint32_t rest = engine->pending, fresh = take_sorted(engine, &rest, engine->pending_new);
    engine->pending = merge(engine, fresh, rest);
    engine->pending_new = 0;
}

/* One counter's item; false: nothing to say of it. */
static bool make_item(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                      struct twi_item *item) {
    /* Refused a while ago: its DIRTY stays, so that it is not marked again before its time. */
    if (twi_unlikely(engine->delayed.count != 0) && twi_delayed_holds(&engine->delayed, cell)) return false;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = cold_of(generation, cell);
    uint64_t word = twi_and_acqrel(&cell->local, ~TWI_DIRTY); /* D2, pairs with D1: cleared and read in one */
    bool sealed = (word & TWI_FROZEN) != 0;
    int64_t value = sealed ? twi_load_relaxed(&cold->final) : twi_word_value(word);
    if ((meta & TWI_META_STRIPED) != 0) value += twi_stripes_take_dirty(cell, &sealed);
    bool part = generation->family->gauge;
    if (part && twi_gauge_leaves(generation->family)) value = 0;
    int64_t delta = value - twi_load_relaxed(&cold->handed);
    bool asked = twi_load_relaxed(&generation->asks_totals);
    if (delta == 0 && !asked && (sealed || (cell == &generation->overflow && !part))) return false;
    twi_store_relaxed(&cold->handed, value);
    if (delta < 0) generation->has_negative = true;
    *item = (struct twi_item){.family = generation->family, .generation = generation, .cell = cell, .delta = delta};
    item->expiry_ms = generation->expiry_ms;
    if (generation->family->from_first) {
        item->expiry_ms = cell == &generation->overflow
                              ? twi_time_add(generation->end_ms, generation->family->rule.window_ms)
                              : twi_load_relaxed(&cell->end_ms);
        item->flags |= TWI_ITEM_FROM_FIRST;
    }
    if (twi_load_relaxed(&cold->asked) == 0) item->flags |= TWI_ITEM_FIRST;
    if ((meta & TWI_META_OVERFLOW) != 0) item->flags |= TWI_ITEM_OVERFLOW;
    if (part) {
        item->flags |= TWI_ITEM_PART;
        item->units = value;
    }
    generation->outstanding++;
    engine->items_out += delta != 0;
    return true;
}

/* The marked counters of a chunk that was taken off its list; what does not fit is marked again. */
static size_t collect_chunk(tw_engine *engine, struct twi_generation *generation, struct twi_chunk *chunk,
                            struct twi_item *items, size_t room) {
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

/* The next marked chunk: the turn's own first. NULL: none. */
static struct twi_chunk *next_chunk(tw_engine *engine, struct twi_generation *generation) {
    struct twi_chunk *chunk = twi_arena_at(&engine->arena, generation->owed);
    if (generation->owed != 0) {
        generation->owed = (uint32_t)twi_load_relaxed(&chunk->owed);
        twi_store_relaxed(&chunk->owed, 0);
        return chunk;
    }
    if (generation->taken == 0 && twi_load_relaxed(&generation->marked) != 0)
        generation->taken = twi_swap_acqrel(&generation->marked, 0); /* D8 */
    if (generation->taken == 0) return NULL;
    chunk = twi_arena_at(&engine->arena, generation->taken);
    generation->taken = chunk->next_marked;   /* still listed: nobody touches the link */
    (void)twi_swap_acqrel(&chunk->listed, 0); /* D4 */
    return chunk;
}

static size_t collect_generation(tw_engine *engine, struct twi_generation *generation, struct twi_item *items,
                                 size_t room) {
    size_t count = 0;
    if (room != 0 && twi_swap_acqrel(&generation->overflow_marked, 0) != 0)
        count += make_item(engine, generation, &generation->overflow, &items[0]);
    while (count < room) {
        struct twi_chunk *chunk = next_chunk(engine, generation);
        if (chunk == NULL) break;
        count += collect_chunk(engine, generation, chunk, items + count, room - count);
    }
    return count;
}

static bool is_exhausted(struct twi_generation *generation) {
    return generation->owed == 0 && generation->taken == 0 && twi_load_relaxed(&generation->marked) == 0 &&
           twi_load_relaxed(&generation->overflow_marked) == 0;
}

/* One pass over the pending generations, the closed ones or the open ones. */
static size_t collect_pass(tw_engine *engine, bool closed, struct twi_item *items, size_t room) {
    size_t count = 0;
    for (uint32_t *link = &engine->pending; *link != 0 && count < room;) {
        struct twi_generation *generation = generation_at(engine, *link);
        if ((twi_load_relaxed(&generation->phase) >= TWI_CLOSED) != closed) {
            link = &generation->next_pending;
            continue;
        }
        count += collect_generation(engine, generation, items + count, room - count);
        TWI_RACE_POINT(generation_collected);
        if (is_exhausted(generation)) {
            generation->pending = false;
            *link = generation->next_pending;
        } else {
            link = &generation->next_pending; /* no room, or marked again meanwhile: those behind it have their turn */
        }
    }
    return count;
}

static void bring_back_delayed(tw_engine *engine) {
    struct twi_item item;
    for (uint32_t at = 0; twi_delayed_take(&engine->delayed, engine->turn_mono_ms, &at, &item);) {
        twi_dirty_owe(engine, item.generation, item.cell, twi_load_relaxed(&item.cell->meta));
        let_go(&item);
    }
}

static void pend_if_marked(void *ctx, struct twi_generation *generation) {
    if (twi_load_relaxed(&generation->marked) != 0 || twi_load_relaxed(&generation->overflow_marked) != 0)
        twi_dirty_pend(ctx, generation);
}

/* The grace period of a ticket is over: every adder of before it has set its last mark. But it may have found its window
 * listed by one that came after the ticket and stalls before the push; so the windows are looked at, not the list. */
static void begin_full_collection(tw_engine *engine) {
    engine->collect_asked = false;
    engine->collect_running = true;
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next))
        twi_window_visit(family, pend_if_marked, engine);
}

size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max) {
    bring_back_delayed(engine);
    if (engine->collect_asked && engine->collect_stamp < twi_reclaim_reached()) begin_full_collection(engine);
    take_marked_generations(engine);
    sort_pending(engine);
    /* A quarter is kept for open windows: their totals are what limits are decided on. */
    size_t count = collect_pass(engine, true, items, count_max - count_max / 4);
    count += collect_pass(engine, false, items + count, count_max - count);
    count += collect_pass(engine, true, items + count, count_max - count);
    if (count < count_max && engine->collect_running) {
        engine->collect_running = false;
        twi_store_release(&engine->collect_done, true);
    }
    return count;
}

bool twi_port_is_near(tw_engine *engine) {
    return twi_load_relaxed(&engine->any_near);
}

size_t twi_port_collect_near(tw_engine *engine, struct twi_item *items) {
    size_t count = 0;
    (void)twi_swap_acqrel(&engine->any_near, false); /* Q4, pairs with Q3 */
    for (uint32_t i = 0; i < TWI_NEAR_MAX; i++) {
        uint64_t near = twi_load_relaxed(&engine->near[i]) != 0 ? twi_swap_acqrel(&engine->near[i], 0) : 0; /* Q2 */
        if (near == 0) continue;
        struct twi_generation *generation = generation_at(engine, (uint32_t)(near >> 32));
        /* A sealed one sends all that it owes anyway; and its table may be gone (history.c). */
        if (twi_load_relaxed(&generation->phase) >= TWI_SEALING) continue;
        struct twi_cell *cell = twi_arena_at(&engine->arena, (uint32_t)near);
        count += make_item(engine, generation, cell, &items[count]);
    }
    return count + twi_overshoot_ask(engine, items + count, TWI_NEAR_MAX - count);
}

void twi_port_collect_begin(tw_engine *engine) {
    twi_store_release(&engine->collect_done, false);
    engine->collect_running = false;
    engine->collect_asked = true;
    engine->collect_stamp = twi_reclaim_stamp();
    /* What Redis refused a while ago is tried once more for whoever waits. */
    twi_delayed_hurry(&engine->delayed, engine->turn_mono_ms);
}
bool twi_port_collect_is_done(tw_engine *engine) {
    return twi_load_acquire(&engine->collect_done);
}
bool twi_port_is_dirty(tw_engine *engine) {
    return twi_load_relaxed(&engine->marked) != 0 || engine->pending != 0 ||
           (engine->delayed.count != 0 && engine->delayed.due_ms <= twi_clock_mono_ms(&engine->clock));
}

/* ---- names ---- */

size_t twi_port_render(const struct twi_item *item, char *out) {
    int64_t start_ms = item->generation->start_ms;
    if ((item->flags & TWI_ITEM_OVERFLOW) != 0)
        return twi_template_render_overflow(&item->family->template, start_ms, out);
    return twi_template_render(&item->family->template, twi_port_key(item), start_ms, out);
}
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out) {
    char name[TWI_REDIS_KEY_MAX];
    return twi_template_own(&item->family->template, what, name, twi_port_render(item, name), out);
}
tw_key twi_port_key(const struct twi_item *item) {
    return tw_bytes(item->cell->key, twi_load_relaxed(&item->cell->meta) & TWI_META_SIZE);
}
int64_t twi_port_start_ms(const struct twi_item *item) {
    return twi_generation_start_ms(item->generation);
}

/* ---- settling ---- */

/* Redis holds less than it has acknowledged to us, and nothing explains it: nobody here ever took anything away, it is not
 * known to have forgotten since the total before, and nothing of the window was given up. Deleted, evicted or set by hand.
 * Told once for each fall: `base` is total less what was acknowledged, so it falls with what is missing and stays there. */
static void watch_for_regression(const struct twi_item *item, struct twi_cold *cold, int64_t total, int64_t acked) {
    const struct twi_generation *generation = item->generation;
    tw_engine *engine = item->family->engine;
    int64_t asked = twi_load_relaxed(&cold->asked), base = twi_saturated_sum(total, -acked);
    if (base >= 0 || asked == 0 || base >= twi_load_relaxed(&item->cell->base)) return;
    if (generation->has_negative || generation->has_given_up || generation->unrestorable || generation->over) return;
    if (item->family->from_first || twi_asked_ms(asked) <= engine->forgot_mono_ms) return;
    twi_port_count(engine, regressions, 1);
    char name[TWI_REDIS_KEY_MAX];
    size_t size = twi_port_render(item, name), used = 0;
    char text[120];
    for (size_t i = 0; i < size && used + 1 < sizeof text; i++)
        text[used++] = name[i] > ' ' && name[i] < 127 ? name[i] : '?';
    text[used] = '\0';
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_REGRESSION,
                 "the key %s in Redis is at %lld, though it has acknowledged %lld to this engine", text,
                 (long long)total, (long long)acked);
}

void twi_port_forgotten(tw_engine *engine) {
    engine->forgot_mono_ms = engine->turn_mono_ms;
}

static int64_t difference(int64_t a, int64_t b) {
    int64_t less;
    return __builtin_sub_overflow(a, b, &less) ? (a < b ? -TW_COUNT_MAX : TW_COUNT_MAX) : less;
}

void twi_port_acknowledge(const struct twi_item *item, const struct twi_answer *answer) {
    struct twi_cold *cold = cold_of(item->generation, item->cell);
    tw_engine *engine = item->family->engine;
    int64_t acked = twi_load_relaxed(&cold->acked) + item->delta;
    twi_store_relaxed(&cold->acked, acked);
    if ((item->flags & TWI_ITEM_PART) == 0) /* parts are said again, not restored */
        item->generation->acked_units += (uint64_t)(item->delta < 0 ? -item->delta : item->delta);
    if (answer->has_total && (item->flags & TWI_ITEM_PART) != 0) {
        twi_store_relaxed(&item->cell->base, twi_saturated_sum(answer->total, -item->units));
        twi_store_relaxed(&cold->asked, engine->turn_mono_ms << 1 | 1);
    } else if (answer->has_total && item->family->ages) {
        twi_ageing_told(item, answer->total, acked);
    } else if (answer->has_total) {
        watch_for_regression(item, cold, answer->total, acked);
        /* one store: view never tears (trap E6) */
        int64_t base = twi_saturated_sum(answer->total, -acked), before = twi_load_relaxed(&item->cell->base);
        twi_store_relaxed(&item->cell->base, base);
        twi_store_relaxed(&cold->asked,
                          twi_share_told(engine, twi_load_relaxed(&cold->asked), difference(base, before)));
    }
    if (answer->end_ms != 0 && (item->flags & TWI_ITEM_FROM_FIRST) != 0)
        twi_store_relaxed(&item->cell->end_ms, answer->end_ms);
    let_go(item);
}

void twi_port_return(const struct twi_item *item, uint32_t after_ms) {
    tw_engine *engine = item->family->engine;
    struct twi_cold *cold = cold_of(item->generation, item->cell);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) - item->delta);
    enum twi_delaying delayed = TWI_DELAYED_NO_ROOM;
    if (after_ms != 0) delayed = twi_delayed_put(&engine->delayed, item, engine->turn_mono_ms + after_ms);
    if (delayed == TWI_DELAYED_NEW) return;
    if (delayed == TWI_DELAYED_NO_ROOM)
        twi_dirty_owe(engine, item->generation, item->cell, twi_load_relaxed(&item->cell->meta));
    let_go(item);
}

void twi_port_report_lost(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                          int reason) {
    int64_t units = delta < 0 ? -delta : delta;
    if (units == 0) return;
    if (reason == TW_LOST_LATE) twi_port_count(engine, late_deltas, units);
    if (reason == TW_LOST_EXPIRED) twi_port_count(engine, expired_unsynced, units);
    if (reason == TW_LOST_UNCERTAIN)
        twi_port_count(engine, uncertain, units);
    else
        twi_port_count(engine, lost, units);
    if (engine->options.on_lost == NULL) return;
    struct twi_thread *self = twi_thread_here();
    bool was = self != NULL && self->in_hook;
    if (self != NULL) self->in_hook = true;
    engine->options.on_lost(engine->options.lost_ctx, family, key, start_ms, delta, reason);
    if (self != NULL) self->in_hook = was;
}

void twi_port_give_up(const struct twi_item *item, int reason) {
    struct twi_cold *cold = cold_of(item->generation, item->cell);
    twi_store_relaxed(&cold->acked, twi_load_relaxed(&cold->acked) + item->delta); /* settled: it is owed no more */
    let_go(item);
    twi_restore_note_given_up(item->family->engine, item, reason);
    twi_port_report_lost(item->family->engine, item->family, twi_port_key(item),
                         twi_generation_start_ms(item->generation), item->delta, reason);
}

struct report {
    tw_engine *engine;
    struct twi_generation *generation;
};

static bool report_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct report *report = ctx;
    struct twi_generation *generation = report->generation;
    struct twi_cold *cold = cold_of(generation, cell);
    int64_t delta = twi_cell_local(cell, meta) - twi_load_relaxed(&cold->handed);
    twi_store_relaxed(&cold->handed, twi_load_relaxed(&cold->handed) + delta);
    if (generation->family->gauge) return true; /* a part ends by itself */
    twi_port_report_lost(report->engine, generation->family, tw_bytes(cell->key, meta & TWI_META_SIZE),
                         twi_generation_start_ms(generation), delta,
                         twi_delayed_holds(&report->engine->delayed, cell) ? TW_LOST_POISON : TW_LOST_CLOSED);
    return true;
}

void twi_wheel_report_unsent(tw_engine *engine) {
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next)) {
        for (uint32_t line = family->synced ? family->generations : 0; line != 0;) {
            struct report report = {engine, generation_at(engine, line)};
            struct twi_cursor cursor = {0};
            twi_table_walk(&engine->arena, report.generation, &cursor, report_cell, &report);
            (void)report_cell(&report, &report.generation->overflow,
                              twi_load_relaxed(&report.generation->overflow.meta));
            line = report.generation->next_all;
        }
    }
}

/* ---- the rest of the world ---- */

void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...) {
    if (engine->options.log_write == NULL) return;
    uint32_t slot = (uint32_t)event % 32;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    bool once = event == TW_EVENT_START; /* each finding comes once, and several come together */
    if (!once && engine->logged_ms[slot] != 0 && now_ms - engine->logged_ms[slot] < 1000) {
        engine->log_left_out[slot]++;
        return;
    }
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (engine->log_left_out[slot] != 0 && size >= 0 && (size_t)size < sizeof text)
        (void)snprintf(text + size, sizeof text - (size_t)size, " (%u more like this left out)",
                       engine->log_left_out[slot]);
    engine->log_left_out[slot] = 0;
    engine->logged_ms[slot] = now_ms != 0 ? now_ms : 1;
    engine->options.log_write(engine->options.log_ctx, level, event, text);
}

const char *twi_port_prefix(tw_engine *engine) {
    return engine->options.redis_prefix != NULL ? engine->options.redis_prefix : "";
}
int64_t twi_port_wall_ms(tw_engine *engine) {
    return twi_clock_read(&engine->clock); /* not the turn's: a hook may have taken its time since */
}
int64_t twi_port_mono_ms(tw_engine *engine) {
    return twi_clock_mono_ms(&engine->clock);
}
int64_t twi_port_mono_us(tw_engine *engine) {
    return twi_clock_mono_us(&engine->clock);
}

/* splitmix64: in a simulator all that is random follows from the seed. */
static uint64_t seeded(tw_engine *engine) {
    uint64_t z = twi_add_relaxed(&engine->random_state, UINT64_C(0x9E3779B97F4A7C15)) + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void twi_port_random(tw_engine *engine, void *out, size_t size) {
    if (twi_load_relaxed(&engine->random_state) == 0) {
        if (twi_random_bytes(out, size)) return;
        twi_check(engine->opening); /* it worked at tw_open() */
        engine->random_failed = true;
        memset(out, 0, size);
        return;
    }
    for (unsigned char *at = out; size != 0;) {
        uint64_t word = seeded(engine);
        size_t part = size < sizeof word ? size : sizeof word;
        memcpy(at, &word, part);
        at += part;
        size -= part;
    }
}

void twi_stat_add(tw_engine *engine, size_t offset, int64_t n) {
    (void)twi_add_relaxed(&engine->stats[offset / sizeof(int64_t)], n);
}
void twi_stat_set(tw_engine *engine, size_t offset, int64_t value) {
    twi_store_relaxed(&engine->stats[offset / sizeof(int64_t)], value);
}

void twi_port_last_error(tw_engine *engine, const char *text) {
    pthread_mutex_lock(&engine->text_lock);
    (void)snprintf(engine->last_error, sizeof engine->last_error, "%s", text);
    pthread_mutex_unlock(&engine->text_lock);
}
