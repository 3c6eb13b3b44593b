/* save.c -- see port/save.h: the counters that tw_save() writes.
 * Units of a reservation that is neither sold nor over are not counted in the file, because no process after this one
 * knows the reservation. They are shown as counts of their own, below 0, behind all others.
 * Always true: nothing is shown before it is known that every family can be saved. A family whose counts end with the
 * process (gauges, slots in use) is left out. */
#include "engine/save.h"

#include "engine/base/grow.h"
#include "engine/base/lock.h"
#include "engine/core/call_guard.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/count/each.h"
#include "engine/reserve/reserve_local.h"

#include <stdlib.h>

#define FAMILIES_FIRST 64u
#define WINDOWS_FIRST 16u
#define RESERVED_FIRST 4096u /* bytes */

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

enum twi_saved_fate twi_saved_fate(const tw_family *family, int64_t start_ms) {
    if (!family->kind.has_starts) return TWI_SAVED_OPEN;
    int64_t now_ms = twi_clock_read(&family->engine->clock);
    int64_t end_ms = twi_calendar_span(&family->rule, start_ms).end_ms;
    if (twi_family_takes_until(family, end_ms) > now_ms) return TWI_SAVED_OPEN;
    int64_t before_ms = twi_calendar_span(&family->rule, now_ms).start_ms;
    for (uint32_t i = 0; family->kind.slides && i < family->kind.sub_windows; i++) {
        before_ms = twi_calendar_previous_start(&family->rule, before_ms);
        if (before_ms == start_ms) return TWI_SAVED_PREVIOUS;
    }
    return TWI_SAVED_OVER;
}

static void note_window(void *ctx, struct twi_generation *generation) {
    struct twi_saved_windows *windows = ctx;
    if (windows->count < windows->room) windows->starts[windows->count] = twi_generation_start_ms(generation);
    windows->count++;
}

bool twi_saved_windows(tw_family *family, struct twi_saved_windows *windows) {
    struct twi_thread *self = twi_thread_here();
    *windows = (struct twi_saved_windows){.starts = NULL};
    if (self == NULL) return false;
    for (size_t wanted = 1;; wanted = windows->count) {
        if (!twi_grow(&windows->starts, sizeof *windows->starts, &windows->room, wanted, WINDOWS_FIRST)) return false;
        windows->count = 0;
        twi_section_enter(self);
        twi_window_visit(family, note_window, windows);
        twi_section_leave(self);
        if (windows->count <= windows->room) return true;
    }
}

/* ---- families ---- */

static bool ends_with_the_process(const tw_family *family) {
    return family->options.kind == TW_KIND_GAUGE || twi_load_relaxed(&family->has_slots);
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
static tw_status hold_families(tw_engine *engine, struct twi_held_families *held) {
    tw_status status = TW_OK;
    twi_lock(&engine->roster.lock);
    for (tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL && status == TW_OK;
         family = twi_load_acquire(&family->entry.next)) {
        if (twi_load_relaxed(&family->requests.close_requested) || ends_with_the_process(family)) continue;
        const char *why = refusal_of(family);
        if (why != NULL)
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
    bool is_over; /* the visitor has ended it */
};

static bool show_counter(void *ctx, const tw_count *count) {
    struct saving *saving = ctx;
    if (count->local != 0) saving->is_over = !saving->visitor->counter(saving->visitor->ctx, count->key, count->local);
    return !saving->is_over;
}

static void show_window(struct saving *saving, uint32_t number, int64_t start_ms) {
    tw_family *family = saving->held.list[number];
    if (twi_saved_fate(family, start_ms) == TWI_SAVED_OVER) return;
    saving->is_over = !saving->visitor->window(saving->visitor->ctx, number, start_ms);
    /* a window that is gone by now was over */
    if (!saving->is_over) (void)twi_each_at_end(family, twi_saved_moment(start_ms), show_counter, saving);
}

static tw_status show_counters(struct saving *saving) {
    for (uint32_t number = 0; number < saving->held.count && !saving->is_over; number++) {
        struct twi_saved_windows windows;
        bool has_memory = twi_saved_windows(saving->held.list[number], &windows);
        for (uint32_t i = 0; has_memory && i < windows.count && !saving->is_over; i++)
            show_window(saving, number, windows.starts[i]);
        free(windows.starts);
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

static void show_reserved(struct saving *saving, const struct reserved *reserved, tw_key key) {
    if (saving->held.list == NULL) return;
    tw_family *const *found =
        bsearch(&reserved->family, saving->held.list, saving->held.count, sizeof(void *), compare_addresses);
    if (found == NULL || twi_saved_fate(*found, reserved->start_ms) == TWI_SAVED_OVER) return;
    const struct twi_save_visitor *visitor = saving->visitor;
    saving->is_over = !visitor->window(visitor->ctx, (uint32_t)(found - saving->held.list), reserved->start_ms) ||
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

static tw_status show_all(tw_engine *engine, struct saving *saving) {
    for (uint32_t number = 0; number < saving->held.count && !saving->is_over; number++) {
        struct twi_saved_family saved;
        twi_saved_describe(saving->held.list[number], &saved);
        saving->is_over = !saving->visitor->family(saving->visitor->ctx, &saved);
    }
    tw_status status = show_counters(saving);
    return status == TW_OK && !saving->is_over ? show_all_reserved(engine, saving) : status;
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
    status = hold_families(engine, &saving.held);
    if (status == TW_OK) status = show_all(engine, &saving);
    twi_saved_let_go(&saving.held);
    return status;
}
