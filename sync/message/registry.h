/* registry.h -- this engine's place in the registry of live engines (script/registry.lua).
 * Always true: its name stands there while it is connected and for TWI_REGISTRY_MS after (in a crowd five times as long
 * as
 * between two words); what it learns (how many live) stays as
 * was last told while Redis is away: the others are cut off, too. A user who may not write the registry has one log line,
 * and shares as if it were alone. */
#ifndef TWI_SYNC_MESSAGE_REGISTRY_H
#define TWI_SYNC_MESSAGE_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

struct twi_sync;

#define TWI_REGISTRY_EVERY_MS 1000 /* or less often, as Redis says: above 2,000 engines half a millisecond for each */
#define TWI_REGISTRY_MS 5000       /* four words may be lost; in a crowd it is longer */
#define TWI_REGISTRY_FIRST_MS 10 /* after a connection's first word; doubled: who starts at the same time is met soon */
#define TWI_REGISTRY_MANY 64     /* with so many engines nobody asks more often than once a second */
#define TWI_REGISTRY_BACK_MS 5000     /* after a reconnect others are back by then: until then no fewer are believed */
#define TWI_REGISTRY_REFUSED_MS 30000 /* before a Redis that refuses is asked again */

struct twi_registry {
    int64_t at_ms;             /* the next word */
    int64_t pause_ms;          /* to the word after that */
    uint32_t reported, before; /* how many live; before this connection */
    int64_t before_until_ms;
    bool awaiting, is_logged;
};

void twi_registry_step(struct twi_sync *sync, int64_t now_ms);
int64_t twi_registry_due_ms(const struct twi_sync *sync);
void twi_registry_connected(struct twi_sync *sync, int64_t now_ms); /* a new connection: the word goes out at once */

#endif
