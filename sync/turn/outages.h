/* outages.h -- makes sure that no outage is silent. A server or slot that does not answer for five seconds gets a log
 * line and an error in tw_stats, and its time counts as outage_ms, whatever the reason is. The reason why a connection
 * ends is logged in connect.c. This file logs waits that have no end yet: a name that is looked up, an address that is
 * dialled, a greeting without a reply, a slot without a known owner.
 * Always true: an outage of a connection has one such line, and all slots that no node serves have one together. */
#ifndef TWI_SYNC_TURN_OUTAGES_H
#define TWI_SYNC_TURN_OUTAGES_H

#include <stdbool.h>
#include <stdint.h>

struct twi_connection;
struct twi_store;
struct twi_sync;

/* Called while no request can be sent to that server. */
bool twi_outages_is_away(const struct twi_connection *connection);
/* Returns since when no server answers for the store, although it was tried; 0 if a server does. */
int64_t twi_outages_of_store_ms(const struct twi_store *store);
/* Looks at all connections and slots in use, and logs the silent ones. Returns since when the first of them is
 * unreachable; 0 if all are reachable. */
int64_t twi_outages_look(struct twi_sync *sync, int64_t now_ms);
/* Returns when the next line is due; INT64_MAX if never. */
int64_t twi_outages_due_ms(const struct twi_sync *sync);

#endif
