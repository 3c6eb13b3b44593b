/* reply.c -- any bytes as replies, in pieces of any size: no crash, no leak, and whatever is whole keeps its own
 * bounds. The first byte chooses the size of the pieces. Each whole reply also goes through the readers of answers, of
 * numbers, of errors and of registers. */
#include "engine/base/hll.h"
#include "sync/batch/reply.h"
#include "sync/wire/wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_as_answer(const struct twi_node *nodes, size_t count) {
    struct twi_reply_head head;
    struct twi_item_answer item;
    if (!twi_reply_read(nodes, count, &head) || head.error) return;
    size_t at = head.items_at;
    while (twi_reply_item(nodes, count, &at, &item))
        if (at > count) abort();
}

static void read_as_number(const struct twi_node *node) {
    int64_t count = 0, time = 0, pause = 0;
    if (twi_node_count(node, &count) && (count > TWI_NODE_COUNT_MAX || count < -TWI_NODE_COUNT_MAX)) abort();
    if (twi_node_time(node, &time) && (time > TWI_NODE_TIME_MAX_MS || time < 0)) abort();
    if (twi_node_pause(node, &pause) && (pause > TWI_NODE_PAUSE_MAX_MS || pause < 0)) abort();
}

static void read_each(const struct twi_node *nodes, size_t count) {
    uint8_t registers[TWI_HLL_REGISTERS];
    for (size_t i = 0; i < count; i++) {
        read_as_number(&nodes[i]);
        if (nodes[i].type == TWI_NODE_ERROR) (void)twi_reply_error(&nodes[i]);
        if (nodes[i].type == TWI_NODE_STRING)
            (void)twi_hll_decode((const unsigned char *)nodes[i].text, nodes[i].size, registers);
    }
}

static void check_bounds(const struct twi_wire_limits *limits, const struct twi_node *nodes, size_t count) {
    if (count == 0 || count > limits->nodes_max || nodes[0].depth != 0) abort();
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].depth > limits->depth_max || nodes[i].size > limits->bytes_max) abort();
        bool has_text =
            nodes[i].type == TWI_NODE_STRING || nodes[i].type == TWI_NODE_STATUS || nodes[i].type == TWI_NODE_ERROR;
        if (has_text && nodes[i].text[nodes[i].size] != '\0') abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct twi_wire_limits limits = {.bytes_max = 4096, .nodes_max = 256, .depth_max = 3};
    if (size == 0) return 0;
    size_t piece = data[0] % 64 + 1u;
    struct twi_reader *reader = twi_reader_create(&limits);
    for (size_t at = 1; reader && at < size; at += piece) {
        const struct twi_node *nodes;
        size_t count;
        enum twi_wire wire = TWI_WIRE_MORE;
        if (!twi_reader_feed(reader, data + at, size - at < piece ? size - at : piece)) break;
        while ((wire = twi_reader_next(reader, &nodes, &count)) == TWI_WIRE_DONE) {
            check_bounds(&limits, nodes, count);
            read_as_answer(nodes, count);
            read_each(nodes, count);
        }
        if (wire == TWI_WIRE_BAD) break;
    }
    twi_reader_free(reader);
    return 0;
}
