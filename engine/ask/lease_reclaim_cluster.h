/* lease_reclaim_cluster.h -- tw_lease_reclaim() in a Redis Cluster. See lease_reclaim_cluster.c. */
#ifndef TWI_ASK_LEASE_RECLAIM_CLUSTER_H
#define TWI_ASK_LEASE_RECLAIM_CLUSTER_H

#include "engine/core/family.h"

/* The caller may wait. `units` becomes the number of freed units, in any case. */
tw_status twi_lease_reclaim_cluster(tw_family *family, const char *instance, bool only_looks, int64_t *units);

#endif
