/* log_events.h -- the events of the log by name, each with advice about what to do. The numbers are those of enum
 * tw_event, for ever; a line names its event as TW-E and three digits. docs/WATCH.md describes each in more detail, in
 * the same words (tests/unit/core/log_events_test.c compares).
 * Always true: a remedy is one short phrase that fits after any line. */
#ifndef TWI_CORE_LOG_EVENTS_H
#define TWI_CORE_LOG_EVENTS_H

#include "tallywheel.h"

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

#endif
