/* roster.h -- the families of an engine, by name, in a list, and in the account of its memory.
 *
 * A family is found by its name until it is closed. It stays in the list until the turn has drained and freed it.
 * The first TWI_FAMILIES_FREE families are not accounted for, as the engine's own struct is not. For each 128 KiB that
 * further families take elsewhere, one block of 128 KiB is taken out of the arena and left untouched.
 * Always true: everything here is under the engine's lock, except that the turn reads the list of families without it.
 * Only the turn unlinks. Families and counters together take at most memory_bytes_max (P6). */
#ifndef TWI_CORE_ROSTER_H
#define TWI_CORE_ROSTER_H

#include "engine/core/family.h"

#define TWI_FAMILIES_FREE 64u

/* The open family of that name, or NULL. */
struct tw_family *twi_roster_find(tw_engine *engine, const char *name);
/* Returns false if there is no memory. Then nothing has changed. */
bool twi_roster_add(tw_engine *engine, struct tw_family *family);
/* Called when the family is being closed. Its name becomes free. */
void twi_roster_forget(tw_engine *engine, struct tw_family *family);
/* Called by the turn when the family is about to be freed. */
void twi_roster_remove(tw_engine *engine, struct tw_family *family);
/* When the engine is opened, and in a forked child, which keeps its families. The arena is new, or there is none. */
void twi_roster_begin(tw_engine *engine);
void twi_roster_end(tw_engine *engine);

/* Used by tests and by checks of level 3: walks names, families and blocks. Takes the lock. */
bool twi_roster_is_valid(tw_engine *engine);

#endif
