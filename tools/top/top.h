/* top.h -- what `tallywheel top` and `tallywheel show` share: two looks at an engine, as a page or as JSON.
 * Always true: a rate is shown only where both looks saw the same process and the figure did not fall. */
#ifndef TOOL_TOP_H
#define TOOL_TOP_H

#include "tools/common/page.h"
#include "tools/watched/watched.h"

struct top_view {
    const struct watched *now, *before; /* before: NULL at first */
    const char *family;                 /* whose keys `now` has; NULL means that the engine has no family */
    const char *gone;                   /* why nobody answers since `now`; NULL means that it is the last look */
};

/* The page of `top`: the engine, its families, the heaviest keys of one. */
void top_draw(struct page *page, const struct top_view *view);
/* The keys alone, as many as there are and find room. */
void top_draw_keys(struct page *page, const struct top_view *view);
/* One object and a line's end. `whole`: with the statistics and all families; otherwise the one family. */
void top_json(struct sink *sink, const struct top_view *view, bool whole);

/* "1h", "1d", "90s" of a window's length; what the window is, where it has none. */
void top_window_text(const struct watched_family *family, char text[32]);
/* What grew by how much a second. False means not known. */
bool top_rate(const struct top_view *view, const char *stat, double *rate);
bool top_key_rate(const struct top_view *view, const struct watched_key *key, double *rate);

/* The screen (top_screen.c; top_screen_none.c where there was no ncurses at build time). */
struct top_screen {
    size_t width, height;
};
enum top_key { TOP_NOTHING, TOP_QUIT, TOP_UP, TOP_DOWN, TOP_RESIZED };
bool top_screen_is_built(void);
bool top_screen_begin(struct top_screen *screen); /* false means this is no terminal that it knows */
void top_screen_show(const struct page *page);
enum top_key top_screen_wait(struct top_screen *screen, int timeout_ms); /* also for a signal (stop.h) */
void top_screen_end(void);

#endif
