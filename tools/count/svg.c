/* svg.c -- the picture of the counts. See svg.h.
 * A picture has some hundred columns, a log may have half a million windows. Then neighbours share a column, which
 * shows the greatest of them. The keys of all windows are added up in a separate engine, without Redis. */
#include "tools/count/svg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/count/count_engine.h"
#include "tools/common/file_new.h"
#include "tools/common/page.h"
#include "tools/common/foreign.h"
#include "tools/count/rows.h"
#include "tools/common/sink.h"
#include "tools/common/tool.h"
#include "tools/common/utf8.h"

#define KEYS_SHOWN 15
#define COLUMNS_MAX 400
#define KEY_COLUMNS 48 /* characters of a key that fit next to a bar */

/* In pixels. */
#define WIDTH 960
#define LEFT 90
#define CHART_TOP 50
#define CHART_HEIGHT 220
#define CHART_WIDTH (WIDTH - LEFT - 20)
#define KEYS_TOP (CHART_TOP + CHART_HEIGHT + 80)
#define KEY_HEIGHT 22
#define KEY_BAR_LEFT 420
#define KEY_BAR_WIDTH (WIDTH - KEY_BAR_LEFT - 120)

struct picture {
    const struct plan *plan;
    struct sink sink;
    tw_engine *engine; /* the keys of all windows */
    tw_family *family;
    int64_t sums[COLUMNS_MAX]; /* the greatest sum of the windows of each column */
    int64_t first_ms, last_ms, all;
    size_t columns;
    struct rows top;
};

/* ---- collecting ---- */

static bool all_open(struct picture *picture, struct count_lost *lost) {
    struct plan plan = *picture->plan;
    tw_family_options options;
    plan.redis_url = plan.redis_key = NULL;
    plan.window_ms = WINDOWS_ALL;
    return count_engine_open(&plan, lost, &picture->engine) == EXIT_DONE &&
           count_family_open(&plan, picture->engine, &options, &picture->family) == EXIT_DONE;
}

