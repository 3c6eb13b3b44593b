/* distinct.h -- sends counters of distinct elements (TW_KIND_DISTINCT): merges their registers into Redis's, and brings
 * Redis's back.
 *
 *   collected ─▶ waiting ─▶ in a message under way ─▶ merged
 *                   └──────────────┴── back to their counters (waiting.h), and sent again
 * A merge takes the maximum of each register, so to send a message twice changes nothing. There is no ledger, and no
 * batch. If Redis may have lost a merge that it answered, all keys are sent again: at a greeting by a server with
 * another history, and when batches find that Redis has forgotten something (twi_port_forgotten()).
 * Always true: registers are read when a message is made. Each item is settled or returned, once. There is one store
 * (family_open.c). */
#ifndef TWI_SYNC_MESSAGE_DISTINCT_H
#define TWI_SYNC_MESSAGE_DISTINCT_H

#include "sync/message/waiting.h"

struct twi_connection;
struct twi_sync;

/* True: keys wait, and there is room for a message. */
static inline bool twi_distinct_waits(const struct twi_distinct_sender *sender) {
    return twi_waiting_may_go(&sender->waiting) && sender->count < TWI_DISTINCT_MAX;
}

void twi_distinct_step(struct twi_sync *sync, int64_t now_ms);
void twi_distinct_greeted(struct twi_sync *sync, const struct twi_connection *connection);
void twi_distinct_dropped(struct twi_sync *sync); /* the connection has ended: waiting items go back */
void twi_distinct_free(struct twi_distinct_sender *sender);

#endif
