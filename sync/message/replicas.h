/* replicas.h -- wait_replicas: what enough replicas have. See replicas.c. */
#ifndef TWI_SYNC_MESSAGE_REPLICAS_H
#define TWI_SYNC_MESSAGE_REPLICAS_H

#include "sync/message/pipeline.h"

struct twi_connection;

/* Puts a WAIT into `out`; the caller awaits its reply. */
void twi_replicas_put(struct twi_connection *connection);
/* The same behind the batches that were just put into `out`, and awaits the reply. */
void twi_replicas_request(struct twi_connection *connection, int64_t now_ms);
void twi_replicas_step(struct twi_sync *sync, int64_t now_ms); /* asks again, where nothing is under way */
twi_taker twi_replicas_reply;
bool twi_replicas_hold(const struct twi_sync *sync); /* the window is full of what is not on the replicas */

#endif
