/* driver.h -- the contract on the life of sync/: the table of calls through which the engine drives it, and the
 * synchronous requests of callers.
 *
 * The engine never includes a header of sync/. It finds a driver through twi_driver_find(), which sync/driver.c defines
 * (engine/driver_none.c in a build without Redis).
 * Always true: an engine has one driver or none, from its opening to its end. */
#ifndef TWI_PORT_DRIVER_H
#define TWI_PORT_DRIVER_H

#include "tallywheel.h"

struct twi_sync;      /* the state of sync/, one per engine */
struct twi_transport; /* real sockets (sync/wire/socket.h), or those of a simulator */

/* One ledger of an engine, as that engine sees it. */
struct twi_audit_own {
    char ledger[512]; /* its name */
    uint64_t number, plus, minus;
};

/* The checked options of tw_audit(), with the values that only the engine has. */
struct twi_audit {
    const tw_audit_options *options; /* the prefix is the engine's, if there is one */
    const tw_options *server;        /* the address of Redis. Only redis_url, redis_tls_* and the logins are set */
    const char *const *patterns;     /* the names of keys that must have an expiry */
    size_t pattern_count;
    const struct twi_audit_own *own; /* the ledgers of the engine's stores, as far as they are known */
    size_t own_count;
    int64_t (*mono_ms)(void);           /* the system's clock */
    bool (*goes_on)(tw_engine *engine); /* false means that the engine is being closed */
    tw_engine *engine;                  /* for goes_on only; may be NULL */
    void (*found)(void *ctx, const tw_finding *finding);
    void *ctx;
    tw_audit_report *report;
};

/* Hashes whose names match a pattern, and a field of them, on all masters. tw_lease_reclaim() searches for them in a
 * cluster. */
struct twi_search {
    const char *pattern; /* for the MATCH of SCAN */
    const char *field;
    /* A hash that matches, and its field; NULL means that it has no such field. Returns true if the hash is wanted.
     * Never waits */
    bool (*is_wanted)(void *ctx, tw_key name, const char *value);
    /* may be called twice for a name, and may wait. Returns false to end the search */
    bool (*found)(void *ctx, tw_key name);
    void *ctx;
};

/* ---- requests of callers: one run of a script over keys of one hash slot
 *
 * ask() begins one and does not wait; answered() brings the outcome. In a host-driven engine, the owner of the turn
 * drives them. Otherwise the engine's second thread does. It calls ask_step(), one thread at a time, and waits in
 * between for ask_fd() or until ask_wake_ms(). */

enum twi_script {
    TWI_SCRIPT_STRICT,
    TWI_SCRIPT_GCRA,
    TWI_SCRIPT_ONCE,
    TWI_SCRIPT_LOCK,
    TWI_SCRIPT_RESERVE,
    TWI_SCRIPT_HOLD,
    TWI_SCRIPT_RECLAIM,
    TWI_SCRIPT_TOTALS,
    TWI_SCRIPTS
};

enum twi_request_outcome {
    TWI_REQUEST_DONE,    /* `values` holds the reply */
    TWI_REQUEST_REFUSED, /* Redis refused the request, so it was not executed */
    TWI_REQUEST_UNKNOWN, /* perhaps executed */
    TWI_REQUEST_UNSENT,  /* the request could not be sent, so it was not executed */
    TWI_REQUEST_BUSY     /* calls_max requests are under way, so it was not executed. This is no outage */
};

/* One element of a reply. */
struct twi_script_value {
    bool is_number, is_nil;
    int64_t number; /* also set for a text that is a number */
    size_t size;
    char text[80]; /* with a NUL */
};
#define TWI_SCRIPT_VALUES_MAX 8u

/* How a request ended. It belongs to sync/ and is valid until answered() returns. A caller that needs it later copies
 * the struct. Only TWI_REQUEST_DONE comes with values and long text. */
struct twi_answer {
    enum twi_request_outcome outcome;
    struct twi_script_value values[TWI_SCRIPT_VALUES_MAX]; /* without the number of the call */
    size_t value_count;
    char *long_text; /* not terminated; NULL means none. answered() may keep the text. Then it sets this pointer to NULL
                      * and frees the text later. Otherwise the text is freed after answered() */
    size_t long_size;
};

struct twi_request {
    enum twi_script script;
    const tw_key *keys, *args; /* `args` begins with the script's ARGV[4]; redis_call.h sets the first three */
    size_t key_count, arg_count;
    /* the monotonic time at which the caller gives up. It limits the whole time from ask() to the answer */
    int64_t deadline_ms;
    /* For ask() alone. Called once, by whoever drives, inside ask_step(), and never inside ask() or ask_stop(). No lock
     * of sync/ is held. It may call ask(), ask_forget() and any service, and must not wait. */
    void (*answered)(void *ctx, struct twi_answer *answer);
    void *ctx;
    _Atomic uint64_t *number; /* NULL, or where ask() writes the number before answered() can be called */
    /* ask() may wait, until the deadline, while calls_max requests are under way. Not for the thread that drives. */
    bool waits_for_room;
    /* After TWI_REQUEST_UNKNOWN, a cancellation is sent before anything else goes over the same connection. It takes
     * back, exactly once, all units that the script has charged for this call. A late copy of the request does
     * nothing. */
    bool numbered;
    /* Requests the last text of the reply, which may be longer than `values` has room for. */
    bool wants_long;
};

