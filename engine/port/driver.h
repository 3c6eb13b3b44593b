/* driver.h -- the contract between the engine and sync/: the table of functions with which the engine drives sync/, and
 * the requests of callers.
 *
 * The engine never includes a header of sync/. It finds a driver through twi_driver_find(), which sync/driver.c defines
 * (engine/driver_none.c in a build without Redis).
 * Always true: an engine has one driver or none, from its opening until its end. */
#ifndef TWI_PORT_DRIVER_H
#define TWI_PORT_DRIVER_H

#include "tallywheel.h"

struct twi_sync;      /* the state of sync/; each engine has one */
struct twi_transport; /* real sockets (sync/wire/socket.h), or the sockets of a simulator */

/* One ledger of an engine, as the engine knows it. */
struct twi_audit_own {
    char ledger[512]; /* its name */
    uint64_t number, plus, minus;
};

/* The checked options of tw_audit(), together with the values that only the engine has. */
struct twi_audit {
    const tw_audit_options *options; /* if there is an engine, the prefix is that of the engine */
    const tw_options *server;        /* the address of Redis. Only redis_url, redis_tls_* and the logins are set. */
    const char *const *patterns;     /* the names of keys that must have an expiry */
    size_t pattern_count;
    const struct twi_audit_own *own; /* the ledgers of the engine's stores that are known */
    size_t own_count;
    int64_t (*mono_ms)(void);           /* the system's clock */
    bool (*goes_on)(tw_engine *engine); /* returns false if the engine is being closed */
    tw_engine *engine;                  /* used only for goes_on; may be NULL */
    void (*found)(void *ctx, const tw_finding *finding);
    void *ctx;
    tw_audit_report *report;
};

/* A search for hashes whose names match a pattern, and for one field of them, on all masters. In a cluster
 * tw_lease_reclaim() uses it. */
struct twi_search {
    const char *pattern; /* the pattern for the MATCH of SCAN */
    const char *field;
    /* Called for a hash that matches, with the value of its field. NULL means that the hash has no such field. It
     * returns true if the hash is wanted. Never waits */
    bool (*is_wanted)(void *ctx, tw_key name, const char *value);
    /* it may be called twice for a name, and it may wait. It returns false to end the search */
    bool (*found)(void *ctx, tw_key name);
    void *ctx;
};

/* ---- requests of callers: one run of a script over keys of one hash slot
 *
 * ask() begins a request and does not wait. answered() gets the outcome. In a host-driven engine, the owner of the
 * turn drives the requests. Otherwise the engine's second thread does. It calls ask_step(), one thread at a time.
 * Between two calls it waits for ask_fd() or until ask_wake_ms(). */

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
    TWI_REQUEST_DONE,    /* `values` has the reply */
    TWI_REQUEST_REFUSED, /* Redis refused the request, so it was not executed */
    TWI_REQUEST_UNKNOWN, /* perhaps executed */
    TWI_REQUEST_UNSENT,  /* the request could not be sent, so it was not executed */
    TWI_REQUEST_BUSY     /* calls_max requests were under way, or more than Redis answers in time, so the request was
                            not executed. This is not an outage */
};

/* One element of a reply. */
struct twi_script_value {
    bool is_number, is_nil;
    int64_t number; /* also set if the text is a number */
    size_t size;
    char text[80]; /* with a NUL */
};
#define TWI_SCRIPT_VALUES_MAX 8u

/* How a request ended. It belongs to sync/ and is valid until answered() has returned. If the caller needs it later,
 * it copies the struct. Only TWI_REQUEST_DONE has values and a long text. */
struct twi_answer {
    enum twi_request_outcome outcome;
    bool is_crowd;  /* UNKNOWN: Redis answers others, so this is no outage either */
    bool is_kept;   /* DONE: what it charged can still be taken back. ask_end() follows, exactly once */
    bool is_copied; /* DONE: it was repeated, and an earlier copy may still come to Redis */
    struct twi_script_value values[TWI_SCRIPT_VALUES_MAX]; /* the values, without the number of the call */
    size_t value_count;
    char *long_text; /* not terminated; NULL means that there is none. answered() may keep the text. Then it sets
                        this pointer to NULL and frees the text later. Otherwise the text is freed after answered()
                        has returned */
    size_t long_size;
};

struct twi_request;

