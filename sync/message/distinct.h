/* distinct.h -- sends counters of distinct elements (TW_KIND_DISTINCT): merges their registers into Redis's, and brings
 * Redis's back.
 *
 *   collected ─▶ waiting ─▶ in a message under way ─▶ merged
 *                   └──────────────┴── back to their counters (message.h), and sent again
 * A merge computes the maximum of each register, so sending a message twice has no further effect. There is no ledger,
 * and no batch. A message has keys of one store, and goes to that. A redirect means that the message was not executed.
 * The keys go back, and their counters are deferred until the store accepts messages again (turn/collect.c).
 * If a store may have lost a merge that it answered, all its keys are sent again. When it is met at a server with
 * another history than the one that answered, and when batches find that it has forgotten something
 * (twi_port_forgotten()).
 * Always true: registers are read when a message is made. Each item is settled or returned, once. */
#ifndef TWI_SYNC_MESSAGE_DISTINCT_H
#define TWI_SYNC_MESSAGE_DISTINCT_H

#include "sync/message/message.h"

struct twi_store;
struct twi_sync;

/* Returns when the store next has something to do. Returns INT64_MAX if a reply, or a store, has to come first. */
int64_t twi_distinct_due_ms(const struct twi_sync *sync, int64_t now_ms);
/* Called when the store was brought to a connection that is up. */
void twi_distinct_attached(struct twi_sync *sync, struct twi_store *store);
/* Called before counters are collected. Keys of stores that may have lost something are to be sent again. */
void twi_distinct_restate(struct twi_sync *sync, int64_t now_ms);
void twi_distinct_step(struct twi_sync *sync, int64_t now_ms);
void twi_distinct_greeted(struct twi_sync *sync);
void twi_distinct_dropped(struct twi_sync *sync); /* a connection has ended, so waiting items go back */
void twi_distinct_free(struct twi_distinct_sender *sender);

#endif
