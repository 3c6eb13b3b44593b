/* send.h -- puts a batch into the pipeline.   Step 5 of the flow.
 * Always true: a batch in the pipeline counts as a copy of unknown outcome until its reply is read. */
#ifndef TWI_SYNC_TURN_SEND_H
#define TWI_SYNC_TURN_SEND_H

#include "sync/message/pipeline.h"

/* Sends a batch of that store as BATCH, or as OPEN under the candidate's name: over its connection, or to the node that
 * ASK has named. */
void twi_send_batch(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, enum twi_command command,
                    int64_t now_ms);

#endif