/* Takes a request that follows on another, of the same key slot. It is copied. */
struct twi_next {
    void (*put)(void *ctx, const struct twi_request *request);
    void *ctx;
};

struct twi_request {
    enum twi_script script;
    const tw_key *keys, *args; /* `args` begins with ARGV[4] of the script; redis_call.h sets the first three */
    size_t key_count, arg_count;
    /* the monotonic time at which the caller stops waiting. It limits the whole time from ask() to answered() */
    int64_t deadline_ms;
    /* For ask() alone. The driving thread calls it once, inside ask_step(), and never inside ask() or ask_stop(). It
     * is called without a lock of sync/. It may call ask(), ask_forget() and any service. It must not wait. */
    void (*answered)(void *ctx, struct twi_answer *answer);
    void *ctx;
    _Atomic uint64_t *number; /* NULL, or the place where ask() writes the number before answered() can be called */
    /* while calls_max requests are under way, ask() may wait. The driving thread must not set it. */
    bool waits_for_room;
    /* If the outcome is TWI_REQUEST_UNKNOWN, a cancellation is sent before anything else on the same connection. The
     * cancellation returns all units that the script has charged for this call, exactly once. A late copy of the
     * request then has no effect. */
    bool numbered;
    int64_t units; /* that a numbered request may charge, at most */
    bool keeps;    /* its caller may go after the answer, and before it has it */
    /* It ends what an earlier request has taken, so it goes before those that take. */
    bool settles;
    /* It gives back, and may be executed any number of times. So it needs no cancellation: it is sent again until it is
     * answered, also after its outcome was UNKNOWN, and after ask_forget(). It is never UNSENT because the breaker is
     * open, and never REFUSED. If it finds no lane, or half of them have such requests without a caller, it is BUSY. */
    bool repeats;
    /* NULL, or called by the driving thread with the first key and the answer. It may give `next` the request that has
     * to follow. That one is the same request for its caller, with the same deadline, and its answer is the answer. */
    void (*then)(tw_engine *engine, tw_key key, const struct twi_answer *answer, const struct twi_next *next);
    /* Requests the last text of the reply, which may be too long for `values`. */
    bool wants_long;
};

enum twi_ticket { TWI_TICKET_OPEN, TWI_TICKET_DONE, TWI_TICKET_REFUSED };

