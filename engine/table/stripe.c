/* stripe.c -- reads, collapses, freezes, adds to and gives back the words of striped counters (stripe.h).
 * Always true: no thread waits for another. */
#include "engine/table/stripe.h"

#include "engine/table/layout.h"
#include "engine/table/area.h"

#include <unistd.h>

/* ---- reading ---- */

int64_t twi_stripes_sum(struct twi_stripes *stripes) {
    if (twi_load_acquire(&stripes->is_collapsed)) return twi_load_relaxed(&stripes->collapsed); /* S4, pairs with S3 */
    int64_t sum = 0;
    for (uint32_t i = 0; i <= stripes->mask; i++) sum += twi_word_value(twi_load_acquire(&stripes->each[i].word));
    return sum;
}

int64_t twi_stripes_count(struct twi_cell *cell) {
    struct twi_stripes *stripes = twi_stripes_of(cell, TWI_META_STRIPED);
    if (stripes == NULL) return 0;
    return twi_word_value(twi_load_acquire(&stripes->shared_stripe)) + twi_stripes_sum(stripes);
}

/* ---- collapsing and freezing ------------------------------------------------------------------------------------ */

static int64_t freeze_word(_Atomic uint64_t *word) {
    uint64_t found = twi_load_relaxed(word);
    if ((found & TWI_FROZEN) == 0) found = twi_or_acqrel(word, TWI_FROZEN);
    return twi_word_value(found);
}

int64_t twi_stripes_collapse(struct twi_stripes *stripes) {
    if (twi_load_acquire(&stripes->is_collapsed)) return twi_load_relaxed(&stripes->collapsed); /* S4 */
    int64_t sum = 0;
    for (uint32_t i = 0; i <= stripes->mask; i++) {
        sum += freeze_word(&stripes->each[i].word);
        TWI_RACE_POINT(stripe_frozen_not_collapsed);
    }
    twi_store_relaxed(&stripes->collapsed, sum);     /* it is the same sum, whichever thread stores it */
    twi_store_release(&stripes->is_collapsed, true); /* S3, pairs with S4 */
    return sum;
}

int64_t twi_stripes_freeze(struct twi_cell *cell) {
    struct twi_stripes *stripes = twi_stripes_of(cell, TWI_META_STRIPED);
    if (stripes == NULL) return 0;
    int64_t sum = twi_stripes_collapse(stripes);
    TWI_RACE_POINT(stripes_collapsed_shared_open);
    return sum + freeze_word(&stripes->shared_stripe);
}

int64_t twi_stripes_take_dirty(struct twi_cell *cell, bool *sealed) {
    struct twi_stripes *stripes = twi_stripes_of(cell, TWI_META_STRIPED);
    int64_t sum = 0;
    /* D2, word by word, because each word has a DIRTY of its own */
    uint64_t word = twi_and_acqrel(&stripes->shared_stripe, ~TWI_DIRTY);
    *sealed = (word & TWI_FROZEN) != 0;
    for (uint32_t i = 0; i <= stripes->mask; i++)
        sum += twi_word_value(twi_and_acqrel(&stripes->each[i].word, ~TWI_DIRTY)); /* D2 */
    return sum + twi_word_value(word);
}

bool twi_stripes_mark_requested(struct twi_cell *cell) {
    struct twi_stripes *stripes = twi_stripes_of(cell, TWI_META_STRIPED);
    if (stripes == NULL || (twi_load_relaxed(&stripes->shared_stripe) & (TWI_DIRTY | TWI_FROZEN)) != 0) return false;
    return (twi_or_acqrel(&stripes->shared_stripe, TWI_DIRTY) & (TWI_DIRTY | TWI_FROZEN)) == 0; /* D1 */
}

/* ---- adding ---- */

/* Returns false if the stripe is frozen, or if the add would reach the edge of the stripe. */
static bool add_to_stripe(struct twi_stripe *stripe, uint64_t dirty, int64_t delta, bool *unlisted) {
    uint64_t word = twi_load_relaxed(&stripe->word), after;
    do {
        int64_t sum = twi_saturated_sum(twi_word_value(word), delta);
        if ((word & TWI_FROZEN) != 0 || sum >= TWI_STRIPE_EDGE || sum <= -TWI_STRIPE_EDGE) return false;
        after = (uint64_t)sum << TWI_COUNT_SHIFT | (word & TWI_DIRTY) | dirty;
    } while (!twi_cas_weak_acqrel(&stripe->word, &word, after)); /* D1: DIRTY together with the count */
    *unlisted = (word & TWI_DIRTY) != dirty;
    return true;
}

