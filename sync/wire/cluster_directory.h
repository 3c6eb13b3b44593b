/* cluster_directory.h -- which endpoint of a Redis Cluster has which slot, for the threads of callers.
 *
 *   the turn       publishes its map (cluster_map.h) after each change, and fetches the notes of callers
 *   any thread     finds the owner of a slot, notes a MOVED, and requests a refresh
 * A MOVED that a caller noted takes effect at once for all callers. The turn gets it, too. Until the turn has fetched
 * the note, no older map that the turn publishes replaces it.
 * Always true: the mutex is locked for some microseconds, never during a wait. Memory is bounded by a table of the
 * slots, the endpoints of the map, and TWI_DIRECTORY_MOVED_MAX notes. If there are more notes, the turn learns that a
 * refresh is needed. */
#ifndef TWI_SYNC_WIRE_CLUSTER_DIRECTORY_H
#define TWI_SYNC_WIRE_CLUSTER_DIRECTORY_H

#include "sync/wire/cluster_map.h"

#define TWI_DIRECTORY_MOVED_MAX 64u

struct twi_directory;

/* Returns NULL if there is no memory. At first the owner of each slot is unknown. */
struct twi_directory *twi_directory_create(void);
/* Called when no thread uses it any more, or in a forked child. NULL is harmless. */
void twi_directory_destroy(struct twi_directory *directory);

/* Only the owner of the turn calls it. */

/* Called when the map has changed. Returns false if there is no memory; the directory then stays as before. */
bool twi_directory_set(struct twi_directory *directory, const struct twi_cluster_map *map);
/* Takes the next note of a caller, for twi_cluster_map_moved(). Returns false if there are no more. */
bool twi_directory_take_moved(struct twi_directory *directory, uint32_t *slot, struct twi_endpoint *to);
/* Returns whether a caller has requested a refresh since the last call, for twi_cluster_map_want(). */
bool twi_directory_take_wanted(struct twi_directory *directory);

/* Any thread. */

/* Returns false if the owner of the slot is unknown. */
bool twi_directory_find(struct twi_directory *directory, uint32_t slot, struct twi_endpoint *endpoint);
void twi_directory_note_moved(struct twi_directory *directory, uint32_t slot, const struct twi_endpoint *to);
void twi_directory_want(struct twi_directory *directory);

#endif
