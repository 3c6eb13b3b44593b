/* lease_reclaim.h -- the data of an engine that separate connections need: for audits, and for searches over
 * all masters.
 * Always true: no data is copied. The engine exists longer than the call. */
#ifndef TWI_ASK_LEASE_RECLAIM_H
#define TWI_ASK_LEASE_RECLAIM_H

#include "engine/core/family.h"

int64_t twi_login_mono_ms(void); /* the system's clock */
/* Returns false if the engine is being closed. NULL means that there is no engine */
bool twi_login_goes_on(tw_engine *engine);
/* Reads the address of Redis and the settings of the connection. */
void twi_login_of_engine(tw_engine *engine, tw_audit_options *options, struct twi_audit *audit);

/* ---- lease reclaim cluster ----
 * tw_lease_reclaim() in a Redis Cluster. See lease_reclaim_cluster.c. */

/* The caller may wait. `units` becomes the number of freed units, in any case. */
tw_status twi_lease_reclaim_cluster(tw_family *family, const char *instance, bool only_looks, int64_t *units);

#endif
