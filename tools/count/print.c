/* print.c -- windows and their rows as text. See print.h. */
#include "tools/count/print.h"

#include <stdio.h>
#include <time.h>

#include "tools/common/moment.h"
#include "tools/common/foreign.h"
#include "tools/common/page.h"
#include "tools/count/windows.h"

/* ---- tsv, csv and json ---- */

static void window_name(const struct print *print, int64_t start_ms, char stamp[MOMENT_TEXT_SIZE]) {
    if (print->window_ms != WINDOWS_ALL) {
        moment_text(start_ms, stamp);
    } else {
        memcpy(stamp, "all", sizeof "all");
    }
}

static void window_values(struct print *print, int64_t start_ms, const struct rows *rows) {
    char stamp[MOMENT_TEXT_SIZE];
    window_name(print, start_ms, stamp);
    size_t stamp_size = strlen(stamp);
    bool is_csv = print->form == PRINT_CSV;
    char between = is_csv ? ',' : '\t';
    for (size_t i = 0; i < rows->count; i++) {
        sink_bytes(print->sink, stamp, stamp_size);
        sink_byte(print->sink, between);
        if (is_csv) {
            foreign_csv(print->sink, rows->row[i].key, rows->row[i].key_size);
        } else {
            foreign_line(print->sink, rows->row[i].key, rows->row[i].key_size);
        }
        sink_byte(print->sink, between);
        sink_number(print->sink, rows->row[i].count);
        if (print->sums) {
            sink_byte(print->sink, between);
            sink_number(print->sink, rows->row[i].sum);
        }
        sink_byte(print->sink, '\n');
    }
}

static void window_json(struct print *print, int64_t start_ms, const struct rows *rows) {
    char stamp[MOMENT_TEXT_SIZE];
    window_name(print, start_ms, stamp);
    if (!print->stream) sink_text(print->sink, print->windows == 0 ? "\n" : ",\n");
    sink_text(print->sink, "{\"window\":\"");
    sink_text(print->sink, stamp);
    sink_text(print->sink, "\",\"counts\":[");
    for (size_t i = 0; i < rows->count; i++) {
        if (i > 0) sink_byte(print->sink, ',');
        sink_byte(print->sink, '{');
        foreign_json_key(print->sink, rows->row[i].key, rows->row[i].key_size);
        sink_text(print->sink, ",\"count\":");
        sink_number(print->sink, rows->row[i].count);
        if (print->sums) {
            sink_text(print->sink, ",\"sum\":");
            sink_number(print->sink, rows->row[i].sum);
        }
        sink_byte(print->sink, '}');
    }
    sink_text(print->sink, print->stream ? "]}\n" : "]}");
}

/* ---- table ---- */

#define COUNT_WIDTH 15 /* 999,999,999,999 */
#define SUM_WIDTH 19
#define BAR_WIDTH 20
#define KEY_WIDTH_LEAST 16    /* of a key that is cut */
#define BAR_TERMINAL_WIDTH 70 /* a narrower one has its columns for the keys */

static bool has_bars(const struct print *print) {
    return print->width >= BAR_TERMINAL_WIDTH;
}

/* A bar in eighths of a column, padded to its full width. */
static void bar_show(const struct print *print, int64_t count, int64_t greatest) {
    struct sink *sink = print->sink;
    size_t eighths = 0, columns = 0;
    if (greatest > 0 && count > 0) eighths = (size_t)((double)count / (double)greatest * BAR_WIDTH * 8 + 0.5);
    if (count > 0 && eighths == 0) eighths = 1;
    if (print->bold) sink_text(sink, "\033[36m");
    for (; columns < eighths / 8; columns++) sink_text(sink, print->blocks ? "\xE2\x96\x88" : "#");
    if (eighths % 8 > 0 && print->blocks) { /* U+2589, seven eighths, to U+258F, one */
        const char part[3] = {'\xE2', '\x96', (char)(0x90 - eighths % 8)};
        sink_bytes(sink, part, sizeof part);
        columns++;
    } else if (eighths % 8 >= 4) {
        sink_byte(sink, '#');
        columns++;
    }
    if (print->bold) sink_text(sink, "\033[0m");
    sink_spaces(sink, BAR_WIDTH - columns + 2);
}

