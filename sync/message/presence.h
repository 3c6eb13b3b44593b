/* presence.h -- sends presence statements on this engine's gauges and holds, and sweeps of expired reservations. A
 * statement has absolute values, so sending it again is harmless.
 *
 *   gauges:  collected ─▶ waiting ─▶ in a statement under way ─▶ answered: the sums become views
 *                            └─────────────┴── the statement is refused, or the connection is lost: the items go back
 *                                              to their counters, and are sent again
 * If there are several stores, a statement has keys of one store, and goes to that.
 * Always true: each item of a gauge is acknowledged or returned, once. Each statement on gauges has a higher number
 * than all before it. */
#ifndef TWI_SYNC_MESSAGE_PRESENCE_H
#define TWI_SYNC_MESSAGE_PRESENCE_H

#include "sync/message/waiting.h"

#define TWI_PRESENCE_KEYS_MAX 200u /* in one statement: some 3 ms of Redis's one thread, if there are ten engines */

struct twi_sync;

/* Returns true if gauges wait, there is room for a statement, and a store accepts it. */
static inline bool twi_presence_wait(const struct twi_presence *presence) {
    return twi_waiting_may_go(&presence->waiting) && presence->count < TWI_PRESENCE_MAX;
}

void twi_presence_step(struct twi_sync *sync, int64_t now_ms);
void twi_presence_dropped(struct twi_sync *sync); /* the connection has ended, so waiting items go back */
void twi_presence_free(struct twi_presence *presence);

#endif
