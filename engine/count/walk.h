/* walk.h -- a walk over all counters of a window, in pieces, for tw_each() and tw_top().
 *
 * The caller's thread walks. A piece is one section, in which some thousand records are looked at, at most. Between two
 * pieces no section is open, so a walk delays the reuse of memory for the time of a piece, however large the window is.
 * The walked generations themselves, and their tables, are held until the walk ends (readers, layout.h).
 * A walk has more than one generation if keys live in two, which is the case in TW_WINDOW_FROM_FIRST families and with
 * idle eviction.
 * Always true: a key that is present throughout is shown exactly once, with its counter's values at that moment. */
#ifndef TWI_COUNT_WALK_H
#define TWI_COUNT_WALK_H

#include "engine/core/family.h"

struct twi_walker {
    void *ctx;
    /* The generations of the walk are held from here on. Called outside of any section. Returns false to end the walk.
     * May be NULL. */
    bool (*begin)(void *ctx, struct twi_generation *const *generations, size_t count);
    /* Shows a counter, inside a section; the key is valid there only. Returns false if the piece is to end here. The
     * next piece begins with the same counter. */
    bool (*take)(void *ctx, const tw_count *count);
    /* A piece is over. Called outside of any section. Returns false to end the walk. May be NULL. */
    bool (*rest)(void *ctx);
    /* A generation was walked to its end; `spill` is its overflow counter (key of size 0). Called outside of any
     * section. Returns false to end the walk. May be NULL. */
    bool (*end)(void *ctx, const tw_count *spill);
};

/* Walks the window that holds unix_ms, or TW_NOW. The answers of tw_each(). */
tw_status twi_walk(tw_family *family, int64_t unix_ms, const struct twi_walker *walker);

#endif
