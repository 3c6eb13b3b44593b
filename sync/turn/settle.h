/* settle.h -- settles items, and notes how Redis does. See settle.c. */
#ifndef TWI_SYNC_TURN_SETTLE_H
#define TWI_SYNC_TURN_SETTLE_H

#include "sync/batch/reply.h"
#include "sync/batch/batch.h"
#include "sync/message/connection.h"

struct twi_connection;
struct twi_store;

void twi_settle_give_back(struct twi_batch *batch); /* returns its items to their counters; it was surely not applied */
void twi_settle_give_up_item(struct twi_sync *sync, const struct twi_item *item, int reason);
void twi_settle_give_up(struct twi_sync *sync, struct twi_batch *batch, int reason);
/* Gives it up as uncertain, but for the part that the store has (twi_port_keep_item()). */
void twi_settle_keep(struct twi_sync *sync, struct twi_batch *batch);
void twi_settle_item(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item, uint64_t number,
                     const struct twi_item_answer *result, bool take_total, int64_t now_ms);
/* Called when Redis answers as it should. */
void twi_settle_success(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
void twi_settle_clock(struct twi_connection *connection, const struct twi_pending *pending, int64_t redis_ms,
                      int64_t now_ms);
/* Called when a batch of that store was refused and waits. If `slowly` is true, waiting does not help on this
 * connection, so the connection fails. */
void twi_settle_refusal(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store, bool slowly,
                        int64_t now_ms);
/* Does the same for the reply to a batch, whose error is reported. An unknown outcome also fails the connection. */
void twi_settle_refused(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store,
                        const struct twi_reply_head *head, int64_t now_ms);

/* ---- send ----
 * puts a batch into the pipeline.   Step 5 of the flow.
 * Always true: a batch in the pipeline counts as a copy of unknown outcome until its reply is read. */

/* Sends a batch of that store as BATCH, or as OPEN under the candidate's name: over its connection, or to the node that
 * ASK has named. */
void twi_send_batch(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, enum twi_command command,
                    int64_t now_ms);

#endif
