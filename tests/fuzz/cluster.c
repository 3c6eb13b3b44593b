/* cluster.c -- any bytes as replies of a cluster's nodes: a refresh is taken or refused whole, a redirect leads to a
 * whole endpoint or nowhere, and the map keeps its rules whatever it is told. */
#include "sync/wire/cluster_map.h"
#include "sync/wire/cluster_nodes.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/key_slot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_endpoint(const struct twi_endpoint *endpoint) {
    size_t size = strnlen(endpoint->host, sizeof endpoint->host);
    if (size == 0 || size == sizeof endpoint->host || endpoint->port == 0 || endpoint->is_unix) abort();
}

static void take_error(struct twi_cluster_map *map, const struct twi_endpoint *asked, const struct twi_node *error,
                       int64_t now_ms) {
    struct twi_redirect redirect;
    struct twi_detour detour = {0};
    twi_redirect_read(error, asked, &redirect);
    twi_detour_note(&detour, redirect.kind, now_ms, (uint64_t)now_ms);
    if (detour.again_ms > now_ms + TWI_REDIRECT_MISTAKE_MS) abort();
    if (redirect.has_endpoint) check_endpoint(&redirect.to);
    if (redirect.kind != TWI_REDIRECT_MOVED || !redirect.has_endpoint) return;
    if (!twi_cluster_map_moved(map, redirect.slot, &redirect.to, now_ms)) return;
    const struct twi_endpoint *there = twi_cluster_map_endpoint(map, twi_cluster_map_owner(map, redirect.slot));
    if (!there || !twi_endpoint_equals(there, &redirect.to)) abort();
}

static void take_slots(struct twi_cluster_map *map, const struct twi_endpoint *asked, const struct twi_node *nodes,
                       size_t count, int64_t now_ms) {
    struct twi_slot_range range;
    size_t at = 1;
    bool valid = twi_cluster_slots_valid(nodes, count, asked);
    while (twi_cluster_slots_next(nodes, count, asked, &at, &range))
        if (range.first > range.last || range.last >= TWI_KEY_SLOTS || at > count) abort();
    if (valid != (at == count) && valid) abort();
    bool taken = twi_cluster_map_reply(map, asked, nodes, count, now_ms, (uint64_t)now_ms);
    if (taken && (!valid || twi_cluster_map_next(map, 0) == 0)) abort();
}

static void take_nodes(const struct twi_endpoint *asked, const char *text) {
    struct twi_own_slots own;
    struct twi_endpoint target;
    (void)twi_cluster_nodes_own(text, &own);
    for (size_t at = 0, before = 0; twi_cluster_nodes_target(text, asked, &at, &target); before = at) {
        check_endpoint(&target);
        if (at <= before || at > strlen(text)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct twi_wire_limits limits = {.bytes_max = 8192, .nodes_max = 512, .depth_max = 4};
    static const struct twi_endpoint asked = {.port = 6379, .host = "seed"};
    struct twi_reader *reader = twi_reader_create(&limits);
    struct twi_cluster_map *map = twi_cluster_map_create(&asked, 1);
    const struct twi_node *nodes;
    size_t count;
    int64_t now_ms = 0;
    if (reader && map && twi_reader_feed(reader, data, size > 8192 ? 8192 : size)) {
        while (twi_reader_next(reader, &nodes, &count) == TWI_WIRE_DONE) {
            now_ms += 3000;
            if (nodes[0].type == TWI_NODE_ERROR)
                take_error(map, &asked, nodes, now_ms);
            else if (nodes[0].type == TWI_NODE_STRING)
                take_nodes(&asked, nodes[0].text);
            else
                take_slots(map, &asked, nodes, count, now_ms);
            if (twi_cluster_map_due_ms(map) > now_ms + TWI_MAP_REFRESH_MAX_MS &&
                twi_cluster_map_due_ms(map) != INT64_MAX)
                abort();
            twi_cluster_map_sweep(map, now_ms);
        }
        if (!twi_cluster_map_is_valid(map)) abort();
    }
    twi_cluster_map_destroy(map);
    twi_reader_free(reader);
    return 0;
}
