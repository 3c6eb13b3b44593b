/* twin.h -- the slow, obvious twin of a family without Redis: a list of windows, each a plain array of counts by key number.
 * Always true: it knows nothing of tables, generations, phases or turns; its rules are those of tallywheel.h. What memory allows
 * it cannot know: the caller tells it whether a new key was taken, and it says whether that may be.
 * Civil dates come from the C library, so that the library's own calendar is judged by another one. */
#ifndef MODEL_TWIN_H
#define MODEL_TWIN_H

#include "tests/support/support.h"

#define TWIN_KEYS 96u
#define TWIN_WINDOWS_MAX 4096u

struct twin_window {
    int64_t start_ms, end_ms;
    bool present[TWIN_KEYS];
    int64_t count[TWIN_KEYS];
    int64_t life_end_ms[TWIN_KEYS]; /* families from first */
    uint64_t keys;
    int64_t overflow;
    int told; /* how often the hook has answered true */
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
/* The window that holds a moment; the list is not asked. */
void twin_span(const struct twin *twin, int64_t unix_ms, int64_t *start_ms, int64_t *end_ms);
/* The window of that start; NULL: nothing was ever counted in it. */
struct twin_window *twin_window_at(struct twin *twin, int64_t start_ms);
/* The same, made. */
struct twin_window *twin_window_make(struct twin *twin, int64_t unix_ms);
/* The window in which the key can be seen now: the moment's, or for families from first that in which its life began. */
struct twin_window *twin_window_of_key(struct twin *twin, uint32_t key, int64_t now_ms);

/* May counts land in the window of that moment? TW_OK, TW_ERR_LATE, TW_ERR_EARLY. */
tw_status twin_may_add_at(const struct twin *twin, int64_t unix_ms, int64_t now_ms);
/* A window that ends then takes no more counts. */
bool twin_is_over(const struct twin *twin, int64_t end_ms, int64_t now_ms);
/* The moment at which the window that ends then is no longer readable; and the earliest that can be, where a watermark has closed it. */
int64_t twin_readable_until(const struct twin *twin, int64_t end_ms);
int64_t twin_readable_at_least(const struct twin *twin, int64_t end_ms);
bool twin_has_counted(const struct twin_window *window);

#endif
