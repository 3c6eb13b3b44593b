/* sync.c -- see sync.h: random numbers, for whoever has the state. */
#include "sync/sync.h"

uint64_t twi_sync_random(struct twi_sync *sync) {
    uint64_t bits;
    twi_port_random(sync->engine, &bits, sizeof bits);
    return bits;
}

void twi_sync_fill_random(void *sync, void *out, size_t size) {
    twi_port_random(((struct twi_sync *)sync)->engine, out, size);
}
