/* audit.h -- compares the data in Redis with the expected data. See audit.c. */
#ifndef TWI_SYNC_AUDIT_H
#define TWI_SYNC_AUDIT_H

#include "sync/audit/audit_servers.h"
#include "engine/port/driver.h"

/* ---- audit totals ----
 * compares a file of totals from a database with the totals in Redis. A line is key<TAB>count. Always
 * true: each line is compared, or named as malformed, or the audit ends with an error. */

/* Returns at once if no file is given. `names` is used for pages. */
void twi_audit_totals_look(struct twi_audit_servers *servers, struct twi_audit_names *names);

tw_status twi_audit_run(const struct twi_audit *audit);

#endif
