/* reply.c -- fuzz target: whatever a server sends, the reader and the meaning of its answers stay within bounds.
 * Goal: no crash, no endless loop, no read outside; a reader that said BAD says nothing else any more.
 * Method: the first byte of the input decides in what pieces the rest arrives, as a network would cut it. */
#include "sync/answer.h"

#include <stdint.h>
#include <stdlib.h>

static void read_answers(const struct twi_node *nodes, size_t count) {
    struct twi_answer_head head;
    if (!twi_answer_read(nodes, count, &head)) return;
    if (head.kind != TWI_ANSWER_OK && head.kind != TWI_ANSWER_DUP) return;
    struct twi_item_answer item;
    for (size_t at = head.items_at, before = at; at < count && twi_answer_item(nodes, count, &at, &item); before = at) {
        if (at <= before || at > count) abort(); /* each item moves on, none beyond the end */
    }
}

static void check_nodes(const struct twi_node *nodes, size_t count, const struct twi_wire_limits *limits) {
    if (count == 0 || count > limits->nodes_max + 1) abort();
    for (size_t index = 0; index < count; index++) {
        int64_t number;
        const struct twi_node *node = &nodes[index];
        if (node->depth > limits->depth_max + 1) abort();
        if (node->text != NULL && node->text[node->size] != '\0') abort();
        if (node->text != NULL) twi_node_i64(node, &number);
    }
}

static bool drain(struct twi_reader *reader, const struct twi_wire_limits *limits) {
    const struct twi_node *nodes;
    size_t count;
    for (;;) {
        switch (twi_reader_next(reader, &nodes, &count)) {
        case TWI_WIRE_MORE: return true;
        case TWI_WIRE_BAD:
            if (twi_reader_next(reader, &nodes, &count) != TWI_WIRE_BAD) abort();
            return false;
        case TWI_WIRE_DONE:
            check_nodes(nodes, count, limits);
            read_answers(nodes, count);
            if (nodes[0].type == TWI_NODE_ERROR) twi_answer_error(&nodes[0]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const struct twi_wire_limits limits = {.bytes_max = 4096, .nodes_max = 64, .depth_max = 4};
    struct twi_reader *reader = twi_reader_create(&limits);
    if (reader == NULL) return 0;
    size_t piece = (size_t)data[0] + 1;
    for (size_t at = 1; at < size; at += piece) {
        if (!twi_reader_feed(reader, data + at, size - at < piece ? size - at : piece) || !drain(reader, &limits))
            break;
    }
    twi_reader_free(reader);
    return 0;
}
