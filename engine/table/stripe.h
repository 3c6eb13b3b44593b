/* stripe.h -- stripes of counters for which threads contend: each thread adds to a separate line.
 *
 *   cell: STRIPED, local FROZEN ─▶ | shared stripe, head | stripe 0 | stripe 1 | ... |   2^n stripes, a line each
 *
 *   count = final + shared stripe + stripes                        stripe word: count : 62 | DIRTY | FROZEN
 *
 * An add that needs no view goes to the stripe of its thread. An add that needs the sum goes to the shared stripe and
 * reads all lines. If the key has a limit, the stripes are SLICES of the units that were left. Each slice has a
 * ceiling, and any thread may take units from it up to this ceiling. Plain adds then go to the shared stripe.
 * Unlike the word of a cell, these words change only by compare-and-swap, so a frozen word never changes its count. Any
 * thread may freeze a word, and all threads then read the same count (trap E1).
 * COLLAPSING freezes the stripes, but not the shared stripe. From then on their sum is fixed. The compare-and-swap of
 * the shared stripe then decides exactly, for limits and near the edge of the range. Sealing freezes the stripes first,
 * then the shared stripe (trap E34).
 * DIRTY works in the same way as in a cell (dirty.c), separately for each word. The add itself sets it. The turn makes
 * the stripes, and the turn also seals. It first publishes the lines (S1), and then freezes `local`. Until then adds go
 * to `local`. So all counts in a stripe came after those in `final`. An adder requests stripes if it finds again and
 * again that other threads have added meanwhile (dirty.h). Callers allocate no memory.
 * Always true: at most TWI_STRIPED_MAX cells of a generation are striped, each once. Stripes live as long as their
 * generation. If the shared stripe is not above 0, then final + shared stripe + the ceilings of the slices is within
 * the limit for which the slices were cut. |stripe| < TWI_STRIPE_EDGE, and |shared stripe| < TWI_SHARED_EDGE until
 * the stripes are collapsed. */
#ifndef TWI_TABLE_STRIPE_H
#define TWI_TABLE_STRIPE_H

#include "engine/table/cell.h"
#include "engine/memory/epoch.h"

struct twi_arena;
struct twi_generation;

#define TWI_STRIPED_MAX 32u
/* The sum of 64 stripes below 2^50, a shared stripe and a final below 2^58 is below 2^60. So adds below these edges
 * need no check of the sum. */
#define TWI_STRIPES_LOG2_MAX 6u
#define TWI_STRIPE_EDGE (INT64_C(1) << 50)
#define TWI_SHARED_EDGE (INT64_C(1) << 58)
#define TWI_NO_LIMIT INT64_C(-1)

/* Two stripes for each processor, so that threads that run at once rarely share one; at least 8. */
uint32_t twi_stripes_log2(void);

struct twi_stripe {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t word;
    int64_t ceiling; /* only for slices; set before `local` is frozen */
};

struct twi_stripes {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t shared_stripe;
    _Atomic int64_t collapsed; /* the sum of the stripes; valid after is_collapsed was set */
    _Atomic bool is_collapsed;
    uint32_t mask;  /* the number of stripes, less 1 */
    uint32_t older; /* the line of the generation's next older set */
    uint32_t lines; /* how many lines the piece has */
    /* the limit for which the slices were cut; TWI_NO_LIMIT if they are no slices. `limit` and `base` are set before
     * `local` is frozen */
    int64_t limit;
    int64_t base;          /* for slices: the base of the cell at that time */
    _Atomic int64_t shown; /* for slices: the count when a thread last read all of them */
    struct twi_stripe each[];
};
static_assert(sizeof(struct twi_stripes) == TWI_LINE_BYTES, "the stripes follow in the next lines");

/* Returns the stripes of a cell that is STRIPED in `meta`. NULL means none. S2, pairs with S1, so they are complete. */
TWI_INLINE struct twi_stripes *twi_stripes_of(struct twi_cell *cell, uint64_t meta) {
    if (twi_likely((meta & TWI_META_STRIPED) == 0)) return NULL;
    int64_t lines = twi_load_acquire(&cell->stripes);
    return lines == 0 ? NULL : (struct twi_stripes *)((unsigned char *)cell + lines * TWI_LINE_BYTES);
}

/* Returns the number of the stripe that belongs to a thread. */
TWI_INLINE uint32_t twi_stripe_own(const struct twi_stripes *stripes, const struct twi_thread *self) {
    return self->shard & stripes->mask;
}

/* The effects of an add. */
struct twi_counted {
    int64_t local; /* the count after the add; only if wants_sum */
    bool unlisted; /* the add has set DIRTY, so the cell must be listed (twi_dirty_list) */
    bool unmarked; /* the cell's word had no DIRTY, so it must be marked (twi_dirty_mark) */
};

/* The slower part of twi_stripes_add(), for cells that are striped or whose `local` was found frozen. */
enum twi_added twi_stripes_add_anew(struct twi_cell *cell, int64_t delta, bool wants_sum, const struct twi_thread *self,
                                    struct twi_counted *counted);
/* Adds to a cell, in whatever form it counts. Without `wants_sum` it adds to the thread's stripe, if any. */
TWI_INLINE enum twi_added twi_stripes_add(struct twi_cell *cell, uint64_t meta, int64_t delta, bool wants_sum,
                                          const struct twi_thread *self, struct twi_counted *counted) {
    uint64_t before;
    if (twi_unlikely((meta & TWI_META_STRIPED) != 0))
        return twi_stripes_add_anew(cell, delta, wants_sum, self, counted);
    enum twi_added added = twi_cell_add(cell, meta, delta, &before);
    if (twi_unlikely(added == TWI_ADD_FROZEN)) return twi_stripes_add_anew(cell, delta, wants_sum, self, counted);
    *counted = (struct twi_counted){.local = twi_word_value(before) + delta,
                                    .unmarked = (meta & TWI_META_COLD) != 0 && (before & TWI_DIRTY) == 0};
    return added;
}

/* Fixes the sum of the stripes and returns it. Any thread may call it, any number of times. */
int64_t twi_stripes_collapse(struct twi_stripes *stripes);
/* Returns the present sum of the stripes, without the shared stripe. */
int64_t twi_stripes_sum(struct twi_stripes *stripes);

/* The result of taking units from slices (counted.h). */
struct twi_taken {
    int64_t used;  /* how many units are used after the call */
    int64_t bound; /* |used - truth| is at most this, apart from the counts of other engines */
    bool unlisted; /* see twi_counted */
};
/* Gives back the stripes of a generation. */
bool twi_stripes_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
