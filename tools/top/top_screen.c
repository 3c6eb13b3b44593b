/* top_screen.c -- the terminal, by ncurses. See top.h. The one door to ncurses.
 * Always true: after top_screen_end() the terminal is as it was, also after a signal, which stop.h turns into an
 * answer. */
#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/common/stop.h"
#include "tools/top/top.h"

bool top_screen_is_built(void) {
    return true;
}

static void screen_measure(struct top_screen *screen) {
    int height, width;
    getmaxyx(stdscr, height, width);
    screen->height = height > 0 ? (size_t)height : 1;
    screen->width = width > 0 ? (size_t)width : 1;
}

bool top_screen_begin(struct top_screen *screen) {
    (void)setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) (void)setlocale(LC_CTYPE, "C.UTF-8");
    if (newterm(NULL, stdout, stdin) == NULL) return false;
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    timeout(0);
    if (has_colors() && start_color() == OK && use_default_colors() == OK) (void)init_pair(1, COLOR_RED, -1);
    screen_measure(screen);
    return true;
}

static attr_t attribute_of(enum page_style style) {
    switch (style) {
    case PAGE_BOLD: return A_BOLD;
    case PAGE_REVERSED: return A_REVERSE;
    case PAGE_ALARM: return A_BOLD | (has_colors() ? COLOR_PAIR(1) : 0);
    default: return A_NORMAL;
    }
}

void top_screen_show(const struct page *page) {
    (void)erase();
    for (size_t i = 0; i < page->count; i++) {
        (void)attrset((int)attribute_of(page->lines[i].style));
        (void)mvaddstr((int)i, 0, page->lines[i].text);
    }
    (void)attrset(A_NORMAL);
    (void)refresh();
}

/* A resize is seen by its size, whether its signal came to this thread or not. */
static bool is_resized(struct top_screen *screen) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return false;
    if (size.ws_row == screen->height && size.ws_col == screen->width) return false;
    (void)resizeterm(size.ws_row, size.ws_col);
    (void)clear();
    screen_measure(screen);
    return true;
}

enum top_key top_screen_wait(struct top_screen *screen, int timeout_ms) {
    static const int step_ms = 100; /* how soon a resize is seen */
    for (int left_ms = timeout_ms; left_ms > 0; left_ms -= step_ms) {
        (void)stop_wait(STDIN_FILENO, left_ms < step_ms ? left_ms : step_ms);
        if (stop_signal() != 0) return TOP_QUIT;
        if (is_resized(screen)) return TOP_RESIZED;
        switch (getch()) {
        case 'q':
        case 'Q': return TOP_QUIT;
        case 'k':
        case KEY_UP: return TOP_UP;
        case 'j':
        case KEY_DOWN: return TOP_DOWN;
        default: break;
        }
    }
    return TOP_NOTHING;
}

void top_screen_end(void) {
    (void)endwin();
}
