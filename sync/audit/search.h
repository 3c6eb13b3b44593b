/* search.h -- looks for hashes by name and field, on all masters of Redis. See search.c. */
#ifndef TWI_SYNC_SEARCH_H
#define TWI_SYNC_SEARCH_H

#include "engine/port/driver.h"

tw_status twi_search_run(const struct twi_audit *audit, const struct twi_search *searches, size_t count);

#endif
