/* report.h -- what an engine says of itself: statistics, log lines, the last error of its connections. What adds to them:
 * services.h.
 * Always true: a statistic is one word that any thread adds to; log lines are the turn's, at most one a second for each event. */
#ifndef TWI_CORE_REPORT_H
#define TWI_CORE_REPORT_H

#include "engine/core/state.h"

/* Before it is shared; and in a forked child, whose figures begin at 0. */
void twi_report_begin(struct twi_report *report);
void twi_report_end(struct twi_report *report);

void twi_report_error_text(struct twi_report *report, char out[TWI_REPORT_ERROR_MAX]);

#endif
