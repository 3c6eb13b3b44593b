/* cluster_reply.h -- replies to CLUSTER SLOTS and errors, as bytes and as the nodes that wire.c makes of them.
 * Always true: the nodes are valid until the next call of slots_reply() or error_reply(). */
#ifndef TEST_CLUSTER_REPLY_H
#define TEST_CLUSTER_REPLY_H

#include "sync/wire/cluster_nodes.h"
#include "tests/support/support.h"

static struct twi_reader *reply_reader;
static const struct twi_node *reply_nodes;
static size_t reply_count;

/* False: the bytes are no whole reply within the bounds. */
static bool reply_of(const char *bytes, size_t size) {
    twi_reader_free(reply_reader);
    reply_reader = twi_reader_create(&twi_cluster_slots_limits);
    assert_non_null(reply_reader);
    return twi_reader_feed(reply_reader, bytes, size) &&
           twi_reader_next(reply_reader, &reply_nodes, &reply_count) == TWI_WIRE_DONE;
}

/* Turns "[0 5460 ['10.0.0.1' 7000 'id' []]]" into the bytes of a reply: [ ] arrays, ' ' texts, digits integers, ~
 * nil. */
static size_t reply_bytes(const char *text, char *out) {
    size_t used = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '[') {
            size_t elements = 0, depth = 0;
            for (const char *c = at + 1; !(*c == ']' && depth == 0); c++) {
                if (*c == '\'') {
                    elements += depth == 0;
                    c = strchr(c + 1, '\'');
                } else if (*c == '[') {
                    elements += depth++ == 0;
                } else if (*c == ']') {
                    depth--;
                } else if (*c != ' ') {
                    elements += depth == 0;
                    c += strcspn(c, " []") - 1;
                }
            }
            used += (size_t)sprintf(out + used, "*%zu\r\n", elements);
        } else if (*at == '\'') {
            size_t size = strcspn(at + 1, "'");
            used += (size_t)sprintf(out + used, "$%zu\r\n%.*s\r\n", size, (int)size, at + 1);
            at += size + 1;
        } else if (*at == '~') {
            used += (size_t)sprintf(out + used, "$-1\r\n");
        } else if (*at != ' ' && *at != ']') {
            size_t size = strcspn(at, " []");
            used += (size_t)sprintf(out + used, ":%.*s\r\n", (int)size, at);
            at += size - 1;
        }
    }
    return used;
}

static void slots_reply(const char *text) __attribute__((unused));
static void slots_reply(const char *text) {
    static char bytes[1 << 20];
    assert_true(reply_of(bytes, reply_bytes(text, bytes)));
}

static void error_reply(const char *text) __attribute__((unused));
static void error_reply(const char *text) {
    char bytes[1024];
    assert_true(reply_of(bytes, (size_t)snprintf(bytes, sizeof bytes, "-%s\r\n", text)));
}

static struct twi_endpoint endpoint_of(const char *host, uint16_t port) __attribute__((unused));
static struct twi_endpoint endpoint_of(const char *host, uint16_t port) {
    struct twi_endpoint endpoint = {.port = port};
    snprintf(endpoint.host, sizeof endpoint.host, "%s", host);
    return endpoint;
}

static void reply_end(void) {
    twi_reader_free(reply_reader);
    reply_reader = NULL;
}

#endif
