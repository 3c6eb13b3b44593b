/* dirty.h -- the marks of the counters that have unsent counts: setting and taking them (dirty.c). */
#ifndef TWI_COUNT_DIRTY_H
#define TWI_COUNT_DIRTY_H

#include "tallywheel.h"

struct twi_generation;
struct twi_cell;

/* Marks a counter for the collector, because its last add returned a word without DIRTY. */
void twi_dirty_mark(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Sets the other marks for a word whose DIRTY was set together with its count (stripe.c). */
void twi_dirty_list(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Sets the marks by the turn. It is for counters that must be collected again: sealing found unsent counts in them,
 * or their items were taken or returned. */
void twi_dirty_owe(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Adds a generation to the turn's list of generations to collect. */
void twi_dirty_pend(tw_engine *engine, struct twi_generation *generation);
/* Moves the generations that adders have listed to the turn's list. By the turn. */
void twi_dirty_take_marked(tw_engine *engine);
/* Removes a generation from both lists. It has no unsent counts, and no thread can reach it. Called by the turn. */
void twi_dirty_forget(tw_engine *engine, struct twi_generation *generation);
/* Samples unsent_keys. By the turn. */
void twi_dirty_sample(tw_engine *engine);

#endif
