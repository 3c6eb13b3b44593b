/* nodes.h -- the nodes of a Redis Cluster: brings each store to the node that has its slot. See nodes.c. */
#ifndef TWI_SYNC_TURN_NODES_H
#define TWI_SYNC_TURN_NODES_H

#include "sync/message/pipeline.h"

/* Refreshes the map, moves stores, and ends connections that nobody uses. With one Redis: nothing. */
void twi_nodes_step(struct twi_sync *sync, int64_t now_ms);
/* A connection has ended. */
void twi_nodes_lost(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms);
twi_taker twi_nodes_reply; /* to CLUSTER SLOTS */
/* When the next step is due; INT64_MAX if something else has to happen first. */
int64_t twi_nodes_wake_ms(const struct twi_sync *sync, int64_t now_ms);
/* Tells the engine whether all its stores are reached. With one Redis: nothing. */
void twi_nodes_publish(struct twi_sync *sync);
/* Frees connections that are down, and that nobody uses. Between two turns. */
void twi_nodes_sweep(struct twi_sync *sync);

#endif
