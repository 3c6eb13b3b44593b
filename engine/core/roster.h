/* roster.h -- which families an engine has: by name, in a list, and in the account of its memory.
 *
 * A family is found by its name until it is closed, and stays in the list until the turn has drained and freed it.
 * The first TWI_FAMILIES_FREE families cost the engine nothing that it accounts for, as its own struct does not; for more,
 * blocks are taken out of the arena and left untouched, 128 KiB for each as much that families take elsewhere.
 * Always true: all of it is under the engine's lock; the list of families is read by the turn without it, and only the turn
 * unlinks; what families and counters take together is within memory_bytes_max (P6). */
#ifndef TWI_CORE_ROSTER_H
#define TWI_CORE_ROSTER_H

#include "engine/core/family.h"

#define TWI_FAMILIES_FREE 64u

/* The open family of that name, or NULL. */
struct tw_family *twi_roster_find(tw_engine *engine, const char *name);
/* False: no memory, and nothing has changed. */
bool twi_roster_add(tw_engine *engine, struct tw_family *family);
/* It is being closed: its name is free. */
void twi_roster_forget(tw_engine *engine, struct tw_family *family);
/* It is about to be freed. By the turn. */
void twi_roster_remove(tw_engine *engine, struct tw_family *family);
/* In a forked child, whose arena is a new one. */
void twi_roster_renew(tw_engine *engine);
void twi_roster_free(tw_engine *engine);

#endif
