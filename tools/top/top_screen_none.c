/* top_screen_none.c -- for a build without ncurses. `tallywheel top` reports that, and has only --once and --json. See
 * top.h. */
#include "tools/top/top.h"

bool top_screen_is_built(void) {
    return false;
}

bool top_screen_begin(struct top_screen *screen) {
    (void)screen;
    return false;
}

void top_screen_show(const struct page *page) {
    (void)page;
}

enum top_key top_screen_wait(struct top_screen *screen, int timeout_ms) {
    (void)screen, (void)timeout_ms;
    return TOP_QUIT;
}

void top_screen_end(void) {
}
