/* top_page.c -- the page of `tallywheel top`. See top.h.
 *
 *   the engine     one line each for its identity, counting, memory, Redis, trouble
 *   its families   at most a third of the page; those around the selected one
 *   the keys       the rest of the page
 * Always true: an alarm is in a line with a separate style (PAGE_ALARM). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/moment.h"
#include "tools/common/foreign.h"
#include "tools/top/top.h"

#define KEY_ROWS_MIN 3

/* ---- figures ---- */

static int64_t stat_of(const struct top_view *view, const char *name) {
    return watched_stat(view->now, name);
}

static double passed_s(const struct top_view *view) {
    if (view->before == NULL || view->before->process != view->now->process) return 0;
    return (double)(view->now->now_ms - view->before->now_ms) / 1000;
}

static bool rate_of(const struct top_view *view, int64_t now, int64_t before, double *rate) {
    double seconds = passed_s(view);
    if (seconds <= 0 || now < before) return false;
    *rate = (double)(now - before) / seconds;
    return true;
}

bool top_rate(const struct top_view *view, const char *stat, double *rate) {
    int64_t before = view->before != NULL ? watched_stat(view->before, stat) : 0;
    return rate_of(view, stat_of(view, stat), before, rate);
}

/* A key that was not among the heaviest before, or is of another window, has no rate. */
bool top_key_rate(const struct top_view *view, const struct watched_key *key, double *rate) {
    for (size_t i = 0; view->before != NULL && i < view->before->key_count; i++) {
        const struct watched_key *other = &view->before->keys[i];
        if (other->size == key->size && other->start_ms == key->start_ms &&
            memcmp(other->key, key->key, key->size) == 0)
            return rate_of(view, key->view, other->view, rate);
    }
    return false;
}

/* ---- pieces of lines ---- */

static void put_grouped(struct page *page, int64_t number) {
    sink_grouped(&page->line, number, 0);
}

static void page_put_figure(struct page *page, const struct top_view *view, const char *label, const char *stat) {
    page_put(page, "%s ", label);
    put_grouped(page, stat_of(view, stat));
    page_put(page, "  ");
}

static void page_put_rate(struct page *page, const struct top_view *view, const char *stat, const char *unit) {
    double rate;
    if (!top_rate(view, stat, &rate)) return;
    put_grouped(page, (int64_t)(rate + 0.5));
    page_put(page, " %s/s  ", unit);
}

static void put_bytes(struct page *page, int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes;
    size_t unit = 0;
    while (size >= 1024 && unit < 4) {
        size /= 1024;
        unit++;
    }
    page_put(page, unit == 0 || size >= 100 ? "%.0f %s" : "%.1f %s", size, units[unit]);
}

static void put_span(struct page *page, int64_t ms) {
    if (ms < 10000)
        page_put(page, "%" PRId64 ".%03d s", ms / 1000, (int)(ms % 1000));
    else if (ms < 600000)
        page_put(page, "%" PRId64 " s", ms / 1000);
    else
        page_put(page, "%" PRId64 " min", ms / 60000);
}

void top_window_text(const struct watched_family *family, char text[32]) {
    static const struct {
        int64_t ms;
        char unit;
    } units[] = {{86400000, 'd'}, {3600000, 'h'}, {60000, 'm'}, {1000, 's'}};
    const char *more = strcmp(family->window, "from_first") == 0 ? "+" : "";
    size_t at = 0;
    while (at < 3 && family->window_ms % units[at].ms != 0) at++;
    if (family->window_ms > 0)
        (void)snprintf(text, 32, "%s%" PRId64 "%c", more, family->window_ms / units[at].ms, units[at].unit);
    else
        (void)snprintf(text, 32, "%.20s", family->window);
}

/* ---- the engine ---- */

static void draw_head(struct page *page, const struct top_view *view) {
    char stamp[MOMENT_TEXT_SIZE];
    if (view->gone != NULL) {
        page_put(page, "GONE    %s", view->gone);
        page_end_line(page, PAGE_ALARM);
    }
    moment_text(view->now->now_ms, stamp);
    page_put(page, "tallywheel %s   process %" PRId64 "   %s", view->now->version, view->now->process, stamp);
    if (passed_s(view) > 0) page_put(page, "   rates over %.1f s", passed_s(view));
    page_end_line(page, PAGE_BOLD);
    page_put(page, "Adds    ");
    put_grouped(page, stat_of(view, "increments"));
    page_put(page, "  ");
    page_put_rate(page, view, "increments", "adds");
    page_put_figure(page, view, "late", "late_increments");
    if (stat_of(view, "hooks_again") != 0) page_put_figure(page, view, "hooks asked again", "hooks_again");
    page_end_line(page, PAGE_PLAIN);
}

