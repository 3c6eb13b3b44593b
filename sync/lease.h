/* lease.h -- what the engine says of its leases, on the wire. See lease.c. */
#ifndef TWI_SYNC_LEASE_H
#define TWI_SYNC_LEASE_H

#include "engine/port.h"
#include "sync/pipeline.h"

#define TWI_LEASES_MAX 32u /* words on leases in flight: each takes Redis some 20 microseconds */

/* What was said of leases and is not told yet: a ring, the oldest first (lease.c). */
struct twi_lease_pending {
    struct twi_lease_ask ask;
    struct twi_lease_answer answer; /* of those that are held */
    char id[33], run[41], life[33]; /* what it names */
};
struct twi_lease_link {
    struct twi_lease_pending ring[TWI_LEASES_MAX];
    uint32_t first, count;
    uint32_t held;    /* the first so many are answered, and wait for the replicas */
    uint32_t waiting; /* replies under way */
    bool use_eval[2]; /* the next one goes with its script */
};

void twi_lease_step(struct twi_sync *sync, int64_t now_ms);
twi_taker twi_lease_reply, twi_lease_replicated;
void twi_lease_dropped(struct twi_sync *sync); /* what is under way will not be answered */

#endif
