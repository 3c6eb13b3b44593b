/* report.c -- see report.h. */
#include "engine/core/report.h"

#include "engine/base/threads.h"
#include "engine/base/probe.h"
#include "engine/core/host.h"

#include <stdarg.h>
#include <stdio.h>

void twi_report_begin(struct twi_report *report, bool is_shared) {
    memset((void *)report, 0, sizeof *report);
    twi_lock_make(&report->lock, is_shared);
    twi_store_relaxed(&report->stats[offsetof(tw_stats, sync_age_ms) / sizeof(int64_t)], -1);
}
void twi_report_end(struct twi_report *report) {
    pthread_mutex_destroy(&report->lock);
}

static const char *remedy_of(int event) {
    switch (event) {
#define REMEDY(name, remedy) \
    case TW_EVENT_##name: return remedy;
        TWI_LOG_EVENTS(REMEDY)
#undef REMEDY
    default: return "";
    }
}

#define LINE_EVERY_MS 1000
#define TEXT_BYTES 512
#define LINE_BYTES (TEXT_BYTES + 200) /* with the lines left out, the event and its remedy */

/* "the text (3 more like this left out) [TW-E012: the remedy]"; a line that only informs needs no remedy. */
static void end_line(char line[LINE_BYTES], int level, int event, uint32_t left_out) {
    twi_check(strlen(line) < TEXT_BYTES);
    size_t used = strlen(line);
    if (left_out != 0)
        used += (size_t)snprintf(line + used, LINE_BYTES - used, " (%u more like this left out)", left_out);
    bool needs_help = level <= TW_LOG_WARNING;
    (void)snprintf(line + used, LINE_BYTES - used, " [TW-E%03d%s%s]", event, needs_help ? ": " : "",
                   needs_help ? remedy_of(event) : "");
}

/* Returns false if the line is left out. Otherwise *left_out is how many of the same event were left out before it. A
 * process of a shared engine that does not lead may log at its end, while the leader logs. */
static bool is_written(tw_engine *engine, int level, int event, uint32_t *left_out) {
    struct twi_report *report = &engine->report;
    uint32_t slot = (uint32_t)event % TWI_REPORT_EVENTS;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    /* Each finding of the start is logged once, and several come together. Each audit is one line, and audits lie
     * apart by their interval. */
    bool is_rare = event == TW_EVENT_START || event == TW_EVENT_AUDIT;
    twi_lock(&report->lock);
    int64_t rested_ms = report->rested_ms[slot] > now_ms ? report->rested_ms[slot] : now_ms;
    bool written = is_rare || rested_ms - now_ms <= (TWI_REPORT_AT_ONCE - 1) * LINE_EVERY_MS;
    *left_out = report->left_out[slot];
    if (written) {
        report->rested_ms[slot] = rested_ms + LINE_EVERY_MS;
        report->left_out[slot] = 0;
    } else {
        if (*left_out == 0 || level < report->left_out_level[slot]) report->left_out_level[slot] = (uint8_t)level;
        report->left_out[slot] = *left_out + 1;
        twi_store_relaxed(&report->has_left_out, true);
    }
    twi_unlock(&report->lock);
    return written;
}

static void write_line(tw_engine *engine, int level, int event, char *text, uint32_t left_out) {
    twi_port_printable(text);
    end_line(text, level, event, left_out);
    TWI_PROBE3(log, level, event, text);
    twi_host_log(engine, level, event, text);
}

void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...) {
    twi_check(level <= TW_LOG_DEBUG && event > 0);
    uint32_t left_out;
    if (engine->options.log_write == NULL || !is_written(engine, level, event, &left_out)) return;
    char text[LINE_BYTES] = "";
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, TEXT_BYTES, format, arguments);
    va_end(arguments);
    write_line(engine, level, event, text, left_out);
}

/* Takes the number of lines that were left out, if no line of the event will have it soon. */
static uint32_t take_left_out(tw_engine *engine, uint32_t event, bool is_end, int *level) {
    struct twi_report *report = &engine->report;
    twi_lock(&report->lock);
    bool is_over = is_end || twi_clock_mono_ms(&engine->clock) >= report->rested_ms[event];
    uint32_t left_out = report->left_out[event];
    *level = report->left_out_level[event];
    if (is_over)
        report->left_out[event] = 0;
    else if (left_out != 0)
        twi_store_relaxed(&report->has_left_out, true); /* a later turn looks again */
    twi_unlock(&report->lock);
    return is_over ? left_out : 0;
}

void twi_report_turn(tw_engine *engine, bool is_end) {
    char text[LINE_BYTES];
    if (!twi_load_relaxed(&engine->report.has_left_out)) return;
    twi_store_relaxed(&engine->report.has_left_out, false); /* a line that is left out from here on sets it again */
    for (uint32_t event = 0; event < TWI_REPORT_EVENTS; event++) {
        int level;
        uint32_t left_out = take_left_out(engine, event, is_end, &level);
        if (left_out == 0) continue;
        (void)snprintf(text, sizeof text, "%u lines like the last of this kind were left out", left_out);
        write_line(engine, level, (int)event, text, 0);
    }
}

void twi_stat_add(tw_engine *engine, size_t offset, int64_t n) {
    twi_check(offset % sizeof(int64_t) == 0 && offset < offsetof(tw_stats, last_error));
    (void)twi_add_relaxed(&engine->report.stats[offset / sizeof(int64_t)], n);
}
void twi_stat_set(tw_engine *engine, size_t offset, int64_t value) {
    twi_check(offset % sizeof(int64_t) == 0 && offset < offsetof(tw_stats, last_error));
    twi_store_relaxed(&engine->report.stats[offset / sizeof(int64_t)], value);
}
void twi_stat_raise(tw_engine *engine, size_t offset, int64_t value) {
    twi_check(offset % sizeof(int64_t) == 0 && offset < offsetof(tw_stats, last_error));
    _Atomic int64_t *stat = &engine->report.stats[offset / sizeof(int64_t)];
    int64_t known = twi_load_relaxed(stat);
    while (known < value && !twi_cas_relaxed(stat, &known, value)) {}
}

void twi_port_last_error(tw_engine *engine, const char *text) {
    twi_check(text != NULL);
    twi_lock(&engine->report.lock);
    (void)snprintf(engine->report.last_error, sizeof engine->report.last_error, "%s", text);
    twi_port_printable(engine->report.last_error);
    engine->report.last_error_ms = twi_clock_mono_ms(&engine->clock);
    twi_unlock(&engine->report.lock);
}

void twi_port_error_over(tw_engine *engine, const char *text) {
    twi_check(text != NULL);
    struct twi_report *report = &engine->report;
    char over[sizeof report->last_error];
    (void)snprintf(over, sizeof over, "%s", text);
    twi_port_printable(over);
    twi_lock(&report->lock);
    if (strcmp(report->last_error, over) == 0) report->last_error[0] = '\0';
    twi_unlock(&report->lock);
}

void twi_report_error_text(struct twi_report *report, char out[TWI_REPORT_ERROR_MAX]) {
    twi_lock(&report->lock);
    memcpy(out, report->last_error, sizeof report->last_error);
    twi_unlock(&report->lock);
}
