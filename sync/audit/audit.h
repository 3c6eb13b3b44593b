/* audit.h -- compares the data in Redis with the expected data. See audit.c. */
#ifndef TWI_SYNC_AUDIT_H
#define TWI_SYNC_AUDIT_H

#include "engine/port/driver.h"

tw_status twi_audit_run(const struct twi_audit *audit);

#endif
