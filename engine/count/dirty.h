/* dirty.h -- the marks of the counters that have unsent counts: setting and taking them (dirty.c). */
#ifndef TWI_COUNT_DIRTY_H
#define TWI_COUNT_DIRTY_H

#include "tallywheel.h"

#include "engine/memory/epoch.h"
#include "engine/table/layout.h"

/* Before a thread sets DIRTY, it says in its slot which counter it marks. It does so until its last mark, inside a
 * section. If it ends in between, the turn finishes the marks (turn/heal.c). */
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

#endif
