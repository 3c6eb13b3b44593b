/* stats.c -- see stats.h. Values are in base units. A name ends with its unit, and the name of a counter ends with
 * _total. The text formats of Prometheus and of OpenMetrics 1.0 differ little. OpenMetrics describes a counter without
 * its _total, has a UNIT line, and has a type for constant values. The Prometheus format has no UNIT line, and writes
 * `info` as a gauge.
 * Always true: each sample is one piece of text, which is passed to `write` once. For a histogram this piece has all
 * samples of a family. TYPE, UNIT (if the format has it) and HELP come before the first sample of a metric. All samples
 * of a metric are together. Family names need no escapes (options.c).
 *
 *   field             name                              sample
 *   increments        tallywheel_increments             tallywheel_increments_total 5
 *   memory_bytes_high tallywheel_memory_high_bytes      tallywheel_memory_high_bytes 65536
 *   clock_held_ms     tallywheel_clock_held_seconds     tallywheel_clock_held_seconds 1.250
 *   of a family       tallywheel_family_limit_near      tallywheel_family_limit_near_total{family="login"} 7 */
#include "engine/stats.h"

#include "engine/base/grow.h"
#include "engine/base/threads.h"
#include "engine/core/agenda.h"
#include "engine/core/metric_labels.h"
#include "engine/core/processes.h"
#include "engine/core/report.h"
#include "engine/core/roster.h"
#include "engine/core/state.h"
#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/port/services.h"
#include "engine/port/extras.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A program that was built with an older header reads every field at the offset of that header. */
static_assert(offsetof(tw_stats, last_error) == TW_STATS_ROOM * sizeof(int64_t), "a new figure moves no other field");
static_assert(sizeof(tw_stats) == TW_STATS_ROOM * sizeof(int64_t) + 128, "nor does it make the struct longer");
static_assert(offsetof(tw_stats, increments) == 0, "figures begin the struct");
static_assert(offsetof(tw_stats, audit_findings) == 68 * sizeof(int64_t), "figures are appended, and none goes");

#define PREFIX "tallywheel_"

struct metric {
    const char *field, *text;
    bool is_counter;
    bool has_none; /* -1 means that there is no value yet, and is no duration */
    int64_t value;
};

enum unit { UNIT_NONE, UNIT_SECONDS, UNIT_BYTES, UNIT_RATIO };

static const char *const unit_names[] = {"", "seconds", "bytes", "ratio"};

/* Copies the name of the field without its unit, and returns the unit. */
static enum unit split_name(const char *field, char name[64]) {
    size_t size = strlen(field);
    const char *bytes = strstr(field, "_bytes");
    if (bytes != NULL) {
        snprintf(name, 64, "%.*s%s", (int)(bytes - field), field, bytes + strlen("_bytes"));
        return UNIT_BYTES;
    }
    const char *ms = strstr(field, "_ms_max");
    if (ms == NULL && size > 3 && strcmp(field + size - 3, "_ms") == 0) ms = field + size - 3;
    if (ms != NULL) {
        snprintf(name, 64, "%.*s%s", (int)(ms - field), field, ms + strlen("_ms"));
        return UNIT_SECONDS;
    }
    snprintf(name, 64, "%s", field);
    return UNIT_NONE;
}

static void format_value(const struct metric *metric, enum unit unit, char value[32]) {
    if (unit != UNIT_SECONDS || (metric->has_none && metric->value == -1)) {
        snprintf(value, 32, "%" PRId64, metric->value);
        return;
    }
    uint64_t size = metric->value < 0 ? -(uint64_t)metric->value : (uint64_t)metric->value;
    snprintf(value, 32, "%s%" PRIu64 ".%03u", metric->value < 0 ? "-" : "", size / 1000, (unsigned)(size % 1000));
}

/* ---- a page of pieces of text ---- */

#define DESCRIPTION_BYTES 400
#define LABELS_ROOM (TWI_LABELS_BYTES_MAX + 140) /* includes the braces, and the labels that are added here */
#define PIECE_BYTES (DESCRIPTION_BYTES + 200 + LABELS_ROOM)

struct output {
    const struct twi_metrics_page *page;
    bool ended; /* `write` has returned false */
};

static void put(struct output *output, const char *text, int size) {
    twi_check(size >= 0);
    output->ended = output->ended || !output->page->write(output->page->ctx, text, (size_t)size);
}

enum kind { GAUGE, COUNTER, HISTOGRAM, INFO };