struct twi_driver {
    /* Checks the Redis options and allocates memory. It opens no socket yet. On an error it writes the reason to
     * options->error_text. `transport` is NULL except in a simulator. */
    tw_status (*create)(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                        void *transport_ctx, struct twi_sync **sync);
    /* makes one bounded round: it connects, collects, sends and receives, and never waits */
    void (*turn)(struct twi_sync *sync);
    /* Returns the monotonic time of the next turn(), unless the engine's socket set is readable earlier. */
    int64_t (*wake_ms)(const struct twi_sync *sync);
    /* For a Redis Cluster, returns for each key slot the number that the names of that slot contain
     * (base/key_slot.h). If there is one Redis, it returns NULL. The function pointer may be NULL. Templates keep
     * the table, even in a forked child. The table exists longer than the state of the driver. */
    const uint32_t *(*shorts)(const struct twi_sync *sync);
    uint64_t (*ticket_take)(struct twi_sync *sync); /* begins the full collection for a flush; any thread may call it */
    enum twi_ticket (*ticket_state)(struct twi_sync *sync, uint64_t ticket); /* any thread */
    void (*stats)(const struct twi_sync *sync, tw_stats *stats);             /* any thread */
    /* The owner of the turn calls it when the engine closes and has no unsent counts. It gives a short lifetime to the
     * engine's keys in Redis. The engine calls it again after each turn until it returns true, or until its time has
     * ended. May be NULL. */
    bool (*leave)(struct twi_sync *sync);
    /* Closes the socket, settles every item that it has with twi_port_give_up(TW_LOST_CLOSED), and frees its memory. */
    void (*destroy)(struct twi_sync *sync);
    /* The size of the estate: a zeroed block of a shared engine, in which its syncs, one after the other and each in
     * another process, have what the next one must know (twi_port_estate()). NULL: nothing. */
    size_t (*estate_bytes)(const tw_options *options);
    /* Goes on where the sync before has ended, which was in another process. Called once, before the first turn(). */
    void (*inherit)(struct twi_sync *sync);
    /* The engine hands over: what was counted until now is sent, and nothing after that. Called again after each turn;
     * returns true when no reply is due that settles counters. Then, or when the time is over, hand_over() follows. */
    bool (*finish)(struct twi_sync *sync);
    /* Closes the sockets and frees the memory. Batches in flight stay in the estate, and are not given up. */
    void (*hand_over)(struct twi_sync *sync);
    /* Called in a forked child. It closes the inherited socket and frees the memory. It sends no request and settles
     * no item. If `is_torn`, the parent was in a turn at the fork, and memory that it may have been changing stays. */
    void (*abandon)(struct twi_sync *sync, bool is_torn);
    /* The caller must free *own. Returns false if there is no memory. Only the owner of the turn calls it. */
    bool (*own)(const struct twi_sync *sync, struct twi_audit_own **own, size_t *count);
    tw_status (*audit)(const struct twi_audit *audit); /* needs no engine; any thread may call it; it waits */
    /* Makes one search. Searches run one after the other. If it does not return TW_OK, some masters were not
     * searched, and tw_error_text() names them. The other masters were searched. It reads the fields of `audit` up
     * to the passwords, and mono_ms, goes_on and engine. Any thread; waits. */
    tw_status (*search)(const struct twi_audit *audit, const struct twi_search *searches, size_t count);
    /* Begins a request. Everything that `request` points to is copied before the call returns, except ctx. Any
     * thread may call it, also inside answered(). Returns the number of the request, which no other request ever
     * has. answered() then follows exactly once. The driving thread may call it before this call has returned.
     * Returns 0 if no request was begun. Then answered() is not called, and *why is BUSY or UNSENT. UNSENT means
     * that the breaker is open, that ask_stop() was called, or that there is no memory. */
    uint64_t (*ask)(struct twi_sync *sync, const struct twi_request *request, enum twi_request_outcome *why);
    /* Cancels the request. Returns true if answered() is not called, now or later, and ctx is not used again. Then the
     * units that the request has charged are returned. Returns false if answered() was called or is being called now by
     * the driving thread, or if no request has this number. Any thread, also inside answered(). Never waits. */
    bool (*ask_forget)(struct twi_sync *sync, uint64_t number);
    /* The caller of a request whose answer was kept has the answer. If `undo` is true, the caller has gone, and the
     * units return as after ask_forget(). Any thread. Never waits. */
    void (*ask_end)(struct twi_sync *sync, uint64_t number, bool undo);
    /* Makes one bounded round. It takes, receives, answers and expires requests, and sends cancellations and
     * requests. Never waits. Only the driving thread calls it. */
    void (*ask_step)(struct twi_sync *sync);
    /* Returns an epoll descriptor, which is readable when ask_step() has work. It stays the same while `sync` exists.
     * Wait for it only for reading. In a host-driven engine the socket set of the engine includes it. Any thread. */
    int (*ask_fd)(const struct twi_sync *sync);
    /* Returns the monotonic time at which ask_step() must run next, unless ask_fd() is ready earlier. INT64_MAX
     * means never. In a host-driven engine wake_ms() includes it. Any thread. */
    int64_t (*ask_wake_ms)(const struct twi_sync *sync);
    /* From then on ask() begins no request. The next ask_step() answers each request that is under way, with UNSENT, or
     * with UNKNOWN if it was sent. Later calls of ask_step() send the cancellations. Any thread, repeatedly. */
    void (*ask_stop)(struct twi_sync *sync);
    /* Returns how many requests have no result, or a cancellation that is not sent yet. 0 means that closing need
     * not wait. Any thread. */
    uint32_t (*ask_owed)(const struct twi_sync *sync);
};
/* Returns NULL if the library was built without Redis. */
const struct twi_driver *twi_driver_find(void);

/* Functions and objects that replace those of the engine in simulators and tests. */
struct twi_replacements {
    const struct twi_transport *transport; /* NULL means sockets */
    void *transport_ctx;
    uint64_t random_seed;            /* the seed of twi_port_random(); 0 means the random bytes of the system */
    const struct twi_tuning *tuning; /* copied; NULL means TWI_TUNING */
    const char *root;                /* before /proc and /sys, which limit the engine; NULL means those of the system */
};
tw_status twi_open_with(const tw_options *options, const struct twi_replacements *replacements, tw_engine **out);

#endif
