/* dirty.h -- the marks of the counters with unsent counts, how they are set, and how the turn takes them (dirty.c). */
#ifndef TWI_COUNT_DIRTY_H
#define TWI_COUNT_DIRTY_H

#include "tallywheel.h"

struct twi_generation;
struct twi_cell;

/* Marks a counter for the collector, because its last add returned a word without DIRTY. */
void twi_dirty_mark(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* The rest of the mark, for a word whose DIRTY was set together with its count (stripe.c). */
void twi_dirty_list(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* The mark of the turn, for counters that sealing found to have unsent counts, or whose items were taken or came back,
 * and that must be collected again. */
void twi_dirty_owe(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Puts a generation on the turn's list of generations to collect. */
void twi_dirty_pend(tw_engine *engine, struct twi_generation *generation);
/* Moves the generations that adders have listed to that list. By the turn. */
void twi_dirty_take_marked(tw_engine *engine);
/* Removes a generation from both lists. It has no unsent counts, and no thread can reach it. Called by the turn. */
void twi_dirty_forget(tw_engine *engine, struct twi_generation *generation);
/* Samples unsent_keys. By the turn. */
void twi_dirty_sample(tw_engine *engine);

#endif