/* "Tue 2015-05-19 03:00", with seconds if windows do not begin at full minutes. */
static void heading_time(const struct print *print, int64_t unix_ms, char *text, size_t size) {
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    struct tm civil;
    moment_civil(unix_ms + print->utc_offset_ms, &civil);
    int used = snprintf(text, size, "%s %04d-%02d-%02d", days[civil.tm_wday % 7], civil.tm_year + 1900,
                        civil.tm_mon + 1, civil.tm_mday);
    if (print->window_ms % 86400000 == 0) return;
    bool seconds = print->window_ms % 60000 != 0;
    snprintf(text + used, size - (size_t)used, seconds ? " %02d:%02d:%02d" : " %02d:%02d", civil.tm_hour, civil.tm_min,
             civil.tm_sec);
}

static void offset_text(int64_t offset_ms, char *text, size_t size) {
    int64_t minutes = offset_ms / 60000, positive = minutes < 0 ? -minutes : minutes;
    if (minutes == 0) {
        snprintf(text, size, "UTC");
    } else {
        snprintf(text, size, "%c%02d:%02d", minutes < 0 ? '-' : '+', (int)(positive / 60), (int)(positive % 60));
    }
}

/* "1,234 counts of 56 keys" */
static void amounts(const struct print *print, struct sink *sink, int64_t sum, int64_t keys) {
    if (!print->distinct) sink_grouped(sink, sum, 0);
    if (!print->distinct) sink_text(sink, sum == 1 ? " count of " : " counts of ");
    sink_grouped(sink, keys, 0);
    sink_text(sink, keys == 1 ? " key" : " keys");
}

/* The time and the sum, in two lines if one is too narrow. */
static void heading_show(const struct print *print, int64_t start_ms, const struct rows *rows) {
    char when[64] = "All", offset[8];
    struct sink much, *sink = print->sink;
    if (!sink_open(&much, -1)) return;
    amounts(print, &much, rows->sum_all, (int64_t)rows->keys_all);
    if (print->sums) {
        sink_text(&much, ", sum ");
        sink_grouped(&much, rows->field_sum, 0);
    }
    if (print->window_ms != WINDOWS_ALL) {
        heading_time(print, start_ms, when, sizeof when);
        offset_text(print->utc_offset_ms, offset, sizeof offset);
        strcat(strcat(when, " "), offset);
    }
    if (print->bold) sink_text(sink, "\033[1m");
    sink_text(sink, when);
    if (print->bold) sink_text(sink, "\033[0m");
    bool is_narrow = print->width > 0 && strlen(when) + 2 + much.size > print->width;
    sink_text(sink, is_narrow ? "\n  " : "  ");
    sink_bytes(sink, much.buffer, much.size);
    sink_byte(sink, '\n');
    sink_close(&much);
}

/* The width of the counts. The widest count is the first, the last, or the rest. */
static size_t count_columns(const struct rows *rows, int64_t rest) {
    const int64_t counts[] = {rows->row[0].count, rows->row[rows->count - 1].count, rest};
    size_t widest = COUNT_WIDTH;
    for (size_t i = 0; i < 3; i++) {
        size_t columns = sink_grouped_size(counts[i]);
        if (columns > widest) widest = columns;
    }
    return widest;
}

/* The escaped key, cut to the columns that the terminal has left after the first `taken` ones. */
static void key_cut(const struct print *print, const struct row *row, size_t taken) {
    struct sink text;
    const char *ellipsis = print->blocks ? "\xE2\x80\xA6" : "...";
    size_t columns, room = print->width > taken + KEY_WIDTH_LEAST ? print->width - taken : KEY_WIDTH_LEAST;
    if (print->width == 0 || !sink_open(&text, -1)) {
        foreign_shown(print->sink, row->key, row->key_size);
        return;
    }
    foreign_shown(&text, row->key, row->key_size);
    size_t shown = page_fitting(text.buffer, text.size, room, &columns);
    bool is_cut = shown < text.size;
    if (is_cut) shown = page_fitting(text.buffer, text.size, room - page_columns(ellipsis, strlen(ellipsis)), &columns);
    sink_bytes(print->sink, text.buffer, shown);
    if (is_cut) sink_text(print->sink, ellipsis);
    sink_close(&text);
}

