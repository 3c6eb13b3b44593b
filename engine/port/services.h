/* services.h -- the services of the engine for all of its parts and for sync/, which are statistics, log lines, clocks
 * and random bytes.
 * Always true: it has no code about counters and makes no decision. Any thread, except where noted. */
#ifndef TWI_PORT_SERVICES_H
#define TWI_PORT_SERVICES_H

#include "engine/base/why.h"
#include "tallywheel.h"

/* ---- statistics, log lines and errors ---- */

/* Adds to a statistic. Any thread. */
#define twi_port_count(engine, field, n) twi_stat_add((engine), offsetof(tw_stats, field), (n))
void twi_stat_add(tw_engine *engine, size_t offset, int64_t n);
void twi_stat_set(tw_engine *engine, size_t offset, int64_t value);
void twi_stat_raise(tw_engine *engine, size_t offset, int64_t value); /* to the greatest that came */

/* Calls the log hook, at most once a second per event; the next line contains the number of lines that were left out.
 * Findings of the start-up checks are not limited. By the owner of the turn. */
void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Calls a password callback of the host. Any thread. */
int twi_port_ask_password(int (*ask)(void *ctx, char *out, size_t size), void *ctx, char *out, size_t size);

/* tw_stats.last_error. Any thread. */
void twi_port_last_error(tw_engine *engine, const char *text);
/* That error is over, so last_error becomes empty, unless there was another error since. Any thread. */
void twi_port_error_over(tw_engine *engine, const char *text);

/* ---- values that tests change ---- */

/* Set before sharing; twi_open_with() takes it (driver.h). */
struct twi_tuning {
    /* the life of a gauge's or a hold's statement in Redis. Three are sent in this time, so two may be lost */
    int64_t presence_life_ms;
    int64_t closing_life_ms;  /* the life of a heartbeat and of a claim of the close election. Engines return at most 10
                               * s after Redis does, and a hook may take half of this */
    int64_t closing_wait_ms;  /* how long the hook of a closed window waits for Redis */
    int64_t closing_pause_ms; /* with several stores, the age that a store's marker must have before a window is closed
                               * for all. Within 30 s each engine writes its ledgers, and so learns that a store was
                               * wiped; its next heartbeat then names the windows that it delays */
    int64_t doubt_ms;         /* how long a store that does not know this engine has to stay before this is trusted. A
                               * failover that is reverted is usually over by then */
    int64_t apart_ms;         /* how long a slot of a cluster sends its store away before a log line reports it. Slots
                               * that move have usually arrived by then */
    uint32_t near_keys; /* keys in a batch, if Redis is near. They take some 140 us of its one thread (docs/SYNC.md) */
    bool stores_by_tag; /* a store for each key slot, as in a cluster, though there is one Redis */
    uint32_t store_places; /* so many stores of users' own tags have work at the same time; the others wait */
    bool tags_wait;        /* the default template's tags need a place like users' own */
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

/* The descriptor of the engine's socket set (base/socket_set.h): a descriptor in it wakes the thread that runs the
 * turns. */
int twi_port_socket_set(const tw_engine *engine);
/* Ends the sleep of the thread that runs the turns. This is the background thread, or the host, whose tw_fd() becomes
 * readable. Any thread, with Redis and without. */
void twi_port_wake(tw_engine *engine);

/* Reports the measured round trip to Redis, and the redis_timeout_ms that follows from it. Only the turn calls it. */
void twi_port_measured(tw_engine *engine, int64_t way_us, uint32_t timeout_ms);
/* The present redis_timeout_ms. It is the value that was set. If none was set, it follows from the round trip, and
 * before the first connection to Redis it is ten times the least value. A call may take so long, and a connection may
 * be silent for so long. Any thread. */
uint32_t twi_port_timeout_ms(const tw_engine *engine);

/* ---- clocks, randomness ---- */

#define TWI_TICK_MS 5u /* the background thread checks the clock and runs a turn this often, also when idle */

const char *twi_port_prefix(const tw_engine *engine); /* redis_prefix, or "" */
int64_t twi_port_wall_ms(tw_engine *engine);          /* engine time */
int64_t twi_port_mono_ms(tw_engine *engine);
int64_t twi_port_mono_us(tw_engine *engine); /* the same clock in its full resolution, not the system's coarse clock */
/* Unpredictable bytes (getrandom); in a simulator the engine's seeded generator. */
void twi_port_random(tw_engine *engine, void *out, size_t size);
/* The identity of this engine in Redis, apart from its ledger: 32 random hex digits. It stays the same for the engine's
 * life, whatever happens to its ledger. */
const char *twi_port_engine_id(tw_engine *engine);
bool twi_port_is_closing(const tw_engine *engine); /* tw_close() was called */

#endif
