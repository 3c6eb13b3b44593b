/* idle_lookup.h -- with idle eviction, finds a key in two generations, and makes it in the current one (idle_eviction.c
 * has the picture). Callers and the turn call these functions inside a section.
 * Always true: at most one cell of a key accepts adds (G1). */
#ifndef TWI_COUNT_IDLE_LOOKUP_H
#define TWI_COUNT_IDLE_LOOKUP_H

#include "engine/count/call.h"

/* Finds the cell that accepts adds to the key, in the current or the previous generation. Returns false if there is no
 * such cell. Then place->previous is the frozen cell in the previous generation that still shows the count, or NULL. */
bool twi_idle_find(const struct twi_call *call, struct twi_place *place);
/* Makes the cell of the key, like twi_place_make(). The new cell inherits the values of the frozen cell of the key. */
tw_status twi_idle_make(struct twi_call *call, struct twi_place *place);
/* Inserts the key, with the values of `frozen` (or NULL). */
enum twi_found twi_idle_insert(struct twi_generation *generation, struct twi_thread *self, struct twi_lookup_key lookup,
                               struct twi_generation *before, struct twi_cell *frozen, struct twi_cell **cell);
/* Returns the generation of the previous epoch. NULL means that it no longer exists. */
struct twi_generation *twi_idle_before(struct tw_family *family, int64_t eviction_epoch);
/* Returns the units that are still unsent in the frozen cell that this cell has replaced. */
int64_t twi_idle_unsent(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Returns the lookup key for the key of a cell, to find the key in another generation. */
struct twi_lookup_key twi_idle_lookup_key(struct twi_hashing *hashing, struct twi_cell *cell);

#endif
