/* services.h -- the engine's services for its parts and for sync/: statistics, log lines, clocks and random bytes.
 * Always true: it has no code about counters and makes no decision. Any thread may call these functions, except
 * where a comment names one. */
#ifndef TWI_PORT_SERVICES_H
#define TWI_PORT_SERVICES_H

#include "engine/base/why.h"
#include "tallywheel.h"

/* ---- statistics, log lines and errors ---- */

/* Adds to a statistic. Any thread. */
#define twi_port_count(engine, field, n) twi_stat_add((engine), offsetof(tw_stats, field), (n))
void twi_stat_add(tw_engine *engine, size_t offset, int64_t n);
void twi_stat_set(tw_engine *engine, size_t offset, int64_t value);
void twi_stat_raise(tw_engine *engine, size_t offset, int64_t value); /* sets a statistic to its greatest value */

/* Calls log_write, at most once a second for each event. The next line has the number of lines that were left out.
 * Findings of the checks at the start are not limited. One thread of a process at a time calls it: the owner of the
 * turn, and tw_open() and tw_close() when no turn is made here. */
void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Calls a password callback of the host. Any thread. */
int twi_port_ask_password(int (*ask)(void *ctx, char *out, size_t size), void *ctx, char *out, size_t size);

/* Puts a '?' in place of each control character. A log is read at a terminal, and what Redis says comes from outside.
 * */
static inline void twi_port_printable(char *text) {
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 127) *text = '?';
}

/* tw_stats.last_error, without control characters. Any thread. */
void twi_port_last_error(tw_engine *engine, const char *text);
/* Called when that error is over. last_error becomes empty, unless there was another error since. Any thread. */
void twi_port_error_over(tw_engine *engine, const char *text);

/* The time of a call is over, and it had no connection: it is in tw_stats.ask_timeouts, and was never sent. Any
 * thread. */
void twi_port_timed_out_unsent(tw_engine *engine);

/* ---- values that tests change ---- */

/* Set before the engine is shared. twi_open_with() takes it (driver.h). */
struct twi_tuning {
    /* the lifetime of a gauge's or a hold's statement in Redis. Three are sent in this time, so two may be lost */
    int64_t presence_life_ms;
    int64_t closing_life_ms; /* the lifetime of a heartbeat and of a claim of the close election. After an outage an
                                 engine is back at most 10 s after Redis, and a hook may need half of this time */
    int64_t closing_wait_ms; /* how long the hook of a closed window waits for Redis */
    /* with several stores: how old the marker of a store must be before a window is closed for all. Within 30 s each
     * engine writes its ledgers, and so notices that a store was wiped. Its next heartbeat then names the windows
     * that it delays */
    int64_t closing_pause_ms;
    int64_t doubt_ms;      /* how long a store that does not know this engine must be there before the engine
                                 trusts that. If a failover is reverted, this has usually happened by then */
    int64_t apart_ms;      /* how long a slot of a cluster may redirect a store before a log line reports it.
                                 Slots that move have usually arrived by then */
    uint32_t near_keys;    /* the keys of a batch if Redis is near: some 140 us of its only thread (docs/SYNC.md) */
    bool stores_by_tag;    /* each key slot is a store, as in a cluster, although there is one Redis */
    uint32_t store_places; /* how many stores with tags of the user have work at the same time; the others wait */
    bool tags_wait;        /* the tags of the default template need a place, too, like those of the user */
};
#define TWI_NEAR_KEYS 64u
#define TWI_STORE_PLACES 1024u
#define TWI_TUNING \
    { \
        .presence_life_ms = 15000, .closing_life_ms = 30000, .closing_wait_ms = 60000, .closing_pause_ms = 45000, \
        .doubt_ms = 6000, .apart_ms = 10000, .near_keys = TWI_NEAR_KEYS, .store_places = TWI_STORE_PLACES \
    }
const struct twi_tuning *twi_port_tuning(const tw_engine *engine);

/* ---- waiting and waking ---- */

/* Returns the descriptor of the engine's socket set (base/descriptor.h). A descriptor in that set wakes the thread
 * that runs the turns. */
int twi_port_socket_set(const tw_engine *engine);
/* Ends the sleep of the thread that runs the turns. This thread is the background thread, or the host, whose tw_fd()
 * becomes readable. Any thread may call it, with Redis and without. */
void twi_port_wake(tw_engine *engine);

/* Reports the measured round trip to Redis, and the redis_timeout_ms that follows from it. Only the turn calls it. */
void twi_port_measured(tw_engine *engine, int64_t way_us, uint32_t timeout_ms);
/* The present redis_timeout_ms. Returns redis_timeout_ms if it was set. Otherwise the value follows from the
 * measured round trip. Before the first connection to Redis it is ten times the least value. A call may take so
 * long, and a connection may be silent for so long. Any thread. */
uint32_t twi_port_timeout_ms(const tw_engine *engine);

/* ---- clocks, randomness ---- */

#define TWI_TICK_MS 5u /* how often the background thread checks the clock and runs a turn, even if it is idle */

const char *twi_port_prefix(const tw_engine *engine); /* redis_prefix, or "" */
int64_t twi_port_wall_ms(tw_engine *engine);          /* engine time */
int64_t twi_port_mono_ms(tw_engine *engine);
int64_t twi_port_mono_us(tw_engine *engine); /* the same clock in full resolution, not the coarse clock */
/* Returns unpredictable bytes (getrandom). In a simulator they come from the engine's seeded generator. */
void twi_port_random(tw_engine *engine, void *out, size_t size);
/* Returns the identity of this engine in Redis, which is independent of its ledger: 32 random hexadecimal digits. It
 * stays the same while the engine exists, whatever happens to its ledger. */
const char *twi_port_engine_id(tw_engine *engine);
/* The estate of a shared engine (driver.h), or NULL. It stays while the engine exists. */
void *twi_port_estate(const tw_engine *engine);
bool twi_port_is_closing(const tw_engine *engine); /* tw_close() was called */

#endif
