/* walk.h -- a walk over all counters of a window, piece by piece, for tw_each() and tw_top().
 *
 * The thread of the caller walks. Each piece is one section, which looks at most at some thousand records. No section
 * is open between two pieces. So a walk delays the reuse of memory only for the time of one piece, even if the window
 * is large. The walked generations and their tables are kept until the walk ends (holds, epoch.h). A walk has more
 * than one generation if keys are in two of them. This is so in TW_WINDOW_FROM_FIRST families and with idle eviction.
 * Always true: a key that exists during the whole walk is shown exactly once, with the values of its counter at that
 * moment. */
#ifndef TWI_COUNT_WALK_H
#define TWI_COUNT_WALK_H

#include "engine/core/family.h"

struct twi_walker {
    void *ctx;
    bool at_end; /* also after tw_stop() */
    /* From here on the generations of the walk are kept. Called outside of any section. Returns false to end the
     * walk. May be NULL. */
    bool (*begin)(void *ctx, struct twi_generation *const *generations, size_t count);
    /* Shows a counter, inside a section. The key is valid only there. Returns false if the piece must end here. The
     * next piece then begins with the same counter. */
    bool (*take)(void *ctx, const tw_count *count);
    /* Called when a piece has ended. Called outside of any section. Returns false to end the walk. May be NULL. */
    bool (*rest)(void *ctx);
    /* A generation was walked to its end; `spill` is its overflow counter (key of size 0). Called outside of any
     * section. Returns false to end the walk. May be NULL. */
    bool (*end)(void *ctx, const tw_count *spill);
};

/* Walks the window that contains unix_ms, or TW_NOW. Returns the statuses of tw_each(). */
tw_status twi_walk(tw_family *family, int64_t unix_ms, const struct twi_walker *walker);

#endif