static bool is_out_of_range(int64_t value) {
    return value > TW_COUNT_MAX || value < -TW_COUNT_MAX;
}

static enum twi_added add_to_shared(struct twi_stripes *stripes, int64_t final, uint64_t dirty, int64_t delta,
                                    bool wants_sum, struct twi_counted *counted) {
    uint64_t word = twi_load_acquire(&stripes->shared_stripe), after;
    int64_t sum;
    do {
        if ((word & TWI_FROZEN) != 0) return TWI_ADD_FROZEN;
        sum = twi_saturated_sum(twi_word_value(word), delta);
        if (twi_unlikely(sum >= TWI_SHARED_EDGE || sum <= -TWI_SHARED_EDGE)) {
            /* the exact sum must be known before it may grow further (trap E4) */
            int64_t total = twi_saturated_sum(sum, final + twi_stripes_collapse(stripes));
            if (is_out_of_range(total) || is_out_of_range(sum)) return TWI_ADD_RANGE;
        }
        after = (uint64_t)sum << TWI_COUNT_SHIFT | (word & TWI_DIRTY) | dirty;
    } while (!twi_cas_weak_acqrel(&stripes->shared_stripe, &word, after)); /* D1 */
    counted->unlisted = (word & TWI_DIRTY) != dirty;
    if (wants_sum) counted->local = sum + final + twi_stripes_sum(stripes);
    return TWI_ADDED;
}

/* Adds to a striped cell whose `local` was found frozen. */
static enum twi_added add_striped(struct twi_cell *cell, uint64_t meta, int64_t delta, bool wants_sum,
                                  const struct twi_thread *self, struct twi_counted *counted) {
    struct twi_stripes *stripes = twi_stripes_of(cell, meta);
    if (stripes == NULL) return TWI_ADD_FROZEN;
    uint64_t dirty = (meta & TWI_META_COLD) != 0 ? TWI_DIRTY : 0;
    if (!wants_sum && stripes->limit == TWI_NO_LIMIT) {
        struct twi_stripe *stripe = &stripes->each[twi_stripe_own(stripes, self)];
        if (twi_likely(add_to_stripe(stripe, dirty, delta, &counted->unlisted))) return TWI_ADDED;
        /* the stripe is frozen or at its edge, so from now on the shared stripe receives all adds */
        (void)twi_stripes_collapse(stripes);
    }
    return add_to_shared(stripes, twi_load_relaxed(twi_cell_final(cell, meta)), dirty, delta, wants_sum, counted);
}

enum twi_added twi_stripes_add_anew(struct twi_cell *cell, int64_t delta, bool wants_sum, const struct twi_thread *self,
                                    struct twi_counted *counted) {
    *counted = (struct twi_counted){0};
    uint64_t meta = twi_load_relaxed(&cell->meta);
    /* C2, so `final` and the ceilings are visible */
    if (twi_unlikely((twi_load_acquire(&cell->local) & TWI_FROZEN) == 0)) {
        uint64_t before; /* the stripes exist, but the turn has not frozen the word yet */
        enum twi_added added = twi_cell_add(cell, meta, delta, &before);
        if (added != TWI_ADD_FROZEN) {
            counted->local = twi_word_value(before) + delta;
            counted->unmarked = (meta & TWI_META_COLD) != 0 && (before & TWI_DIRTY) == 0;
            return added;
        }
        (void)twi_load_acquire(&cell->local); /* C2 */
    }
    /* The cell may have become striped since it was looked up. STRIPED was set before FROZEN, so this load sees it
     * after C2. A cell that is not striped was sealed. */
    meta = twi_load_acquire(&cell->meta); /* S2 */
    return add_striped(cell, meta, delta, wants_sum, self, counted);
}

/* ---- giving back ---- */

bool twi_stripes_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    while (generation->turn.striped != 0) {
        struct twi_stripes *stripes = twi_arena_at(arena, generation->turn.striped);
        uint32_t line = generation->turn.striped, lines = stripes->lines;
        if (*work < lines) return false;
        *work -= lines;
        generation->turn.striped = stripes->older;
        twi_piece_give(arena, generation, line, lines);
    }
    return true;
}

uint32_t twi_stripes_log2(void) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t log2 = 3;
    while (log2 < TWI_STRIPES_LOG2_MAX && (1L << log2) < 2 * processors) log2++;
    return log2;
}
