/* split.h -- finds out whether a store of a cluster without a record of this engine was wiped, or whether its slot is
 * split. See split.c. */
#ifndef TWI_SYNC_TURN_SPLIT_H
#define TWI_SYNC_TURN_SPLIT_H

#include "sync/message/connection.h"

/* Returns true if no master except the store's has a key of its slot, by recent replies of all masters. Returns
 * false if other masters have such keys, or if the replies are still awaited. */
bool twi_split_is_ruled_out(struct twi_sync *sync, struct twi_store *store, int64_t now_ms);
void twi_split_forget(struct twi_store *store);             /* the store has a record of this engine after all */
void twi_split_step(struct twi_sync *sync, int64_t now_ms); /* asks the next masters */
/* Called when a connection has ended, with the questions on it. */
void twi_split_lost(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms);
twi_taker twi_split_reply; /* to CLUSTER COUNTKEYSINSLOT */

#endif
