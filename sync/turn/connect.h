/* connect.h -- from DOWN to UP, and back.
 * Always true: see connect.c. */
#ifndef TWI_SYNC_TURN_CONNECT_H
#define TWI_SYNC_TURN_CONNECT_H

#include "sync/message/pipeline.h"
#include "sync/wire/wire.h"

void twi_connect_step(struct twi_sync *sync, int64_t now_ms);
twi_taker twi_connect_reply;                                  /* to the greeting, to CONFIG and BGREWRITEAOF */
void twi_connect_open(struct twi_sync *sync, int64_t now_ms); /* sends number 0 of a fresh instance */
/* Ends the connection that has failed (twi_connection_fail()). For the turn alone, between two steps. */
void twi_connect_end(struct twi_sync *sync, int64_t now_ms);
/* What is under way will not be answered: whoever waits for it is told. */
void twi_connect_unanswered(struct twi_sync *sync, int64_t now_ms);
/* Redis went back: its append-only file may hold half a transaction, which the next restart would apply a second
 * time. */
void twi_connect_rewrite(struct twi_sync *sync, int64_t now_ms);

#endif
