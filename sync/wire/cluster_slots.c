/* cluster_slots.c -- see cluster_slots.h. The nodes of a reply are a flat list. An element ends where the next node of
 * its depth, or of a smaller one, comes. So elements that a later Redis adds to a range or to a node are skipped. */
#include "sync/wire/cluster_slots.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"

const struct twi_wire_limits twi_cluster_slots_limits = {.bytes_max = 8u << 20, .nodes_max = 1u << 19, .depth_max = 4};

enum { RANGE_DEPTH = 1, RANGE_PARTS = 3, MASTER_PARTS = 2, ID_PART = 2, MORE_PART = 3 };

/* Where the element at `at` ends. */
static size_t slots_end_of(const struct twi_node *nodes, size_t count, size_t at) {
    twi_check(at < count);
    size_t end = at + 1;
    while (end < count && nodes[end].depth > nodes[at].depth) end++;
    return end;
}

static bool is_array(const struct twi_node *node, int64_t least) {
    return node->type == TWI_NODE_ARRAY && node->integer >= least;
}

static bool read_slot(const struct twi_node *node, uint32_t *slot) {
    if (node->type != TWI_NODE_INTEGER || node->integer < 0 || node->integer >= TWI_KEY_SLOTS) return false;
    *slot = (uint32_t)node->integer;
    return true;
}

/* Returns true also if there is no id. */
static bool read_id(const struct twi_node *master, const char **id) {
    *id = "";
    if (master->integer <= ID_PART) return true;
    const struct twi_node *node = master + 1 + ID_PART;
    if (node->type != TWI_NODE_STRING || node->size >= TWI_NODE_ID_SIZE) return false;
    for (size_t i = 0; i < node->size; i++)
        if (node->text[i] <= ' ' || node->text[i] >= 127) return false;
    *id = node->text;
    return true;
}

/* Returns the host of a master. A node that should be named by a host name and has none is called "?"; its address is
 * then among the names and values after its id. */
static const struct twi_node *host_of(const struct twi_node *master) {
    twi_check(master->type == TWI_NODE_ARRAY && master->integer >= MASTER_PARTS);
    const struct twi_node *host = master + 1, *more = master + 1 + MORE_PART;
    if (!twi_node_is(host, "?") || master->integer <= MORE_PART || more->type != TWI_NODE_ARRAY) return host;
    for (int64_t i = 1; i < more->integer && more[i + 1].depth == more->depth + 1; i += 2) {
        if (more[i].depth != more->depth + 1) break; /* not names and values */
        if (twi_node_is(&more[i], "ip") && more[i + 1].type == TWI_NODE_STRING && more[i + 1].size != 0)
            return &more[i + 1];
    }
    return host;
}

/* Host, port and id come first, and they are no arrays. They lie side by side. */
static bool read_master(const struct twi_node *master, const struct twi_endpoint *asked, struct twi_slot_range *range) {
    if (!is_array(master, MASTER_PARTS)) return false;
    const struct twi_node *host = host_of(master), *port = master + 2;
    struct twi_endpoint endpoint;
    if ((host->type != TWI_NODE_STRING && host->type != TWI_NODE_NIL) || port->type != TWI_NODE_INTEGER) return false;
    enum twi_endpoint_found found = twi_endpoint_read(asked, host->text, host->size, port->integer, &endpoint);
    if (found == TWI_ENDPOINT_BAD || !read_id(master, &range->id)) return false;
    range->has_endpoint = found == TWI_ENDPOINT_HERE;
    if (!range->has_endpoint) return true;
    range->host = host->size ? host->text : asked->host;
    range->port = endpoint.port;
    return true;
}

bool twi_cluster_slots_next(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked, size_t *at,
                            struct twi_slot_range *range) {
    if (*at >= count || nodes[*at].depth != RANGE_DEPTH || !is_array(&nodes[*at], RANGE_PARTS)) return false;
    const struct twi_node *parts = &nodes[*at + 1];
    *range = (struct twi_slot_range){0};
    if (!read_slot(&parts[0], &range->first) || !read_slot(&parts[1], &range->last)) return false;
    if (range->first > range->last || !read_master(&parts[2], asked, range)) return false;
    *at = slots_end_of(nodes, count, *at);
    return true;
}

bool twi_cluster_slots_valid(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked) {
    uint8_t seen[TWI_KEY_SLOTS / 8] = {0};
    struct twi_slot_range range;
    size_t at = 1;
    if (count == 0 || !is_array(&nodes[0], 0)) return false;
    while (twi_cluster_slots_next(nodes, count, asked, &at, &range))
        for (uint32_t slot = range.first; slot <= range.last; slot++) {
            uint8_t bit = (uint8_t)(1u << slot % 8);
            if (seen[slot / 8] & bit) return false;
            seen[slot / 8] |= bit;
        }
    return at == count;
}
