/* registry.h -- this engine's heartbeat in the registry of live engines (script/registry.lua). Always true: the
 * engine's id is in the registry while it is connected, and for TWI_REGISTRY_MS after that (five intervals of the
 * heartbeat, if there are many engines). While Redis is unreachable, the number of live engines stays as last
 * reported, because the other engines are cut off, too. If the user may not write the registry, one line is logged,
 * and the engine has the shares of an engine that is alone. */
#ifndef TWI_SYNC_MESSAGE_REGISTRY_H
#define TWI_SYNC_MESSAGE_REGISTRY_H

#include <stdint.h>

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
