/* stats.c -- see stats.h. The format is OpenMetrics 1.0: base units, a unit is the end of the name, counters end in
 * _total.
 * Always true: each sample (of a histogram: all of a family) is one piece of text, given to `write` once; before the first of a metric stand its TYPE, UNIT (if
 * any) and HELP; all samples of a metric stand together. Names of families need no escapes (options.c).
 *
 *   field             name                              sample
 *   increments        tallywheel_increments             tallywheel_increments_total 5
 *   memory_bytes_high tallywheel_memory_high_bytes      tallywheel_memory_high_bytes 65536
 *   clock_held_ms     tallywheel_clock_held_seconds     tallywheel_clock_held_seconds 1.250
 *   of a family       tallywheel_family_limit_near      tallywheel_family_limit_near_total{family="login"} 7 */
#include "engine/stats.h"

#include "engine/overshoot.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* A program that was built with an older header reads every field where that header had it. */
static_assert(offsetof(tw_stats, last_error) == TW_STATS_ROOM * sizeof(int64_t), "a new figure moves no other field");
static_assert(sizeof(tw_stats) == TW_STATS_ROOM * sizeof(int64_t) + 128, "nor does it make the struct longer");
static_assert(offsetof(tw_stats, increments) == 0, "figures begin the struct");
static_assert(offsetof(tw_stats, audit_findings) == 68 * sizeof(int64_t), "figures are appended, and none goes");

#define PREFIX "tallywheel_"
#define METRIC_BYTES_MAX 1024 /* four lines of at most 11 + 40 + 100 bytes */

struct metric {
    const char *field, *text;
    bool is_counter;
    bool has_none; /* -1 means "none yet", and is no duration */
    int64_t value;
};

enum unit { UNIT_NONE, UNIT_SECONDS, UNIT_BYTES };

static const char *const unit_names[] = {"", "seconds", "bytes"};

