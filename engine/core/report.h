/* report.h -- the reports of an engine, which are statistics, log lines and the last error of its connections.
 * services.h adds to them.
 * Always true: a statistic is one word that any thread adds to. Only the owner of the turn writes log lines. An
 * event may have some at once, and then one a second: what happens only once is heard, and a flood is cut. No line is
 * left out in silence: the next one has the number, or a line of its own when the flood is over. Findings of the start
 * and audits are never left out. */
#ifndef TWI_CORE_REPORT_H
#define TWI_CORE_REPORT_H

#include "engine/core/state.h"

/* Called before the report is shared, and in a forked child, which has reported nothing yet. */
void twi_report_begin(struct twi_report *report, bool is_shared);
void twi_report_end(struct twi_report *report);

/* Says how many lines were left out of each event whose flood is over; at the end of the engine, of each event. Called
 * by the owner of the turn. */
void twi_report_turn(tw_engine *engine, bool is_end);

void twi_report_error_text(struct twi_report *report, char out[TWI_REPORT_ERROR_MAX]);

#endif
