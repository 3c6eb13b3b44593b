/* split.h -- a store of a cluster that does not know this engine: was it wiped, or is the slot split? See split.c. */
#ifndef TWI_SYNC_TURN_SPLIT_H
#define TWI_SYNC_TURN_SPLIT_H

#include "sync/message/pipeline.h"

/* True means that no master but the store's own holds a key of its slot, as all of them have said a moment ago. False
 * means that that is being found out, or is not so. */
bool twi_split_is_ruled_out(struct twi_sync *sync, struct twi_store *store, int64_t now_ms);
void twi_split_forget(struct twi_store *store);             /* the store knows this engine after all */
void twi_split_step(struct twi_sync *sync, int64_t now_ms); /* asks the next masters */
/* A connection has ended, with the questions on it. */
void twi_split_lost(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms);
twi_taker twi_split_reply; /* to CLUSTER COUNTKEYSINSLOT */

#endif
