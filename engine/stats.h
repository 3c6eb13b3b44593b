/* stats.h -- statistics as OpenMetrics text. Pure; any thread. */
#ifndef TWI_STATS_H
#define TWI_STATS_H

#include "tallywheel.h"

/* Writes every field of TW_STATS as tallywheel_<field>, in base units (seconds, bytes), counters with _total, then
 * tallywheel_build_info and "# EOF". `write` gets one metric at a time; when it answers false nothing more is written.
 * last_error is left out: free text has no place among labels. Answers TW_OK; TW_DENIED (`write` answered false). */
tw_status twi_stats_write(const tw_stats *stats, bool (*write)(void *ctx, const char *text, size_t size), void *ctx);

#endif
