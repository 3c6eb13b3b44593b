/* idle_lookup.h -- a key of a family whose idle keys make room: found in its two generations, and made in the current one
 * (idle_eviction.c has the picture). Callers and the turn, inside a section.
 * Always true: at most one cell of a key takes adds (G1). */
#ifndef TWI_COUNT_IDLE_LOOKUP_H
#define TWI_COUNT_IDLE_LOOKUP_H

#include "engine/count/call.h"

/* The cell that takes the key's adds, of the current generation or of the previous one. False: there is none; then
 * place->aged is the frozen cell in the previous one that still shows the count, or NULL. */
bool twi_idle_find(const struct twi_call *call, struct twi_place *place);
/* Makes the key's cell, as twi_place_make(). What a frozen cell of the key knew goes with it. */
tw_status twi_idle_make(struct twi_call *call, struct twi_place *place);
/* Inserts the key, with what `frozen` (or NULL) knew. */
enum twi_found twi_idle_insert(struct twi_generation *generation, struct twi_thread *self, struct twi_lookup_key lookup,
                               struct twi_generation *before, struct twi_cell *frozen, struct twi_cell **cell);
/* The generation before this era's; NULL: none is held. */
struct twi_generation *twi_idle_before(struct tw_family *family, int64_t eviction_epoch);
/* What of the key still has to reach Redis from the cell that this one took over from. */
int64_t twi_idle_unsent(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* What to look for to find a cell's key elsewhere. */
struct twi_lookup_key twi_idle_lookup_key(tw_engine *engine, struct twi_cell *cell);

#endif