static tw_status keys_add(struct picture *picture, const struct rows *rows) {
    for (size_t i = 0; i < rows->count; i++) {
        tw_key key = tw_bytes(rows->row[i].key, rows->row[i].key_size);
        int64_t count = rows->row[i].count;
        if (count > TW_DELTA_MAX) count = TW_DELTA_MAX; /* 2^53; no picture shows more */
        if (count < -TW_DELTA_MAX) count = -TW_DELTA_MAX;
        tw_status status = tw_add(picture->family, key, count, NULL);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

/* Where in the picture a window is. Windows without counts have their place, too. */
static size_t svg_column_of(const struct picture *picture, int64_t start_ms) {
    int64_t span_ms = picture->last_ms - picture->first_ms, into_ms = start_ms - picture->first_ms;
    return span_ms == 0 ? 0 : (size_t)((double)into_ms / (double)span_ms * (double)(picture->columns - 1) + 0.5);
}

static void columns_choose(struct picture *picture, const int64_t *starts, size_t count) {
    picture->first_ms = starts[0];
    picture->last_ms = starts[count - 1];
    int64_t windows = (picture->last_ms - picture->first_ms) / picture->plan->window_ms + 1;
    picture->columns = windows < COLUMNS_MAX ? (size_t)windows : COLUMNS_MAX;
}

static tw_status collect(struct picture *picture, tw_family *family, const int64_t *starts, size_t count) {
    struct rows rows = ROWS_EMPTY;
    tw_status status = TW_OK;
    columns_choose(picture, starts, count);
    for (size_t i = 0; i < count && status == TW_OK; i++) {
        status = rows_collect(&rows, family, starts[i], 0, picture->plan->redis_url == NULL);
        if (status != TW_OK) break;
        int64_t *sum = &picture->sums[svg_column_of(picture, starts[i])];
        if (rows.sum_all > *sum) *sum = rows.sum_all;
        if (__builtin_add_overflow(picture->all, rows.sum_all, &picture->all)) picture->all = INT64_MAX;
        status = keys_add(picture, &rows);
    }
    rows_free(&rows);
    return status == TW_OK ? rows_collect(&picture->top, picture->family, 0, KEYS_SHOWN, true) : status;
}

/* ---- drawing ---- */

static void svg_put(struct picture *picture, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void svg_put(struct picture *picture, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sink_text(&picture->sink, text);
}

/* A character of a text that has no control characters. Two of them XML does not allow. */
static void put_character(struct picture *picture, const unsigned char *text, size_t size) {
    struct sink *sink = &picture->sink;
    switch (*text) {
    case '<': sink_text(sink, "&lt;"); return;
    case '>': sink_text(sink, "&gt;"); return;
    case '&': sink_text(sink, "&amp;"); return;
    default: break;
    }
    if (size == 3 && memcmp(text, "\xEF\xBF", 2) == 0 && text[2] >= 0xBE) { /* U+FFFE, U+FFFF */
        svg_put(picture, "\\xEF\\xBF\\x%02X", text[2]);
    } else {
        sink_bytes(sink, text, size);
    }
}

/* Writes the text of a key with the escapes of the table, then those of XML, cut to the space. */
static void svg_put_key(struct picture *picture, const struct row *row) {
    struct sink plain;
    size_t columns;
    if (!sink_open(&plain, -1)) return;
    foreign_shown(&plain, row->key, row->key_size);
    size_t shown = page_fitting(plain.buffer, plain.size, KEY_COLUMNS, &columns);
    for (size_t at = 0; at < shown;) {
        const unsigned char *text = (const unsigned char *)plain.buffer + at;
        size_t step = utf8_size(text, plain.size - at);
        put_character(picture, text, step);
        at += step;
    }
    if (shown < plain.size) sink_text(&picture->sink, "\xE2\x80\xA6");
    sink_close(&plain);
}

static void put_count(struct picture *picture, int64_t count) {
    sink_grouped(&picture->sink, count, 0);
}

static int64_t greatest_of(const struct picture *picture) {
    int64_t greatest = 0;
    for (size_t i = 0; i < picture->columns; i++)
        if (picture->sums[i] > greatest) greatest = picture->sums[i];
    return greatest;
}

static void head_draw(struct picture *picture) {
    int height = KEYS_TOP + KEY_HEIGHT * (int)picture->top.count + 20;
    svg_put(picture,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n",
            WIDTH, height, WIDTH, height);
    svg_put(picture, "<title>tallywheel count</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH,
            height);
    svg_put(picture, "<text x=\"%d\" y=\"28\" font-size=\"17\">", LEFT);
    put_count(picture, picture->all);
    sink_text(&picture->sink, picture->all == 1 ? " count of " : " counts of ");
    put_count(picture, (int64_t)picture->top.keys_all);
    sink_text(&picture->sink, picture->top.keys_all == 1 ? " key</text>\n" : " keys</text>\n");
}

/* A line across the chart at a count, and the count next to it. */
static void line_draw(struct picture *picture, int64_t count, int64_t greatest) {
    double share = greatest > 0 ? (double)count / (double)greatest : 0, y = CHART_TOP + CHART_HEIGHT * (1 - share);
    svg_put(picture, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ccc\"/>\n", LEFT, y,
            LEFT + CHART_WIDTH, y);
    svg_put(picture, "<text class=\"count\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8, y + 4);
    put_count(picture, count);
    svg_put(picture, "</text>\n");
}

static void axis_draw(struct picture *picture, int64_t greatest) {
    char stamp[MOMENT_TEXT_SIZE];
    line_draw(picture, 0, greatest);
    if (greatest > 1) line_draw(picture, greatest / 2, greatest);
    if (greatest > 0) line_draw(picture, greatest, greatest);
    if (picture->plan->window_ms == WINDOWS_ALL) return;
    moment_text(picture->first_ms, stamp);
    svg_put(picture, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT, CHART_TOP + CHART_HEIGHT + 20, stamp);
    if (picture->columns == 1) return;
    moment_text(picture->last_ms, stamp);
    svg_put(picture, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT + CHART_WIDTH,
            CHART_TOP + CHART_HEIGHT + 20, stamp);
}

static void windows_draw(struct picture *picture) {
    int64_t greatest = greatest_of(picture);
    double step = (double)CHART_WIDTH / (double)picture->columns;
    axis_draw(picture, greatest);
    for (size_t i = 0; i < picture->columns && greatest > 0; i++) {
        double height = (double)picture->sums[i] / (double)greatest * CHART_HEIGHT;
        if (picture->sums[i] <= 0) continue;
        svg_put(picture,
                "<rect class=\"window\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#2a7f9e\"/>\n",
                LEFT + step * (double)i, CHART_TOP + CHART_HEIGHT - height, step > 3 ? step - 1 : step, height);
    }
}

static void keys_draw(struct picture *picture) {
    const struct rows *top = &picture->top;
    svg_put(picture, "<text x=\"20\" y=\"%d\" font-size=\"15\">Greatest keys</text>\n", KEYS_TOP - 14);
    for (size_t i = 0; i < top->count; i++) {
        int y = KEYS_TOP + KEY_HEIGHT * (int)i;
        double width = top->row[0].count > 0 && top->row[i].count > 0
                           ? (double)top->row[i].count / (double)top->row[0].count * KEY_BAR_WIDTH
                           : 0;
        svg_put(picture,
                "<text class=\"key\" x=\"%d\" y=\"%d\" text-anchor=\"end\" font-family=\"monospace\" font-size=\"12\">",
                KEY_BAR_LEFT - 8, y + 14);
        svg_put_key(picture, &top->row[i]);
        svg_put(picture, "</text>\n<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#c8692f\"/>\n",
                KEY_BAR_LEFT, y, width, KEY_HEIGHT - 5);
        svg_put(picture, "<text x=\"%.2f\" y=\"%d\">", KEY_BAR_LEFT + width + 6, y + 14);
        put_count(picture, top->row[i].count);
        svg_put(picture, "</text>\n");
    }
}

static void svg_draw(struct picture *picture) {
    head_draw(picture);
    windows_draw(picture);
    keys_draw(picture);
    svg_put(picture, "</svg>\n");
}

/* ---- the file ---- */

/* Returns false with errno set. */
static bool draw_into(struct picture *picture, int fd) {
    bool good = sink_open(&picture->sink, fd);
    if (good) {
        svg_draw(picture);
        good = sink_flush(&picture->sink);
        if (!good) errno = picture->sink.error;
        sink_close(&picture->sink);
    }
    return good;
}

/* Draws into a file that is then renamed, so that no reader sees half a picture. */
static bool svg_replace(struct picture *picture, const char *file) {
    struct file_new made;
    if (!file_new_begin(&made, file)) return false;
    return file_new_end(&made, draw_into(picture, made.fd));
}

static bool write_to(struct picture *picture, const char *file) {
    int fd = open(file, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return false;
    bool good = draw_into(picture, fd);
    return close(fd) == 0 && good;
}

/* A pipe or a device is written directly, and so are the system's files in /dev (/dev/stderr is a link there). */
static bool file_write(struct picture *picture) {
    const char *file = picture->plan->svg;
    struct stat status;
    bool is_special = lstat(file, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode);
    if (strncmp(file, "/dev/", 5) == 0) is_special = true;
    bool good = is_special ? write_to(picture, file) : svg_replace(picture, file);
    if (!good) tool_complain("--svg %s: %s", file, strerror(errno));
    return good;
}

bool svg_write(const struct plan *plan, tw_family *family, const struct windows *windows) {
    struct picture picture = {.plan = plan, .top = ROWS_EMPTY, .columns = 1};
    struct count_lost lost = {0};
    size_t count;
    int64_t *starts = windows_sorted(windows, &count);
    tw_status status = starts == NULL && count > 0 ? TW_ERR_MEMORY : TW_OK;
    bool good = status == TW_OK && all_open(&picture, &lost);
    if (good && count > 0) status = collect(&picture, family, starts, count);
    if (status != TW_OK) tool_complain("--svg %s: %s", plan->svg, tw_status_text(status));
    good = good && status == TW_OK && file_write(&picture);
    if (picture.engine != NULL) tw_close(picture.engine, 0);
    rows_free(&picture.top);
    free(starts);
    return good;
}
