/* stats.c -- see stats.h. The format is OpenMetrics 1.0: base units, a unit is the end of the name, counters end in
 * _total.
 * Always true: each metric is one piece of text, given to `write` once, with its TYPE, UNIT (if any) and HELP
 * before its sample.
 *
 *   field             name                              sample
 *   increments        tallywheel_increments             tallywheel_increments_total 5
 *   memory_bytes_high tallywheel_memory_high_bytes      tallywheel_memory_high_bytes 65536
 *   clock_held_ms     tallywheel_clock_held_seconds     tallywheel_clock_held_seconds 1.250 */
#include "engine/stats.h"

#include <inttypes.h>
#include <stdio.h>

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

tw_status twi_stats_write(const tw_stats *stats, bool (*write)(void *ctx, const char *text, size_t size), void *ctx) {
    enum { gauge = false, counter = true };
#define METRIC(name, kind, text) {#name, text, kind, strcmp(#name, "sync_age_ms") == 0, stats->name},
    const struct metric metrics[] = {TW_STATS(METRIC)};
#undef METRIC
    char text[METRIC_BYTES_MAX];
    for (size_t index = 0; index < sizeof metrics / sizeof *metrics; index++) {
        size_t size = format_metric(&metrics[index], text, sizeof text);
        if (!write(ctx, text, size)) return TW_DENIED;
    }
    int size = snprintf(text, sizeof text,
                        "# TYPE " PREFIX "build info\n# HELP " PREFIX "build the library that is running\n" PREFIX
                        "build_info{version=\"%s\"} 1\n# EOF\n",
                        tw_version());
    return write(ctx, text, (size_t)size) ? TW_OK : TW_DENIED;
}
