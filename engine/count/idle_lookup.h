/* idle_lookup.h -- with idle eviction, finds a key in its two generations, and makes it in the current one
 * (idle_eviction.c has the picture). For callers and the turn, inside a section.
 * Always true: at most one cell of a key takes adds (G1). */
#ifndef TWI_COUNT_IDLE_LOOKUP_H
#define TWI_COUNT_IDLE_LOOKUP_H

#include "engine/count/call.h"

/* Finds the cell that takes the key's adds, in the current or the previous generation. Returns false if there is none.
 * Then place->previous is the frozen cell in the previous generation that still shows the count, or NULL. */
bool twi_idle_find(const struct twi_call *call, struct twi_place *place);
/* Makes the key's cell, as twi_place_make() does. The new cell inherits the values of the key's frozen cell. */
tw_status twi_idle_make(struct twi_call *call, struct twi_place *place);
/* Inserts the key, with the values of `frozen` (or NULL). */
enum twi_found twi_idle_insert(struct twi_generation *generation, struct twi_thread *self, struct twi_lookup_key lookup,
                               struct twi_generation *before, struct twi_cell *frozen, struct twi_cell **cell);
/* The generation of the previous epoch; NULL means that none is held. */
struct twi_generation *twi_idle_before(struct tw_family *family, int64_t eviction_epoch);
/* The part of the key's count that the frozen cell, which this one succeeds, has yet to send to Redis. */
int64_t twi_idle_unsent(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* The lookup key for a cell's key, to find it in another generation. */
struct twi_lookup_key twi_idle_lookup_key(struct twi_hashing *hashing, struct twi_cell *cell);

#endif
