/* state.c -- see state.h: what every file here may do to the state. */
#include "sync/message/state.h"

void twi_sync_fail(struct twi_sync *sync, bool slowly, const char *why) {
    if (!sync->failure.is_there) sync->failure = (struct twi_failure){.is_there = true, .slowly = slowly, .why = why};
}

uint64_t twi_sync_random(struct twi_sync *sync) {
    uint64_t bits;
    twi_port_random(sync->engine, &bits, sizeof bits);
    return bits;
}

void twi_sync_fill_random(void *sync, void *out, size_t size) {
    twi_port_random(((struct twi_sync *)sync)->engine, out, size);
}
