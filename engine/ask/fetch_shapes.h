/* fetch_shapes.h -- the names and totals in replies of Redis, collected from the pages of several replies (totals.lua).
 * Always true: a name is valid while its page exists, and all pages exist until the end. A server can make the
 * caller keep only a bounded amount of memory. */
#ifndef TWI_ASK_FETCH_SHAPES_H
#define TWI_ASK_FETCH_SHAPES_H

#include "tallywheel.h"

#define TWI_TOTALS_MAX 1000000u                 /* the most totals at a time */
#define TWI_TOTALS_BYTES_MAX ((size_t)64 << 20) /* the most bytes of all pages */

struct twi_total {
    tw_key name;
    int64_t total;
    size_t order; /* the place in the order of arrival */
};

/* A zeroed struct is empty. */
struct twi_totals {
    struct twi_total *each;
    size_t count;
    char **pages;
    size_t page_count, bytes;
    uint32_t room, page_room; /* for how many totals and pages there is memory */
};

enum twi_totals_added {
    TWI_TOTALS_ADDED,
    TWI_TOTALS_MALFORMED, /* the page is no list of names and totals */
    TWI_TOTALS_TOO_MANY,
    TWI_TOTALS_NO_MEMORY
};

/* Takes ownership of a page, whatever the result is. Totals that are no whole number within +-`most` are left out. */
enum twi_totals_added twi_totals_add(struct twi_totals *totals, char *page, size_t size, int64_t most);
/* Keeps each name once, with the total that came last. The names are sorted byte by byte. */
void twi_totals_unite(struct twi_totals *totals);
/* Sorts them in the order of a sorted set: the highest total first, equal totals by name. */
void twi_totals_rank(struct twi_totals *totals);
void twi_totals_clear(struct twi_totals *totals);

#endif
