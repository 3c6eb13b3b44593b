/* replicas.h -- wait_replicas: finds out which writes enough replicas have. See replicas.c. */
#ifndef TWI_SYNC_MESSAGE_REPLICAS_H
#define TWI_SYNC_MESSAGE_REPLICAS_H

#include "sync/message/pipeline.h"

struct twi_connection;

/* Puts a WAIT into `out`; the caller awaits its reply. */
void twi_replicas_put(struct twi_connection *connection);
/* Does the same after the batches that were just put into `out`, and awaits the reply. */
void twi_replicas_request(struct twi_connection *connection, int64_t now_ms);
/* Sends a WAIT if one is missing. */
void twi_replicas_step(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
twi_taker twi_replicas_reply;
bool twi_replicas_hold(const struct twi_sync *sync); /* the replay buffer is full of batches that the replicas lack */

#endif
