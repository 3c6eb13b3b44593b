/* registry.h -- this engine's place in the registry of live engines (script/registry.lua).
 * Always true: the engine's id stands in the registry while it is connected, and for TWI_REGISTRY_MS after that (five
 * times as long as between two heartbeats, where engines are many). The number of live engines stays as it was last
 * reported while Redis is away: the other engines are cut off, too. A user who may not write the registry has one log
 * line, and shares as if it were alone. */
#ifndef TWI_SYNC_MESSAGE_REGISTRY_H
#define TWI_SYNC_MESSAGE_REGISTRY_H

#include <stdint.h>

struct twi_registry;
struct twi_store;
struct twi_sync;

#define TWI_REGISTRY_EVERY_MS 1000 /* or less often, as Redis says: above 2,000 engines half a millisecond for each */
#define TWI_REGISTRY_MS 5000       /* four heartbeats may be lost; where engines are many it is longer */
#define TWI_REGISTRY_FIRST_MS 10 /* after a connection's first heartbeat; doubled: engines started together meet soon */
#define TWI_REGISTRY_MANY 64     /* with so many engines nobody sends more often than once a second */
#define TWI_REGISTRY_BACK_MS 5000     /* after a reconnect: until then no fewer engines are believed than before it */
#define TWI_REGISTRY_REFUSED_MS 30000 /* before a Redis that refuses is asked again */

void twi_registry_step(struct twi_sync *sync, int64_t now_ms);
int64_t twi_registry_due_ms(const struct twi_store *store);
/* There is a new connection: the heartbeat goes out at once. */
void twi_registry_connected(struct twi_registry *registry, int64_t now_ms);

#endif
