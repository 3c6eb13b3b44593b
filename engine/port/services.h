/* services.h -- what the engine offers to all of its parts and to sync/: statistics, log lines, clocks, random bytes.
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

/* Calls the log hook, at most once a second per event; the next line says how many were left out. Findings of the
 * start-up checks are not limited. By the owner of the turn. */
void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* tw_stats.last_error. Any thread. */
void twi_port_last_error(tw_engine *engine, const char *text);

/* ---- clocks, randomness ---- */

#define TWI_TICK_MS 5u /* the background thread checks the clock and runs a turn this often, also when idle */

const char *twi_port_prefix(tw_engine *engine); /* redis_prefix, or "" */
int64_t twi_port_wall_ms(tw_engine *engine);    /* engine time */
int64_t twi_port_mono_ms(tw_engine *engine);
int64_t twi_port_mono_us(tw_engine *engine); /* the same clock in its full resolution: not the system's coarse clock */
/* Unpredictable bytes (getrandom); in a simulator the engine's seeded generator. */
void twi_port_random(tw_engine *engine, void *out, size_t size);
/* The identity of this engine in Redis, apart from its ledger: 32 random hex digits. It stays the same for the engine's
 * life, whatever happens to its ledger. */
const char *twi_port_engine_id(tw_engine *engine);

#endif
