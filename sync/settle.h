/* settle.h -- what an answer does to batches and items. See settle.c. */
#ifndef TWI_SYNC_SETTLE_H
#define TWI_SYNC_SETTLE_H

#include "sync/answer.h"
#include "sync/batch.h"
#include "sync/pipeline.h"

bool twi_settle_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                      size_t count, int64_t now_ms); /* false: the connection was dropped */
bool twi_settle_refused(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms);
/* The store has our ledger, at that number: what it lacks is sent again. False: the connection was dropped. */
bool twi_settle_at(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms);
void twi_settle_give_back(struct twi_batch *batch); /* its items, surely not applied */
void twi_settle_give_up(struct twi_sync *sync, struct twi_batch *batch, int reason);
/* Redis refuses it, which is counted and logged once, and known to flushes while it lasts. Returns how long it is to wait. */
uint32_t twi_settle_poison(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *error,
                           int64_t now_ms);
void twi_settle_item(struct twi_sync *sync, const struct twi_item *item, uint64_t number,
                     const struct twi_item_answer *said, bool take_total, int64_t now_ms);
void twi_settle_success(struct twi_sync *sync, int64_t now_ms); /* Redis answers as it should */
void twi_settle_clock(struct twi_sync *sync, const struct twi_pending *pending, int64_t redis_ms, int64_t now_ms);
/* A batch was refused and waits; `slowly`: this connection will not change its mind. False: it was dropped. */
bool twi_settle_refusal(struct twi_sync *sync, bool slowly, int64_t now_ms);

#endif
