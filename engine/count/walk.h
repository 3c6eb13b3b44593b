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
#include "tallywheel.h"

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

/* ---- each ----
 * tw_each() for some of a window's counters, and after tw_stop(). */

/* Does the same as tw_each(), but shows only keys that `wants` accepts. `wants` is called inside a section, and
 * never waits. */
tw_status twi_each_wanted(tw_family *family, int64_t unix_ms, bool (*wants)(void *ctx, tw_key key),
                          bool (*visit)(void *ctx, const tw_count *count), void *ctx);
/* Shows the same as tw_each(), also after tw_stop(). */
tw_status twi_each_at_end(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count),
                          void *ctx);

/* ---- each field ----
 * makes the key of a counter in a TW_REDIS_HASH family from a subject and a field. */

/* Returns TW_OK. TW_ERR_MODE: the family is not of TW_REDIS_HASH. TW_ERR_KEY: no key can have this subject. */
tw_status twi_hash_check(const tw_family *family, tw_key subject);
/* Writes the key to `bytes`. Returns false if the key would be too long. */
bool twi_hash_key(const tw_family *family, tw_key subject, tw_key field, unsigned char bytes[TW_KEY_SIZE_MAX],
                  tw_key *key);

#endif
