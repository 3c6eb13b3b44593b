/* watch.c -- see watch.h and port/watch.h: the life of the watch socket, and the values that only the engine can report
 * to it. Always true: a family that is watched is not freed. The turn sees `held` under the roster's lock (rollover.c),
 * and looks again when it is let go. */
#include "engine/watch.h"

#include "engine/base/grow.h"
#include "engine/core/agenda.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/port/services.h"
#include "engine/port/watch.h"
#include "engine/base/lock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE_FAMILIES 64u /* under the lock at once, which takes less than a tenth of a millisecond */
#define REST_NS 100000     /* the pause between two pieces, so that a thread that waits for the lock gets it */

/* ---- its life ---- */

void twi_watcher_start(tw_engine *engine) {
    char why[300];
    if (engine->options.watch_path == NULL) return;
    engine->here->watcher.watch = twi_watch_find()->open(engine, engine->options.watch_path, why, sizeof why);
    if (engine->here->watcher.watch == NULL)
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_START, "no watch socket (watch_path): %s", why);
}

void twi_watcher_stop(tw_engine *engine) {
    struct twi_watch *watch = engine->here->watcher.watch;
    engine->here->watcher.watch = NULL; /* comes first, because a child that is forked meanwhile must not use it */
    if (watch != NULL) twi_watch_find()->close(watch);
}

void twi_watcher_abandon(tw_engine *engine) {
    struct twi_watcher *watcher = &engine->here->watcher;
    if (watcher->watch != NULL) twi_watch_find()->abandon(watcher->watch);
    *watcher = (struct twi_watcher){0};
}

void twi_watcher_renew(tw_engine *engine) {
    char why[300];
    struct twi_watcher *watcher = &engine->here->watcher;
    twi_watcher_abandon(engine);
    if (engine->options.watch_path != NULL && !twi_load_relaxed(&engine->life.stopped))
        watcher->watch = twi_watch_find()->open(engine, engine->options.watch_path, why, sizeof why);
}

/* ---- families ---- */

/* Inside a section. */
static void describe(struct tw_family *family, int64_t now_ms, struct twi_watch_family *out) {
    twi_check(out != NULL && family->engine != NULL);
    struct twi_limit_stats limits = {0};
    struct twi_span span = {0, TW_UNBOUNDED};
    if (family->kind.has_starts) span = twi_calendar_span(&family->rule, now_ms);
    twi_limit_stats_add(family, &limits);
    *out = (struct twi_watch_family){
        .kind = family->options.kind,
        .window = family->options.window,
        .limit_mode = family->options.limit_mode,
        .redis_shape = family->options.redis_shape,
        .window_ms = family->options.window_ms,
        .start_ms = span.start_ms,
        .end_ms = span.end_ms,
        .admitted = limits.admitted,
        .denied = twi_limit_stats_denied(&limits),
        .near = limits.near,
        .shadow_denied = limits.shadow_denied,
    };
    memcpy(out->name, family->options.name, strnlen(family->options.name, sizeof out->name - 1));
    twi_window_count(family, &out->windows, &out->keys);
}

/* Called under the lock. The family that was held earlier may be freed from here on. */
static void hold(tw_engine *engine, struct tw_family *family) {
    struct tw_family *before = engine->here->watcher.held;
    engine->here->watcher.held = family;
    if (before != NULL && before != family && twi_load_relaxed(&before->requests.close_requested))
        twi_agenda_notify(before);
}

struct list {
    struct twi_watch_family *all;
    size_t count;
    uint32_t room;
};

static bool make_room(struct list *list) {
    twi_check(list->count <= list->room);
    return twi_grow(&list->all, sizeof *list->all, &list->room, list->count + PIECE_FAMILIES, PIECE_FAMILIES);
}

/* Appends the families behind the one that is held, which stays in the roster's list; the last of them is held then.
 * Returns false if there are no more, and none is held. */
static bool describe_piece(tw_engine *engine, struct twi_thread *self, struct list *list) {
    int64_t now_ms = twi_watch_now_ms(engine);
    twi_lock(&engine->roster.lock); /* families stay, and no family is added */
    struct tw_family *last = NULL, *held = engine->here->watcher.held;
    struct tw_family *family = twi_load_acquire(held != NULL ? &held->entry.next : &engine->roster.first);
    twi_section_enter(self); /* keeps their windows */
    for (size_t i = 0; i < PIECE_FAMILIES && family != NULL; i++, family = twi_load_acquire(&family->entry.next)) {
        last = family;
        if (!twi_load_relaxed(&family->requests.close_requested)) describe(family, now_ms, &list->all[list->count++]);
    }
    twi_section_leave(self);
    hold(engine, last);
    twi_unlock(&engine->roster.lock);
    return last != NULL;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct twi_watch_family *)a)->name, ((const struct twi_watch_family *)b)->name);
}

bool twi_watch_families(tw_engine *engine, struct twi_watch_family **all, size_t *count) {
    struct twi_thread *self = twi_thread_here();
    struct list list = {.all = NULL};
    bool fits = self != NULL && make_room(&list);
    while (fits && describe_piece(engine, self, &list)) {
        if (list.count >= PIECE_FAMILIES) nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
        fits = make_room(&list);
    }
    *all = NULL;
    *count = 0;
    if (!fits) {
        if (self != NULL) twi_watch_let_go(engine);
        free(list.all);
        return false;
    }
    qsort(list.all, list.count, sizeof *list.all, compare_names);
    *all = list.all;
    *count = list.count;
    return true;
}

tw_family *twi_watch_hold(tw_engine *engine, const char *name) {
    if (twi_thread_here() == NULL) return NULL;
    twi_lock(&engine->roster.lock);
    struct tw_family *family = twi_roster_find(engine, name);
    hold(engine, family);
    twi_unlock(&engine->roster.lock);
    return family;
}

void twi_watch_let_go(tw_engine *engine) {
    twi_lock(&engine->roster.lock);
    hold(engine, NULL);
    twi_unlock(&engine->roster.lock);
}

uint32_t twi_watch_kind(const tw_family *family) {
    return family->options.kind;
}

/* ---- clocks ---- */

int64_t twi_watch_mono_ms(void) {
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t twi_watch_now_ms(tw_engine *engine) {
    return twi_clock_read(&engine->clock);
}

int64_t twi_watch_last_error_age_ms(tw_engine *engine) {
    twi_lock(&engine->report.lock);
    bool is_there = engine->report.last_error[0] != '\0';
    int64_t since_ms = engine->report.last_error_ms;
    twi_unlock(&engine->report.lock);
    int64_t age_ms = twi_clock_mono_ms(&engine->clock) - since_ms;
    return !is_there ? -1 : age_ms > 0 ? age_ms : 0;
}
