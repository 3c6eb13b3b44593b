/* audit_search.h -- walks all names that match a pattern, on the one Redis or on each master of a cluster, page by
 * page.
 *
 * Always true: a key of a slot that moves is looked at once, although two masters may show it. A key on a server
 * where no client finds it is reported (TW_AUDIT_STRAY), and is not looked at. */
#ifndef TWI_SYNC_AUDIT_SEARCH_H
#define TWI_SYNC_AUDIT_SEARCH_H

#include "sync/audit/audit_servers.h"

struct twi_audit_search {
    struct twi_audit_servers *servers;
    struct twi_audit_names *names; /* of the page */
    const char *pattern;           /* for the MATCH of SCAN */
    uint64_t *seen;                /* names so far; the walk ends at options->keys_max, and notes that in the report */
    void (*look)(struct twi_audit_search *search); /* at a page */
    void *ctx;
    bool is_over; /* set by look() to end the walk */

    uint16_t server; /* that is searched */
    bool is_second;  /* only names whose keys are moving */
};

void twi_audit_search_all(struct twi_audit_search *search);

#endif
