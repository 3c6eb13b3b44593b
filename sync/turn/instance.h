/* instance.h -- which store knows us, and when another instance begins. See instance.c. */
#ifndef TWI_SYNC_TURN_INSTANCE_H
#define TWI_SYNC_TURN_INSTANCE_H

#include "sync/message/pipeline.h"

struct twi_reply_head;
struct twi_store;

/* For so long a store that does not know us is taken for another one, seen by mistake: the one of before may be back.
 * Tests shorten it. */
extern _Atomic int64_t twi_doubt_ms;
twi_taker twi_instance_reply; /* to an opening */
void twi_instance_gone(struct twi_sync *sync, int64_t now_ms);
/* The ledger is there, and not ours any more: nobody is to go back to it. */
void twi_instance_lose(struct twi_sync *sync, const char *why);
/* Is the ledger where we can have brought it? If it is further, it is not ours any more, and lost. */
bool twi_instance_is_ours(struct twi_sync *sync, const struct twi_reply_head *head);
/* The store has our ledger, at that number: what it lacks is sent again. */
void twi_instance_at(struct twi_sync *sync, const struct twi_reply_head *head, int64_t now_ms);
/* The store lacks what it had acknowledged: so many batches; of them so many units are in no batch any more. */
void twi_instance_went_back(struct twi_sync *sync, uint64_t gone, uint64_t lost, int64_t now_ms);
void twi_instance_at_own_store(struct twi_sync *sync); /* a store answered that has our ledger */
void twi_instance_note(struct twi_store *store, const struct twi_reply_head *head); /* its marker */
void twi_instance_entered(struct twi_store *store, const struct twi_reply_head *head,
                          int64_t now_ms); /* and when it last wrote that it knows us */

#endif
