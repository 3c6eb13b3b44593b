/* report.h -- the reports of an engine, which are statistics, log lines and the last error of its connections.
 * services.h adds to them.
 * Always true: a statistic is one word that any thread adds to. Only the owner of the turn writes log lines, at most
 * one per second and event; each finding of the start and each audit is one line. */
#ifndef TWI_CORE_REPORT_H
#define TWI_CORE_REPORT_H

#include "engine/core/state.h"

/* Called before the report is shared, and in a forked child, which has reported nothing yet. */
void twi_report_begin(struct twi_report *report, bool is_shared);
void twi_report_end(struct twi_report *report);

void twi_report_error_text(struct twi_report *report, char out[TWI_REPORT_ERROR_MAX]);

#endif