static void draw_memory(struct page *page, const struct top_view *view) {
    double rate;
    int64_t most = stat_of(view, "memory_bytes_max"), used = stat_of(view, "memory_bytes");
    bool overflows = (top_rate(view, "overflow_increments", &rate) && rate > 0) ||
                     (top_rate(view, "rejected_increments", &rate) && rate > 0);
    page_put(page, "Memory  ");
    put_bytes(page, used);
    page_put(page, " of ");
    put_bytes(page, most);
    page_put(page, " (%.0f %%)  ", most > 0 ? 100.0 * (double)used / (double)most : 0);
    if (stat_of(view, "overflow_increments") != 0) page_put_figure(page, view, "overflowed", "overflow_increments");
    if (stat_of(view, "rejected_increments") != 0) page_put_figure(page, view, "refused", "rejected_increments");
    page_put_figure(page, view, "counters", "entries");
    page_put_figure(page, view, "windows", "generations");
    page_end_line(page, overflows || stat_of(view, "memory_usable_bytes") <= most / 5 ? PAGE_ALARM : PAGE_PLAIN);
}

static void draw_redis(struct page *page, const struct top_view *view) {
    if (stat_of(view, "redis_configured") == 0) {
        page_put(page, "Redis   none: this engine counts by itself");
        page_end_line(page, PAGE_PLAIN);
        return;
    }
    bool connected = stat_of(view, "redis_connected") != 0;
    page_put(page, "Redis   ");
    if (connected) {
        page_put(page, "answers  ");
    } else {
        page_put(page, "AWAY for ");
        put_span(page, stat_of(view, "outage_ms"));
        page_put(page, "  ");
    }
    if (stat_of(view, "sync_age_ms") >= 0) {
        page_put(page, "synced ");
        put_span(page, stat_of(view, "sync_age_ms"));
        page_put(page, " ago  ");
    }
    page_put_figure(page, view, "unsent keys", "unsent_keys");
    page_put_rate(page, view, "batches_ok", "batches");
    page_put_figure(page, view, "engines", "live_engines");
    if (stat_of(view, "stores") > 1) page_put_figure(page, view, "stores", "stores");
    if (stat_of(view, "stores_away") > 0) page_put_figure(page, view, "stores away", "stores_away");
    page_end_line(page, connected && stat_of(view, "stores_away") == 0 ? PAGE_PLAIN : PAGE_ALARM);
}

/* Shows only figures that are not 0. Most of the time all are 0. */
static void draw_trouble(struct page *page, const struct top_view *view) {
    static const struct {
        const char *label, *stat;
    } all[] = {{"lost", "lost"},
               {"uncertain", "uncertain"},
               {"late units", "late_deltas"},
               {"expired unsent", "expired_unsynced"},
               {"rollbacks", "rollbacks"},
               {"poisoned keys", "poison_keys"},
               {"regressions", "regressions"},
               {"stranded units", "lease_stranded"},
               {"units at risk", "limit_at_risk"},
               {"windows untold", "windows_untold"},
               {"split slots", "stores_split"},
               {"audit findings", "audit_findings"},
               {"TLS refused", "tls_refused"}};
    bool any = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (stat_of(view, all[i].stat) == 0) continue;
        page_put(page, any ? "" : "Trouble ");
        page_put_figure(page, view, all[i].label, all[i].stat);
        any = true;
    }
    if (any) page_end_line(page, PAGE_ALARM);
    if (view->now->last_error[0] == '\0') return;
    page_put(page, "Last error  ");
    if (view->now->last_error_age_ms >= 0) {
        put_span(page, view->now->last_error_age_ms);
        page_put(page, " ago: ");
    }
    page_put(page, "%s", view->now->last_error);
    page_end_line(page, PAGE_PLAIN);
}

/* ---- families ---- */

/* The widths of the columns. Numbers get the width that they need, names the rest of the page. */
struct columns {
    size_t name, counters, windows, admitted, denied;
};

static size_t wider(size_t width, int64_t number) {
    size_t size = sink_grouped_size(number);
    return size > width ? size : width;
}

static struct columns columns_of(const struct page *page, const struct top_view *view) {
    struct columns columns = {.name = 40, .counters = 8, .windows = 7, .admitted = 8, .denied = 6};
    for (size_t i = 0; i < view->now->family_count; i++) {
        const struct watched_family *family = &view->now->families[i];
        columns.counters = wider(columns.counters, family->keys);
        columns.windows = wider(columns.windows, family->windows);
        columns.admitted = wider(columns.admitted, family->admitted);
        columns.denied = wider(columns.denied, family->denied + family->shadow_denied);
    }
    /* "> NAME KIND(8) WINDOW(7) NUMBERS" and seven blanks, and room for a rate if there is some */
    size_t taken = 2 + 8 + 7 + 6 + columns.counters + columns.windows + columns.admitted + columns.denied;
    if (page->width == 0) columns.name = 32;
    if (page->width != 0 && taken + columns.name > page->width)
        columns.name = page->width > taken + 8 ? page->width - taken : 8;
    return columns;
}

static void page_put_number(struct page *page, int64_t number, size_t width) {
    page_put(page, " ");
    sink_grouped(&page->line, number, width);
}