/* `name` has no prefix, and not the suffix of its samples. */
static void describe(const struct output *output, enum kind kind, const char *name, enum unit unit, const char *help,
                     char text[DESCRIPTION_BYTES]) {
    bool is_open = output->page->is_open;
    static const char *const types[] = {"gauge", "counter", "histogram", "info"};
    const char *type = kind == INFO && !is_open ? "gauge" : types[kind];
    const char *suffix = is_open ? "" : kind == COUNTER ? "_total" : kind == INFO ? "_info" : "";
    char unit_line[120] = "";
    if (is_open && unit != UNIT_NONE)
        (void)snprintf(unit_line, sizeof unit_line, "# UNIT " PREFIX "%s %s\n", name, unit_names[unit]);
    (void)snprintf(text, DESCRIPTION_BYTES, "# TYPE " PREFIX "%s%s %s\n%s# HELP " PREFIX "%s%s %s\n", name, suffix,
                   type, unit_line, name, suffix, help);
}

/* Writes "{own,labels}", or no text if both are empty. `own` may be empty. */
static void enclose(const struct output *output, const char *own, char text[LABELS_ROOM]) {
    const char *labels = output->page->labels != NULL ? output->page->labels : "";
    bool both = *own != '\0' && *labels != '\0', any = *own != '\0' || *labels != '\0';
    (void)snprintf(text, LABELS_ROOM, "%s%s%s%s%s", any ? "{" : "", own, both ? "," : "", labels, any ? "}" : "");
}

/* Writes a metric with one sample. */
static void put_metric(struct output *output, enum kind kind, const char *name, enum unit unit, const char *help,
                       const char *own, const char *value) {
    static const char *const suffixes[] = {"", "_total", "", "_info"};
    char head[DESCRIPTION_BYTES], labels[LABELS_ROOM], text[PIECE_BYTES];
    describe(output, kind, name, unit, help, head);
    enclose(output, own, labels);
    put(output, text,
        snprintf(text, sizeof text, "%s" PREFIX "%s%s%s %s\n", head, name, suffixes[kind], labels, value));
}

/* ---- a metric, then its sample for each family ---- */

struct figure {
    const char *name, *text;
    size_t offset; /* in twi_limit_stats */
};

static int64_t value_of(const struct twi_family_limit_stats *family, const struct figure *figure) {
    int64_t value;
    memcpy(&value, (const unsigned char *)&family->limits + figure->offset, sizeof value);
    return value;
}

static void label_family(const struct output *output, const struct twi_family_limit_stats *family, const char *more,
                         char text[LABELS_ROOM]) {
    char own[120];
    (void)snprintf(own, sizeof own, "family=\"%s\"%s", family->name, more);
    enclose(output, own, text);
}

/* Each cause has its samples from the beginning, so that a rate sees the first denial. */
static void put_denied(struct output *output, const struct twi_family_limit_stats *families, size_t count) {
    static const char name[] = "family_limit_denied";
    char text[PIECE_BYTES], head[DESCRIPTION_BYTES], labels[LABELS_ROOM], label[32];
    describe(output, COUNTER, name, UNIT_NONE, "calls that a limit of this family did not admit, also in shadow mode",
             head);
    for (size_t i = 0; i < count * TWI_CAUSES && !output->ended; i++) {
        const struct twi_family_limit_stats *family = &families[i / TWI_CAUSES];
        (void)snprintf(label, sizeof label, ",cause=\"%s\"", twi_cause_words[i % TWI_CAUSES]);
        label_family(output, family, label, labels);
        put(output, text,
            snprintf(text, sizeof text, "%s" PREFIX "%s_total%s %" PRId64 "\n", i == 0 ? head : "", name, labels,
                     family->limits.denied[i % TWI_CAUSES]));
    }
}

static void put_figure(struct output *output, const struct figure *figure,
                       const struct twi_family_limit_stats *families, size_t count) {
    char text[PIECE_BYTES], head[DESCRIPTION_BYTES], labels[LABELS_ROOM];
    describe(output, COUNTER, figure->name, UNIT_NONE, figure->text, head);
    for (size_t i = 0; i < count && !output->ended; i++) {
        label_family(output, &families[i], "", labels);
        put(output, text,
            snprintf(text, sizeof text, "%s" PREFIX "%s_total%s %" PRId64 "\n", i == 0 ? head : "", figure->name,
                     labels, value_of(&families[i], figure)));
    }
}

#define RATIO "family_limit_overshoot_ratio"

static void put_histogram(struct output *output, const struct twi_family_limit_stats *family, const char *head) {
    char text[DESCRIPTION_BYTES + (TWI_OVERSHOOT_BUCKETS + 2) * (LABELS_ROOM + 100)];
    char labels[LABELS_ROOM], le[24];
    size_t size = (size_t)snprintf(text, sizeof text, "%s", head);
    int64_t count = 0;
    for (uint32_t i = 0; i < TWI_OVERSHOOT_BUCKETS; i++) {
        count += family->limits.overshoots[i];
        (void)snprintf(le, sizeof le, ",le=\"%s\"", twi_overshoot_bounds[i]);
        label_family(output, family, le, labels);
        size +=
            (size_t)snprintf(text + size, sizeof text - size, PREFIX RATIO "_bucket%s %" PRId64 "\n", labels, count);
    }
    int64_t ppm = family->limits.overshoot_ppm;
    label_family(output, family, "", labels);
    size += (size_t)snprintf(text + size, sizeof text - size, PREFIX RATIO "_count%s %" PRId64 "\n", labels, count);
    size += (size_t)snprintf(text + size, sizeof text - size, PREFIX RATIO "_sum%s %" PRId64 ".%06" PRId64 "\n", labels,
                             ppm / 1000000, ppm % 1000000);
    put(output, text, (int)size);
}

