/* dirty.h -- the marks of counters that have unsent counts, and which counters get stripes. */
#ifndef TWI_COUNT_DIRTY_H
#define TWI_COUNT_DIRTY_H

#include "tallywheel.h"
#include "engine/memory/epoch.h"
#include "engine/table/layout.h"
#include "engine/core/state.h"
#include "engine/table/stripe.h"

/* Before a thread sets DIRTY, it says in its slot which counter it marks. It does so until its last mark, inside a
 * section. If it ends in between, the turn finishes the marks (turn/recover.c). */
TWI_INLINE void twi_dirty_begin(struct twi_thread *self, void *engine, struct twi_generation *generation,
                                struct twi_cell *cell) {
    if (generation->synced) twi_marking_set(self, engine, generation, cell);
}
TWI_INLINE void twi_dirty_end(struct twi_thread *self) {
    twi_marking_end(self, NULL);
}

/* Marks a counter for the collector, because its last add returned a word without DIRTY. */
void twi_dirty_mark(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Sets the other marks for a word whose DIRTY was set together with its count (stripe.c), after twi_dirty_begin(). */
void twi_dirty_list(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Sets the marks by the turn. It is for counters that must be collected again: sealing found unsent counts in them,
 * or their items were taken or returned. */
void twi_dirty_owe(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Returns true if a thread or the turn has marked the counter, so that the next collection finds it. By the turn. */
bool twi_dirty_is_marked(struct twi_cell *cell, uint64_t meta);
/* Returns false if all counts of the generation were sent. Then its chunks may be gone. A packed window has counts to
 * send while it is restored (turn/restore.c). Called by the turn. */
bool twi_dirty_may_be_sent(struct twi_generation *generation);
/* Moves the chunks that adders have listed to the turn's list. Called by the turn. */
void twi_dirty_owe_listed(tw_engine *engine, struct twi_generation *generation);
/* Clears `listed` of a chunk, or of the generation (`chunk` is NULL), that is in no list. Threads that found the flag
 * set have pushed nothing, so the turn looks at the content itself. Called by the turn. */
void twi_dirty_unlist(tw_engine *engine, struct twi_generation *generation, struct twi_chunk *chunk);
/* Adds a generation to the turn's list of generations to collect. */
void twi_dirty_pend(tw_engine *engine, struct twi_generation *generation);
/* Moves the generations that adders have listed to the turn's list. Called by the turn. */
void twi_dirty_take_marked(tw_engine *engine);
/* Finishes the marks of the thread with this number, which ended while it may have marked the counter. By the turn. */
void twi_dirty_heal(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint32_t number);
/* Removes a generation from both lists. It has no unsent counts, and no thread can reach it. Called by the turn. */
void twi_dirty_forget(tw_engine *engine, struct twi_generation *generation);
/* Samples unsent_keys. Called by the turn. */
void twi_dirty_sample(tw_engine *engine);

/* ---- contention ----
 * the choice of the counters that get stripes (stripe.h): those to which several threads add at the
 * same time. Calls detect contention and request stripes; the turn makes them.
 * Always true: only the turn makes stripes, and calls allocate no memory for them. */

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

/* Divides `room` units into the ceilings of the stripes. The stripes then are slices (counted.c). */
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
