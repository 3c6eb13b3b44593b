/* turn.h -- one bounded round of sync, made by whoever owns the turn. */
#ifndef TWI_SYNC_TURN_TURN_H
#define TWI_SYNC_TURN_TURN_H

#include <stdbool.h>

struct twi_sync;

void twi_sync_turn(struct twi_sync *sync);

/* ---- leave ----
 * the end of an engine in Redis. When all its counts are acknowledged, its ledgers get a short life. Always
 * true: Redis does not learn that an engine leaves before every batch of that store has its answer. */

struct twi_sync;

/* To be called after turns, while tw_close() has time, when the engine has no more to send. Returns true if there is no
 * reply left to wait for. A store that cannot be reached keeps its ledger for a day. */
bool twi_leave(struct twi_sync *sync);

#endif
