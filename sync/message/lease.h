/* lease.h -- sends the engine's messages about leases. See lease.c. */
#ifndef TWI_SYNC_MESSAGE_LEASE_H
#define TWI_SYNC_MESSAGE_LEASE_H

#include <stdint.h>

struct twi_sync;

struct twi_lease_sender;

void twi_lease_step(struct twi_sync *sync, int64_t now_ms);
/* Returns the monotonic time at which there is a message to a store that can be sent to; INT64_MAX if no message is
 * expected. */
int64_t twi_lease_due_ms(const struct twi_sync *sync);
void twi_lease_free(struct twi_lease_sender *sender);

#endif
