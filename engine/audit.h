/* audit.h -- the thread that audits now and then (audit_interval_ms). */
#ifndef TWI_AUDIT_H
#define TWI_AUDIT_H

#include "tallywheel.h"

/* The auditor, where audit_interval_ms asks for one. Stopped before the engine is drained; in a forked child it is gone. */
tw_status twi_audit_start(tw_engine *engine);
void twi_audit_stop(tw_engine *engine);

#endif
