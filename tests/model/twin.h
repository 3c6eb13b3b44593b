/* twin.h -- the slow, obvious twin of a family without Redis: a list of windows, each a plain array of counts by key
 * number.
 * Always true: it knows nothing of tables, generations, phases or turns; its rules are those of tallywheel.h. It cannot
 * know what memory allows. The caller tells it whether a new key was taken, and the twin returns whether that is
 * allowed. Civil dates come from the C library, so that the library's own calendar is judged by another one. */
#ifndef MODEL_TWIN_H
#define MODEL_TWIN_H

#include "tests/support/support.h"

#define TWIN_KEYS 96u
#define TWIN_WINDOWS_MAX 4096u

struct twin_window {
    int64_t start_ms, end_ms;
    bool present[TWIN_KEYS];
    int64_t count[TWIN_KEYS];
    int64_t life_end_ms[TWIN_KEYS]; /* TW_WINDOW_FROM_FIRST families */
    uint64_t keys;
    int64_t overflow;
    int told; /* how often the hook has returned true */
};

struct twin {
    tw_family_options options; /* as given: zeros are defaults */
    struct twin_window **windows;
    size_t window_count;
    int64_t watermark_ms; /* tw_close_until() */
};

void twin_make(struct twin *twin, const tw_family_options *options);
void twin_free(struct twin *twin);
bool twin_has_starts(const struct twin *twin);
/* The window that holds a moment, whether or not it is in the list. */
void twin_span(const struct twin *twin, int64_t unix_ms, int64_t *start_ms, int64_t *end_ms);
/* The window with that start; NULL: nothing was ever counted in it. */
struct twin_window *twin_window_at(struct twin *twin, int64_t start_ms);
/* The same; makes it if necessary. */
struct twin_window *twin_window_make(struct twin *twin, int64_t unix_ms);
/* The window in which the key is visible now: the moment's, or in a TW_WINDOW_FROM_FIRST family the one in which its
 * life began. */
struct twin_window *twin_window_of_key(struct twin *twin, uint32_t key, int64_t now_ms);

/* May counts be added to the window of that moment? TW_OK, TW_ERR_LATE, TW_ERR_EARLY. */
tw_status twin_may_add_at(const struct twin *twin, int64_t unix_ms, int64_t now_ms);
/* True if a window with this end takes no more counts. */
bool twin_is_over(const struct twin *twin, int64_t end_ms, int64_t now_ms);
/* When a window with this end stops being readable; and the earliest possible time, if a watermark has closed it. */
int64_t twin_readable_until(const struct twin *twin, int64_t end_ms);
int64_t twin_readable_at_least(const struct twin *twin, int64_t end_ms);
bool twin_has_counted(const struct twin_window *window);

#endif
