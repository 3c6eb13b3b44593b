/* overshoot.h -- by how much soft limits over Redis were passed, measured when their window is over.
 *
 *   a call comes near the limit ─▶ note (counter, limit) ─▶ the window is sealed, and drained ─▶ two intervals later: its total is
 *   asked for once more ─▶ (total - limit) / limit, into the family's histogram
 * By then the others that reach Redis have sent what they had counted. Only of counters that came near their limit here a note is
 * made: a counter that was passed came near it in every engine that took part in that. Not measured: what was counted in no
 * window with an end of its own (endless families, lives from first), and limits that are exact (hard, strict, without Redis).
 *
 *   note: 0 ─▶ BUSY (its limit is being written, by one caller) ─▶ the counter ─▶ 0 (by the turn)
 * Always true: a counter has one note at most, in the one place where its line puts it, and of two that meet there the second is not
 * measured; callers wait for nobody; the turn alone takes a note away, so a note belongs to a generation that is held. */
#ifndef TWI_LIMIT_OVERSHOOT_H
#define TWI_LIMIT_OVERSHOOT_H

#include "engine/limit/decision.h"

TWI_INLINE bool twi_overshoot_is_measured(const struct tw_family *family) {
    return family->shares && !family->is_strict && family->has_starts;
}

/* A call was decided on that view. Inside its section. */
void twi_overshoot_note(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                        int64_t limit);
TWI_INLINE void twi_overshoot_check(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                                    int64_t n, int64_t view, int64_t limit) {
    if (n == 0 || limit <= 0 || !twi_overshoot_is_measured(family)) return;
    if (view >= limit || twi_limit_is_near(view, limit)) twi_overshoot_note(family, generation, cell, limit);
}

/* ---- by the turn ---- */

/* Of a drained generation; `ends`: now or never. True: it is done with, and no question about it is under way. */
bool twi_overshoot_measure(tw_engine *engine, struct twi_generation *generation, bool ends);
/* Questions that are to go to Redis: at most `room`. */
size_t twi_overshoot_requests(tw_engine *engine, struct twi_item *items, size_t room);
/* Nobody can reach this generation any more. */
void twi_overshoot_forget(tw_engine *engine, const struct twi_generation *generation);
/* In a forked child: there are no counters. */
void twi_overshoot_clear(tw_engine *engine);

/* Upper ends of the buckets, as they are written; the last one has none. */
extern const char *const twi_overshoot_bounds[TWI_OVERSHOOT_BUCKETS];

#endif
