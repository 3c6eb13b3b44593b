/* driver.h -- the contract of engine and sync/ on each other's life: the table of calls through which the engine drives sync/, and
 * the questions that callers wait for.
 *
 * The engine never includes a header of sync/: it finds a driver through twi_driver_find(), which sync/driver.c defines
 * (or engine/driver_none.c in a build without Redis).
 * Always true: an engine has one driver or none, from its opening to its end. */
#ifndef TWI_PORT_DRIVER_H
#define TWI_PORT_DRIVER_H

#include "tallywheel.h"

struct twi_sync;      /* sync/'s own state, one per engine */
struct twi_transport; /* sync/wire/socket.h: sockets, or a simulator's */

/* What an engine knows of its own ledger. */
struct twi_audit_own {
    char ledger[512]; /* its name; "": none is known */
    uint64_t number, plus, minus;
};

/* tw_audit(), checked, with what only the engine knows. */
struct twi_audit {
    const tw_audit_options *options; /* url and prefix are the engine's, where there is one */
    int (*password)(void *ctx, char *out, size_t size);
    void *password_ctx;
    const char *const *patterns; /* of keys that must end */
    size_t pattern_count;
    struct twi_audit_own own;
    int64_t (*mono_ms)(void);           /* the system's */
    bool (*goes_on)(tw_engine *engine); /* false: the engine is being closed */
    tw_engine *engine;                  /* for it alone; may be NULL */
    void (*found)(void *ctx, const tw_finding *finding);
    void *ctx;
    tw_audit_report *report;
};

/* ---- questions that a caller waits for (sync/ask/pool.c): one run of a script over keys of one slot */

enum twi_script {
    TWI_SCRIPT_STRICT,
    TWI_SCRIPT_GCRA,
    TWI_SCRIPT_ONCE,
    TWI_SCRIPT_LOCK,
    TWI_SCRIPT_RESERVE,
    TWI_SCRIPT_HOLD,
    TWI_SCRIPT_RECLAIM,
    TWI_SCRIPTS
};

enum twi_request_outcome {
    TWI_REQUEST_DONE,    /* `values` is Redis's answer */
    TWI_REQUEST_REFUSED, /* Redis would not have it: surely not executed */
    TWI_REQUEST_UNKNOWN, /* perhaps executed */
    TWI_REQUEST_UNSENT   /* Redis could not be asked: surely not executed */
};

/* One element of an answer. */
struct twi_script_value {
    bool is_number, is_nil;
    int64_t number; /* also of a text that spells one */
    size_t size;
    char text[80]; /* with a NUL */
};
#define TWI_SCRIPT_VALUES_MAX 8u

struct twi_request {
    enum twi_script script;
    const tw_key *keys, *args; /* args: from the script's ARGV[4] on; redis_call.h has the first three */
    size_t key_count, arg_count;
    int64_t deadline_ms; /* monotonic */
    /* Upon TWI_REQUEST_UNKNOWN the script is told "never mind" before anything else goes over the same connection: whatever it
     * has charged for this call is taken back, once, and a copy of it that comes late does nothing. */
    bool numbered;
    struct twi_script_value values[TWI_SCRIPT_VALUES_MAX]; /* behind the number of the call */
    size_t value_count;
    /* Asked for: the last text of the answer, which may be longer than `values` has room; the caller frees it, whatever came of it. */
    bool wants_long;
    char *long_text; /* not terminated */
    size_t long_size;
};

enum twi_ticket { TWI_TICKET_OPEN, TWI_TICKET_DONE, TWI_TICKET_REFUSED };

struct twi_driver {
    /* Checks the Redis options, allocates; no socket yet. On error writes what is wrong to options->error_text.
     * `transport` is NULL except in a simulator. */
    tw_status (*create)(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                        void *transport_ctx, struct twi_sync **sync);
    /* one bounded round: connect, collect, send, receive; never waits */
    void (*turn)(struct twi_sync *sync);
    int (*fd)(const struct twi_sync *sync, bool *wants_write); /* -1: none; any thread */
    /* monotonic ms at which turn() wants to run next, readiness of fd apart */
    int64_t (*wake_ms)(const struct twi_sync *sync);
    uint64_t (*ticket_take)(struct twi_sync *sync); /* a flush: begins a full collection; any thread */
    enum twi_ticket (*ticket_state)(struct twi_sync *sync, uint64_t ticket); /* any thread */
    void (*stats)(const struct twi_sync *sync, tw_stats *stats);             /* any thread */
    /* Closes the socket and settles every item it holds: twi_port_give_up(TW_LOST_CLOSED). Then frees. */
    void (*destroy)(struct twi_sync *sync);
    /* In a forked child: closes the inherited socket unsaid and frees without settling anything. */
    void (*abandon)(struct twi_sync *sync);
    void (*own)(const struct twi_sync *sync, struct twi_audit_own *own); /* by the owner of the turn */
    tw_status (*audit)(const struct twi_audit *audit);                   /* without an engine; any thread; waits */
    enum twi_request_outcome (*request)(struct twi_sync *sync, struct twi_request *request); /* any thread; waits */
    void (*request_stop)(struct twi_sync *sync); /* whoever waits is answered at once, from now on. Any thread */
};
/* NULL: built without Redis. */
const struct twi_driver *twi_driver_find(void);

/* For simulators and tests: tw_open() with a transport of theirs, and the seed of twi_port_random() (0: the
 * system's). */
tw_status twi_open_with(const tw_options *options, const struct twi_transport *transport, void *transport_ctx,
                        uint64_t random_seed, tw_engine **out);

#endif
