/* watch.c -- see watch.h and port/watch.h: the life of the watch socket, and what only the engine can tell it.
 * Always true: a family that is watched is not freed: the turn sees `held` under the roster's lock (rollover.c), and
 * looks again when it is let go. */
#include "engine/watch.h"

#include "engine/core/agenda.h"
#include "engine/core/options.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/port/watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- its life ---- */

tw_status twi_watcher_start(tw_engine *engine, const tw_options *options) {
    char why[300];
    if (engine->options.watch_path == NULL) return TW_OK;
    engine->background.watcher.watch = twi_watch_open(engine, engine->options.watch_path, why, sizeof why);
    if (engine->background.watcher.watch != NULL) return TW_OK;
    return twi_options_refuse(options->error_text, options->error_size, "watch_path: %s", why);
}

void twi_watcher_stop(tw_engine *engine) {
    struct twi_watch *watch = engine->background.watcher.watch;
    engine->background.watcher.watch = NULL; /* first: a child that is forked meanwhile must not use it */
    if (watch != NULL) twi_watch_close(watch);
}

void twi_watcher_renew(tw_engine *engine) {
    char why[300];
    struct twi_watcher *watcher = &engine->background.watcher;
    if (watcher->watch != NULL) twi_watch_abandon(watcher->watch);
    watcher->watch = NULL;
    watcher->held = NULL;
    if (engine->options.watch_path != NULL && !twi_load_relaxed(&engine->life.stopped))
        watcher->watch = twi_watch_open(engine, engine->options.watch_path, why, sizeof why);
}

/* ---- families ---- */

/* Inside a section. */
static void describe(struct tw_family *family, int64_t now_ms, struct twi_watch_family *out) {
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
        .denied = limits.denied,
        .near = limits.near,
        .shadow_denied = limits.shadow_denied,
    };
    memcpy(out->name, family->options.name, strnlen(family->options.name, sizeof out->name - 1));
    twi_window_count(family, &out->windows, &out->keys);
}

static size_t describe_all(tw_engine *engine, struct twi_watch_family *list) {
    size_t count = 0;
    int64_t now_ms = twi_watch_now_ms(engine);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (!twi_load_relaxed(&family->requests.close_requested)) describe(family, now_ms, &list[count++]);
    return count;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct twi_watch_family *)a)->name, ((const struct twi_watch_family *)b)->name);
}

bool twi_watch_families(tw_engine *engine, struct twi_watch_family **list, size_t *count) {
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return false;
    pthread_mutex_lock(&engine->roster.lock); /* families stay, and none is added */
    *list = calloc(twi_load_relaxed(&engine->roster.count) + (size_t)1, sizeof **list);
    twi_section_enter(self); /* keeps their windows */
    *count = *list != NULL ? describe_all(engine, *list) : 0;
    twi_section_leave(self);
    pthread_mutex_unlock(&engine->roster.lock);
    if (*list != NULL) qsort(*list, *count, sizeof **list, compare_names);
    return *list != NULL;
}

tw_family *twi_watch_hold(tw_engine *engine, const char *name) {
    if (twi_thread_here() == NULL) return NULL;
    pthread_mutex_lock(&engine->roster.lock);
    struct tw_family *family = twi_roster_find(engine, name);
    engine->background.watcher.held = family;
    pthread_mutex_unlock(&engine->roster.lock);
    return family;
}

void twi_watch_let_go(tw_engine *engine) {
    pthread_mutex_lock(&engine->roster.lock);
    struct tw_family *family = engine->background.watcher.held;
    engine->background.watcher.held = NULL;
    if (family != NULL && twi_load_relaxed(&family->requests.close_requested)) twi_agenda_notify(family);
    pthread_mutex_unlock(&engine->roster.lock);
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
