/* sentinel.c -- any bytes as a sentinel's answer, in pieces of any size: no crash, no leak, and what is taken for a
 * master's place is a host that a log may have and a port. The first byte chooses the size of the pieces. */
#include "sync/wire/sentinel.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_answer(const struct twi_node *nodes, size_t count) {
    struct twi_endpoint endpoint = {0};
    if (twi_sentinel_read(nodes, count, &endpoint) != TWI_SENTINEL_MASTER) return;
    size_t used = strnlen(endpoint.host, sizeof endpoint.host);
    if (used == 0 || used == sizeof endpoint.host || endpoint.port == 0 || endpoint.is_unix) abort();
    for (size_t i = 0; i < used; i++)
        if (endpoint.host[i] <= ' ' || endpoint.host[i] > '~') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    size_t piece = data[0] % 64 + 1u;
    struct twi_reader *reader = twi_reader_create(&twi_sentinel_limits);
    for (size_t at = 1; reader && at < size; at += piece) {
        const struct twi_node *nodes;
        size_t count;
        enum twi_wire wire = TWI_WIRE_MORE;
        if (!twi_reader_feed(reader, data + at, size - at < piece ? size - at : piece)) break;
        while ((wire = twi_reader_next(reader, &nodes, &count)) == TWI_WIRE_DONE) read_answer(nodes, count);
        if (wire == TWI_WIRE_BAD) break;
    }
    twi_reader_free(reader);
    return 0;
}
