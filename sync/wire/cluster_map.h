/* cluster_map.h -- which master of a Redis Cluster has which slot, as far as this engine has learnt.
 *
 * Two sources change the map. MOVED changes its one slot at once. A refresh (CLUSTER SLOTS, of a master chosen at
 * random) lists all slots, but the master that replies may be behind the others. So a refresh changes a slot that MOVED
 * has changed only if the change is older than TWI_MAP_TRUST_MS, or if two masters agree against it. ASK never changes
 * the map.
 *   node     one address of one master. Its number is never used again. If a master has a new address, its slots get a
 *            new number, so that they are dialled again
 *   seeds    the hosts of the URL, used in turn while no master is known, and in every other try while none answers
 * Pure: times and random bits come from the caller. Only one thread uses a map. Always true: two nodes never have the
 * same address, nor the same id. Memory is bounded by TWI_MAP_NODES_MAX nodes and TWI_MAP_PATCHES_MAX changes by MOVED.
 * As soon as a master is known, at least a second passes between two refreshes. */
#ifndef TWI_SYNC_WIRE_CLUSTER_MAP_H
#define TWI_SYNC_WIRE_CLUSTER_MAP_H

#include "sync/wire/url.h"
#include "sync/wire/wire.h"

#define TWI_MAP_NODES_MAX 2048u   /* Redis advises at most 1,000. A refresh may replace all of them */
#define TWI_MAP_NAMED_MAX 1000u   /* the most masters of one reply; a longer reply is refused */
#define TWI_MAP_PATCHES_MAX 1024u /* if there are more, the oldest counts as confirmed */
#define TWI_MAP_TRUST_MS 10000
#define TWI_MAP_UNUSED_MS 60000      /* a node without slots is forgotten after this time */
#define TWI_MAP_STALE_MS 60000       /* a map is read again after a half to the whole of this, even without a request */
#define TWI_MAP_REFRESH_MS 2000      /* the longest pause before the second refresh; the pauses double ... */
#define TWI_MAP_REFRESH_MAX_MS 10000 /* ... to this while the map stays the same */
/* Does the same if the question could not even be sent, or if no master is known. All are tried before it doubles. */
#define TWI_MAP_DIAL_MS 100
/* A try that reaches no node costs no server anything. The breaker of a node decides how often an unreachable node is
 * dialled. */
#define TWI_MAP_DIAL_MAX_MS 1000

struct twi_cluster_map;

/* Returns NULL if there is no memory. At least one seed; TLS and the name to verify are those of the first. */
struct twi_cluster_map *twi_cluster_map_create(const struct twi_endpoint *seeds, uint32_t count);
void twi_cluster_map_destroy(struct twi_cluster_map *map); /* NULL is harmless */

/* ---- where ------------------------------------------------------------------------------------------------------- */

/* Returns the number of the node that has the slot; 0 if it is unknown. */
uint64_t twi_cluster_map_owner(const struct twi_cluster_map *map, uint32_t slot);
/* Returns NULL if the node was forgotten. Valid until the map is changed. */
const struct twi_endpoint *twi_cluster_map_endpoint(const struct twi_cluster_map *map, uint64_t number);
/* Returns how many slots the node has. 0 if its connection may be closed as soon as no request is under way there. */
uint32_t twi_cluster_map_slots(const struct twi_cluster_map *map, uint64_t number);
/* The next master that has slots, in the order of their numbers. Begin with 0. Returns 0 if there are no more. */
uint64_t twi_cluster_map_next(const struct twi_cluster_map *map, uint64_t after);

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* A MOVED reply has named the owner of the slot. Returns false if there is no memory; then the map is unchanged. */
bool twi_cluster_map_moved(struct twi_cluster_map *map, uint32_t slot, const struct twi_endpoint *to, int64_t now_ms);
/* Takes the reply to CLUSTER SLOTS, from the node `asked`. Returns false if it cannot be read, or names no master.
 * Then the map is unchanged, and the refresh counts as failed. */
bool twi_cluster_map_reply(struct twi_cluster_map *map, const struct twi_endpoint *asked, const struct twi_node *nodes,
                           size_t count, int64_t now_ms, uint64_t random);
/* Forgets nodes that had no slots for TWI_MAP_UNUSED_MS. */
void twi_cluster_map_sweep(struct twi_cluster_map *map, int64_t now_ms);

/* ---- refreshes --------------------------------------------------------------------------------------------------- */

/* Requests a refresh, because a connection was lost or could not be made, MOVED named an unknown node, or no node
 * serves a slot. Without such a request the map is refreshed each minute. An engine that uses only one master would
 * otherwise miss that all others were replaced, and know no node when this one fails. */
void twi_cluster_map_want(struct twi_cluster_map *map, int64_t now_ms);
/* Returns when the next refresh is to begin. Returns INT64_MAX if one is under way. */
int64_t twi_cluster_map_due_ms(const struct twi_cluster_map *map);
/* Begins a refresh. `*whom` becomes the node that gets the question. Exactly one of twi_cluster_map_reply() and
 * twi_cluster_map_failed() must follow. */
void twi_cluster_map_ask(struct twi_cluster_map *map, uint64_t random, struct twi_endpoint *whom);
/* Called if no node answered with a map. `was_asked` is true if the command was sent, and false if no connection
 * could be made. */
void twi_cluster_map_failed(struct twi_cluster_map *map, bool was_asked, int64_t now_ms, uint64_t random);

/* Checks that all statements above are true. For tests and checks. */
bool twi_cluster_map_is_valid(const struct twi_cluster_map *map);

#endif
