/* history.h -- windows that have ended and stay readable. They are packed, and their tables are given back. Called by
 * the turn. */
#ifndef TWI_TURN_HISTORY_H
#define TWI_TURN_HISTORY_H

#include "tallywheel.h"

struct tw_family;
struct twi_arena;
struct twi_generation;

/* Queues a window for packing. Such a window has ended and stays readable for a while. Called by the turn. */
void twi_history_enter(tw_engine *engine, struct twi_generation *generation);
/* Continues packing, for one turn's work. */
void twi_history_turn(tw_engine *engine, struct tw_family *family);
/* Removes generations whose phase is DROPPED from the packing queue. */
void twi_history_forget_dropped(struct twi_arena *arena, struct tw_family *family);
/* Begins to give back the table of a packed generation, or the records that it has again. No thread uses them. */
void twi_history_begin_shed(tw_engine *engine, struct twi_generation *generation);
/* Continues to give back the table of a packed generation. Returns true when the whole table is given back. */
bool twi_history_shed(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);
/* After a turn that did not end, by the thread that took over: the family has no list of windows to pack, and this
 * window, which is not dropped, enters the list again where it has to. `stamp` is an epoch stamp of now. */
void twi_history_recover(tw_engine *engine, struct twi_generation *generation, uint64_t stamp);
/* Continues to give back the packed forms of a generation. Returns true when all packed forms are given back. */
bool twi_history_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
