/* lease.h -- what the engine says of its leases, on the wire. See lease.c. */
#ifndef TWI_SYNC_MESSAGE_LEASE_H
#define TWI_SYNC_MESSAGE_LEASE_H

#include <stdint.h>

struct twi_sync;

void twi_lease_step(struct twi_sync *sync, int64_t now_ms);

#endif
