/* totals.h -- names and totals that Redis replied, gathered from the pages of several replies (totals.lua).
 * Always true: a name is valid while its page is kept, and all pages are kept until the end. The memory that a server
 * may make the caller keep is bounded. */
#ifndef TWI_ASK_TOTALS_H
#define TWI_ASK_TOTALS_H

#include "tallywheel.h"

#define TWI_TOTALS_MAX 1000000u                 /* kept at a time */
#define TWI_TOTALS_BYTES_MAX ((size_t)64 << 20) /* bytes of all pages */

struct twi_total {
    tw_key name;
    int64_t total;
    size_t order; /* in which they came */
};

/* A zeroed struct is empty. */
struct twi_totals {
    struct twi_total *each;
    size_t count;
    char **pages;
    size_t page_count, bytes;
    uint32_t room, page_room; /* room for totals, and for pages */
};

enum twi_totals_added {
    TWI_TOTALS_ADDED,
    TWI_TOTALS_MALFORMED, /* no page of names and totals */
    TWI_TOTALS_TOO_MANY,
    TWI_TOTALS_NO_MEMORY
};

/* Takes a page over, whatever is answered. Totals that are no whole number within +-`most` are left out. */
enum twi_totals_added twi_totals_add(struct twi_totals *totals, char *page, size_t size, int64_t most);
/* Each name once, with the total that came last; sorted by name, byte by byte. */
void twi_totals_unite(struct twi_totals *totals);
/* Orders them like a sorted set, the highest first, by total, and equal ones by name. */
void twi_totals_rank(struct twi_totals *totals);
void twi_totals_clear(struct twi_totals *totals);

#endif
