/* replicas.h -- wait_replicas: what enough replicas have. See replicas.c. */
#ifndef TWI_SYNC_MESSAGE_REPLICAS_H
#define TWI_SYNC_MESSAGE_REPLICAS_H

#include "sync/message/pipeline.h"

void twi_replicas_put(struct twi_sync *sync); /* the question alone; whoever puts it awaits the answer */
void twi_replicas_request(struct twi_sync *sync, int64_t now_ms); /* behind what was just put into `out` */
void twi_replicas_step(struct twi_sync *sync, int64_t now_ms);    /* asks again, where nothing is under way */
twi_taker twi_replicas_reply;
bool twi_replicas_hold(const struct twi_sync *sync); /* the window is full of what is not on the replicas */

#endif
