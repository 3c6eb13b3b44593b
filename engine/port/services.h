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
void twi_stat_raise(tw_engine *engine, size_t offset, int64_t value); /* to the greatest that came */

/* Calls the log hook, at most once a second per event; the next line says how many were left out. Findings of the
 * start-up checks are not limited. By the owner of the turn. */
void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Calls a password callback of the host. Any thread. */
int twi_port_ask_password(int (*ask)(void *ctx, char *out, size_t size), void *ctx, char *out, size_t size);

/* tw_stats.last_error. Any thread. */
void twi_port_last_error(tw_engine *engine, const char *text);
/* That error is over: last_error is empty again, unless there was another one since. Any thread. */
void twi_port_error_over(tw_engine *engine, const char *text);

/* ---- what tests change ---- */

/* Set before sharing; twi_open_with() takes it (driver.h). */
struct twi_tuning {
    int64_t presence_life_ms; /* of a gauge's or a hold's statement in Redis: three are sent in it, two may be lost */
    int64_t closing_life_ms;  /* of a heartbeat and a claim of the close election: engines return at most 10 s after
                                  Redis does, and a hook may take half of this */
    int64_t closing_wait_ms;  /* how long the hook of a closed window waits for Redis */
    int64_t closing_pause_ms; /* with several stores: how old a store's marker is before a window is closed for all.
                                 Within 30 s each engine writes its ledgers, and so learns that a store was wiped; its
                                 next heartbeat then says what it holds up */
    int64_t doubt_ms;         /* how long a store that does not know this engine has to stay before this is trusted: a
                                  failover that is taken back is over by then, as a rule */
    int64_t apart_ms;         /* how long a slot of a cluster sends its store away before the log says so: slots that
                                 move are through by then, as a rule */
    uint32_t near_keys;       /* in a batch, where Redis is near: some 140 us of its one thread (docs/SYNC.md) */
    bool stores_by_tag;       /* a store for each key slot, as in a cluster, though there is one Redis */
    uint32_t store_places;    /* of users' own tags so many stores have something to do at a time; the others wait */
    bool tags_wait;           /* the default template's tags need a place like users' own */
};
#define TWI_NEAR_KEYS 64u
#define TWI_STORE_PLACES 1024u
#define TWI_TUNING \
    { \
        .presence_life_ms = 15000, .closing_life_ms = 30000, .closing_wait_ms = 60000, .closing_pause_ms = 45000, \
        .doubt_ms = 6000, .apart_ms = 10000, .near_keys = TWI_NEAR_KEYS, .store_places = TWI_STORE_PLACES \
    }
const struct twi_tuning *twi_port_tuning(const tw_engine *engine);

/* ---- what is waited for ---- */

/* The descriptor of the engine's socket set (base/socket_set.h): whatever enters it wakes whoever runs the turns. */
int twi_port_socket_set(const tw_engine *engine);
/* Ends the sleep of whoever runs the turns: the background thread, or the host, whose tw_fd() becomes readable. Any
 * thread, with Redis and without. */
void twi_port_wake(tw_engine *engine);

/* What was measured of the way to Redis: the round trip, and the redis_timeout_ms that follows from it. By the turn. */
void twi_port_measured(tw_engine *engine, int64_t way_us, uint32_t timeout_ms);
/* redis_timeout_ms, as it is now: what was set; otherwise what follows from the round trip; before the first connection
 * to Redis is up, ten times the least. A call has so long, and a link may be silent for so long. Any thread. */
uint32_t twi_port_timeout_ms(const tw_engine *engine);

/* ---- clocks, randomness ---- */

#define TWI_TICK_MS 5u /* the background thread checks the clock and runs a turn this often, also when idle */

const char *twi_port_prefix(const tw_engine *engine); /* redis_prefix, or "" */
int64_t twi_port_wall_ms(tw_engine *engine);          /* engine time */
int64_t twi_port_mono_ms(tw_engine *engine);
int64_t twi_port_mono_us(tw_engine *engine); /* the same clock in its full resolution: not the system's coarse clock */
/* Unpredictable bytes (getrandom); in a simulator the engine's seeded generator. */
void twi_port_random(tw_engine *engine, void *out, size_t size);
/* The identity of this engine in Redis, apart from its ledger: 32 random hex digits. It stays the same for the engine's
 * life, whatever happens to its ledger. */
const char *twi_port_engine_id(tw_engine *engine);
bool twi_port_is_closing(const tw_engine *engine); /* tw_close() was called */

#endif
