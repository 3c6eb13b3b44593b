/* dirty.h -- the marks of the counters that have unsent counts: setting and taking them (dirty.c). */
#ifndef TWI_COUNT_DIRTY_H
#define TWI_COUNT_DIRTY_H

#include "tallywheel.h"

#include "engine/memory/epoch.h"
#include "engine/table/layout.h"

/* Before a thread sets DIRTY, it says in its slot which counter it marks. It does so until its last mark, inside a
 * section. If it ends in between, the turn finishes the marks (twi_dirty_heal). */
TWI_INLINE void twi_dirty_begin(struct twi_thread *self, void *engine, struct twi_generation *generation,
                                struct twi_cell *cell) {
    if (!generation->synced) return;
    struct twi_marking *marking = &twi_thread_slot(self)->marking;
    twi_store_relaxed(&marking->engine, engine);
    twi_store_relaxed(&marking->generation, generation);
    twi_store_release(&marking->cell, cell); /* D9, pairs with the mutex of the slot */
}
TWI_INLINE void twi_dirty_end(struct twi_thread *self) {
    twi_store_release(&twi_thread_slot(self)->marking.cell, NULL); /* D9 */
}

/* Marks a counter for the collector, because its last add returned a word without DIRTY. */
void twi_dirty_mark(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Sets the other marks for a word whose DIRTY was set together with its count (stripe.c), after twi_dirty_begin(). */
void twi_dirty_list(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Sets the marks by the turn. It is for counters that must be collected again: sealing found unsent counts in them,
 * or their items were taken or returned. */
void twi_dirty_owe(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Adds a generation to the turn's list of generations to collect. */
void twi_dirty_pend(tw_engine *engine, struct twi_generation *generation);
/* Moves the generations that adders have listed to the turn's list. Called by the turn. */
void twi_dirty_take_marked(tw_engine *engine);
/* Finishes the marks of threads that ended while they marked a counter. By the turn. */
void twi_dirty_heal(tw_engine *engine);
/* Removes a generation from both lists. It has no unsent counts, and no thread can reach it. Called by the turn. */
void twi_dirty_forget(tw_engine *engine, struct twi_generation *generation);
/* Samples unsent_keys. Called by the turn. */
void twi_dirty_sample(tw_engine *engine);

#endif