/* Copies the field's name without its unit; returns the unit. */
static enum unit split_name(const char *field, char name[64]) {
    size_t size = strlen(field);
    const char *bytes = strstr(field, "_bytes");
    if (bytes != NULL) {
        snprintf(name, 64, "%.*s%s", (int)(bytes - field), field, bytes + strlen("_bytes"));
        return UNIT_BYTES;
    }
    if (size > 3 && strcmp(field + size - 3, "_ms") == 0) {
        snprintf(name, 64, "%.*s", (int)(size - 3), field);
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

static size_t format_metric(const struct metric *metric, char *out, size_t out_size) {
    char plain[64], name[80], value[32], unit_line[200] = "";
    enum unit unit = split_name(metric->field, plain);
    snprintf(name, sizeof name, "%s%s%s", plain, unit != UNIT_NONE ? "_" : "", unit_names[unit]);
    if (unit != UNIT_NONE) snprintf(unit_line, sizeof unit_line, "# UNIT " PREFIX "%s %s\n", name, unit_names[unit]);
    format_value(metric, unit, value);
    int size = snprintf(out, out_size, "# TYPE " PREFIX "%s %s\n%s# HELP " PREFIX "%s %s\n" PREFIX "%s%s %s\n", name,
                        metric->is_counter ? "counter" : "gauge", unit_line, name, metric->text, name,
                        metric->is_counter ? "_total" : "", value);
    return (size_t)size < out_size ? (size_t)size : out_size - 1;
}

/* ---- by family: a metric, then its sample for each of them ---- */

struct output {
    bool (*write)(void *ctx, const char *text, size_t size);
    void *ctx;
    bool ended; /* it has answered false */
};

static void put(struct output *output, const char *text, int size) {
    output->ended = output->ended || !output->write(output->ctx, text, (size_t)size);
}

struct figure {
    const char *name, *text;
    size_t offset; /* in twi_limit_figures */
};

static int64_t value_of(const struct twi_family_figures *family, const struct figure *figure) {
    int64_t value;
    memcpy(&value, (const unsigned char *)&family->limits + figure->offset, sizeof value);
    return value;
}

static void put_figure(struct output *output, const struct figure *figure, const struct twi_family_figures *families,
                       size_t count) {
    char text[METRIC_BYTES_MAX], head[METRIC_BYTES_MAX / 2];
    snprintf(head, sizeof head, "# TYPE " PREFIX "family_%s counter\n# HELP " PREFIX "family_%s %s\n", figure->name,
             figure->name, figure->text);
    for (size_t i = 0; i < count && !output->ended; i++)
        put(output, text,
            snprintf(text, sizeof text, "%s" PREFIX "family_%s_total{family=\"%s\"} %" PRId64 "\n", i == 0 ? head : "",
                     figure->name, families[i].name, value_of(&families[i], figure)));
}

#define RATIO PREFIX "family_limit_overshoot_ratio"

static void put_histogram(struct output *output, const struct twi_family_figures *family, const char *head) {
    char text[4 * METRIC_BYTES_MAX];
    size_t size = (size_t)snprintf(text, sizeof text, "%s", head);
    int64_t count = 0;
    for (uint32_t i = 0; i < TWI_OVERSHOOT_BUCKETS; i++) {
        count += family->limits.overshoots[i];
        size +=
            (size_t)snprintf(text + size, sizeof text - size, RATIO "_bucket{family=\"%s\",le=\"%s\"} %" PRId64 "\n",
                             family->name, twi_overshoot_bounds[i], count);
    }
    int64_t ppm = family->limits.overshoot_ppm;
    size += (size_t)snprintf(text + size, sizeof text - size, RATIO "_count{family=\"%s\"} %" PRId64 "\n", family->name,
                             count);
    size += (size_t)snprintf(text + size, sizeof text - size, RATIO "_sum{family=\"%s\"} %" PRId64 ".%06" PRId64 "\n",
                             family->name, ppm / 1000000, ppm % 1000000);
    put(output, text, (int)size);
}

static void put_histograms(struct output *output, const struct twi_family_figures *families, size_t count) {
    const char *head = "# TYPE " RATIO " histogram\n# UNIT " RATIO " ratio\n# HELP " RATIO
                       " by what part of their limit counters were above it when their window was over\n";
    for (size_t i = 0; i < count && !output->ended; i++) {
        if (!families[i].is_measured) continue;
        put_histogram(output, &families[i], head);
        head = "";
    }
}

static void put_families(struct output *output, const struct twi_family_figures *families, size_t count) {
#define FIGURE(name, text) \
    { "limit_" #name, text, offsetof(struct twi_limit_figures, name) }
    static const struct figure figures[] = {
        FIGURE(admitted, "calls that a limit of this family admitted"),
        FIGURE(denied, "calls over a limit of this family; those in the shadow, too"),
        FIGURE(near, "calls that were admitted and left a fifth of the limit, or less"),
        FIGURE(shadow_denied, "calls let through that a limit would not have admitted (shadow)"),
    };
#undef FIGURE
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) put_figure(output, &figures[i], families, count);
    put_histograms(output, families, count);
}

/* ---- all ---- */

static void put_engine(struct output *output, const tw_stats *stats) {
    enum { gauge = false, counter = true };
#define METRIC(name, kind, text) {#name, text, kind, strcmp(#name, "sync_age_ms") == 0, stats->name},
    const struct metric metrics[] = {TW_STATS(METRIC)};
#undef METRIC
    char text[METRIC_BYTES_MAX];
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics && !output->ended; i++)
        put(output, text, (int)format_metric(&metrics[i], text, sizeof text));
}

static void put_end(struct output *output) {
    char text[METRIC_BYTES_MAX];
    int size = snprintf(text, sizeof text,
                        "# TYPE " PREFIX "build info\n# HELP " PREFIX "build the library that is running\n" PREFIX
                        "build_info{version=\"%s\"} 1\n# EOF\n",
                        tw_version());
    put(output, text, size);
}

tw_status twi_stats_write(const tw_stats *stats, const struct twi_family_figures *families, size_t count,
                          bool (*write)(void *ctx, const char *text, size_t size), void *ctx) {
    struct output output = {write, ctx, false};
    put_engine(&output, stats);
    put_families(&output, families, count);
    if (!output.ended) put_end(&output);
    return output.ended ? TW_DENIED : TW_OK;
}
