/* audit.h -- the thread that audits periodically (audit_interval_ms). */
#ifndef TWI_AUDIT_H
#define TWI_AUDIT_H

#include "tallywheel.h"

/* Starts the auditor, if audit_interval_ms is set. It is stopped before the engine is drained. A forked child starts
 * an auditor of its own. */
tw_status twi_audit_start(tw_engine *engine);
void twi_audit_stop(tw_engine *engine);

#endif