static void put_histograms(struct output *output, const struct twi_family_limit_stats *families, size_t count) {
    char head[DESCRIPTION_BYTES];
    describe(output, HISTOGRAM, RATIO, UNIT_RATIO,
             "by what part of the limit counters exceeded it at the end of their window", head);
    for (size_t i = 0; i < count && !output->ended; i++) {
        if (!families[i].is_measured) continue;
        put_histogram(output, &families[i], head);
        head[0] = '\0';
    }
}

static void put_families(struct output *output, const struct twi_family_limit_stats *families, size_t count) {
#define FIGURE(name, text) \
    { "family_limit_" #name, text, offsetof(struct twi_limit_stats, name) }
    static const struct figure figures[] = {
        FIGURE(admitted, "calls that a limit of this family admitted"),
        FIGURE(near, "calls that were admitted and left a fifth of the limit, or less"),
        FIGURE(uncounted, "calls that were admitted without a count, because the table was full"),
        FIGURE(shadow_denied, "calls let through that a limit would not have admitted (shadow)"),
    };
#undef FIGURE
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) put_figure(output, &figures[i], families, count);
    put_denied(output, families, count);
    put_histograms(output, families, count);
}

/* ---- all ---- */

static void put_field(struct output *output, const struct metric *metric) {
    char plain[64], name[80], value[32];
    enum unit unit = split_name(metric->field, plain);
    (void)snprintf(name, sizeof name, "%s%s%s", plain, unit != UNIT_NONE ? "_" : "", unit_names[unit]);
    format_value(metric, unit, value);
    put_metric(output, metric->is_counter ? COUNTER : GAUGE, name, unit, metric->text, "", value);
}

static void put_engine(struct output *output, const tw_stats *stats) {
    enum { gauge = false, counter = true };
#define METRIC(name, kind, text) {#name, text, kind, strstr(#name, "_age_ms") != NULL, stats->name},
    const struct metric metrics[] = {TW_STATS(METRIC)};
#undef METRIC
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics && !output->ended; i++) put_field(output, &metrics[i]);
}

bool twi_metrics_page_of(uint32_t format, struct twi_metrics_page *page) {
    twi_check(page != NULL);
    page->is_open = (format & ~(uint32_t)TW_METRICS_NO_EOF) == TW_METRICS_OPENMETRICS;
    page->has_end = format == TW_METRICS_OPENMETRICS;
    return page->is_open || format == TW_METRICS_PROMETHEUS;
}

tw_status twi_stats_write(const tw_stats *stats, const struct twi_family_limit_stats *families, size_t count,
                          const struct twi_metrics_page *page) {
    struct output output = {page, false};
    char version[40];
    (void)snprintf(version, sizeof version, "version=\"%s\"", tw_version());
    put_engine(&output, stats);
    put_families(&output, families, count);
    if (!output.ended) put_metric(&output, INFO, "build", UNIT_NONE, "the library that is running", version, "1");
    if (!output.ended && page->has_end) put(&output, "# EOF\n", 6);
    return output.ended ? TW_DENIED : TW_OK;
}

/* ---- figures ----
 * tw_stats_read() and tw_metrics_write(): the figures of an engine.
 * Always true: each figure is read once, without stopping any thread that counts. */

