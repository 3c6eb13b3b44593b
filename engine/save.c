/* save.c -- see port/extras.h: the counters that tw_save() writes.
 * One rule decides which windows: those that no hook of this process has got as final. They are final in the process
 * that loads them, and from a whole file on they are PARTIAL here (TWI_SAVED_IN_FILE, turn/window_end.c), whatever the
 * clock does meanwhile. A window that was final here is written only if a sliding limit still looks at it.
 * Units of a reservation that is neither sold nor over are not counted in the file, because no process after this one
 * knows the reservation. They are shown as counts of their own, below 0, behind all others.
 * Always true: nothing is shown before it is known that every family can be saved. A family whose counts end with the
 * process (gauges, slots in use) is left out, and named. A window without counts is not shown. This thread owns the
 * turn from before the first counter until the file is at its place. */
#include "engine/save.h"

#include "engine/base/grow.h"
#include "engine/base/threads.h"
#include "engine/core/operation.h"
#include "engine/core/roster.h"
#include "engine/core/processes.h"
#include "engine/core/window_map.h"
#include "engine/count/walk.h"
#include "engine/reserve/reserve_local.h"
#include "engine/turn/turn.h"

#include <stdio.h>
#include <stdlib.h>

#define FAMILIES_FIRST 64u
#define WINDOWS_FIRST 16u
#define RESERVED_FIRST 4096u /* bytes */
#define TURN_WAITS 10000     /* of at most a millisecond each */

/* ---- what saving and loading have in common ---- */

bool twi_saved_hold(struct twi_held_families *held, tw_family *family) {
    if (!twi_grow(&held->list, sizeof(void *), &held->room, (size_t)held->count + 1, FAMILIES_FIRST)) return false;
    (void)twi_add_relaxed(&family->started, 1); /* under the lock: it is not being freed */
    held->list[held->count++] = family;
    return true;
}

void twi_saved_let_go(struct twi_held_families *held) {
    /* AN1, pairs with AN2, as in twi_operation_give() */
    for (uint32_t i = 0; i < held->count; i++) (void)twi_sub_acqrel(&held->list[i]->started, 1);
    free(held->list);
    *held = (struct twi_held_families){0};
}

#define FIELDS(X) \
    X(kind) \
    X(window) X(window_ms) X(utc_offset_ms) X(week_start) X(limit_shape) X(sub_windows) X(redis_shape) X(key_separator)
#define FIELD_NAME(field) #field,
const char *const twi_saved_names[TWI_SAVED_FIELDS] = {FIELDS(FIELD_NAME)};

void twi_saved_describe(const tw_family *family, struct twi_saved_family *saved) {
    const tw_family_options *options = &family->options;
#define FIELD_VALUE(field) (int64_t) options->field,
    const int64_t values[] = {FIELDS(FIELD_VALUE)};
    static_assert(sizeof values == sizeof saved->fields, "each field has a value");
    *saved = (struct twi_saved_family){.name = ""};
    memcpy(saved->fields, values, sizeof values);
    memcpy(saved->name, options->name, strnlen(options->name, sizeof saved->name - 1));
}

tw_status twi_saved_may(tw_engine *engine) {
    tw_status status = twi_guard_thread(twi_thread_here()); /* in a forked child it renews the engine */
    if (status != TW_OK) return status;
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (!engine->life.has_redis) return TW_OK;
    return twi_refuse(TW_ERR_MODE, "redis_url: tw_save() and tw_load() are for engines without Redis, which has the "
                                   "counts of this one");
}

enum twi_saved_fate twi_saved_fate(const tw_family *family, int64_t start_ms, bool is_final) {
    if (!family->kind.has_starts) return TWI_SAVED_OPEN;
    int64_t now_ms = twi_clock_read(&family->engine->clock);
    int64_t end_ms = twi_calendar_span(&family->rule, start_ms).end_ms;
    if ((is_final ? end_ms : twi_family_takes_until(family, end_ms)) > now_ms) return TWI_SAVED_OPEN;
    int64_t before_ms = twi_calendar_span(&family->rule, now_ms).start_ms;
    for (uint32_t i = 0; family->kind.slides && i < family->kind.sub_windows; i++) {
        before_ms = twi_calendar_previous_start(&family->rule, before_ms);
        if (before_ms == start_ms) return TWI_SAVED_PREVIOUS;
    }
    return TWI_SAVED_OVER;
}

