/* presence.h -- what is present: statements on this engine's gauges and holds, and sweeps of reservations that are
 * over. Each statement is whole and may be repeated.
 *
 *   collected (gauges) ─▶ waiting ─▶ one of a few statements under way ─▶ answered: the sums become views
 *                            └─────────────┴── refused, or the connection is lost: back to their counters, to be sent
 * anew
 * Always true: a gauge's item that was taken is acknowledged or returned, once; each statement has a higher number than
 * all before it. */
#ifndef TWI_SYNC_MESSAGE_PRESENCE_H
#define TWI_SYNC_MESSAGE_PRESENCE_H

#include "sync/message/store.h"

#define TWI_PRESENCE_KEYS_MAX 200u /* in one statement: some 3 ms of Redis's one thread, with ten engines */
#define TWI_PRESENCE_WAITING_MAX 4096u

struct twi_sync;

/* A flush waits for what was taken up to a point. */
static inline bool twi_presence_holds_flush(const struct twi_presence *presence) {
    return presence->until != 0 && presence->answered + 1 < presence->until;
}
static inline bool twi_presence_are_full(const struct twi_presence *presence) {
    return presence->end - presence->at >= TWI_PRESENCE_WAITING_MAX;
}
/* There is something to be sent, and room for it. */
static inline bool twi_presence_wait(const struct twi_presence *presence) {
    return presence->at != presence->end && presence->count < TWI_PRESENCE_MAX;
}

/* Takes items of gauges. False: no memory, none was taken. */
bool twi_presence_take(struct twi_presence *presence, const struct twi_item *items, size_t count);
void twi_presence_step(struct twi_sync *sync, int64_t now_ms);
void twi_presence_dropped(struct twi_sync *sync); /* the connection has ended: what waits goes back */
void twi_presence_free(struct twi_presence *presence);

#endif
