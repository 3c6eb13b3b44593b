/* contention.h -- the choice of the counters that get stripes (stripe.h): those to which several threads add at the
 * same time. Calls detect contention and request stripes; the turn makes them.
 * Always true: only the turn makes stripes, and calls allocate no memory for them. */
#ifndef TWI_COUNT_CONTENTION_H
#define TWI_COUNT_CONTENTION_H

#include "engine/count/dirty.h"
#include "engine/core/state.h"
#include "engine/table/stripe.h"

/* If there is less room than this, slices are not worth their cost. */
TWI_INLINE int64_t twi_slices_room_min(uint32_t stripes) {
    return 16 * (int64_t)stripes;
}

/* Marks and lists the cell, if twi_stripes_add() has not done all of that. */
TWI_INLINE void twi_contention_mark(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                    uint64_t meta, const struct twi_counted *counted) {
    if (counted->unmarked) twi_dirty_mark(engine, generation, cell, meta);
    if (counted->unlisted) twi_dirty_list(engine, generation, cell, meta);
}

/* Divides `room` units into the ceilings of the stripes. The stripes then are slices (slice.c). */
void twi_slices_cut(struct twi_stripes *stripes, int64_t limit, int64_t base, int64_t room);
/* Called by the turn. Makes stripes for the cell if it has none, if they are worth their cost, and if there is room. */
bool twi_contention_make_stripes(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                 int64_t limit);

/* ---- who requests stripes --------------------------------------------------------------------------------------- */

#define TWI_CONTENTION_EVERY 1024 /* one in so many adds of a thread begins to sample; a power of two */
/* Called after an add without a view, inside its section. Samples whether other threads add to this cell. `count` is
 * the thread's number of increments. */
TWI_COLD void twi_contention_detect_add(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                        int64_t before, int64_t delta, struct twi_thread *self);
TWI_INLINE void twi_contention_detect(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                      int64_t before, int64_t delta, int64_t count, struct twi_thread *self) {
    if (twi_unlikely(cell == self->sampled) || twi_unlikely((count & (TWI_CONTENTION_EVERY - 1)) == 0))
        twi_contention_detect_add(engine, generation, cell, before, delta, self);
}
/* Called after tw_acquire() has lost a compare-and-swap, inside its section. */
TWI_COLD void twi_contention_detect_acquire(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                            int64_t limit, struct twi_thread *self);
/* Requests stripes, or slices of `limit`, from the turn. The engine keeps only the first request until the next
 * turn. */
void twi_contention_request(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, int64_t limit);

/* Called by the turn. Drops a request that the thread with this number wrote when it ended. */
void twi_contention_heal(tw_engine *engine, uint32_t number);

/* Makes the stripes that were requested. */
void twi_contention_turn(tw_engine *engine);
/* Called when no thread can reach this generation any more. It drops a request for that generation. */
void twi_contention_forget(tw_engine *engine, const struct twi_generation *generation);

#endif
