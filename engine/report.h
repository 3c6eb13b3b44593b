/* report.h -- what an engine says of itself: statistics, log lines, the last error of its connections.
 *
 * Always true: a statistic is one word that any thread adds to; log lines are the turn's, at most one a second for each event. */
#ifndef TWI_REPORT_H
#define TWI_REPORT_H

#include "tallywheel.h"

#include <pthread.h>

#define TWI_REPORT_EVENTS 32u
#define TWI_REPORT_ERROR_MAX 128u

struct twi_report {
    _Atomic int64_t stats[sizeof(tw_stats) / sizeof(int64_t)];
    int64_t logged_ms[TWI_REPORT_EVENTS]; /* monotonic, per event: its last line; 0: none. The turn's */
    uint32_t left_out[TWI_REPORT_EVENTS]; /* lines since */
    pthread_mutex_t lock;                 /* last_error */
    char last_error[TWI_REPORT_ERROR_MAX];
};

/* Before it is shared; and in a forked child, whose figures begin at 0. */
void twi_report_begin(struct twi_report *report);
void twi_report_end(struct twi_report *report);

/* Adds to a statistic. Any thread. */
#define twi_port_count(engine, field, n) twi_stat_add((engine), offsetof(tw_stats, field), (n))
void twi_stat_add(tw_engine *engine, size_t offset, int64_t n);
void twi_stat_set(tw_engine *engine, size_t offset, int64_t value);
int64_t twi_stat_get(tw_engine *engine, size_t offset);

/* Calls the log hook (rate-limited per event: at most one line a second, with a count of those left out; not where start-up
 * checks have found something). By the owner of the turn. */
void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* tw_stats.last_error. Any thread. */
void twi_port_last_error(tw_engine *engine, const char *text);
void twi_report_error_text(struct twi_report *report, char out[TWI_REPORT_ERROR_MAX]);

#endif
