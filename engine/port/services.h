/* services.h -- what the engine does for all of its parts and for sync/: statistics, log lines, clocks, random bytes.
 * Always true: it knows nothing of counters and decides nothing. Any thread, except where noted. */
#ifndef TWI_PORT_SERVICES_H
#define TWI_PORT_SERVICES_H

#include "engine/base/why.h"
#include "tallywheel.h"

/* ---- what the engine says of itself ---- */

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

/* ---- clocks, randomness ---- */

#define TWI_TICK_MS 5u /* the background thread looks at the clock, and makes a turn, this often, idle too */

const char *twi_port_prefix(tw_engine *engine); /* redis_prefix, or "" */
int64_t twi_port_wall_ms(tw_engine *engine);    /* engine time */
int64_t twi_port_mono_ms(tw_engine *engine);
int64_t twi_port_mono_us(tw_engine *engine); /* the same clock, as fine as it is: not the system's coarse one */
/* Unpredictable bytes (getrandom); in a simulator the engine's seeded generator. */
void twi_port_random(tw_engine *engine, void *out, size_t size);
/* Who this engine is in Redis, but for its ledger: 32 random hex digits, the same for its life, whatever becomes of that. */
const char *twi_port_engine_id(tw_engine *engine);

#endif
