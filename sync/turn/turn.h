/* turn.h -- one bounded round of sync, made by whoever owns the turn. */
#ifndef TWI_SYNC_TURN_TURN_H
#define TWI_SYNC_TURN_TURN_H

struct twi_sync;

void twi_sync_turn(struct twi_sync *sync);

#endif
