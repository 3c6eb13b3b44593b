/* nodes.h -- brings each store to the node of a Redis Cluster that has its slot. See nodes.c. */
#ifndef TWI_SYNC_TURN_NODES_H
#define TWI_SYNC_TURN_NODES_H

#include "sync/message/pipeline.h"

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
