/* nodes.h -- brings each store to the node of a Redis Cluster that has its slot, and reports silent ones (nodes.c). */
#ifndef TWI_SYNC_TURN_NODES_H
#define TWI_SYNC_TURN_NODES_H

#include "sync/message/connection.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- outages ----
 * makes sure that no outage is silent. A server or slot that does not answer for five seconds gets a log
 * line and an error in tw_stats, and its time counts as outage_ms, whatever the reason is. The reason why a connection
 * ends is logged in connect.c. This file logs waits that have no end yet: a name that is looked up, an address that is
 * dialled, a greeting without a reply, a slot without a known owner.
 * Always true: an outage of a connection has one such line, and all slots that no node serves have one together. */

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

/* Refreshes the map, moves stores, and ends unused connections. Has no effect with one Redis. */
void twi_nodes_step(struct twi_sync *sync, int64_t now_ms);
/* Called when a connection has ended. */
void twi_nodes_lost(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms);
twi_taker twi_nodes_reply; /* to CLUSTER SLOTS */
/* Returns when the next step is due; INT64_MAX if something else has to happen first. */
int64_t twi_nodes_wake_ms(const struct twi_sync *sync, int64_t now_ms);
/* Reports to the engine whether all its stores are reachable. Has no effect with one Redis. */
void twi_nodes_publish(struct twi_sync *sync);
/* Frees connections that are down and unused. Called between two turns. */
void twi_nodes_sweep(struct twi_sync *sync);

#endif
