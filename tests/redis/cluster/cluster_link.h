/* cluster_link.h -- one connection to one node of a cluster, which the test keeps: ASKING and WAIT belong to it.
 * Always true: a reply is valid until the next call with the same link. */
#ifndef TEST_CLUSTER_LINK_H
#define TEST_CLUSTER_LINK_H

#include "sync/wire/wire.h"
#include "tests/support/redis_cluster.h"
#include "tests/support/support.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct link {
    int socket;
    struct twi_reader *reader;
    const struct twi_node *reply; /* the last one; its first node */
    size_t count;
};

static void link_open(struct link *link, const struct redis_server *server) {
    static const struct twi_wire_limits limits = {.bytes_max = 8 << 20, .nodes_max = 1 << 19, .depth_max = 4};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server->socket);
    *link = (struct link){.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(connect(link->socket, (struct sockaddr *)&address, sizeof address), 0);
    link->reader = twi_reader_create(&limits);
}

static void link_close(struct link *link) {
    twi_reader_free(link->reader);
    close(link->socket);
}

/* Sends a command, and waits for its reply. */
static const struct twi_node *link_send(struct link *link, const struct twi_bytes *command) {
    char chunk[16384];
    assert_int_equal(send(link->socket, command->data, command->size, MSG_NOSIGNAL), command->size);
    while (twi_reader_next(link->reader, &link->reply, &link->count) != TWI_WIRE_DONE) {
        ssize_t got = recv(link->socket, chunk, sizeof chunk, 0);
        assert_true(got > 0);
        assert_true(twi_reader_feed(link->reader, chunk, (size_t)got));
    }
    return link->reply;
}

static const struct twi_node *link_ask(struct link *link, ...) __attribute__((sentinel, unused));
static const struct twi_node *link_ask(struct link *link, ...) {
    struct twi_bytes command = {0};
    size_t count = 0;
    va_list words;
    va_start(words, link);
    while (va_arg(words, const char *) != NULL) count++;
    va_end(words);
    twi_wire_begin(&command, count);
    va_start(words, link);
    for (; count > 0; count--) twi_wire_put_text(&command, va_arg(words, const char *));
    va_end(words);
    link_send(link, &command);
    twi_bytes_free(&command);
    return link->reply;
}

/* The last reply as text: "MOVED" of an error, "7" of a number, "nil", "array", or the text itself. */
static const char *link_said(const struct link *link) __attribute__((unused));
static const char *link_said(const struct link *link) {
    static char said[256];
    const struct twi_node *node = link->reply;
    switch (node->type) {
    case TWI_NODE_NIL: return "nil";
    case TWI_NODE_ARRAY: return "array";
    case TWI_NODE_INTEGER: snprintf(said, sizeof said, "%lld", (long long)node->integer); return said;
    case TWI_NODE_ERROR: snprintf(said, sizeof said, "%.*s", (int)strcspn(node->text, " "), node->text); return said;
    default: snprintf(said, sizeof said, "%.200s", node->text); return said;
    }
}

#endif
