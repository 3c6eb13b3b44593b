/* cluster_slots.h -- reads from the reply to CLUSTER SLOTS which master has which slots. Replicas are skipped.
 *
 *   [first slot, last slot, [host, port, node id, [...]], replicas ...], and so on
 * A host that is nil or empty means the host of the node that replied; "?" means an unknown host. The file is pure; it
 * works on the nodes of a reply. Always true: a reply is read as a whole or refused as a whole. Slots are below 16,384,
 * and no slot is in two ranges. */
#ifndef TWI_SYNC_WIRE_CLUSTER_SLOTS_H
#define TWI_SYNC_WIRE_CLUSTER_SLOTS_H

#include "sync/wire/endpoint.h"
#include "sync/wire/wire.h"

#define TWI_NODE_ID_SIZE 41 /* with its NUL */

/* Room for 16,384 ranges of a master and two replicas each. */
extern const struct twi_wire_limits twi_cluster_slots_limits;

/* A range of slots. Its texts belong to the reply and to the node that replied. */
struct twi_slot_range {
    uint32_t first, last;
    bool has_endpoint; /* false if the reply does not name the master's address */
    uint16_t port;     /* if has_endpoint */
    const char *host;  /* if has_endpoint */
    const char *id;    /* of the master; "" if it was not given (before Redis 4) */
};

/* Returns true if every range can be read, and no slot is in two of them. */
bool twi_cluster_slots_valid(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked);
/* Reads the range at `*at`, and moves on. Begin with `*at` = 1. Returns false if there is none, or it cannot be
 * read. */
bool twi_cluster_slots_next(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked, size_t *at,
                            struct twi_slot_range *range);

#endif
