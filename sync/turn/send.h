/* send.h -- a batch goes into the pipeline.   Step 5 of the flow.
 * Always true: a batch that was put there counts as a copy of unknown outcome until a reply tells. */
#ifndef TWI_SYNC_TURN_SEND_H
#define TWI_SYNC_TURN_SEND_H

#include "sync/message/pipeline.h"

/* BATCH, or OPEN under the candidate's name. */
void twi_send_batch(struct twi_sync *sync, struct twi_batch *batch, enum twi_command command, int64_t now_ms);

#endif
