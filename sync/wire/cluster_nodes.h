/* cluster_nodes.h -- the slots of one node of a Redis Cluster, from its reply to CLUSTER NODES. They are the slots that
 * it serves, and those that move from it or to it. CLUSTER SLOTS does not list the latter.
 *
 * A line of the reply: id, address, flags, master, ping, pong, epoch, link, then the slots: 5, 7-9, [93->-id] (93 moves
 * to that node), [77-<-id] (77 comes from there). Only the line of the node itself, "myself", has moves.
 * Pure. Always true: a line is read as a whole or refused as a whole. */
#ifndef TWI_SYNC_WIRE_CLUSTER_NODES_H
#define TWI_SYNC_WIRE_CLUSTER_NODES_H

#include "engine/base/key_slot.h"
#include "sync/wire/endpoint.h"

struct twi_slot_set {
    uint8_t bits[TWI_KEY_SLOTS / 8];
};

struct twi_own_slots {
    struct twi_slot_set serves, moves; /* `moves` has the slots that move from it or to it */
    bool imports;                      /* some come to it */
};

bool twi_slot_set_has(const struct twi_slot_set *set, uint32_t slot);
void twi_slot_set_add(struct twi_slot_set *set, uint32_t slot);

/* Returns false if there is no line of the node itself, or it cannot be read. */
bool twi_cluster_nodes_own(const char *text, struct twi_own_slots *own);
/* Finds the next node to which a slot of this one moves. Begin with `*at` = 0. Returns false if there are no more.
 * `asked` is the node that replied. */
bool twi_cluster_nodes_target(const char *text, const struct twi_endpoint *asked, size_t *at,
                              struct twi_endpoint *target);

#endif