/* In a shared engine the leader makes the turns. Another process may own the turn, too, for what is none. */
static bool take_turn(tw_engine *engine) {
    return twi_turn_take(engine) || (engine->life.is_shared && twi_turn_own(engine, 0) == 0);
}

tw_status twi_saved_take_turn(tw_engine *engine) {
    for (int waits = 0; waits < TURN_WAITS; waits++) {
        uint32_t seen = twi_event_count_value(&engine->turn.ended);
        if (take_turn(engine)) return TW_OK;
        twi_event_count_wait(&engine->turn.ended, seen, 1);
    }
    return twi_refuse(TW_ERR_MODE, "on_window_closed: a hook of this engine runs, and does not end");
}

static void note_window(void *ctx, struct twi_generation *generation) {
    struct twi_saved_windows *windows = ctx;
    if (windows->count < windows->room) windows->list[windows->count] = generation;
    windows->count++;
}

bool twi_saved_windows(tw_family *family, struct twi_saved_windows *windows) {
    twi_check(twi_turn_is_owned(family->engine));
    *windows = (struct twi_saved_windows){.list = NULL};
    for (size_t wanted = 1;; wanted = windows->count) {
        if (!twi_grow(&windows->list, sizeof(struct twi_generation *), &windows->room, wanted, WINDOWS_FIRST))
            return false;
        windows->count = 0;
        twi_section_enter(twi_thread_self);
        twi_window_visit(family, note_window, windows);
        twi_section_leave(twi_thread_self);
        if (windows->count <= windows->room) return true;
    }
}

/* ---- families ---- */

/* The families that are left out, as a sentence. */
struct left_out {
    char text[320];
    size_t used;
    uint32_t unnamed; /* those for which the sentence has no room */
};

static void note_left_out(struct left_out *left_out, const tw_family *family, const char *kind) {
    char name[128];
    int size = snprintf(name, sizeof name, "%s family \"%.64s\" (%s)", left_out->used == 0 ? "" : ",",
                        family->options.name, kind);
    if (left_out->used + (size_t)size >= sizeof left_out->text) {
        left_out->unnamed++;
        return;
    }
    memcpy(left_out->text + left_out->used, name, (size_t)size + 1);
    left_out->used += (size_t)size;
}

/* Its counts end with the process: they describe it. Returns the kind, or NULL. */
static const char *kind_that_ends(const tw_family *family) {
    if (family->options.kind == TW_KIND_GAUGE) return "kind: TW_KIND_GAUGE";
    return twi_load_relaxed(&family->has_slots) ? "slots of tw_hold()" : NULL;
}

static void tell_left_out(tw_engine *engine, const struct left_out *left_out) {
    char more[32] = "";
    if (left_out->used == 0) {
        twi_why_set(TW_OK, "Every family was saved.");
        return;
    }
    if (left_out->unnamed != 0) (void)snprintf(more, sizeof more, ", and %u more", left_out->unnamed);
    twi_port_log(engine, TW_LOG_INFO, TW_EVENT_SAVED, "saved without%s%s: these counts end with the process",
                 left_out->text, more);
    (void)twi_refuse_with(TW_OK, "Saved without%s%s: these counts end with the process", left_out->text, more);
}

/* The reason why its counters cannot be saved, or NULL. */
static const char *refusal_of(const tw_family *family) {
    if (family->kind.from_first) return "window: TW_WINDOW_FROM_FIRST";
    if (family->kind.is_gcra) return "limit_shape: TW_SHAPE_GCRA";
    return family->kind.is_distinct ? "kind: TW_KIND_DISTINCT" : NULL;
}

static int compare_addresses(const void *a, const void *b) {
    uintptr_t left = (uintptr_t) * (tw_family *const *)a, right = (uintptr_t) * (tw_family *const *)b;
    return (left > right) - (left < right);
}

