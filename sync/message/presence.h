/* presence.h -- presence: statements on this engine's gauges and holds, its heartbeat, and sweeps of reservations. A
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

#include "sync/message/message.h"

#include <stdint.h>

#define TWI_PRESENCE_KEYS_MAX 200u /* in one statement: some 3 ms of Redis's one thread, if there are ten engines */

struct twi_sync;

/* Returns true if gauges wait, there is room for a statement, and a store accepts it. */
static inline bool twi_presence_wait(const struct twi_presence *presence) {
    return twi_waiting_may_go(&presence->waiting) && presence->count < TWI_PRESENCE_MAX;
}

void twi_presence_step(struct twi_sync *sync, int64_t now_ms);
void twi_presence_dropped(struct twi_sync *sync); /* the connection has ended, so waiting items go back */
void twi_presence_free(struct twi_presence *presence);

/* ---- registry ----
 * this engine's heartbeat in the registry of live engines (script/registry.lua). Always true: the
 * engine's id is in the registry while it is connected, and for TWI_REGISTRY_MS after that (five intervals of the
 * heartbeat, if there are many engines). While Redis is unreachable, the number of live engines stays as last
 * reported, because the other engines are cut off, too. If the user may not write the registry, one line is logged,
 * and the engine has the shares of an engine that is alone. */

struct twi_registry;
struct twi_sync;

#define TWI_REGISTRY_EVERY_MS 1000    /* longer, if the reply requires it; above 2,000 engines 0.5 ms for each */
#define TWI_REGISTRY_MS 5000          /* four heartbeats may be lost; longer, if there are many engines */
#define TWI_REGISTRY_FIRST_MS 10      /* after the first heartbeat; it doubles, so engines started together meet soon */
#define TWI_REGISTRY_MANY 64          /* with this many engines, each sends at most once a second */
#define TWI_REGISTRY_BACK_MS 5000     /* for this long after a reconnect, the number in use does not fall */
#define TWI_REGISTRY_REFUSED_MS 30000 /* after a refusal, the time until the next heartbeat */

void twi_registry_step(struct twi_sync *sync, int64_t now_ms);
int64_t twi_registry_due_ms(const struct twi_sync *sync);
/* Called for a new connection. The next heartbeat is due at once, unless the last one was refused. */
void twi_registry_connected(struct twi_registry *registry, int64_t now_ms);

#endif
