/* history.h -- windows that are over and stay readable: packed, and their tables given back. By the turn. */
#ifndef TWI_TURN_HISTORY_H
#define TWI_TURN_HISTORY_H

#include "tallywheel.h"

struct tw_family;
struct twi_generation;

/* A window that is over and stays readable for a while is to be packed. By the turn. */
void twi_history_enter(tw_engine *engine, struct twi_generation *generation);
/* Goes on packing, for a turn's worth of work. */
void twi_history_turn(tw_engine *engine, struct tw_family *family);
/* Leaves alone what is to go: generations whose phase is DROPPED. */
void twi_history_forget_dropped(tw_engine *engine, struct tw_family *family);
/* Goes on giving the table of a packed generation back. True when it is gone. */
bool twi_history_shed(tw_engine *engine, struct twi_generation *generation, uint32_t *work);
/* Gives back what a generation has of packed forms. True when all is given back. */
bool twi_history_unmake(tw_engine *engine, struct twi_generation *generation, uint32_t *work);

#endif
