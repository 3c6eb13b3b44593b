/* report.h -- the reports of an engine, which are statistics, log lines and the last error of its connections.
 * services.h adds to them.
 * Always true: a statistic is one word that any thread adds to. Only the owner of the turn writes log lines. An
 * event may have some at once, and then one a second: what happens only once is heard, and a flood is cut. No line is
 * left out in silence: the next one has the number, or a line of its own when the flood is over. Findings of the start
 * and audits are never left out. */
#ifndef TWI_CORE_REPORT_H
#define TWI_CORE_REPORT_H

#include "tallywheel.h"
#include "engine/core/state.h"

/* ---- log events ----
 * the events of the log by name, each with advice about what to do. The numbers are those of enum
 * tw_event, for ever; a line names its event as TW-E and three digits. docs/WATCH.md describes each in more detail, in
 * the same words (tests/unit/core/log_events_test.c compares).
 * Always true: a remedy is one short phrase that fits after any line. */

/* X(name, remedy) describes TW_EVENT_name */
#define TWI_LOG_EVENTS(X) \
    X(MEMORY, "raise memory_bytes_max, or count fewer keys") \
    X(CLOCK, "set the machine's clock right") \
    X(STALL, "find the thread that stays inside tw_enter() or a visit") \
    X(BARRIER, "allow membarrier(2) in the sandbox") \
    X(CRUMBS, "raise memory_bytes_max") \
    X(CONNECTED, "nothing to do") \
    X(LOST_CONNECTION, "check Redis and the network; counts wait here meanwhile") \
    X(REFUSED, "let Redis do what the line names; what it has not counted waits here") \
    X(POISON, "delete or rename the key in Redis") \
    X(ROLLBACK, "find out why Redis lost writes; see tw_stats.lost") \
    X(IDENTITY, "check whether somebody deleted tw:* keys or copied a process") \
    X(START, "change the setting that the line names") \
    X(LOST, "see on_lost for the keys, and tw_stats for the sums") \
    X(REWRITE, "wait for the rewrite before Redis is restarted") \
    X(REGRESSION, "find out who deletes, evicts or sets keys of this engine") \
    X(UNCERTAIN, "use TW_MERGE_SCRIPT, which counts exactly once") \
    X(REPLICAS, "bring the replicas back, or lower wait_replicas") \
    X(AUDIT, "run tallywheel audit for all findings") \
    X(CLOSED, "let a hook take the window, and Redis the tw:* keys of its names") \
    X(LATE, "set lateness_ms or retention_ms, or call tw_close_until()") \
    X(TLS, "correct the certificate, the name or the option that the line names") \
    X(SPLIT, "repair the slots as the line says") \
    X(CALLBACK, "let the `done` pass its work to another thread") \
    X(DIED, "find out why the process ended; no count that it was answered is lost") \
    X(SAVED, "nothing to do")

/* Called before the report is shared, and in a forked child, which has reported nothing yet. */
void twi_report_begin(struct twi_report *report, bool is_shared);
void twi_report_end(struct twi_report *report);

/* Says how many lines were left out of each event whose flood is over; at the end of the engine, of each event. Called
 * by the owner of the turn. */
void twi_report_turn(tw_engine *engine, bool is_end);

void twi_report_error_text(struct twi_report *report, char out[TWI_REPORT_ERROR_MAX]);

#endif