/* Prints what --top left out. */
static void rest_show(const struct print *print, const struct rows *rows, int64_t rest, size_t columns) {
    struct sink *sink = print->sink;
    size_t keys = rows->keys_all - rows->count;
    if (keys == 0) return;
    if (print->distinct) {
        sink_spaces(sink, columns - 3);
        sink_text(sink, "...");
    } else {
        sink_grouped(sink, rest, columns);
    }
    sink_spaces(sink, (has_bars(print) ? BAR_WIDTH + 4U : 2U) + (print->sums ? SUM_WIDTH + 2U : 0U));
    sink_byte(sink, '(');
    sink_grouped(sink, (int64_t)keys, 0);
    sink_text(sink, keys == 1 ? " more key)\n" : " more keys)\n");
}

static void window_table(const struct print *print, int64_t start_ms, const struct rows *rows) {
    struct sink *sink = print->sink;
    int64_t rest;
    if (__builtin_sub_overflow(rows->sum_all, rows->sum_shown, &rest)) rest = rows->sum_all; /* a saturated sum */
    size_t columns = count_columns(rows, print->distinct ? 0 : rest);
    if (print->windows > 0) sink_byte(sink, '\n');
    heading_show(print, start_ms, rows);
    for (size_t i = 0; i < rows->count; i++) {
        sink_grouped(sink, rows->row[i].count, columns);
        sink_text(sink, "  ");
        if (print->sums) {
            sink_grouped(sink, rows->row[i].sum, SUM_WIDTH);
            sink_text(sink, "  ");
        }
        if (has_bars(print)) bar_show(print, rows->row[i].count, rows->row[0].count);
        key_cut(print, &rows->row[i],
                columns + 3 + (has_bars(print) ? BAR_WIDTH + 2 : 0) + (print->sums ? SUM_WIDTH + 2 : 0));
        sink_byte(sink, '\n');
    }
    rest_show(print, rows, rest, columns);
}

/* ---- all ---- */

void print_begin(struct print *print) {
    if (print->form == PRINT_JSON && !print->stream) sink_byte(print->sink, '[');
    if (print->form == PRINT_CSV) sink_text(print->sink, print->sums ? "window,key,count,sum\n" : "window,key,count\n");
}

/* A window without rows is not shown, because it has no counts. */
void print_window(struct print *print, int64_t start_ms, const struct rows *rows) {
    if (rows->count == 0) return;
    switch (print->form) {
    case PRINT_CSV:
    case PRINT_TSV: window_values(print, start_ms, rows); break;
    case PRINT_JSON: window_json(print, start_ms, rows); break;
    case PRINT_TABLE: window_table(print, start_ms, rows); break;
    }
    print->windows++;
    print->keys += (int64_t)rows->keys_all;
    if (__builtin_add_overflow(print->sum, rows->sum_all, &print->sum)) print->sum = INT64_MAX;
    if (__builtin_add_overflow(print->field_sum, rows->field_sum, &print->field_sum)) print->field_sum = INT64_MAX;
}

void print_end(struct print *print) {
    if (print->form == PRINT_JSON && !print->stream) sink_text(print->sink, print->windows == 0 ? "]\n" : "\n]\n");
    if (print->form != PRINT_TABLE || print->windows < 2 || print->distinct) return;
    sink_byte(print->sink, '\n');
    sink_grouped(print->sink, print->sum, COUNT_WIDTH);
    sink_text(print->sink, print->sum == 1 ? "  count in " : "  counts in ");
    sink_grouped(print->sink, (int64_t)print->windows, 0);
    sink_text(print->sink, " windows");
    if (print->sums) sink_text(print->sink, ", sum ");
    if (print->sums) sink_grouped(print->sink, print->field_sum, 0);
    sink_byte(print->sink, '\n');
}
