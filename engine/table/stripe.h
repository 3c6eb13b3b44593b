/* stripe.h -- counters that threads contend for: each thread adds to a line of its own.
 *
 *   cell: STRIPED, local FROZEN ─▶ | trunk, what is shared | stripe 0 | stripe 1 | ... |      one line each, 2^n stripes
 *
 *   count = final + trunk + stripes                                stripe word: count : 62 | DIRTY | FROZEN
 *
 * An add that asks for no view goes to its thread's stripe; one that wants the sum goes to the trunk and reads all lines.
 * Where the key has a limit, stripes are SLICES of what was left of it: a stripe may be counted up to its ceiling, by any
 * thread (slice.c); adds go to the trunk then.
 * Unlike a cell's word, the words here change by compare-and-swap alone, so a frozen one never changes its count: whoever
 * wants to may freeze, and all read the same (trap E1). FOLDING freezes the stripes and leaves the trunk: their sum is fixed
 * from then on, and the trunk's compare-and-swap decides exactly: for limits, and near the edge of the range. Sealing freezes
 * the trunk as well, after the stripes (trap E34). DIRTY works as in a cell (dirty.c), word by word; it is set by the add
 * itself.
 * Making (the turn, which is also who seals): the lines are there, S1; then `local` is frozen. Until it is, adds go to it; so
 * whatever is in a stripe came after all that is in `final`.
 * Who asks for it: an adder that finds, add after add, that others have been there in between (contention.h); callers
 * call no allocator.
 * Always true: at most TWI_STRIPED_MAX cells of a generation are striped, each once; stripes live as long as their
 * generation; final + the ceilings of its slices + a trunk that is not above 0 stay within the limit they were cut for;
 * |stripe| < TWI_STRIPE_EDGE, and |trunk| < TWI_SHARED_EDGE until the stripes are folded. */
#ifndef TWI_TABLE_STRIPE_H
#define TWI_TABLE_STRIPE_H

#include "engine/table/cell.h"
#include "engine/memory/epoch.h"

struct twi_arena;
struct twi_generation;

#define TWI_STRIPED_MAX 32u
/* 64 stripes below 2^50, a trunk and a final below 2^58: together below 2^60, so nothing need be checked before that. */
#define TWI_STRIPES_LOG2_MAX 6u
#define TWI_STRIPE_EDGE (INT64_C(1) << 50)
#define TWI_SHARED_EDGE (INT64_C(1) << 58)
#define TWI_NO_LIMIT INT64_C(-1)

struct twi_stripe {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t word;
    int64_t ceiling; /* slices; set before `local` is frozen */
};

struct twi_stripes {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t shared_stripe;
    _Atomic int64_t collapsed; /* sum of the stripes; valid once is_collapsed */
    _Atomic bool is_collapsed;
    uint32_t mask;  /* number of stripes, less 1 */
    uint32_t older; /* line of the generation's next set */
    uint32_t lines; /* of the piece */
    int64_t limit;  /* slices: what they were cut for; else TWI_NO_LIMIT. This and base: set before `local` is frozen */
    int64_t base;   /* slices: the cell's base then */
    _Atomic int64_t shown; /* slices: the count at the last look at all of them */
    struct twi_stripe each[];
};
static_assert(sizeof(struct twi_stripes) == TWI_LINE_BYTES, "the stripes follow in the next lines");

/* The stripes of a cell that is STRIPED in `meta`; NULL: none. acquire S2, pairs with S1: they are complete. */
TWI_INLINE struct twi_stripes *twi_stripes_of(struct twi_cell *cell, uint64_t meta) {
    if (twi_likely((meta & TWI_META_STRIPED) == 0)) return NULL;
    int64_t lines = twi_load_acquire(&cell->stripes);
    return lines == 0 ? NULL : (struct twi_stripes *)((unsigned char *)cell + lines * TWI_LINE_BYTES);
}

/* Which stripe is a thread's own. */
TWI_INLINE uint32_t twi_stripe_own(const struct twi_stripes *stripes, const struct twi_thread *self) {
    return self->shard & stripes->mask;
}

/* What a count did. */
struct twi_counted {
    int64_t local; /* after it; only if it was asked for */
    bool unlisted; /* it set DIRTY: the cell must be listed (twi_dirty_list) */
    bool unmarked; /* the cell's own word had no DIRTY: it must be marked (twi_dirty_mark) */
};

/* What twi_stripes_add() leaves: cells that are striped, or were seen frozen. */
enum twi_added twi_stripes_add_anew(struct twi_cell *cell, int64_t delta, bool wants_sum, const struct twi_thread *self,
                                    struct twi_counted *counted);
/* Adds to a cell, wherever it counts. `wants_sum` false: to the thread's own stripe, if there are any. */
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

/* Fixes the sum of the stripes, and answers it. Any thread, any number of times. */
int64_t twi_stripes_collapse(struct twi_stripes *stripes);
/* Their sum as it is, the trunk apart. */
int64_t twi_stripes_sum(struct twi_stripes *stripes);

/* What taking units of slices did (slice.h). */
struct twi_taken {
    int64_t used;  /* after the call */
    int64_t bound; /* |used - truth| at most, what Redis knows apart */
    bool unlisted; /* see twi_counted */
};
/* Gives back what the stripes of a generation took. */
bool twi_stripes_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
