/* overshoot.h -- measures by how much soft limits with Redis were exceeded, after their window has ended.
 *
 *   a call comes near the limit ─▶ note (counter, limit) ─▶ the window is sealed, and drained
 *   ─▶ two intervals later: its total is requested once more ─▶ (total - limit) / limit, into the family's histogram
 * By then the other engines that reach Redis have sent their counts of that window. A note is made only for a counter
 * that came near its limit in this engine. If a counter exceeded its limit, the counter came near the limit in every
 * engine that counted in it. Some counters are not measured: those in windows without a fixed end (endless families,
 * windows from the first add), and those of exact limits (hard, strict, without Redis).
 *
 *   note: 0 ─▶ BUSY (its limit is being written, by one caller) ─▶ the counter ─▶ 0 (by the turn)
 * Always true: a counter has at most one note, in the slot that its line chooses. If two counters have the same
 * slot, the second one is not measured. Callers never wait. Only the turn clears a note, so a note belongs to a
 * generation that still exists. */
#ifndef TWI_LIMIT_OVERSHOOT_H
#define TWI_LIMIT_OVERSHOOT_H

#include "engine/limit/decision.h"

TWI_INLINE bool twi_overshoot_is_measured(const struct tw_family *family) {
    return family->kind.shares && !family->kind.is_strict && family->kind.has_starts;
}

/* Called when a call was decided near its limit. Notes the counter. The caller is inside the call's section. */
void twi_overshoot_note(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                        int64_t limit);
TWI_INLINE void twi_overshoot_check(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                                    int64_t n, int64_t view, int64_t limit) {
    if (n == 0 || limit <= 0 || !twi_overshoot_is_measured(family)) return;
    if (view >= limit || twi_limit_is_near(view, limit)) twi_overshoot_note(family, generation, cell, limit);
}

/* ---- by the turn ---- */

/* Measures a drained generation. `ends` means that this is the last opportunity. Returns true if the generation is
 * finished and no request for it is under way. */
bool twi_overshoot_measure(tw_engine *engine, struct twi_generation *generation, bool ends);
/* Fills `items` with at most `room` requests for Redis. */
size_t twi_overshoot_requests(tw_engine *engine, struct twi_item *items, size_t room);
/* Called when the thread with this number ended while it may have written the note of this counter. Drops the note. */
void twi_overshoot_heal(tw_engine *engine, const struct twi_generation *generation, const struct twi_cell *cell,
                        uint32_t number);
/* Called when no thread can reach this generation any more. Clears its notes. */
void twi_overshoot_forget(tw_engine *engine, const struct twi_generation *generation);
/* Called in a forked child, which has no counters. */
void twi_overshoot_clear(tw_engine *engine);

/* Upper bounds of the buckets, as text; the last bucket has no upper bound. */
extern const char *const twi_overshoot_bounds[TWI_OVERSHOOT_BUCKETS];

#endif
