/* top.h -- two looks at an engine, as a page or as JSON, for `tallywheel top` and `tallywheel show`. Always true: a
 * rate is shown only if both looks saw the same process and the figure did not fall. */
#ifndef TOOL_TOP_H
#define TOOL_TOP_H

#include "tools/common/page.h"
#include "tools/watched/watched.h"

struct top_view {
    const struct watched *now, *before; /* `before` is NULL at first */
    const char *family;                 /* whose keys `now` has; NULL means that the engine has no family */
    const char *gone;                   /* why there was no answer since `now`; NULL if `now` is the last look */
};

/* Writes the page of `top`, with the engine, its families, and the heaviest keys of one family. */
void top_draw(struct page *page, const struct top_view *view);
/* The keys alone, as many as there are and find room. */
void top_draw_keys(struct page *page, const struct top_view *view);
/* One object and a line's end. If `whole` is true, it has the statistics and all families, otherwise the one family. */
void top_json(struct sink *sink, const struct top_view *view, bool whole);

/* "1h", "1d" or "90s" for a window's length, or the kind of the window if it has no length. */
void top_window_text(const struct watched_family *family, char text[32]);
/* Computes the growth of a figure per second. Returns false if it is unknown. */
bool top_rate(const struct top_view *view, const char *stat, double *rate);
bool top_key_rate(const struct top_view *view, const struct watched_key *key, double *rate);

/* The screen (top_screen.c; top_screen_none.c where there was no ncurses at build time). */
struct top_screen {
    size_t width, height;
};
enum top_key { TOP_NOTHING, TOP_QUIT, TOP_UP, TOP_DOWN, TOP_RESIZED };
bool top_screen_is_built(void);
bool top_screen_begin(struct top_screen *screen); /* false if the terminal's type is unknown */
void top_screen_show(const struct page *page);
enum top_key top_screen_wait(struct top_screen *screen, int timeout_ms); /* also for a signal (stop.h) */
void top_screen_end(void);

#endif
