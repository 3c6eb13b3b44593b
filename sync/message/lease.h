/* lease.h -- what the engine says of its leases, on the wire. See lease.c. */
#ifndef TWI_SYNC_MESSAGE_LEASE_H
#define TWI_SYNC_MESSAGE_LEASE_H

#include "engine/port/port.h"
#include "sync/message/message.h"

/* What was said of leases and is not told yet. */
struct twi_lease_pending {
    struct twi_lease_message message;
    bool is_under_way;
    struct twi_lease_answer answer;        /* of those that wait for the replicas */
    char id[33], run[41], incarnation[33]; /* what it names */
};
struct twi_lease_link {
    struct twi_lease_pending sent[TWI_LEASES_MAX];
};

void twi_lease_step(struct twi_sync *sync, int64_t now_ms);

#endif
