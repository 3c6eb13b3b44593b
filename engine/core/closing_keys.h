/* closing_keys.h -- keys of a window that only other engines counted. The engine that closes the window passes these
 * keys to the hook (turn/closing.h).
 *
 * Each key has a record in the memory of the window's generation, outside the index of the generation. A caller's
 * look-up does not find such a record. A look-up inside the hook finds it (lookup.c).
 * Always true: a set is on its family's list from its beginning to its end, and it ends before its generation ends.
 * Only the turn uses a set, and hooks that run inside the turn. */
#ifndef TWI_CORE_CLOSING_KEYS_H
#define TWI_CORE_CLOSING_KEYS_H

#include "tallywheel.h"

struct tw_family;
struct twi_cell;
struct twi_generation;

struct twi_closing_keys {
    struct twi_closing_keys *next; /* the next set in the family's list */
    struct tw_family *family;
    struct twi_generation *generation;
    uint32_t *lines; /* the lines of records, by hash; 0 means that the slot is free */
    uint32_t count, room;
};

void twi_closing_keys_begin(struct twi_closing_keys *keys, struct twi_generation *generation);
void twi_closing_keys_end(struct twi_closing_keys *keys);
/* Adds the key, if it is new. Returns false if there is no memory. */
bool twi_closing_keys_add(tw_engine *engine, struct twi_closing_keys *keys, tw_key key);
/* Returns the record of such a key of that window. Called in a hook, by the thread of the turn. NULL means none. */
struct twi_cell *twi_closing_keys_find(struct twi_generation *generation, tw_key key);

#endif