/* Holds the families whose counters are saved, in the order of their addresses. */
static tw_status hold_families(tw_engine *engine, struct twi_held_families *held, struct left_out *left_out) {
    tw_status status = TW_OK;
    twi_lock(&engine->roster.lock);
    for (tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL && status == TW_OK;
         family = twi_load_acquire(&family->entry.next)) {
        if (twi_load_relaxed(&family->requests.close_requested)) continue;
        const char *why = refusal_of(family), *kind = kind_that_ends(family);
        if (kind != NULL)
            note_left_out(left_out, family, kind);
        else if (why != NULL)
            status = twi_refuse_with(TW_ERR_MODE, "%s of family \"%s\" cannot be saved", why, family->options.name);
        else if (!twi_saved_hold(held, family))
            status = twi_refuse(TW_ERR_MEMORY, NULL);
    }
    twi_unlock(&engine->roster.lock);
    if (status == TW_OK && held->count != 0) qsort(held->list, held->count, sizeof(void *), compare_addresses);
    return status;
}

/* ---- counters ---- */

struct saving {
    const struct twi_save_visitor *visitor;
    struct twi_held_families held;
    struct left_out left_out;
    bool is_over; /* the visitor has ended it */
    /* the window of the next counters */
    uint32_t family;
    struct twi_generation *generation;
};

static bool is_final_here(const struct twi_generation *generation) {
    return generation->turn.hook_done && (generation->saved & TWI_SAVED_IN_FILE) == 0;
}

/* The window comes with its first count, because a window without counts is not saved. */
static bool show_counter(void *ctx, const tw_count *count) {
    struct saving *saving = ctx;
    struct twi_generation *generation = saving->generation;
    const struct twi_save_visitor *visitor = saving->visitor;
    if (count->local == 0) return true;
    if ((generation->saved & TWI_SAVED_SHOWN) == 0) {
        enum twi_saved_report report = is_final_here(generation) ? TWI_REPORTED : TWI_UNREPORTED;
        saving->is_over = !visitor->window(visitor->ctx, saving->family, generation->start_ms, report);
        generation->saved |= TWI_SAVED_SHOWN;
    }
    saving->is_over = saving->is_over || !visitor->counter(visitor->ctx, count->key, count->local);
    return !saving->is_over;
}

static void show_window(struct saving *saving, struct twi_generation *generation) {
    tw_family *family = generation->family;
    generation->saved &= (uint8_t)~TWI_SAVED_SHOWN;
    if (is_final_here(generation) && twi_saved_fate(family, generation->start_ms, true) != TWI_SAVED_PREVIOUS) return;
    saving->generation = generation;
    (void)twi_each_at_end(family, twi_saved_moment(generation->start_ms), show_counter, saving);
}

static tw_status show_counters(struct saving *saving) {
    for (saving->family = 0; saving->family < saving->held.count && !saving->is_over; saving->family++) {
        struct twi_saved_windows windows;
        bool has_memory = twi_saved_windows(saving->held.list[saving->family], &windows);
        for (uint32_t i = 0; has_memory && i < windows.count && !saving->is_over; i++)
            show_window(saving, windows.list[i]);
        free(windows.list);
        if (!has_memory) return twi_refuse(TW_ERR_MEMORY, NULL);
    }
    return TW_OK;
}

/* ---- reservations ---- */

/* A reservation, copied out of the book. The key follows. */
struct reserved {
    tw_family *family;
    int64_t start_ms, n;
    size_t key_size;
};
struct reserved_list {
    unsigned char *bytes;
    uint32_t size, room;
    bool is_whole;
};

static void note_reserved(void *ctx, const struct twi_reservation *entry) {
    struct reserved_list *list = ctx;
    tw_key key = twi_reservation_key(entry);
    struct reserved reserved = {entry->family, entry->start_ms, entry->n, key.size};
    size_t wanted = list->size + sizeof reserved + key.size;
    if (entry->state != TWI_HELD || !list->is_whole) return;
    list->is_whole = wanted <= UINT32_MAX && twi_grow(&list->bytes, 1, &list->room, wanted, RESERVED_FIRST);
    if (!list->is_whole) return;
    memcpy(list->bytes + list->size, &reserved, sizeof reserved);
    memcpy(list->bytes + list->size + sizeof reserved, key.data, key.size);
    list->size = (uint32_t)wanted;
}

