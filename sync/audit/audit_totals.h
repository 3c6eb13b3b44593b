/* audit_totals.h -- compares a file of totals from a database with the totals in Redis. A line is key<TAB>count. Always
 * true: each line is compared, or named as malformed, or the audit ends with an error. */
#ifndef TWI_SYNC_AUDIT_TOTALS_H
#define TWI_SYNC_AUDIT_TOTALS_H

#include "sync/audit/audit_servers.h"

/* Returns at once if no file is given. `names` is used for pages. */
void twi_audit_totals_look(struct twi_audit_servers *servers, struct twi_audit_names *names);

#endif
