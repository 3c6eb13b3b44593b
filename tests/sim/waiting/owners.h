/* owners.h -- who serves a slot of a cluster, told to an engine as a MOVED tells it. In a file of its own, because a
 * file cannot include the insides of the engine and of the sync.
 * Always true: it takes effect for the next call. */
#ifndef TESTS_SIM_WAITING_OWNERS_H
#define TESTS_SIM_WAITING_OWNERS_H

#include <stdint.h>

struct twi_sync;

/* The slot of this key belongs to the master of that port. */
void owner_is(struct twi_sync *sync, const char *key, uint16_t port);

#endif