/* Its units are in the count of its key, if that window was shown. */
static void show_reserved(struct saving *saving, const struct reserved *reserved, tw_key key) {
    if (saving->held.list == NULL) return;
    tw_family *const *found =
        bsearch(&reserved->family, saving->held.list, saving->held.count, sizeof(void *), compare_addresses);
    if (found == NULL) return;
    twi_section_enter(twi_thread_self);
    const struct twi_generation *generation = twi_window_find(*found, reserved->start_ms);
    twi_section_leave(twi_thread_self);
    if (generation == NULL || (generation->saved & TWI_SAVED_SHOWN) == 0) return;
    const struct twi_save_visitor *visitor = saving->visitor;
    enum twi_saved_report report = is_final_here(generation) ? TWI_REPORTED : TWI_UNREPORTED;
    uint32_t number = (uint32_t)(found - saving->held.list);
    saving->is_over = !visitor->window(visitor->ctx, number, reserved->start_ms, report) ||
                      !visitor->counter(visitor->ctx, key, -reserved->n);
}

static tw_status show_all_reserved(tw_engine *engine, struct saving *saving) {
    struct reserved_list list = {.is_whole = true};
    twi_lock(&engine->here->reservations->lock);
    twi_reserve_visit(engine, note_reserved, &list);
    twi_unlock(&engine->here->reservations->lock);
    for (size_t at = 0; list.is_whole && at < list.size && !saving->is_over;) {
        struct reserved reserved;
        memcpy(&reserved, list.bytes + at, sizeof reserved);
        at += sizeof reserved;
        show_reserved(saving, &reserved, tw_bytes(list.bytes + at, reserved.key_size));
        at += reserved.key_size;
    }
    free(list.bytes);
    return list.is_whole ? TW_OK : twi_refuse(TW_ERR_MEMORY, NULL);
}

/* ---- all of it ---- */

static void note_in_file(void *ctx, struct twi_generation *generation) {
    (void)ctx;
    if ((generation->saved & TWI_SAVED_SHOWN) != 0 && !is_final_here(generation))
        generation->saved |= TWI_SAVED_IN_FILE;
}

/* Needs no memory, because the file is at its place. */
static void note_all_in_file(const struct saving *saving) {
    twi_section_enter(twi_thread_self);
    for (uint32_t number = 0; number < saving->held.count; number++)
        twi_window_visit(saving->held.list[number], note_in_file, NULL);
    twi_section_leave(twi_thread_self);
}

static tw_status show_all(tw_engine *engine, struct saving *saving) {
    for (uint32_t number = 0; number < saving->held.count && !saving->is_over; number++) {
        struct twi_saved_family saved;
        twi_saved_describe(saving->held.list[number], &saved);
        saving->is_over = !saving->visitor->family(saving->visitor->ctx, &saved);
    }
    tw_status status = show_counters(saving);
    return status == TW_OK && !saving->is_over ? show_all_reserved(engine, saving) : status;
}

static tw_status save_all(tw_engine *engine, struct saving *saving) {
    tw_status status = hold_families(engine, &saving->held, &saving->left_out);
    if (status == TW_OK) status = show_all(engine, saving);
    if (status == TW_OK && !saving->is_over && saving->visitor->finish(saving->visitor->ctx)) {
        note_all_in_file(saving);
        tell_left_out(engine, &saving->left_out);
    }
    twi_saved_let_go(&saving->held);
    return status;
}

tw_status twi_save_visit(tw_engine *engine, const struct twi_save_visitor *visitor) {
    twi_check(engine != NULL && visitor != NULL);
    struct saving saving = {.visitor = visitor};
    tw_status status = twi_saved_may(engine);
    if (status != TW_OK) return status;
    if (!twi_load_acquire(&engine->life.stopped))
        return twi_refuse(TW_ERR_MODE, "tw_save() needs tw_stop() first: counts that came later would be missing");
    if (twi_load_relaxed(&engine->life.stopped_in) != twi_thread_self->process)
        return twi_refuse(TW_ERR_FORKED, "the parent process has called tw_stop(), and has the counts");
    status = twi_saved_take_turn(engine);
    if (status != TW_OK) return status;
    status = save_all(engine, &saving);
    twi_turn_leave(engine);
    return status;
}
