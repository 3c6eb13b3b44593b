/* settle.h -- items are settled; how Redis does is noted. See settle.c. */
#ifndef TWI_SYNC_TURN_SETTLE_H
#define TWI_SYNC_TURN_SETTLE_H

#include "sync/batch/reply.h"
#include "sync/batch/batch.h"
#include "sync/message/pipeline.h"

struct twi_connection;

void twi_settle_give_back(struct twi_batch *batch); /* its items, surely not applied */
void twi_settle_give_up_item(struct twi_sync *sync, const struct twi_item *item, int reason);
void twi_settle_give_up(struct twi_sync *sync, struct twi_batch *batch, int reason);
void twi_settle_item(struct twi_sync *sync, const struct twi_item *item, uint64_t number,
                     const struct twi_item_answer *result, bool take_total, int64_t now_ms);
void twi_settle_success(struct twi_sync *sync, int64_t now_ms); /* Redis answers as it should */
void twi_settle_clock(struct twi_connection *connection, const struct twi_pending *pending, int64_t redis_ms,
                      int64_t now_ms);
/* A batch was refused and waits; `slowly`: this connection will not change its mind, and fails. */
void twi_settle_refusal(struct twi_sync *sync, bool slowly, int64_t now_ms);
/* The same by an answer of the batch's script, and what it says; an unknown outcome is a failure of the connection,
 * too. */
void twi_settle_refused(struct twi_sync *sync, const struct twi_reply_head *head, int64_t now_ms);

#endif
