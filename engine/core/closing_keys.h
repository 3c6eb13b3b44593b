/* closing_keys.h -- keys of a window that only other engines counted, for the hook of the one that closes it (closing.h).
 *
 * Each has a record of the window's generation, outside of its index: a look-up by one who counts does not find it, a look-up
 * from inside the hook does (lookup.c).
 * Always true: a set is on its family's list from its beginning to its end, which comes before its generation's. By the turn, and
 * by hooks inside of it. */
#ifndef TWI_CORE_CLOSING_KEYS_H
#define TWI_CORE_CLOSING_KEYS_H

#include "tallywheel.h"

struct tw_family;
struct twi_cell;
struct twi_generation;

struct twi_closing_keys {
    struct twi_closing_keys *next; /* of the family */
    struct tw_family *family;
    struct twi_generation *generation;
    uint32_t *lines; /* of records, by hash; 0: free */
    uint32_t count, room;
};

void twi_closing_keys_begin(struct twi_closing_keys *keys, struct twi_generation *generation);
void twi_closing_keys_end(struct twi_closing_keys *keys);
/* Adds the key, if it is not known. False: no memory. */
bool twi_closing_keys_add(tw_engine *engine, struct twi_closing_keys *keys, tw_key key);
/* The record of such a key of that window. In a hook, in the turn's thread. NULL: there is none. */
struct twi_cell *twi_closing_keys_find(struct twi_generation *generation, tw_key key);

#endif