/* A name that is longer than its column is cut, so that the numbers are not. */
static void page_put_name(struct page *page, const char *name, size_t width) {
    size_t used, size = page_fitting(name, strlen(name), width, &used);
    bool is_cut = page->width != 0 && size < strlen(name);
    if (is_cut) size = page_fitting(name, strlen(name), width - 1, &used);
    sink_bytes(&page->line, name, page->width != 0 ? size : strlen(name));
    if (is_cut) sink_text(&page->line, "\xe2\x80\xa6");
    used += is_cut;
    if (used < width) sink_spaces(&page->line, width - used);
}

static void draw_family(struct page *page, const struct top_view *view, const struct watched_family *family,
                        const struct columns *columns) {
    char window[32];
    double rate;
    bool selected = view->family != NULL && strcmp(view->family, family->name) == 0;
    const struct watched_family *before = view->before != NULL ? watched_family(view->before, family->name) : NULL;
    top_window_text(family, window);
    page_put(page, selected ? "> " : "  ");
    page_put_name(page, family->name, columns->name);
    page_put(page, " %-8s %7s", family->kind, window);
    page_put_number(page, family->keys, columns->counters);
    page_put_number(page, family->windows, columns->windows);
    if (family->admitted != 0 || family->denied != 0 || family->shadow_denied != 0) {
        page_put_number(page, family->admitted, columns->admitted);
        page_put_number(page, family->denied + family->shadow_denied, columns->denied);
        if (before != NULL && rate_of(view, family->denied, before->denied, &rate)) page_put(page, "  %.0f/s", rate);
    }
    page_end_line(page, selected ? PAGE_REVERSED : PAGE_PLAIN);
}

static void draw_families(struct page *page, const struct top_view *view) {
    size_t count = view->now->family_count, first = 0, selected = 0, room = count;
    struct columns columns = columns_of(page, view);
    if (page->height != 0 && room > page->height / 3) room = page->height / 3 > 0 ? page->height / 3 : 1;
    for (size_t i = 0; i < count; i++)
        if (view->family != NULL && strcmp(view->now->families[i].name, view->family) == 0) selected = i;
    if (selected >= room) first = selected - room + 1;
    page_put(page, "  %-*s %-8s %7s %*s %*s %*s %*s", (int)columns.name, "Family", "kind", "window",
             (int)columns.counters, "counters", (int)columns.windows, "windows", (int)columns.admitted, "admitted",
             (int)columns.denied, "denied");
    page_end_line(page, PAGE_BOLD);
    for (size_t i = first; i < first + room; i++) draw_family(page, view, &view->now->families[i], &columns);
    if (room >= count) return;
    page_put(page, "  (%zu of %zu families)", room, count);
    page_end_line(page, PAGE_PLAIN);
}

/* ---- keys ---- */

static void draw_key(struct page *page, const struct top_view *view, const struct watched_key *key) {
    double rate;
    sink_grouped(&page->line, key->view, 17);
    if (top_key_rate(view, key, &rate))
        page_put(page, " %11.1f/s", rate);
    else
        page_put(page, " %13s", "");
    if (key->error != 0) {
        page_put(page, "  (-");
        put_grouped(page, key->error);
        page_put(page, ")");
    }
    page_put(page, "  ");
    foreign_shown(&page->line, key->key, key->size);
    page_end_line(page, PAGE_PLAIN);
}

static void draw_title(struct page *page, const struct top_view *view, const struct watched_family *family) {
    char start[MOMENT_TEXT_SIZE], end[MOMENT_TEXT_SIZE];
    bool distinct = family != NULL && strcmp(family->kind, "distinct") == 0;
    int64_t start_ms = view->now->key_count > 0 ? view->now->keys[0].start_ms : family != NULL ? family->start_ms : 0;
    int64_t end_ms = view->now->key_count > 0 ? view->now->keys[0].end_ms : family != NULL ? family->end_ms : 0;
    page_put(page, "%17s %13s  Heaviest keys of %s", distinct ? "distinct" : "count", "", view->family);
    if (family != NULL && family->end_ms != INT64_MAX) {
        moment_text(start_ms, start);
        moment_text(end_ms, end);
        page_put(page, ", %s to %s", start, end);
    }
    page_end_line(page, PAGE_BOLD);
}

void top_draw_keys(struct page *page, const struct top_view *view) {
    draw_title(page, view, watched_family(view->now, view->family));
    if (view->now->top_error != NULL) {
        page_put(page, "%17s  %s", "", view->now->top_error);
        page_end_line(page, PAGE_PLAIN);
    } else if (view->now->key_count == 0) {
        page_put(page, "%17s  nothing was counted in this window yet", "");
        page_end_line(page, PAGE_PLAIN);
    }
    for (size_t i = 0; i < view->now->key_count && page_left(page) > 0; i++) draw_key(page, view, &view->now->keys[i]);
}

void top_draw(struct page *page, const struct top_view *view) {
    draw_head(page, view);
    draw_memory(page, view);
    draw_redis(page, view);
    draw_trouble(page, view);
    page_end_line(page, PAGE_PLAIN);
    if (view->family == NULL) {
        page_put(page, "No family is open.");
        page_end_line(page, PAGE_PLAIN);
        return;
    }
    draw_families(page, view);
    page_end_line(page, PAGE_PLAIN);
    if (page_left(page) >= KEY_ROWS_MIN) top_draw_keys(page, view);
}
