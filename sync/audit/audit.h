/* audit.h -- compares what Redis holds with what it should hold. See audit.c. */
#ifndef TWI_SYNC_AUDIT_H
#define TWI_SYNC_AUDIT_H

#include "engine/port/driver.h"

tw_status twi_audit_run(const struct twi_audit *audit);

#endif
