/* transfer.h -- the bytes of one connection, out and in, and the effect of a reply on a batch. See transfer.c. */
#ifndef TWI_SYNC_TURN_TRANSFER_H
#define TWI_SYNC_TURN_TRANSFER_H

#include "sync/message/connection.h"

#include <stdint.h>

/* ---- outcome ----
 * the effect of a reply on a batch. See transfer.c. */

twi_taker twi_outcome_reply;

struct twi_connection;
struct twi_sync;

/* Sends the bytes of the pipeline, as many as the socket accepts. */
void twi_transfer_send(struct twi_connection *connection, int64_t now_ms);
/* Handles every whole reply that is there, up to one that shows the connection broken. */
void twi_transfer_receive(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
/* Returns when the connection is given up if no reply comes; INT64_MAX if no reply is awaited. */
int64_t twi_transfer_deadline_ms(const struct twi_connection *connection);

/* Marks the connection as broken if that moment has come. */
void twi_transfer_expire(struct twi_connection *connection, int64_t now_ms);

#endif
