/* merge_plain.h -- merging without a script. See merge_plain.c. */
#ifndef TWI_SYNC_TURN_MERGE_PLAIN_H
#define TWI_SYNC_TURN_MERGE_PLAIN_H

#include "sync/message/pipeline.h"

struct twi_merge_plain *twi_merge_plain_create(void); /* NULL: no memory */
void twi_merge_plain_free(struct twi_merge_plain *merge_plain);
void twi_merge_plain_send(struct twi_sync *sync, struct twi_batch *batch, int64_t now_ms);
twi_taker twi_merge_plain_reply, twi_merge_plain_time;
void twi_merge_plain_dropped(struct twi_sync *sync); /* what is under way gets no reply */

#endif
