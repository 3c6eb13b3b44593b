/* state.c -- see state.h. */
#include "sync/message/state.h"

#include "engine/port/services.h"

uint64_t twi_sync_random(tw_engine *engine) {
    uint64_t bits;
    twi_port_random(engine, &bits, sizeof bits);
    return bits;
}

void twi_sync_fill_random(void *engine, void *out, size_t size) {
    twi_port_random(engine, out, size);
}