static void gather_windows(struct twi_roster *roster, tw_stats *stats) {
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return;
    twi_section_enter(self); /* keeps their windows */
    for (struct tw_family *family = twi_load_acquire(&roster->first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_window_count(family, &stats->generations, &stats->entries);
    twi_section_leave(self);
}

/* The statistics by family, and the sums that the engine has kept of closed families. The lock keeps other families
 * from closing meanwhile. */
static void gather_families(tw_engine *engine, tw_stats *stats) {
    int64_t *fields = (int64_t *)stats;
    twi_lock(&engine->roster.lock); /* families stay */
    for (size_t i = 0; i < offsetof(tw_stats, last_error) / sizeof(int64_t); i++)
        fields[i] = twi_load_relaxed(&engine->report.stats[i]);
    twi_limit_stats_read(engine, stats);
    gather_windows(&engine->roster, stats);
    twi_unlock(&engine->roster.lock);
}

static void gather_all(tw_engine *engine, tw_stats *stats) {
    (void)twi_thread_here(); /* a forked child must not show its parent's statistics */
    memset(stats, 0, sizeof *stats);
    gather_families(engine, stats);
    for (uint32_t i = 0; i < TWI_SHARDS; i++) stats->increments += twi_load_relaxed(&engine->shards[i].increments);
    stats->memory_bytes = twi_arena_bytes_used(&engine->arena);
    struct twi_arena_usage room = twi_arena_usage(&engine->arena);
    stats->memory_free_bytes = room.free_bytes;
    stats->memory_usable_bytes = room.usable_bytes;
    stats->memory_bytes_high = twi_arena_bytes_high(&engine->arena);
    stats->memory_bytes_max = (int64_t)engine->arena.bytes_max;
    stats->clock_held_ms = twi_clock_held_ms(&engine->clock);
    stats->clock_lag_max_ms = twi_clock_lag_max_ms(&engine->clock);
    stats->clock_ahead_ms = -twi_clock_drift_ms(&engine->clock);
    stats->processes = engine->life.is_shared ? twi_processes_count(engine) : 1;
    stats->leader_age_ms = twi_leader_age_ms(engine);
    stats->redis_configured = engine->life.has_redis;
    if (engine->here->remote.sync != NULL) engine->here->remote.driver->stats(engine->here->remote.sync, stats);
    twi_report_error_text(&engine->report, stats->last_error);
}

tw_status tw_stats_read_sized(tw_engine *engine, tw_stats *stats, size_t size) {
    tw_stats whole;
    TWI_NEED(engine);
    TWI_NEED(stats);
    if (!twi_epoch_look_at_users()) return twi_refuse_for(TWI_WHY_ROOT);
    gather_all(engine, &whole);
    twi_sized_copy(stats, size, &whole, sizeof whole);
    return TW_OK;
}

tw_status tw_metrics_write(tw_engine *engine, uint32_t format, bool (*write)(void *ctx, const char *text, size_t size),
                           void *ctx) {
    TWI_NEED(engine);
    TWI_NEED(write);
    struct twi_metrics_page page = {.labels = engine->options.metrics_labels, .write = write, .ctx = ctx};
    if (!twi_metrics_page_of(format, &page))
        return twi_refuse_with(TW_ERR_OPTIONS, "format: %u is no TW_METRICS_ value", format);
    tw_stats stats;
    struct twi_family_limit_stats *families;
    size_t count;
    tw_status status = tw_stats_read(engine, &stats);
    if (status != TW_OK) return status;
    if (!twi_limit_stats_list(engine, &families, &count)) return twi_refuse(TW_ERR_MEMORY, NULL);
    status = twi_stats_write(&stats, families, count, &page);
    free(families);
    return status;
}

/* ---- watch ----
 * The life of the watch socket (engine/port/extras.h), and the values that only the engine can report
 * to it. Always true: a family that is watched is not freed. The turn sees `held` under the roster's lock (rollover.c),
 * and looks again when it is let go. */

#define PIECE_FAMILIES 64u /* under the lock at once, which takes less than a tenth of a millisecond */
#define REST_NS 100000     /* the pause between two pieces, so that a thread that waits for the lock gets it */

/* ---- its life ---- */

static struct tw_watch *watch_begin(tw_engine *engine, char *why, size_t why_size) {
    const tw_options *options = &engine->options;
    return twi_watch_find()->open(engine, options->watch_path, options->watch_writes != 0, why, why_size);
}

void twi_watcher_start(tw_engine *engine) {
    char why[300];
    if (engine->options.watch_path == NULL) return;
    engine->here->watcher.watch = watch_begin(engine, why, sizeof why);
    if (engine->here->watcher.watch == NULL)
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_START, "no watch socket (watch_path): %s", why);
}

void twi_watcher_stop(tw_engine *engine) {
    struct tw_watch *watch = engine->here->watcher.watch;
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
        watcher->watch = watch_begin(engine, why, sizeof why);
}

/* ---- families ---- */

/* Inside a section. */
static void watch_describe(struct tw_family *family, int64_t now_ms, struct twi_watch_family *out) {
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
        if (!twi_load_relaxed(&family->requests.close_requested))
            watch_describe(family, now_ms, &list->all[list->count++]);
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

bool twi_watch_describe(tw_family *family, struct twi_watch_family *out) {
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return false;
    int64_t now_ms = twi_watch_now_ms(family->engine);
    twi_section_enter(self);
    watch_describe(family, now_ms, out);
    twi_section_leave(self);
    return true;
}

bool twi_watch_has_leases(const tw_family *family) {
    return family->options.limit_mode == TW_LIMIT_HARD && family->kind.synced;
}

tw_engine *twi_watch_engine(const tw_family *family) {
    return family->engine;
}

const char *twi_watch_name(const tw_family *family) {
    return family->options.name;
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