enum twi_ticket { TWI_TICKET_OPEN, TWI_TICKET_DONE, TWI_TICKET_REFUSED };

struct twi_driver {
    /* Checks the Redis options and allocates; opens no socket yet. On an error it writes the reason to
     * options->error_text. `transport` is NULL except in a simulator. */
    tw_status (*create)(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                        void *transport_ctx, struct twi_sync **sync);
    /* one bounded round, which connects, collects, sends and receives; never waits */
    void (*turn)(struct twi_sync *sync);
    /* The monotonic time at which turn() has to run next, unless the engine's socket set is readable earlier. */
    int64_t (*wake_ms)(const struct twi_sync *sync);
    /* For a Redis Cluster, returns the number of each key slot that the names of that slot contain (base/key_slot.h).
     * It returns NULL if there is one Redis. The function pointer may be NULL. Templates keep the table, also in a
     * forked child. It outlives the driver's state. */
    const uint32_t *(*shorts)(const struct twi_sync *sync);
    uint64_t (*ticket_take)(struct twi_sync *sync); /* begins the full collection of a flush; any thread */
    enum twi_ticket (*ticket_state)(struct twi_sync *sync, uint64_t ticket); /* any thread */
    void (*stats)(const struct twi_sync *sync, tw_stats *stats);             /* any thread */
    /* Called by the owner of the turn when the engine closes and no count is unsent. It gives the engine's keys in
     * Redis a short life. The engine calls it again after each turn until it returns true, or until the time is over.
     * May be NULL. */
    bool (*leave)(struct twi_sync *sync);
    /* Closes the socket, settles every item that it holds with twi_port_give_up(TW_LOST_CLOSED), and frees. */
    void (*destroy)(struct twi_sync *sync);
    /* In a forked child: it closes the inherited socket and frees the memory. It sends no request and settles no
     * item. */
    void (*abandon)(struct twi_sync *sync);
    /* The caller frees *own. Returns false if there is no memory. By the owner of the turn. */
    bool (*own)(const struct twi_sync *sync, struct twi_audit_own **own, size_t *count);
    tw_status (*audit)(const struct twi_audit *audit); /* without an engine; any thread; waits */
    /* One search after the other. If it does not return TW_OK, some masters were not searched, and tw_error_text()
     * names them; the others were searched. It reads all fields of `audit` up to the passwords, and mono_ms, goes_on
     * and engine. Any thread; waits. */
    tw_status (*search)(const struct twi_audit *audit, const struct twi_search *searches, size_t count);
    /* Begins a request. Everything that `request` points to is copied before the call returns, except for ctx. Any
     * thread, also inside answered(). Returns the number of the request, which no other request ever has, and
     * answered() follows exactly once; it may be called in the driving thread before this call has returned. Returns 0
     * if no request was begun. Then answered() is not called, and *why is BUSY, or UNSENT (the breaker is open,
     * ask_stop() was called, or there is no memory). */
    uint64_t (*ask)(struct twi_sync *sync, const struct twi_request *request, enum twi_request_outcome *why);
    /* Cancels the request. True means that answered() is not called, now or later, and ctx is not touched again. The
     * units that the request has charged are taken back. False means that answered() was called, or is being called now
     * by the driving thread, or that no request has this number. Any thread, also inside answered(); never waits. */
    bool (*ask_forget)(struct twi_sync *sync, uint64_t number);
    /* One bounded round, which takes, receives, answers and expires requests, and sends cancellations and requests.
     * Never waits. Only the driving thread calls it. */
    void (*ask_step)(struct twi_sync *sync);
    /* An epoll descriptor, which is readable when ask_step() has something to do. The same for the life of `sync`. Only
     * reading is waited for. In a host-driven engine fd() covers it, too. Any thread. */
    int (*ask_fd)(const struct twi_sync *sync);
    /* The monotonic time at which ask_step() has to run next, unless ask_fd() becomes ready earlier; INT64_MAX means
     * never. In a host-driven engine wake_ms() covers it, too. Any thread. */
    int64_t (*ask_wake_ms)(const struct twi_sync *sync);
    /* From now on ask() begins no request. The next ask_step() answers each request under way with UNSENT, or with
     * UNKNOWN if it was sent. Later steps send the cancellations. Any thread; repeated calls are harmless. */
    void (*ask_stop)(struct twi_sync *sync);
    /* How many requests have no answer, or a cancellation that is still to be sent; 0 means closing need not wait. Any
     * thread. */
    uint32_t (*ask_owed)(const struct twi_sync *sync);
};
/* NULL means built without Redis. */
const struct twi_driver *twi_driver_find(void);

/* Functions and objects with which simulators and tests replace those of the engine. */
struct twi_replacements {
    const struct twi_transport *transport; /* NULL means sockets */
    void *transport_ctx;
    uint64_t random_seed;            /* for twi_port_random(); 0 means the system's random bytes */
    const struct twi_tuning *tuning; /* NULL means TWI_TUNING; copied */
};
tw_status twi_open_with(const tw_options *options, const struct twi_replacements *replacements, tw_engine **out);

#endif
