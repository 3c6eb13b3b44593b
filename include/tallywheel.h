/* tallywheel.h -- counters for servers that count faster than a network can answer.
 *
 * This header is the manual. It begins with the ten calls that most programs need; then it goes on
 * by chapter. docs/OPTIONS.md explains each option at length, docs/LIMITS.md the limits,
 * docs/KEYS.md what Redis stores.
 *
 *   ENGINE    owns memory, clock and threads. One per process.
 *   FAMILY    a set of counters with one window, one Redis key template and one policy.
 *   COUNTER   a family, a key (any bytes) and a window.
 *   VIEW      the count as this process knows it: its own adds, and what Redis last reported of
 *             the others'.
 *   TURN      one iteration of the background work (an event loop's iteration): clock, roll-over,
 *             hooks, sync.
 *
 *     tw_engine *engine;  tw_family *views;  int64_t now;
 *     tw_options options;               tw_options_init(&options);
 *     tw_family_options family_options; tw_family_options_init(&family_options);
 *     family_options.name = "views";                   // one window an hour, forgotten by itself
 *     if (tw_open(&options, &engine) != TW_OK) ...
 *     if (tw_family_open(engine, &family_options, &views) != TW_OK) ...
 *     tw_add(views, tw_str("/index.html"), 1, &now);   // nanoseconds; no lock, no system call
 *     tw_close(engine, 1000);
 *
 * Promises (README.md has them in full):
 *   P1 no loss      When all adders have returned, a read is the exact sum of the deltas that were
 *                   answered TW_OK.
 *   P2 one place    With Redis, every delta is in exactly one of: a counter, a frozen batch, Redis.
 *   P3 own adds     A thread's read includes its own earlier adds.
 *   P4 never over   A hard limit is not passed, as long as Redis keeps what it acknowledged.
 *   P5 sold out     A hard limit is admitted to the last unit, while those who hold units live and
 *                   reach Redis.
 *   P6 bounded      Memory never passes memory_bytes_max. Unsent counts are never evicted.
 *   P7 on time      No counter is seen past its end, none vanishes before it, by the engine's
 *                   clock.
 *   P8 not silent   Every departure from the above is counted in tw_stats and reported.
 *   P9 never waits  tw_add, tw_get and tw_acquire on an existing key (in this window) take no lock,
 *                   make no system call, call no allocator and wait for no other thread. A first
 *                   insert is lock-free. tw_acquire of a strict limit with Redis is the exception:
 *                   it waits for Redis.
 *
 * Threads   Any thread may make any call at any time, unless the call says otherwise. Exceptions:
 *           tw_close() and tw_family_close(). Threads need not register. What the library keeps for
 *           a thread is released when the thread exits.
 * dlclose   Close the engines first. The shared library then stays in the process, for threads that
 *           have counted call it when they end. A module that the static library is linked into may
 *           be unloaded when its engines are closed and none of its calls, and no thread that has
 *           counted and is just ending, is inside of it.
 * Fork      A child's engine starts as a new instance with no counts; the parent keeps them. Calls
 *           work as before. After vfork() and in a signal handler no call may be made.
 * Units     Times are milliseconds; a moment is Unix time in UTC. Sizes are bytes. Counts are
 *           units.
 * Time      Windows follow ENGINE TIME. It is the wall clock as long as that agrees with the
 *           monotonic clock, and it never goes back.
 *           - A wall clock that is set forward by more than 5 s is believed after 5 s.
 *           - A wall clock that is set back by up to 5 s is waited for.
 *           - A wall clock that is set back by more than 5 s is not followed: engine time goes on
 *             by the monotonic clock. No limit holds anybody for longer, windows end when they
 *             would have ended, and retry_after_ms stays true. Engine time is then ahead of the
 *             wall clock (tw_stats.clock_ahead_ms, TW_EVENT_CLOCK) until the wall clock is set
 *             forward or the engine is opened again. Windows bear the times of the earlier clock,
 *             and tw_add_at() measures lateness against them.
 *           A machine whose clock was hours wrong at its start wants its programs restarted when
 *           the clock has been set right.
 */
#ifndef TALLYWHEEL_H
#define TALLYWHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

/* ==== 1. Types =============================================================================== */

typedef struct tw_engine tw_engine;
typedef struct tw_family tw_family;
typedef struct tw_options tw_options;               /* chapter 4 */
typedef struct tw_family_options tw_family_options; /* chapter 5 */
typedef struct tw_reading tw_reading;               /* chapter 8 */
typedef struct tw_count tw_count;                   /* chapter 8 */
typedef struct tw_verdict tw_verdict;               /* chapter 9 */
typedef struct tw_stats tw_stats;                   /* chapter 14 */
typedef struct tw_request tw_request;               /* chapter 16 */
typedef struct tw_queue tw_queue;                   /* chapter 16 */

/** Bytes that name a counter: 1..TW_KEY_SIZE_MAX of them, any values, NUL included. A call copies
 *  what it keeps. */
typedef struct tw_key {
    const void *data;
    size_t size;
} tw_key;

#define TW_KEY_SIZE_MAX 1024
#define TW_COUNT_MAX INT64_C(2305843009213693951) /* 2^61 - 1: a count is within +-TW_COUNT_MAX */
#define TW_DELTA_MAX INT64_C(9007199254740992)    /* 2^53: a delta, n, limit: +-TW_DELTA_MAX */

#define TW_SECOND INT64_C(1000)
#define TW_MINUTE INT64_C(60000)
#define TW_HOUR INT64_C(3600000)
#define TW_DAY INT64_C(86400000)
#define TW_UNBOUNDED INT64_MAX /* a time or a bound without end */
#define TW_NONE INT64_C(-1)    /* history_ms: keep none */
#define TW_NOW INT64_MIN       /* tw_each(): the window that is open now */
#define TW_TOKEN_SIZE 64       /* of tokens, with their NUL */

static inline tw_key tw_bytes(const void *data, size_t size) {
    tw_key key;
    key.data = data;
    key.size = size;
    return key;
}

static inline tw_key tw_str(const char *text) {
    return tw_bytes(text, strlen(text));
}

/* ==== 2. Answers ============================================================================= */

/** What a call answers. 0: done. Positive: an answer that is no error. Negative: an error.
 *  From -1 to -99 nothing has changed. From -100 on the outcome is unknown, or only a part was
 *  done; each call says which. The numbers are fixed for ever. */
typedef int tw_status;
enum tw_status_number {
    TW_OK = 0,
    TW_DENIED = 1,     /* the limit is reached; the call did not count */
    TW_PENDING = 2,    /* ask again: units may yet come */
    TW_OVERFLOWED = 3, /* counted, but in the family's overflow counter: the table is full */
    TW_STARTED = 4,    /* calls that end in _async: the answer comes to request->done */

    TW_ERR_KEY = -1,     /* key of size 0, above TW_KEY_SIZE_MAX, of a reserved name, or no field */
    TW_ERR_OPTIONS = -2, /* an option or argument is refused; options name it in error_text */
    TW_ERR_FULL = -3,    /* no room for a new key, and the family rejects */
    TW_ERR_MEMORY = -4,  /* the system gave no memory */
    TW_ERR_RANGE = -5,   /* the delta or the sum is out of range */
    TW_ERR_LATE = -6,    /* the window takes no more counts, or is no longer readable */
    TW_ERR_EARLY = -7,   /* the window lies too far ahead */
    TW_ERR_MODE = -8,    /* not in this kind of family or engine, or not from inside a hook or
                            another function of your own */
    TW_ERR_CLOSED = -9,  /* tw_stop() or tw_close() was called */
    TW_ERR_FORKED = -10, /* this process is a forked child; no new engine could be made in it */
    TW_ERR_REDIS = -11,  /* Redis refused, or none is configured */
    TW_ERR_UNKNOWN_TOKEN = -12,
    TW_ERR_BUSY = -13, /* calls_max calls are under way */

    TW_ERR_TIMEOUT = -100 /* the time was up; each call says what may have been done */
};

/* GENERAL ERRORS below stands for what any counting call may answer, with the meaning above:
 * TW_ERR_KEY, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED.
 * A WAITING CALL waits for Redis, redis_timeout_ms at most. It answers TW_ERR_MODE in a host-driven
 * engine, in a hook and inside tw_enter(); its form with _async does not. TW_ERR_BUSY: the
 * time was up, and calls_max others were under way all the while. After tw_stop() it answers
 * TW_ERR_TIMEOUT if Redis may have executed it, else TW_ERR_CLOSED. */

/** "TW_ERR_FULL". For a number that is no status: "TW_STATUS_UNKNOWN". Never NULL. */
TW_API const char *tw_status_name(tw_status status);

/** One sentence in English. Never NULL. */
TW_API const char *tw_status_text(tw_status status);

/** The version of the library that is running, as "0.1.0". */
TW_API const char *tw_version(void);

/* ==== 3. The ten calls that most programs need =============================================== */

/** Sets every option to its default (zero). Then set what you need. */
#define tw_options_init(options) tw_options_init_sized((options), sizeof *(options))
TW_API void tw_options_init_sized(tw_options *options, size_t size);

/** Makes an engine. It reserves addresses and starts one thread (TW_OWN_THREAD). It does not wait
 *  for Redis: counting begins at once.
 *  Answers:
 *    TW_OK
 *    TW_ERR_OPTIONS  an option is refused; error_text names the field
 *    TW_ERR_MEMORY   no memory, or no thread could be made
 *    TW_ERR_REDIS    a redis_url is given and the library was built without Redis */
TW_API tw_status tw_open(const tw_options *options, tw_engine **engine);

/** As tw_options_init(), for a family. */
#define tw_family_options_init(options) tw_family_options_init_sized((options), sizeof *(options))
TW_API void tw_family_options_init_sized(tw_family_options *options, size_t size);

/** Opens a family. The same name with the same options gives the same handle, which is then to be
 *  closed as often as it was opened.
 *  Cost: takes a lock, allocates; with Redis its template is compared with those of all open
 *  families. A family at rest costs memory (of memory_bytes_max) and no time.
 *  Answers:
 *    TW_OK
 *    TW_ERR_OPTIONS  an option is refused; error_text names the field
 *    TW_ERR_MEMORY
 *    TW_ERR_CLOSED */
TW_API tw_status tw_family_open(tw_engine *engine, const tw_family_options *options,
                                tw_family **family);

/** Adds `delta` to counter `key` in the window that is open now. A new counter begins at 0.
 *    view   becomes the count right after this add, as known here; NULL: not wanted
 *  The view is exact in the sense of P1 and P3: no two adds of 1 get the same one. The exception
 *  are HOT KEYS (below): pass NULL for `view` where you do not need it.
 *  Cost: one hash and one atomic add once the key exists (P9). A new key takes prepared memory,
 *  lock-free.
 *  Answers:
 *    TW_OK
 *    TW_OVERFLOWED  the table is full; counted in the overflow counter, whose view is *view
 *    TW_ERR_RANGE   the delta or the sum is out of range
 *    TW_ERR_FULL    the table is full, and the family rejects new keys
 *    general errors */
TW_API tw_status tw_add(tw_family *family, tw_key key, int64_t delta, int64_t *view);

/** The count in the window that is open now; 0 for an unknown key. With Redis, asking takes a
 *  bounded interest in the key: its total comes with a later sync.
 *  Cost: as tw_add() without the add.
 *  Answers: TW_OK; general errors. */
TW_API tw_status tw_get(tw_family *family, tw_key key, int64_t *view);

/** Takes `n` units of `key` if the count then stays within `limit`; else changes nothing. Only
 *  TW_OK admits. "Rules of tw_acquire()", below, say more.
 *    n         0 looks without taking
 *    verdict   is filled on every return, errors included; NULL: not wanted
 *  Without Redis exactly `limit` units are admitted, for any number of threads. With Redis the
 *  family's limit_mode says how exact the limit is over all processes (docs/LIMITS.md).
 *  Cost: as tw_add(), by compare-and-swap. A denied call on a known key only loads (on a hot one,
 *  from the second denial on).
 *  Answers:
 *    TW_OK         admitted
 *    TW_DENIED     the limit is reached
 *    TW_PENDING    hard families with Redis: ask again after verdict->retry_after_ms
 *    TW_ERR_RANGE  n < 0, limit < 0, or out of range
 *    TW_ERR_FULL   the table is full, and on_full_limit denies new keys
 *    TW_ERR_MODE   strict families: see A WAITING CALL
 *    general errors */
TW_API tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit,
                            tw_verdict *verdict);

/** Visits each counter of one window, in no order, until `visit` answers false.
 *    unix_ms   a moment of the window, or TW_NOW
 *  A key that is present throughout is visited exactly once. The walk is no snapshot: others may
 *  count meanwhile. The key is valid inside `visit` only. `visit` may call the engine, and must
 *  return: one that leaves by an exception, longjmp() or pthread_exit() keeps the window's memory
 *  until tw_close().
 *  Cost: one small buffer on the stack.
 *  Answers:
 *    TW_OK
 *    TW_ERR_LATE   the window is not readable here any more
 *    TW_ERR_MODE   a moment other than TW_NOW in a family of TW_WINDOW_FROM_FIRST
 *    TW_ERR_RANGE  a moment outside of the years 1000 to 9998
 *    TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_each(tw_family *family, int64_t unix_ms,
                         bool (*visit)(void *ctx, const tw_count *count), void *ctx);

/** Why this thread's last refused call was refused (a call that answered a negative status): one
 *  sentence that names the field, the argument or the rule, as
 *  "limit_mode: tw_reserve() is not for TW_LIMIT_HARD ...". Never NULL. Valid until the thread's
 *  next refused call, and until the thread ends. May be called before any engine is there. No
 *  password is in it. The words may change; decide on the status. */
TW_API const char *tw_error_text(void);

/** Stops the engine, flushes within the time, returns leases, runs the last closing hooks
 *  (TW_CLOSED_PARTIAL for windows still open) and frees everything. No other call may be running
 *  or follow. The engine is gone whatever is answered, but for TW_ERR_MODE. Units of leases that
 *  Redis could not take back in the time stay with them (tw_lease_reclaim()).
 *  Answers:
 *    TW_OK
 *    TW_ERR_TIMEOUT  some counts were not acknowledged, and on_lost named them; or a hook answered
 *                    false to the end
 *    TW_ERR_MODE     from inside a function of your own, or inside tw_enter(); or a queue is open
 *                    (tw_queue_open()): nothing was done */
TW_API tw_status tw_close(tw_engine *engine, uint32_t timeout_ms);

/* ==== 4. Options of an engine ================================================================
 * Fill the struct with tw_options_init(), then set what you need. Zero always means the default.
 * tw_open() copies the strings. docs/OPTIONS.md says more of each field.
 *
 * YOUR OWN FUNCTIONS. One rule holds for every function of yours that an engine calls:
 * on_window_closed, log_write, on_lost, redis_password and sentinel_password.
 *  - It may block. The engine's background work waits for it: sync, roll-over and other hooks.
 *    Calls do not wait, windows end in time, and no call sees a time more than 20 ms late.
 *  - It may count, acquire, read, and open, change and find families. on_lost may not call the
 *    engine. Calls that wait, tw_turn(), tw_close(), tw_family_close() and tw_limits_close() answer
 *    TW_ERR_MODE inside.
 *  - When it has been taken away, no call of it is running. tw_family_set() waits for a hook that
 *    it takes away, except inside that hook: hold no lock meanwhile that the hook takes. The others
 *    belong to the engine until tw_close() has returned.
 *  - It returns. It ends neither by an exception or longjmp() nor with its thread.
 * Visitors (tw_each(), tw_top() and the like) are called by the thread that makes the call. They
 * may call all but tw_close(), and tw_family_close() of their family. They return, too: a visitor
 * that does not return keeps the memory of its window until tw_close().
 * clock_now_ns is called in every call. It may neither block nor call the engine. */

enum tw_threads {
    TW_OWN_THREAD = 0, /* one background thread makes the turns */
    TW_HOST_DRIVEN = 1 /* the host calls tw_turn(); no thread but one that looks a name up */
};

/** How counts are merged into Redis. Only the script keeps promise P2. */
enum tw_merge {
    TW_MERGE_SCRIPT = 0, /* one Lua script a batch: exactly once, whatever fails */
    TW_MERGE_MULTI = 1,  /* a transaction a batch */
    TW_MERGE_SETNX = 2   /* SET ... NX and INCRBY in a pipeline */
};

/** The clocks that clock_now_ns is asked for. */
enum tw_clock {
    TW_CLOCK_WALL = 0,     /* Unix time; decides windows */
    TW_CLOCK_MONOTONIC = 1 /* never goes back; decides deadlines and back-off, and windows while
                              the wall clock is not believed (see Time, above) */
};

enum tw_log { TW_LOG_ERROR = 0, TW_LOG_WARNING = 1, TW_LOG_INFO = 2, TW_LOG_DEBUG = 3 };

/** Why on_lost was called. */
enum tw_lost {
    TW_LOST_EXPIRED = 1,   /* the retention was over before Redis could be reached */
    TW_LOST_LATE = 2,      /* the window is dead by Redis's own clock */
    TW_LOST_ROLLBACK = 3,  /* Redis lost acknowledged counts and they could not be restored */
    TW_LOST_UNCERTAIN = 4, /* sent; it cannot be known whether it was counted */
    TW_LOST_POISON = 5,    /* Redis refuses this key (wrong type, overflow) */
    TW_LOST_CLOSED = 6     /* tw_close() ran out of time */
};

/** Log events. The numbers are fixed for ever; a new event gets a new number. A line ends with its
 *  event and what to do: "... [TW-E012: give Redis what the line names; ...]". docs/WATCH.md has a
 *  table of them. */
enum tw_event {
    TW_EVENT_MEMORY = 1,           /* less than a fifth of memory_bytes_max can be had */
    TW_EVENT_CLOCK = 2,            /* the wall clock leapt, or was set back */
    TW_EVENT_STALL = 3,            /* a thread holds up reclamation */
    TW_EVENT_BARRIER = 4,          /* membarrier(2) is refused, as by a sandbox entered after
                                      tw_open(): memory is not used again */
    TW_EVENT_CRUMBS = 5,           /* free memory is in runs so short that new keys were refused */
    TW_EVENT_CONNECTED = 10,       /* Redis answers */
    TW_EVENT_LOST_CONNECTION = 11, /* the connection to Redis ended */
    TW_EVENT_REFUSED = 12,         /* Redis refuses (login, permission, read-only, memory ...) */
    TW_EVENT_POISON = 13,          /* Redis refuses one key */
    TW_EVENT_ROLLBACK = 14,        /* Redis lost acknowledged batches */
    TW_EVENT_IDENTITY = 15,        /* two engines under one identity, or a ledger that is gone */
    TW_EVENT_START = 16,           /* a start-up check, or a redis_timeout_ms that is too short */
    TW_EVENT_LOST = 17,            /* counts were given up */
    TW_EVENT_REWRITE = 18,         /* Redis's append-only file is to be rewritten after a loss */
    TW_EVENT_REGRESSION = 19,      /* a key holds less than was acknowledged, unexplained */
    TW_EVENT_UNCERTAIN = 20,       /* without the script: counts were sent again that may have
                                      been counted */
    TW_EVENT_REPLICAS = 21,        /* fewer than wait_replicas have what Redis acknowledged */
    TW_EVENT_AUDIT = 22,           /* what an audit found (audit_interval_ms) */
    TW_EVENT_CLOSED = 23,          /* a window, or late counts in one, that no hook was told of */
    TW_EVENT_LATE = 24,            /* counts by event time came too late; lateness_ms is 0 */
    TW_EVENT_TLS = 25,             /* TLS refused, certificates read anew, redis_tls_insecure */
    TW_EVENT_SPLIT = 26,           /* a slot of a cluster lost a ledger, but not all of its keys; or
                                      its keys have been apart for ten seconds */
    TW_EVENT_CALLBACK = 27         /* a `done` of a tw_request took more than 100 ms */
};

struct tw_options {
    size_t size; /* set by tw_options_init() */

    /* Errors. tw_open() writes here which option is refused, and why. A buffer of the caller's, or
     * NULL. Passwords never appear. */
    char *error_text;
    size_t error_size;

    /* Memory and threads */
    uint64_t memory_bytes_max; /* all counting memory; default 1 GiB of addresses, committed as
                                  used; at least 1 MiB */
    uint32_t threads;          /* enum tw_threads */

    /* Clock, in nanoseconds; NULL: the system's. `kind` is an enum tw_clock. Called from any thread
     * by every call that needs the time. */
    int64_t (*clock_now_ns)(void *ctx, int kind);
    void *clock_ctx;

    /* Log lines: `level` is an enum tw_log, `event` an enum tw_event. Called by one thread at a
     * time, from turns only, never with a password. */
    void (*log_write)(void *ctx, int level, int event, const char *text);
    void *log_ctx;

    /* Redis. NULL: count locally, no socket. Else redis://[user:password@]host[:port][/db],
     * unix://[user:password@]/path[?db=N], or, by way of sentinels,
     * redis+sentinel://[user:password@]host[:port][,host[:port]...]/name-of-the-master[/db], or,
     * a cluster by some of its nodes, redis+cluster://[user:password@]host[:port][,host[:port]...].
     * rediss in place of redis: with TLS. */
    const char *redis_url;
    /* Instead of a password in the URL; asked at each connect. Writes a C string, returns its
     * length, or -1. */
    int (*redis_password)(void *ctx, char *out, size_t size);
    void *redis_password_ctx;
    const char *redis_prefix;  /* before every name in Redis, for ACLs; default none */
    uint32_t sync_interval_ms; /* how long a count may wait before it is sent; 1..60000,
                                  default 100. tw_flush() and tw_close() do not wait for it */
    uint32_t redis_timeout_ms; /* one reply, or one call that waits; 1..600000; ten times that to
                                  connect. Default (0): four measured round trips, at least 100 ms,
                                  at most 2 s. Counts wait longer where the link is measured to
                                  need it (OPTIONS) */

    /* Acknowledged counts are kept for so long, and in so many bytes, to be sent again to a Redis
     * that lost them. */
    uint32_t replay_ms;        /* 1..86400000, default 30 s */
    uint64_t replay_bytes_max; /* at most memory_bytes_max; default 64 MiB or an eighth of it */

    /* P8, by key: counts that will not reach Redis. `reason` is an enum tw_lost. `delta` is 0 for a
     * distinct count: how many elements Redis lacks cannot be known. Called from a turn or from
     * tw_close(); may not call the engine. */
    void (*on_lost)(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                    int reason);
    void *lost_ctx;

    /* More of Redis */
    uint32_t merge;            /* enum tw_merge */
    uint32_t wait_replicas;    /* "acknowledged" means that so many replicas have it, too (WAIT);
                                  0..1000, default 0; needs TW_MERGE_SCRIPT */
    uint32_t flush_keys_per_s; /* after an outage: keys a second until the backlog is gone;
                                  default 200,000 */

    /* Not 0: a tw_audit() that often, by a thread of its own. TW_HOUR is a good choice.
     * 1000 or more; not with TW_HOST_DRIVEN. */
    uint32_t audit_interval_ms;

    uint32_t retry_max_ms;     /* the longest time between two tries while Redis is away;
                                  10..5000, default 1000 */
    uint32_t engines_expected; /* how many engines will count on the same limits; 0..1,000,000;
                                  for the first milliseconds of a cold start */

    /* On each sample of tw_metrics_write(): service=\"shop\",zone=\"a\" in C. At most 512 bytes. */
    const char *metrics_labels;

    /* With redis+sentinel://: the login of the sentinels themselves; that in the URL is Redis's.
     * sentinel_password is as redis_password. */
    const char *sentinel_user; /* default: the default user */
    int (*sentinel_password)(void *ctx, char *out, size_t size);
    void *sentinel_password_ctx;

    /* TLS: a redis_url that begins with rediss. Files are PEM; they are read by tw_open(), and
     * again when a connection is made after one of them has changed. */
    const char *redis_tls_ca_file;     /* the authorities that are believed; default the system's */
    const char *redis_tls_cert_file;   /* our certificate, where Redis asks for one, */
    const char *redis_tls_key_file;    /* and its key; not encrypted */
    const char *redis_tls_server_name; /* the name that each certificate must bear; default the
                                          host of the URL */
    uint32_t redis_tls_insecure;       /* 1: no certificate is looked at. For trials only: it is
                                          logged at each connect (TW_EVENT_TLS) */

    /* A unix socket on which `tallywheel top`, `show` and `exporter` look at this engine while it
     * runs. Absolute; %p stands for the process id, %% for a percent sign. Only this user may
     * connect (mode 0600); nothing can be changed by it. It is served by a thread of its own, for
     * which no call waits. If the path cannot be used, the engine opens without the socket, and
     * logs it (TW_EVENT_START). NULL: none. Not with TW_HOST_DRIVEN. docs/WATCH.md says more. */
    const char *watch_path;

    uint32_t calls_max; /* calls that wait for Redis at once, those still owed to Redis included;
                           16..65536, default 1024 */
};

/* ==== 5. Options of a family =================================================================
 * Fill the struct with tw_family_options_init(), then set what you need. Zero always means the
 * default. Strings are copied. docs/OPTIONS.md says more of each field. */

enum tw_window {
    TW_WINDOW_ALIGNED = 0,    /* [n * window_ms, (n + 1) * window_ms), shifted by utc_offset_ms */
    TW_WINDOW_FROM_FIRST = 1, /* each key lives window_ms from its first count */
    TW_WINDOW_FOREVER = 2,    /* no end */
    TW_WINDOW_DAY = 3,        /* civil days, weeks and months in the offset's time */
    TW_WINDOW_WEEK = 4,
    TW_WINDOW_MONTH = 5
};

/** What an add of a new key does when the table is full. */
enum tw_on_full {
    TW_ON_FULL_OVERFLOW = 0,  /* counts in one overflow counter and answers TW_OVERFLOWED */
    TW_ON_FULL_REJECT = 1,    /* answers TW_ERR_FULL */
    TW_ON_FULL_EVICT_IDLE = 2 /* keys not used for idle_ms make room (TW_WINDOW_FOREVER, Redis) */
};

/** What tw_acquire() and tw_once() say of a new key when the table is full. */
enum tw_full_limit { TW_FULL_LIMIT_ADMIT = 0, TW_FULL_LIMIT_DENY = 1 };

/** Flags of on_window_closed. */
enum tw_closed {
    TW_CLOSED_PARTIAL = 1, /* before its time: the engine or family closes, and others may count */
    TW_CLOSED_LOCAL = 2,   /* not everything was acknowledged (also: some of it was given up, see
                              on_lost), or not all totals could be had */
    TW_CLOSED_AGAIN = 4    /* TW_CLOSED_BY_ONE: told before, and that was not all */
};

/** Which engines call on_window_closed. */
enum tw_closed_by {
    TW_CLOSED_BY_EACH = 0, /* every engine, for what it counted itself */
    TW_CLOSED_BY_ONE = 1   /* with Redis: one engine for each window, with the totals of all */
};

enum tw_kind {
    TW_KIND_COUNTER = 0,
    TW_KIND_GAUGE = 1,   /* what is present now, over all live processes; TW_WINDOW_FOREVER */
    TW_KIND_DISTINCT = 2 /* how many different elements: tw_distinct_add() */
};

/** How the counters of a family stand in Redis. */
enum tw_redis_shape {
    TW_REDIS_STRING = 0, /* a string for each key */
    TW_REDIS_HASH = 1,   /* a hash for each subject: keys are "subject|field" */
    TW_REDIS_ZSET = 2    /* a sorted set for each window: the keys are its members */
};

enum tw_limit_mode {
    TW_LIMIT_SOFT = 0,  /* decides on what is known here: never waits */
    TW_LIMIT_HARD = 1,  /* with Redis: never passed by all processes together; never waits */
    TW_LIMIT_STRICT = 2 /* with Redis: each call asks Redis and waits */
};

enum tw_limit_shape {
    TW_SHAPE_FIXED = 0,   /* `limit` units in each window */
    TW_SHAPE_SLIDING = 1, /* about `limit` units in any stretch of one window's length: an estimate,
                             bounded by limit / sub_windows; strict with Redis: exact */
    TW_SHAPE_GCRA = 2     /* a bucket that empties evenly: `limit` in window_ms, `burst` at once */
};

/** What limits decide while Redis is away. */
enum tw_outage {
    TW_OUTAGE_LOCAL = 0,                  /* on what is known here */
    TW_OUTAGE_FAIL_OPEN = 1,              /* everything is admitted, and counted */
    TW_OUTAGE_FAIL_CLOSED = 2,            /* everything is denied */
    TW_OUTAGE_SHARE = 3,                  /* up to this engine's share */
    TW_OUTAGE_OPEN = TW_OUTAGE_FAIL_OPEN, /* the earlier short words */
    TW_OUTAGE_CLOSED = TW_OUTAGE_FAIL_CLOSED
};

/** What a strict call answers where calls_max calls are under way: that is no outage. */
enum tw_busy {
    TW_BUSY_REFUSE = 0,   /* TW_ERR_BUSY */
    TW_BUSY_AS_OUTAGE = 1 /* what on_outage decides */
};

struct tw_family_options {
    size_t size;      /* set by tw_family_options_init() */
    char *error_text; /* as in tw_options */
    size_t error_size;

    const char *name; /* required, unique in the engine; 1..64 bytes of letters, digits, . _ - */

    /* Window */
    uint32_t window;       /* enum tw_window */
    int64_t window_ms;     /* a multiple of 1000; default TW_HOUR. Not for endless and calendar
                              windows */
    int64_t utc_offset_ms; /* shifts windows and stamps, within +-14 h, in whole minutes: with
                              +8 h days begin at midnight in Shanghai */
    uint32_t week_start;   /* first day of a calendar week: 0 = Monday ... 6 = Sunday */

    /* Event time and history: aligned and calendar windows only */
    int64_t lateness_ms;  /* how long after its end a window takes tw_add_at(); default 0;
                              TW_UNBOUNDED: until tw_close_until() */
    int64_t earliness_ms; /* how far ahead tw_add_at() may open windows; default one window */
    int64_t history_ms;   /* how long a closed window stays readable here, packed; default one
                              window; or TW_NONE */

    /* Redis */
    int64_t retention_ms;  /* how long a window lives in Redis after its end; default the greater
                              of 24 h and one window; not less than one window */
    const char *redis_key; /* template of the names: %k key (once), %n name, %Y %m %d %H %M %S the
                              window's start, %% a percent sign; before %k perhaps {%t}, a hash tag
                              of Redis Cluster; default "%n:%k" and a stamp, in a cluster
                              "%n:{%t}:%k" and a stamp. Hash: %k is the subject. Sorted set: no %k
                              and no %t; default "%n" and a stamp */

    /* Memory */
    uint64_t keys_max;      /* keys in one window; 0: bounded by memory only */
    uint64_t memory_share;  /* bytes that are set aside for this family alone when it is opened,
                               and that it does not exceed; what cannot be set aside is refused.
                               0: first come, first served */
    uint32_t on_full;       /* enum tw_on_full */
    uint32_t on_full_limit; /* enum tw_full_limit */

    /* Called for each window that counted something, once it takes no more counts and Redis has
     * acknowledged all of it. `flags` are enum tw_closed. False: call again later. */
    bool (*on_window_closed)(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms,
                             uint32_t flags);
    void *closed_ctx;

    uint64_t keys_expected; /* how many keys a window will have: their index is laid ahead where
                               there is room. Their records are sure only with memory_share.
                               0: as many as the windows before */
    int64_t idle_ms;        /* TW_ON_FULL_EVICT_IDLE: a key not used for this long may leave
                               memory; at least 100, default TW_HOUR */
    uint32_t kind;          /* enum tw_kind */
    uint32_t closed_by;     /* enum tw_closed_by */

    /* Limits */
    uint32_t limit_mode;      /* enum tw_limit_mode */
    uint32_t limit_shape;     /* enum tw_limit_shape */
    int64_t burst;            /* TW_SHAPE_GCRA: what the bucket holds; default the call's limit */
    uint32_t on_outage;       /* enum tw_outage */
    uint32_t outage_grace_ms; /* how long Redis may be silent before that; default 0, at most a
                                 day */
    bool shadow;              /* decide, never deny: what would be denied answers TW_OK with
                                 verdict->allowed = 0 */

    /* Redis Cluster */
    uint64_t redis_tags; /* into how many groups %t of redis_key deals the keys: a power of two,
                            1..1024, default 128. Part of the names for ever */

    /* Hashes and sorted sets: counters (TW_KIND_COUNTER), not of TW_WINDOW_FROM_FIRST. Limits that
     * are hard, strict, sliding or a rate, tw_hold(), tw_reserve(), tw_lock() stay with strings */
    uint32_t redis_shape; /* enum tw_redis_shape */
    char key_separator;   /* TW_REDIS_HASH: parts subject and field, at its last place in the key;
                             default '|'. A key without it, or with an empty part: TW_ERR_KEY */
    const char *fields;   /* TW_REDIS_HASH: the fields there are, as "views,likes,shares", at most
                             64; a key with another field: TW_ERR_KEY. NULL: any */

    uint32_t
        sub_windows;  /* TW_SHAPE_SLIDING without Redis, TW_WINDOW_ALIGNED: into how many windows
                             window_ms is cut, 1..TW_SUB_WINDOWS_MAX. In any stretch of window_ms at
                             most limit + limit / sub_windows units are admitted. Default 1: the
                             estimate from two windows. Above 1 the family's windows are window_ms /
                             sub_windows long (rounded up to a ms) for all calls and hooks */
    uint32_t on_busy; /* enum tw_busy: strict families, where calls_max calls are under way */
};
#define TW_SUB_WINDOWS_MAX 64

/* ==== 6. Engines and families ================================================================ */

/** Waits until Redis has acknowledged what this thread added before the call, and what other
 *  threads' adds that had returned by then added. Without Redis: TW_OK at once. In a host-driven
 *  engine it makes the turns itself.
 *  Answers:
 *    TW_OK
 *    TW_ERR_REDIS    some of it was refused, late or uncertain, or other counts were given up
 *                    since the last flush: on_lost names them
 *    TW_ERR_TIMEOUT  not all yet; it stays queued
 *    TW_ERR_MODE     from inside a function of your own, or inside tw_enter()
 *    TW_ERR_CLOSED */
TW_API tw_status tw_flush(tw_engine *engine, uint32_t timeout_ms);

/** Waits until this engine knows what it must know to decide well on limits over Redis: Redis has
 *  answered; the number of live engines has been known for a tenth of a second, in which others
 *  that start now have come; the leases that tw_lease_warm() asked for are here. Until then a soft
 *  limit is spent with care (docs/LIMITS.md). Changes nothing. In a host-driven engine it makes the
 *  turns itself.
 *  Answers:
 *    TW_OK           without Redis at once
 *    TW_ERR_TIMEOUT  not yet
 *    TW_ERR_MODE     from inside a function of your own, or inside tw_enter()
 *    TW_ERR_CLOSED */
TW_API tw_status tw_ready(tw_engine *engine, uint32_t timeout_ms);

/** From now on calls that count answer TW_ERR_CLOSED, and calls that wait end. Safe beside running
 *  calls. Answers: TW_OK. */
TW_API tw_status tw_stop(tw_engine *engine);

/** Host-driven engines: one bounded round of background work (clock, roll-over, hooks, sync), by
 *  one thread at a time. Cost: at most some milliseconds, hooks not counted; never waits for the
 *  network.
 *  Answers:
 *    TW_OK
 *    TW_PENDING   another thread is in a turn
 *    TW_ERR_MODE  an engine with a thread of its own; from inside a function of your own, or
 *                 inside tw_enter()
 *    TW_ERR_CLOSED */
TW_API tw_status tw_turn(tw_engine *engine);

/** The descriptor to wait on for tw_turn(), for reading only. Every host-driven engine has one,
 *  with Redis and without, and it stays the same for the engine's life: an epoll descriptor for all
 *  of its sockets, and for other threads that wake the loop. Level- and edge-triggered loops may
 *  watch it. It is the engine's: do not read from it, nor close it. A forked child asks for it
 *  again. -1: the engine has a thread of its own. */
TW_API int tw_fd(const tw_engine *engine);

/** How long tw_turn() need not be called, in ms, unless tw_fd() is readable before. Ask after each
 *  turn. 0: there is more to do, call it again; in between the loop may serve others. While a
 *  connection is being made, or takes no more bytes, it is not 0. */
TW_API uint32_t tw_timeout_ms(tw_engine *engine);

/** Optional brackets around many calls of one thread: they save a few ns for each call between
 *  them. They nest. Keep the section short: while it lasts, dropped memory is not reused
 *  (tw_stats.sections_oldest_ms shows it). Time and windows go on. */
TW_API void tw_enter(tw_engine *engine);
TW_API void tw_leave(tw_engine *engine);

/** The family of that name, or NULL. */
TW_API tw_family *tw_family_find(tw_engine *engine, const char *name);

/** Changes policies, sizes, times and hooks. These must be as at opening: name, window, window_ms,
 *  utc_offset_ms, week_start, redis_key, redis_tags, redis_shape, key_separator, fields, kind,
 *  closed_by, limit_mode, limit_shape, sub_windows, and whether on_full is TW_ON_FULL_EVICT_IDLE.
 *  A longer lateness_ms holds for windows that still take counts: what is over stays over
 *  (TW_ERR_LATE), sealed or never opened. So does what a longer history_ms comes too late for.
 *  If on_window_closed or closed_ctx changes, the call waits until a call of the old hook that is
 *  running has returned, except inside that hook. Then the old closed_ctx may be freed.
 *  Answers: TW_OK; TW_ERR_OPTIONS (nothing changed). */
TW_API tw_status tw_family_set(tw_family *family, const tw_family_options *options);

/** Lets the family go, in the background: what it owes is sent, its windows are told to
 *  on_window_closed as in tw_close(), then it is freed. No call with this handle may be running or
 *  follow, but in its hook. closed_ctx must last until tw_close() (or take the hook away with
 *  tw_family_set() before). A hook that answers false is asked for a minute; then the window is
 *  given up, logged and counted in tw_stats.windows_untold.
 *  Answers: TW_OK; TW_ERR_MODE (from inside a function of your own). */
TW_API tw_status tw_family_close(tw_family *family);

/* ==== 7. Counting ============================================================================
 * Out-parameters may be NULL.
 *
 * HOT KEYS. A counter that several threads contend for by adds without a view is striped by itself:
 * each thread then adds to a line of its own, and cores do not slow each other down. Reads stay
 * exact: they contain every add that returned before they began. The view of an add to such a
 * counter is no longer a place in a row. It contains this add and all that had returned before, and
 * of those under way any part; two adds may get the same view. Where all deltas are positive it is
 * a lower bound of the count when the call returns. Where every caller asks for the view, nothing
 * is ever striped. Not for TW_WINDOW_FROM_FIRST. */

/** As tw_add(), into the window of `unix_ms`: event time, for logs and queues. Aligned and calendar
 *  windows.
 *  Answers: as tw_add(), and
 *    TW_ERR_LATE   the window takes no more counts
 *    TW_ERR_EARLY  the window lies further ahead than earliness_ms
 *    TW_ERR_MODE   not in a family of these windows
 *    TW_ERR_RANGE  also: a time outside of the years 1000 to 9998 */
TW_API tw_status tw_add_at(tw_family *family, tw_key key, int64_t delta, int64_t unix_ms,
                           int64_t *view);

/** Adds each item by itself, as tw_add().
 *    deltas  NULL: all 1
 *    views   one an item; that of a refused item stays as it is
 *    each    one status an item
 *  Answers: the lowest negative status of the items, else the highest positive one, else TW_OK. */
TW_API tw_status tw_add_many(tw_family *family, const tw_key *keys, const int64_t *deltas,
                             size_t count, int64_t *views, tw_status *each);

/** Adds each item by itself, as tw_add_at().
 *    unix_ms  one moment an item; may not be NULL
 *  The others as tw_add_many(). */
TW_API tw_status tw_add_many_at(tw_family *family, const tw_key *keys, const int64_t *deltas,
                                size_t count, const int64_t *unix_ms, int64_t *views,
                                tw_status *each);

/** A watermark: by event time all is there up to `unix_ms`. From then on windows that end at or
 *  before it take no more counts (TW_ERR_LATE), whatever lateness_ms is, and are told to
 *  on_window_closed in order of time, by a turn. With Redis the hook waits until Redis has all of
 *  the window; with TW_CLOSED_BY_ONE until all engines are as far, each by its own watermark or
 *  lateness_ms. For sliding limits with Redis the hook comes up to a window later. The windows stay
 *  readable for history_ms from then on.
 *  A watermark only rises: an earlier one changes nothing. One that is ahead of the clock holds for
 *  each window from the window's end on. A program that counts by event time alone may set
 *  lateness_ms to TW_UNBOUNDED: then nothing but this call closes windows. May be called from a
 *  hook. Aligned and calendar windows. Cost: some nanoseconds.
 *  Answers:
 *    TW_OK
 *    TW_ERR_EARLY  further ahead than earliness_ms: nothing was changed
 *    TW_ERR_MODE   not in a family of these windows
 *    TW_ERR_RANGE  outside of the years 1000 to 9998
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_close_until(tw_family *family, int64_t unix_ms);

/** Adds the negative of the view, so that what others add meanwhile survives; `*last` becomes the
 *  view taken away. Units that are reserved or held (tw_reserve(), tw_hold()) are in the view: they
 *  are taken away, too, and others may have them while they are still in use. Answers: as
 *  tw_add(). */
TW_API tw_status tw_reset(tw_family *family, tw_key key, int64_t *last);

/** A pin keeps the way to one counter: adding through it skips the hash and the search. It follows
 *  its key into each next window, and creates it there at its first add. Hot keys: as tw_add().
 *  Threads: a pin is used by one thread at a time; any number of pins may name one key. Close it
 *  before its family.
 *  Cost: tw_pin_open() allocates; tw_pin_add() is one atomic add. In a family of
 *  TW_WINDOW_FROM_FIRST or TW_ON_FULL_EVICT_IDLE it costs the same as tw_add(): a key's counter
 *  may change there at any time.
 *  Answers: tw_pin_open(): TW_OK; TW_ERR_KEY, TW_ERR_MEMORY, TW_ERR_CLOSED. tw_pin_add(): as
 *  tw_add(). */
typedef struct tw_pin tw_pin;
TW_API tw_status tw_pin_open(tw_family *family, tw_key key, tw_pin **pin);
TW_API tw_status tw_pin_add(tw_pin *pin, int64_t delta, int64_t *view);
TW_API void tw_pin_close(tw_pin *pin);

/* ==== 8. Reading =============================================================================
 *   call             what                      where it looks
 *   tw_get           the view                  this process, open window
 *   tw_get_at        the view                  this process, the window of a moment
 *   tw_read          all that is known         this process, open window
 *   tw_each          every key's view          this process, any readable window
 *   tw_each_field    the views of a subject    this process, any readable window
 *   tw_fetch         the total                 Redis: waits for it
 *   tw_fetch_fields  the totals of a subject   Redis: any window that it holds
 *   tw_fetch_top     the highest totals        Redis: any window that it holds
 *   tw_fetch_rank    a member's place          Redis: any window that it holds */

/** As tw_get(), in the window of `unix_ms`, while it is readable here.
 *  Answers: as tw_get(), and TW_ERR_LATE, TW_ERR_MODE, TW_ERR_RANGE. */
TW_API tw_status tw_get_at(tw_family *family, tw_key key, int64_t unix_ms, int64_t *view);

/** What tw_read() answers. New fields are appended. */
struct tw_reading {
    int64_t view;        /* as tw_get() */
    int64_t local;       /* what this process added in this window */
    int64_t total;       /* what Redis last reported; 0 if not known */
    int64_t unsent;      /* the part of local that Redis has not acknowledged */
    int64_t age_ms;      /* how old the total is; TW_UNBOUNDED if not known */
    int64_t error_bound; /* |view - truth| at most: 0 without Redis, else TW_UNBOUNDED */
    bool known;          /* Redis has been asked about this key; without Redis: true */
    uint64_t reserved[8];
};

/** Writes the first `size` bytes of a tw_reading; what is longer than the library's is zeroed. For
 *  other languages; C and C++ call tw_read(). */
TW_API tw_status tw_read_sized(tw_family *family, tw_key key, tw_reading *reading, size_t size);

/** Everything known of a counter. Answers: as tw_get(). */
static inline tw_status tw_read(tw_family *family, tw_key key, tw_reading *reading) {
    return tw_read_sized(family, key, reading, sizeof(tw_reading));
}

/** Asks Redis for the totals of the open window and waits for them.
 *    totals  totals[i] becomes what Redis holds for keys[i]
 *  Answers:
 *    TW_OK
 *    TW_ERR_REDIS    no Redis is configured; or it has no count for one of these keys, which
 *                    tw_error_text() names: it refuses the key, or another type is there. What it
 *                    refuses of other keys changes nothing here
 *    TW_ERR_FULL     no room to keep a key's total
 *    TW_ERR_MODE     see A WAITING CALL; or a family of TW_SHAPE_GCRA
 *    TW_ERR_TIMEOUT  nothing is written to totals
 *    general errors */
TW_API tw_status tw_fetch(tw_family *family, const tw_key *keys, size_t count, uint32_t timeout_ms,
                          int64_t *totals);

/** What tw_each() and tw_top() show. The library owns it: it is valid inside `visit` only. */
struct tw_count {
    tw_key key; /* size 0: the overflow counter of the window (tw_each() only) */
    int64_t view;
    int64_t local;
    int64_t start_ms; /* 0 and TW_UNBOUNDED in an endless family */
    int64_t end_ms;
    int64_t error; /* how far view and local may be too high; 0, but in tw_top() for keys that
                      found no room */
    uint64_t reserved[3];
};

/** Visits the heaviest keys of one window: heaviest first, by their views; equal ones by key, byte
 *  by byte. Ends where `visit` answers false.
 *    n         how many at most, 1..10000
 *    unix_ms   a moment of the window, or TW_NOW
 *  Exact over the counters that this process holds: among them are those of keys that others count
 *  too, with the views that tw_get() shows. The walk is no snapshot: others may count meanwhile.
 *  Packed windows of the history are read as any other. The overflow counter is not among the keys.
 *  `visit` is called when the walk is over, and may call the engine. It must return, as in
 *  tw_each().
 *  Where the window overflowed (TW_OVERFLOWED), heavy keys that found no room are shown, too. Their
 *  `error` says how far `view` and `local` may be too high: what this process added to the key is
 *  at most `local`, and at least `local` - `error`. Each key of more than 1 % of what overflowed is
 *  found (2 % for keys above 480 bytes in an engine without free memory); negative deltas make the
 *  errors larger, and may hide a key. A sketch of bounded memory notes these keys: Space-Saving
 *  (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data
 *  Streams", 2005).
 *  Memory of the sketch: 32 KiB for keys of up to 32 bytes, up to 192 KiB more for each longer
 *  kind, and up to 8 times that where many threads overflow at once. It is taken when a window
 *  overflows for the first time (by large windows before memory is used up), and goes with the
 *  window. All of it is in memory_bytes_max and memory_share, and some is kept for it: of 16 MiB
 *  and more a 128th (2 MiB at most); of a share of 64 KiB and more an eighth (128 KiB at most).
 *  Where less is left, the sketch is smaller and finds less. A window that overflows when nothing
 *  is left has none (tw_stats.overflow_sketches_refused).
 *  In a TW_WINDOW_FROM_FIRST family, keys that found no room have no life of their own: they are
 *  shown with what they had in this calendar window and the one before.
 *  Cost: this thread looks at every counter of the window, in pieces of at most 2048, and holds up
 *  the reuse of memory for no longer than a piece (inside of tw_enter(): for all of it); nobody
 *  else waits. Memory of its own, beside memory_bytes_max and until it returns: n times 96 bytes
 *  and the keys, rounded up to a power of two; 12 MiB at most; and three times the sketch.
 *  Answers:
 *    TW_OK
 *    TW_ERR_RANGE   n; or a moment outside of the years 1000 to 9998
 *    TW_ERR_LATE    the window is not readable here any more
 *    TW_ERR_MODE    a moment other than TW_NOW in a family of TW_WINDOW_FROM_FIRST; a family of
 *                   TW_SHAPE_GCRA
 *    TW_ERR_MEMORY  `visit` was not called
 *    TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_top(tw_family *family, size_t n, int64_t unix_ms,
                        bool (*visit)(void *ctx, const tw_count *count), void *ctx);

/* DISTINCT COUNTS. A family of TW_KIND_DISTINCT counts how many different elements each key has had
 * in a window: visitors of a page, senders of a message. It keeps a sketch for each key
 * (HyperLogLog, as Redis has it), not the elements: 64 bytes for the first 14 elements, 16 KiB from
 * some 1500 on. The estimate is that of PFCOUNT in Redis for the same elements, to the unit; its
 * standard error is 0.81 %. Elements are hashed without a secret: who may choose them can choose
 * the estimate.
 * Windows, history, tw_each(), tw_top(), on_window_closed and tw_family_close() are as for
 * counters; the view and the local count of a tw_count are the estimate. A window in history keeps
 * estimates alone.
 * Nothing goes to the overflow counter: a key, or a larger sketch, that finds no room is
 * TW_ERR_FULL, whatever on_full says. Calls that add to a count, read one or take from one answer
 * TW_ERR_MODE.
 * With Redis the key there is a HyperLogLog, which PFCOUNT and PFADD know. What each engine has is
 * merged into it; merging again changes nothing, so nothing is lost or uncertain that a living
 * engine holds. tw_distinct_get() shows the union of all engines, as it was when Redis was last
 * asked: it asks for the next time, at most once in a sync interval. A closing hook shows the union
 * as it was when Redis had this engine's elements: another engine that was cut off may add more. */

/** Adds `element` to the elements of `key` in the window that is open now.
 *    element  any bytes, of any size, none included; not kept
 *    changed  becomes true if the sketch changed: then the element is new. False: it was there, or
 *             the sketch cannot tell it from others that were
 *  Adding an element again changes nothing. Of threads that add one element at once, one is told of
 *  a change.
 *  Cost: as tw_add(), and the hash of the element (P9). A sketch that grows is copied.
 *  Answers:
 *    TW_OK
 *    TW_ERR_FULL  no room for the key, or for a larger sketch; nothing was changed
 *    TW_ERR_MODE  not a family of TW_KIND_DISTINCT
 *    TW_ERR_KEY   also: the element has a size and no data
 *    general errors */
TW_API tw_status tw_distinct_add(tw_family *family, tw_key key, tw_key element, bool *changed);

/** As tw_distinct_add(), into the window of `unix_ms`: event time. Aligned and calendar windows.
 *  Answers: as tw_distinct_add(), and TW_ERR_LATE, TW_ERR_EARLY, TW_ERR_RANGE as tw_add_at();
 *    TW_ERR_MODE  also: not in a family of these windows */
TW_API tw_status tw_distinct_add_at(tw_family *family, tw_key key, tw_key element, int64_t unix_ms,
                                    bool *changed);

/** Adds each element, as tw_distinct_add(), with one look-up of the key for many of them.
 *    changed  becomes how many of them changed the sketch
 *  Answers: as tw_distinct_add(), and
 *    TW_ERR_FULL    some elements found no room; the others were added, and *changed says of how
 *                   many. The same call may be made again
 *    TW_ERR_CLOSED  also: tw_stop() came meanwhile, and the first elements may have been added */
TW_API tw_status tw_distinct_add_many(tw_family *family, tw_key key, const tw_key *elements,
                                      size_t count, size_t *changed);

/** The estimated number of different elements of `key` in the window that is open now; 0 for an
 *  unknown key. It contains each element whose add returned before the call.
 *  Cost: reads the sketch: some microseconds for a large one.
 *  Answers: TW_OK; TW_ERR_MODE (not a family of TW_KIND_DISTINCT); general errors. */
TW_API tw_status tw_distinct_get(tw_family *family, tw_key key, int64_t *estimate);

/** As tw_distinct_get(), in the window of `unix_ms`, while it is readable here.
 *  Answers: as tw_distinct_get(), and TW_ERR_LATE, TW_ERR_MODE, TW_ERR_RANGE as tw_get_at(). */
TW_API tw_status tw_distinct_get_at(tw_family *family, tw_key key, int64_t unix_ms,
                                    int64_t *estimate);

/* SUBJECTS. In a family of TW_REDIS_HASH a key is "subject|field", as "article:7|views": all fields
 * of a subject are one hash in Redis. These two calls read a subject as a whole. */

/** Visits the fields of `subject` whose view in one window is not 0, until `visit` answers false.
 *    unix_ms  a moment of the window, or TW_NOW
 *  With tw_family_options.fields they come in that order, and each is looked up as by tw_get(): in
 *  TW_NOW this takes an interest in each of them, so that the totals of all processes come with a
 *  later sync. Without, they come in no order, and all counters of the window are looked at as by
 *  tw_each(). Either way this is no snapshot. The field is valid inside `visit` only. `visit` may
 *  call the engine, and must return, as in tw_each().
 *  Cost: with `fields` as so many tw_get(); without as tw_each(), but only the subject is copied.
 *  Answers:
 *    TW_OK         also where nothing is known of the subject
 *    TW_ERR_KEY    no key can have this subject: it is empty or too long; or of a reserved name
 *    TW_ERR_MODE   not a family of TW_REDIS_HASH
 *    TW_ERR_LATE   the window is not readable here any more
 *    TW_ERR_RANGE  a moment outside of the years 1000 to 9998
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_each_field(tw_family *family, tw_key subject, int64_t unix_ms,
                               bool (*visit)(void *ctx, tw_key field, int64_t view), void *ctx);

/** Asks Redis for the hash of `subject`, and visits its fields when all of them are there: sorted
 *  by field, byte by byte, until `visit` answers false. A WAITING CALL, for timeout_ms at most.
 *    unix_ms     a moment of any window, or TW_NOW: also of windows that are gone here
 *    timeout_ms  0: redis_timeout_ms
 *  What any process has counted and not yet synced is not in Redis yet (sync_interval_ms;
 *  tw_flush()). Fields of other programs are shown as well. Left out are those whose value is no
 *  whole number, and those with more than TW_KEY_SIZE_MAX bytes. A hash of up to some hundred
 *  fields is read at one moment. A larger one is read in pieces (HSCAN): each field that is there
 *  throughout is shown once, with its total at some moment of the call. `visit` may call the
 *  engine.
 *  Cost: one request for every 256 fields. Memory of its own until it returns, beside
 *  memory_bytes_max: 40 bytes a field, and the fields.
 *  Answers:
 *    TW_OK           also where Redis has no such hash
 *    TW_ERR_KEY      as tw_each_field()
 *    TW_ERR_MODE     not a family of TW_REDIS_HASH; or see A WAITING CALL
 *    TW_ERR_RANGE    a moment outside of the years 1000 to 9998
 *    TW_ERR_REDIS    no Redis, refused, away; or another type stands under the name
 *    TW_ERR_TIMEOUT  `visit` was not called
 *    TW_ERR_MEMORY   also: more than 1,000,000 fields, or 64 MiB of them
 *    TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_fetch_fields(tw_family *family, tw_key subject, int64_t unix_ms,
                                 uint32_t timeout_ms,
                                 bool (*visit)(void *ctx, tw_key field, int64_t total), void *ctx);

/* RANKINGS. In a family of TW_REDIS_ZSET each window is one sorted set in Redis, whose members are
 * the keys: the ranking of all processes. tw_top() ranks what this process knows; these two calls
 * ask Redis. */

/** Visits the first `n` members of a window's ranking, the highest total first; equal ones by
 *  member, byte by byte, downwards (the order of Redis). Ends where `visit` answers false. A
 *  WAITING CALL, for timeout_ms at most.
 *    n           1..10000
 *    unix_ms, timeout_ms, and what is not yet in Redis: as tw_fetch_fields()
 *  Members of other programs are shown as well. Left out are those whose score is no whole number
 *  within +-TW_DELTA_MAX, and those with more than TW_KEY_SIZE_MAX bytes; others follow in their
 *  place. The ranking is that of one moment, unless some were left out, or the members have more
 *  than 900,000 bytes together: then the rest is asked for. `visit` is called when all is there,
 *  and may call the engine.
 *  Cost: one request as a rule; Redis takes some 2 microseconds for each member, at one go.
 *  Answers:
 *    TW_OK           also where Redis has no such set, or fewer members
 *    TW_ERR_RANGE    n; or a moment outside of the years 1000 to 9998
 *    TW_ERR_MODE     not a family of TW_REDIS_ZSET; or see A WAITING CALL
 *    TW_ERR_REDIS    no Redis, refused, away; or another type stands under the name
 *    TW_ERR_TIMEOUT  `visit` was not called
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_fetch_top(tw_family *family, int64_t unix_ms, size_t n, uint32_t timeout_ms,
                              bool (*visit)(void *ctx, tw_key member, int64_t total), void *ctx);

/** The place of `member` in a window's ranking, in the order of tw_fetch_top(). A WAITING CALL, for
 *  timeout_ms at most.
 *    rank   0: the first; -1: not there. All members of the set count, whatever their scores are
 *    total  0 if it is not there
 *  Answers: as tw_fetch_top(), and
 *    TW_ERR_REDIS  also: the member's score is no whole number within +-TW_DELTA_MAX
 *    TW_ERR_KEY    of the member */
TW_API tw_status tw_fetch_rank(tw_family *family, tw_key member, int64_t unix_ms,
                               uint32_t timeout_ms, int64_t *rank, int64_t *total);

/* ==== 9. Limits: only == TW_OK admits ======================================================== */

/** What a decision rests on. */
enum tw_decided_by {
    TW_BY_LOCAL = 0,  /* no Redis: exact (hot keys and sliding limits: see below) */
    TW_BY_VIEW = 1,   /* what is known here */
    TW_BY_LEASE = 2,  /* hard limits: a lease that Redis gave this process */
    TW_BY_REDIS = 3,  /* strict limits: Redis decided */
    TW_BY_OUTAGE = 4, /* the key's total is not known (again) yet, or Redis did not decide: what is
                         known here, or on_outage */
    TW_BY_FULL = 5,   /* the table is full: on_full_limit */
    TW_BY_BUYER = 6   /* tw_reserve(): the buyer has one already */
};

/** Filled on every return, errors included. Its size is fixed for ever: verdicts stand on hot
 *  paths, where a size would cost an argument and a branch a call. New fields take reserved words,
 *  which are 0 until then. */
struct tw_verdict {
    int64_t limit, used, remaining; /* units */
    int64_t reset_after_ms;         /* until the full limit is there again if nobody calls; 0: it is
                                       there now. TW_UNBOUNDED in an endless family: no time brings
                                       it, only a refund */
    int64_t retry_after_ms;         /* 0: admitted. Else after how long the same call is admitted if
                                       nobody else calls meanwhile: sleep so long, then call again.
                                       TW_UNBOUNDED in an endless family, as above; -1: n can never
                                       be admitted */
    int64_t error_bound;            /* |used - truth| at most; TW_UNBOUNDED: nothing can be said */
    int64_t window_start_ms;        /* for tw_refund(). TW_WINDOW_FROM_FIRST: when the key's life
                                       began; endless: 0 */
    uint32_t decided_by;            /* enum tw_decided_by */
    uint16_t claim;                 /* tw_acquire_all(): the claim that decided */
    uint8_t allowed;                /* equals TW_OK; upon an error: the policy's advice */
    uint8_t final;                  /* Redis reported that all of it is spent */
    uint64_t reserved[8];
};

/* Rules of tw_acquire(); docs/LIMITS.md has the whole story.
 *
 * Soft, without Redis   Exactly `limit` units are admitted, for any number of threads.
 * Sliding               TW_SHAPE_SLIDING, unless strict with Redis. `used` is an estimate: what a
 *                       window counted that the stretch covers in part is taken to have come
 *                       evenly. With sub_windows = 1 up to `limit` units more may be admitted in
 *                       a stretch of one window's length, with N up to limit / N. error_bound says
 *                       how far off `used` may be.
 * Soft, with Redis      Decides on the view. Several processes together may pass the limit by what
 *                       each does not know yet of the others. Between two totals a process admits
 *                       at most what remains / live engines (at least one call). Of a key of
 *                       unknown total, and in all for an interval and a half after its first, it
 *                       admits at most limit / live engines. A key near its limit, or unknown, is
 *                       synced at once. A call that finds its process's share spent is denied, with
 *                       a retry_after_ms of some milliseconds. error_bound says how far off `used`
 *                       may be, by what the others may spend and by the pace at which they were
 *                       seen to count; TW_UNBOUNDED while Redis is away.
 * Hard, with Redis      decided_by is TW_BY_LEASE. TW_OK: a unit of the lease. TW_PENDING: others
 *                       hold unspent units, or Redis has not answered yet; ask again after
 *                       retry_after_ms. TW_DENIED with final = 1: Redis has reported that all of
 *                       `limit` is spent (asked anew at most a second later, for units may be
 *                       refunded). TW_DENIED without: n is more than is left; or what is left is
 *                       stranded in an engine that died; or Redis is away (outage_grace_ms) and the
 *                       lease is spent. A call that names a smaller limit than the lease was drawn
 *                       under sends the lease back first. What is admitted never passes the
 *                       greatest limit in force at an admission.
 * Strict, with Redis    A WAITING CALL. Redis decides; where it does not, on_outage does.
 * Table full            on_full_limit decides: TW_OK with decided_by TW_BY_FULL, or TW_ERR_FULL.
 *                       Never the overflow counter.
 * Hot keys              What is left of a limit that threads contend for is cut into slices. Each
 *                       thread spends its own, then the others'. Exactly the limit is admitted
 *                       still, and nobody is denied while a unit is left. An admission from a slice
 *                       does not add all slices up: `used` is the count when some thread last did
 *                       (each does every 64 units), remaining is limit - used, and error_bound,
 *                       else 0 without Redis, says how far off `used` may be. A denial, and n = 0,
 *                       are exact. Slices stand while calls name the same limit or a higher one and
 *                       nobody adds to the key (tw_add() of a negative delta, a refund, is no
 *                       obstacle); otherwise the call decides on the whole. Not for
 *                       TW_WINDOW_FROM_FIRST. */

/** Takes as many units of `key` as there are, at most `n_max`.
 *    n_max    0 looks without taking
 *    taken    how many; 0 unless TW_OK
 *    verdict  that of the last try; where nothing could be had it says when one unit may come
 *  Cost: as tw_acquire(), a few times where fewer than n_max are left.
 *  Answers: as tw_acquire(); TW_DENIED: not one unit. */
TW_API tw_status tw_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit,
                                 int64_t *taken, tw_verdict *verdict);

/** tw_acquire(), again and again until the units are there or the time is up. The thread sleeps
 *  until retry_after_ms, until a tw_refund() in this process, or 100 ms, whichever is first.
 *  Nothing is kept for those who wait, so a later caller may be first. A denial with n above the
 *  limit ends the wait at once. So does a `final` denial (reported by Redis at most a second ago),
 *  unless retry_after_ms lies within the time: the end of the window is waited for.
 *  Answers: as tw_acquire(), and
 *    TW_DENIED, TW_PENDING  at the end of the time, as it stands then
 *    TW_ERR_MODE            host-driven engine, hook, tw_enter()
 *    TW_ERR_CLOSED          tw_stop() ended the wait */
TW_API tw_status tw_acquire_wait(tw_family *family, tw_key key, int64_t n, int64_t limit,
                                 uint32_t timeout_ms, tw_verdict *verdict);

/** One of several amounts that are wanted together. */
typedef struct tw_claim {
    tw_family *family;
    tw_key key;
    int64_t n, limit;
} tw_claim;
#define TW_CLAIMS_MAX 64

/** Takes all claims, or none: per second, per day and per customer in one call.
 *    verdict  that of the claim that decided, verdict->claim: the one that was denied; of those
 *             admitted the one with the fewest units left
 *  The same key may be claimed more than once: its units add up, each under its own limit. All are
 *  looked at first, so a caller that cannot have all takes nothing. Of two callers that want the
 *  same few units, one may be denied because the other holds some for a moment and then cannot have
 *  the rest. A window that ends during the call may keep what was taken from it.
 *  Cost: as twice as many calls of tw_acquire().
 *  Answers: as tw_acquire() of the claim that decided, and
 *    TW_ERR_RANGE  also: no claim, or more than TW_CLAIMS_MAX
 *    TW_ERR_MODE   a family whose limit is strict */
TW_API tw_status tw_acquire_all(const tw_claim *claims, size_t count, tw_verdict *verdict);

/** Gives back `n` units that were admitted in the window that began at `window_start_ms`
 *  (verdict->window_start_ms): an order that was cancelled. n = 0 does nothing. The next window
 *  gets nothing of an ended one. The count does not go below 0, wherever all of it is known here:
 *  without Redis, and where Redis has reported its total.
 *  Cost: as tw_acquire(); a system call if a thread sleeps in tw_acquire_wait().
 *  Answers:
 *    TW_OK
 *    TW_ERR_LATE   that window is over
 *    TW_ERR_EARLY  that window has not begun
 *    TW_ERR_RANGE  n < 0, out of range, or more than the count
 *    TW_ERR_FULL   no room for a new key
 *    TW_ERR_MODE   a shape that has nothing to give back to
 *    general errors */
TW_API tw_status tw_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms);

/* ==== 10. Leases of hard limits ============================================================== */

/** Asks Redis for a first lease of `key` under that limit, before the sale opens. The lease is kept
 *  until it is spent from or others want it. Does not wait: the units come some turns later, and
 *  tw_ready() waits for them (tw_acquire() with n = 0 tells nothing of them). Without Redis there
 *  is nothing to do.
 *  Cost: as a tw_acquire() of a new key.
 *  Answers:
 *    TW_OK
 *    TW_ERR_MODE   the family is not TW_LIMIT_HARD
 *    TW_ERR_RANGE  limit < 0 or out of range
 *    TW_ERR_FULL   no room for a new key
 *    general errors */
TW_API tw_status tw_lease_warm(tw_family *family, tw_key key, int64_t limit);

/** Frees what an engine that died was granted of this family's limits, less what it had reported
 *  as spent and what the counters have beyond all reports. It may have sold units of these and not
 *  have sent that: a limit may then be passed, by *units at most. A WAITING CALL, redis_timeout_ms
 *  for each page of leases. In a cluster it searches all masters, as an audit does. What cannot be
 *  seen, or freed, stops nothing else; tw_error_text() then says how much it is. If a store that
 *  knows the engine does not say when it heard of it, nothing is freed. Nothing is freed twice.
 *    instance  the engine's 32 digits in Redis
 *    units     becomes how many were freed
 *  `tallywheel reclaim --force` does the same. An engine that was only paused, and goes on, sells
 *  those units a second time. Be sure that it is gone.
 *  Answers:
 *    TW_OK
 *    TW_DENIED             Redis had a heartbeat of that engine within the last 5 s
 *    TW_ERR_UNKNOWN_TOKEN  not an instance; or it has no lease of this family, and tw_error_text()
 *                          names some that have
 *    TW_ERR_MODE           the family is not TW_LIMIT_HARD; see A WAITING CALL
 *    TW_ERR_REDIS          no Redis, refused, away; a cluster: not all was seen, or freed
 *    TW_ERR_TIMEOUT        some may have been freed: ask again
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_lease_reclaim(tw_family *family, const char *instance, int64_t *units);

/** How many units tw_lease_reclaim() would free now. Changes nothing.
 *  Cost and answers: as tw_lease_reclaim(). */
TW_API tw_status tw_lease_stranded(tw_family *family, const char *instance, int64_t *units);

/* ==== 11. Once, and locks ==================================================================== */

/** The first caller per key and window.
 *    first  becomes true for the first caller; it is forgotten with the window
 *  The key's count becomes 1.
 *  Without Redis, and in strict families (A WAITING CALL): exactly one caller is first. A caller
 *  whose answer is lost on the way asks again and is still the first. In soft families with Redis
 *  the call decides on what is known here and then sends: callers in two processes may both be
 *  first, if both come before either process knows of the other (one sync_interval_ms, or an
 *  outage). Redis away, strict: on_outage decides. LOCAL: as soft. FAIL_OPEN: everybody is first.
 *  FAIL_CLOSED: TW_ERR_REDIS or TW_ERR_TIMEOUT.
 *  Families: counters of TW_SHAPE_FIXED, soft or strict; without Redis hard ones, too.
 *  Answers:
 *    TW_OK           also with TW_FULL_LIMIT_ADMIT and a full table: first is then true
 *    TW_ERR_FULL     the table is full, TW_FULL_LIMIT_DENY
 *    TW_ERR_MODE     the family; strict: see A WAITING CALL
 *    TW_ERR_REDIS    strict: Redis refused or is away
 *    TW_ERR_TIMEOUT  strict: unknown; if the caller was the first, that is taken back
 *    general errors */
TW_API tw_status tw_once(tw_family *family, tw_key key, bool *first);

/** The first caller could not do what it was first for: the key's count in the open window becomes
 *  0, and the next caller of tw_once() is the first. Whoever calls it must know that it was the
 *  first. Strict: in Redis, at once. Soft: sent with the next sync.
 *  Answers: TW_OK (also where there was no first); else as tw_once(). Strict with Redis away:
 *  TW_ERR_REDIS, TW_ERR_TIMEOUT. */
TW_API tw_status tw_once_cancel(tw_family *family, tw_key key);

/** A lock: one holder at a time, over all processes with this Redis and prefix. A WAITING CALL.
 *    ttl_ms  the lease time: the lock ends by itself after it. A holder that takes longer has lost
 *            the lock without notice
 *    token   names this holding; empty but after TW_OK
 *    fence   the fencing token: each lock of the key gets a greater one. Hand it to whatever the
 *            lock protects, and let that refuse a smaller number than the greatest it has seen
 *
 *      char token[TW_TOKEN_SIZE];
 *      uint64_t fence;
 *      if (tw_lock(jobs, tw_str("report"), 10000, token, &fence) == TW_OK) {
 *          write_report(fence);
 *          tw_lock_release(jobs, tw_str("report"), token);
 *      }
 *
 *  Any family of strings with Redis; a lock has no window and no count. One script decides, by
 *  Redis's clock.
 *  The fencing token is Redis's time in microseconds, or 1 more than the last if that is greater.
 *  An answer that is lost is asked for again: the winner is still the winner. Safe as long as Redis
 *  keeps what it acknowledged: a failover may lose a lock. The fencing token then still rises, also
 *  if the clock of the new server is behind: each engine asks for more than the greatest token of
 *  the last day that it was given or told, and than the clock of the server before, as it measured
 *  it. It may fall only where the new server's clock is behind, it lacks the last token, and the
 *  engine that asks has never talked to the server before.
 *  Answers:
 *    TW_OK
 *    TW_DENIED       held by another
 *    TW_ERR_RANGE    ttl_ms is 0
 *    TW_ERR_MODE     see A WAITING CALL; hashes and sorted sets (redis_shape)
 *    TW_ERR_REDIS    no Redis, refused, away
 *    TW_ERR_TIMEOUT  perhaps locked; released when Redis answers again, at the latest after ttl_ms
 *    general errors */
TW_API tw_status tw_lock(tw_family *family, tw_key key, uint32_t ttl_ms, char token[TW_TOKEN_SIZE],
                         uint64_t *fence);

/** The lock lasts `ttl_ms` from now on; never less than it did.
 *  Answers: as tw_lock(), and
 *    TW_ERR_LATE           not held under this token any more
 *    TW_ERR_UNKNOWN_TOKEN  malformed
 *    TW_ERR_TIMEOUT        perhaps done, ask again */
TW_API tw_status tw_lock_extend(tw_family *family, tw_key key, const char *token, uint32_t ttl_ms);

/** Free for the next. Answers: as tw_lock_extend(). */
TW_API tw_status tw_lock_release(tw_family *family, tw_key key, const char *token);

/* ==== 12. Reservations, and slots in use ===================================================== */

/** Reserves `n` units of a stock of `limit`: nobody else can have them meanwhile. Unless
 *  tw_reserve_confirm() says that they are sold, they return by themselves.
 *    ttl_ms   how long
 *    buyer    gets one reservation for each key and window: a buyer that has one, or has bought, is
 *             denied before anything is deducted. A cancelled one, or one whose time was over, does
 *             not count. Size 0: anybody
 *    token    names the reservation; with Redis any process may confirm or cancel it. Empty but
 *             after TW_OK and TW_ERR_TIMEOUT
 *  The stock is the count of `key` in the window that is open: units sold and reserved together,
 *  which never pass `limit`.
 *
 *      char token[TW_TOKEN_SIZE];
 *      if (tw_reserve(sale, tw_str("sku:7"), 1, 500, 15 * TW_MINUTE, tw_str(user), token, NULL)
 *          == TW_OK)
 *          ...  // pay; then, here or in any other process:
 *          sold = tw_reserve_confirm(engine, token) == TW_OK;
 *
 *  Without Redis: exact, and a reservation's end is by the monotonic clock. What ends together is
 *  taken back in pieces, by the turn and by calls: a denial meanwhile has a retry_after_ms of some
 *  milliseconds. With Redis: A WAITING
 *  CALL. One script decides for all processes, by Redis's clock; what is reserved shows in tw_get()
 *  with the next sync. What tw_add() or tw_acquire() added to the key counts as sold, once Redis
 *  has it.
 *  Families: counters, soft or strict, of TW_SHAPE_FIXED and TW_REDIS_STRING; not
 *  TW_WINDOW_FROM_FIRST, not TW_ON_FULL_EVICT_IDLE, not `shadow`.
 *  Cost: some 128 bytes until it is over. Sold ones stay as long as their answers are repeated (a
 *  day after their end) and their buyer is remembered (to the end of the window; in an endless
 *  family for ever).
 *  Answers:
 *    TW_OK
 *    TW_DENIED       verdict->decided_by is TW_BY_BUYER; or the stock is out: retry_after_ms says
 *                    when some may come back, and with Redis `final` that nothing can
 *    TW_ERR_RANGE    n < 1, ttl_ms 0, out of range
 *    TW_ERR_KEY      the key or the buyer
 *    TW_ERR_FULL     no memory left; or, without Redis, reservations have half of it
 *    TW_ERR_MODE     the family; with Redis see A WAITING CALL
 *    TW_ERR_REDIS    Redis refused, or is away
 *    TW_ERR_LATE     the window is over in Redis
 *    TW_ERR_TIMEOUT  perhaps reserved: cancel `token`, else the units return by themselves
 *    general errors */
TW_API tw_status tw_reserve(tw_family *family, tw_key key, int64_t n, int64_t limit,
                            uint32_t ttl_ms, tw_key buyer, char token[TW_TOKEN_SIZE],
                            tw_verdict *verdict);

/** The units are sold. From any thread; with Redis from any process with the same Redis and prefix.
 *  Repeatable.
 *  Answers:
 *    TW_OK                 sold, now or by an earlier call
 *    TW_ERR_LATE           returned: cancelled, or its time was over; for ever
 *    TW_ERR_UNKNOWN_TOKEN  malformed; of another engine or Redis; older than a day after its end
 *    TW_ERR_TIMEOUT        perhaps done, ask again
 *    TW_ERR_REDIS, TW_ERR_MODE, TW_ERR_CLOSED, TW_ERR_FORKED: as tw_reserve() */
TW_API tw_status tw_reserve_confirm(tw_engine *engine, const char *token);

/** The units go back.
 *  Answers: as tw_reserve_confirm(), but
 *    TW_OK        returned: now, by an earlier call, or by itself
 *    TW_ERR_LATE  sold: what is sold goes back by tw_add() of a negative delta */
TW_API tw_status tw_reserve_cancel(tw_engine *engine, const char *token);

/** Takes a slot: one more in use under `key`, if there are then at most `limit`: connections,
 *  running jobs. Ended by tw_hold_release().
 *  Families: endless ones (TW_WINDOW_FOREVER) of TW_SHAPE_FIXED and TW_REDIS_STRING, counters or
 *  gauges, soft or strict; not TW_ON_FULL_EVICT_IDLE, not `shadow`.
 *
 *      if (tw_hold(downloads, tw_str(user), 3, NULL) != TW_OK) return busy();
 *      ...
 *      tw_hold_release(downloads, tw_str(user));
 *
 *  Without Redis: a count of this process, as tw_acquire(). With Redis: A WAITING CALL; one script
 *  decides for all processes. A process repeats every few seconds what it holds: after kill -9 its
 *  slots are free within 15 s. A process that was stopped for longer reports its slots anew; until
 *  then others may have taken them. tw_get() does not show slots there; verdict->used does.
 *  Redis away: on_outage decides; TW_OUTAGE_LOCAL by what this process holds.
 *  Answers:
 *    TW_OK
 *    TW_DENIED
 *    TW_ERR_RANGE  limit < 0 or out of range
 *    TW_ERR_FULL   no room for a new key
 *    TW_ERR_MODE   the family; with Redis see A WAITING CALL
 *    TW_ERR_REDIS  Redis refused
 *    general errors */
TW_API tw_status tw_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict);

/** One less in use.
 *  Answers:
 *    TW_OK         with Redis away, too: the slot is free there within 15 s
 *    TW_ERR_RANGE  this process holds none: nothing changed. Of a key that many threads use, a
 *                  release too many may be overlooked at the moment of another one
 *    TW_ERR_MODE   the family
 *    general errors */
TW_API tw_status tw_hold_release(tw_family *family, tw_key key);

/* ==== 13. Limits from a file =================================================================
 * A line says what the keys of a family that begin so may use in a window:
 *
 *      # family  key         limit      window  words
 *      login     *           5          1m                         # any key
 *      login     ip:10.*     unlimited                             # * only at a pattern's end
 *      login     ip:10.6.6.6 0          1m                         # this one key: never
 *      api       user:*      1000       1h      from-first
 *      stock     sku:*       500        1d      mode=hard outage=fail-closed
 *
 * Which line     The closest of those that match: the key itself before patterns, the longer
 *                pattern before the shorter. The order of lines says nothing. Two lines of the same
 *                family and key are an error.
 * Limits         0 to TW_DELTA_MAX, or unlimited.
 * Windows        A number with s, m, h or d.
 * Words          As the family's options: from-first, shadow, mode=soft|hard|strict,
 *                shape=fixed|sliding|gcra, burst=N, sub-windows=N,
 *                outage=local|fail-open|fail-closed|share, busy=refuse|outage. Each at most once.
 * Text           In keys \\ \* \t \n \xHH are bytes. Blanks stand between words. What follows a #
 *                at a word's beginning is a comment. The last line ends like all others.
 * Bounds         4 MiB; 100,000 limits; 256 families and windows (of all reloads together).
 *
 * For each family and window a family of the engine is opened, under both names: "login.1m". So a
 * window that is changed begins from 0, and a limit that is changed goes on with what has been
 * used. tw_family_find() gives it for reading. */
typedef struct tw_limits tw_limits;

/** A family of the file, found once: it saves the search for the name. */
typedef struct tw_limited tw_limited;

/** Reads the file and opens what it names. Cost: a file, memory of its size, families.
 *    error_text  becomes "FILE:LINE: " and what is wrong; or NULL
 *  Answers: TW_OK; TW_ERR_OPTIONS, TW_ERR_MEMORY, TW_ERR_CLOSED: nothing has changed. */
TW_API tw_status tw_limits_open(tw_engine *engine, const char *path, char *error_text,
                                size_t error_size, tw_limits **limits);

/** Reads the file again: all of it holds from then on; upon an error all that held before does.
 *  Calls that run meanwhile do not wait, and each sees the old limits or the new. The words of a
 *  line (shadow, outage, burst) change family by family, a moment before the limits do; when the
 *  reload fails, they change back. A family that was
 *  in the file and has no line any more is an error. So is another mode or shape for a family and
 *  window. Replace the file by rename(), so that no half of it is read.
 *  Cost: as tw_limits_open(); may wait some microseconds for lookups under way.
 *  Answers: as tw_limits_open(), and TW_PENDING (another thread is reloading; nothing was done). */
TW_API tw_status tw_limits_reload(tw_limits *limits, char *error_text, size_t error_size);

/** tw_acquire() under the file's limit for `key`. Where no line speaks of the key, or it is
 *  unlimited: TW_OK, nothing is counted, and limit and remaining are TW_UNBOUNDED.
 *  Cost: two binary searches, then tw_acquire(); the searches wait for nobody.
 *  Answers: as tw_acquire(), and
 *    TW_ERR_OPTIONS  no line names the family: is it spelled so in the file? */
TW_API tw_status tw_limits_acquire(tw_limits *limits, const char *family, tw_key key, int64_t n,
                                   tw_verdict *verdict);

/** The rule that tw_limits_acquire() would use, for every other call: tw_refund(), tw_reserve(),
 *  tw_get() ... Unlimited: NULL and TW_UNBOUNDED. A handle stays good until tw_limits_close().
 *  Either pointer may be NULL.
 *  Answers: TW_OK; TW_ERR_OPTIONS (no line names the family), TW_ERR_KEY: nothing is written. */
TW_API tw_status tw_limits_find(tw_limits *limits, const char *family, tw_key key,
                                tw_family **found, int64_t *limit);

/** Finds a family of the file by its name. The handle is good until tw_limits_close(); a reload
 *  changes what it leads to.
 *  Answers: TW_OK; TW_ERR_OPTIONS (no line names the family): nothing is written. */
TW_API tw_status tw_limits_family(tw_limits *limits, const char *family, tw_limited **limited);

/** tw_limits_acquire() and tw_limits_find(), without the search for the name. */
TW_API tw_status tw_limited_acquire(tw_limited *limited, tw_key key, int64_t n,
                                    tw_verdict *verdict);
TW_API tw_status tw_limited_find(tw_limited *limited, tw_key key, tw_family **found,
                                 int64_t *limit);

/** Closes the families and frees the rest (of NULL: nothing). Before tw_close(). No call with
 *  `limits`, or with a handle found in it, may be running or follow.
 *  Answers: TW_OK; TW_ERR_MODE (from inside a function of your own: nothing was done). */
TW_API tw_status tw_limits_close(tw_limits *limits);

/* ==== 14. Statistics and metrics ============================================================= */

/** Every field of tw_stats: X(name, kind, text), kind gauge or counter. Append only. */
#define TW_STATS(X) \
    X(increments, counter, \
      "adds that answered TW_OK or TW_OVERFLOWED, and calls whose units a limit counted here") \
    X(entries, gauge, "counters held now, all windows") \
    X(memory_bytes, gauge, "counting memory in use") \
    X(memory_bytes_high, gauge, "the most counting memory that was ever in use") \
    X(memory_bytes_max, gauge, "the bound") \
    X(generations, gauge, "windows held now, of all families") \
    X(overflow_increments, counter, "adds that went to an overflow counter") \
    X(rejected_increments, counter, "adds of new keys answered TW_ERR_FULL") \
    X(late_increments, counter, "adds answered TW_ERR_LATE") \
    X(windows_closed, counter, "windows sealed") \
    X(windows_packed, counter, "windows in history that were packed") \
    X(packs_refused, counter, "windows left unpacked because memory was short; tried again later") \
    X(hooks_again, counter, "closing hooks that answered false") \
    X(sections_oldest_ms, gauge, "how long the oldest read section has lasted") \
    X(clock_held_ms, gauge, \
      "how long engine time has stood still or run alone because the wall clock was set") \
    X(clock_lag_max_ms, gauge, "the longest that the engine's cached clock was not refreshed") \
    X(redis_configured, gauge, "1 with a redis_url") \
    X(redis_connected, gauge, "1 while Redis answers; in a cluster: every store of this engine") \
    X(sync_age_ms, gauge, "time since the last acknowledged batch; -1: none yet") \
    X(unsent_keys, gauge, \
      "counters with counts that Redis has not acknowledged, at least; sampled by turns") \
    X(connects, counter, "connections made") \
    X(disconnects, counter, "connections lost") \
    X(batches_sent, counter, "batches sent, again-sent ones included") \
    X(batches_ok, counter, "batches that Redis applied") \
    X(batches_dup, counter, "batches that Redis had applied before") \
    X(batches_gap, counter, "batches refused because their number was not the next") \
    X(batches_error, counter, "batches answered by an error") \
    X(poison_keys, counter, "keys refused by Redis") \
    X(late_deltas, counter, "units answered LATE by Redis, magnitudes added up") \
    X(expired_unsynced, counter, \
      "units whose window was over in Redis before it could be reached") \
    X(lost, counter, "units known to be lost, magnitudes added up") \
    X(uncertain, counter, "units of unknown outcome, magnitudes added up") \
    X(rollbacks, counter, "times Redis was found to have gone back") \
    X(redis_clock_offset_ms, gauge, "Redis's clock minus ours") \
    X(breaker_state, gauge, \
      "0: Redis is used; 1: left alone until a back-off is over; 2: being tried") \
    X(outage_ms, gauge, \
      "how long Redis has not answered, from its first failure or tw_open on; 0 while it does") \
    X(replayed, counter, "units sent again because Redis had forgotten them, magnitudes added up") \
    X(restored, counter, \
      "units owed again, out of the counters, because Redis had lost everything") \
    X(regressions, counter, \
      "totals below what Redis had acknowledged, unexplained: a key deleted, evicted, set by " \
      "hand") \
    X(replicas_short, counter, \
      "times fewer replicas than wait_replicas had what Redis acknowledged") \
    X(striped, counter, \
      "counters that were given stripes or slices because threads contended for them") \
    X(evicted, counter, \
      "idle keys that left memory (TW_ON_FULL_EVICT_IDLE); Redis has their counts") \
    X(limit_admitted, counter, "calls that a limit admitted") \
    X(limit_denied, counter, "calls over a limit; those in the shadow, too") \
    X(limit_near, counter, "calls that were admitted and left a fifth of the limit, or less") \
    X(limit_shadow_denied, counter, \
      "calls let through that a limit would not have admitted (shadow)") \
    X(limit_measured, counter, \
      "counters near a soft limit whose total was measured when their window was over; with " \
      "Redis") \
    X(limit_overshot, counter, "of those, counters whose total was above the limit") \
    X(reservations_held, gauge, \
      "reservations made here and not yet confirmed, cancelled or over; without Redis") \
    X(reservations_expired, counter, \
      "reservations whose hold was over before they were confirmed; without Redis") \
    X(lease_draws, counter, "times units of a hard limit were drawn from Redis") \
    X(lease_returned, counter, "units of hard limits that were given back unspent") \
    X(lease_stranded, gauge, \
      "units of hard limits that are seen in leases of engines that are gone, windows still open") \
    X(limit_at_risk, counter, \
      "units granted beyond a hard limit, because Redis forgot grants: of them, what this " \
      "engine was told of") \
    X(ask_active, gauge, "calls that wait for Redis now (strict limits, locks)") \
    X(ask_calls, counter, "calls that asked Redis and waited") \
    X(ask_ms, counter, "how long they waited, all together") \
    X(ask_connects, counter, "connections made for them") \
    X(ask_timeouts, counter, "tries without an answer in time") \
    X(ask_refused, counter, "tries that Redis refused") \
    X(ask_dropped, counter, "tries whose connection failed") \
    X(ask_away, counter, "calls that could not be asked: Redis was left alone") \
    X(asked_again, counter, "tries after one whose answer was lost") \
    X(asks_unknown, counter, "calls of which it is not known whether Redis executed them") \
    X(strict_fallbacks, counter, "calls of strict limits that on_outage decided") \
    X(asks_settled, counter, "of those, calls whose charge, if any, was taken back") \
    X(live_engines, gauge, "engines that share this Redis, as it last told; 0: not known") \
    X(audits, counter, "audits done at their interval") \
    X(audit_findings, gauge, "what the last of them found; -1: it could not be done") \
    X(clock_ahead_ms, gauge, \
      "engine time minus the wall clock: beyond 5 s the wall clock was set back") \
    X(windows_again, counter, \
      "windows that the hook was told of again, because counts came after they had been closed") \
    X(windows_untold, counter, \
      "windows, or late counts in one that others had closed, that no hook was told of: it " \
      "answered false, or there is none") \
    X(memory_free_bytes, gauge, "counting memory that is free within the bound") \
    X(memory_usable_bytes, gauge, \
      "of it, what families without a share can have at once: runs long enough for any key and " \
      "any window") \
    X(tls_refused, counter, \
      "connections that TLS refused: a certificate, a name, a version; see last_error") \
    X(redis_nodes, gauge, "masters of a Redis Cluster that this engine is connected to") \
    X(stores, gauge, \
      "ledgers of this engine in Redis: one, or in a cluster one for each key slot in use") \
    X(stores_away, gauge, "of them, those whose server does not answer") \
    X(stores_split, gauge, \
      "of them, those whose slot is apart: its ledger is gone while another master holds keys of " \
      "it, or requests have been sent away for ten seconds") \
    X(moved, counter, "requests that a cluster answered by MOVED") \
    X(asked, counter, "requests that a cluster answered by ASK") \
    X(tryagain, counter, "requests that a cluster answered by TRYAGAIN") \
    X(map_refreshes, counter, "times the map of the cluster was read (CLUSTER SLOTS)") \
    X(stores_waiting, gauge, \
      "of the stores, those that wait until others were written: at most 1,024 are at a time") \
    X(overflow_sketches_refused, counter, \
      "windows that overflowed without memory to note their heavy keys (tw_top)") \
    X(ask_unsettled, gauge, \
      "calls that nobody waits for any more, and whose charge, if any, is being taken back") \
    X(ask_busy, counter, "calls that found calls_max others under way") \
    X(ask_cancelled, counter, "calls that tw_request_cancel() took back") \
    X(asks_forgotten, counter, \
      "calls whose charge was not taken back, and releases without a request that were not sent") \
    X(done_ms_max, gauge, "the longest that a `done` of yours has taken")

#define TW_STATS_ROOM 160 /* figures that there is room for; what is not used is reserved */
#define TW_STATS_ONE(name, kind, text) +1
/** What tw_stats_read() answers. */
struct tw_stats {
#define TW_STATS_FIELD(name, kind, text) int64_t name;
    TW_STATS(TW_STATS_FIELD)
#undef TW_STATS_FIELD
    int64_t reserved[TW_STATS_ROOM - (0 TW_STATS(TW_STATS_ONE))];
    char last_error[128]; /* of Redis or of the connection; that of an outage
                             goes when Redis answers; empty: none */
};
#undef TW_STATS_ONE

/** Writes the first `size` bytes of a tw_stats; what is longer than the library's is zeroed. For
 *  other languages; C and C++ call tw_stats_read(). */
TW_API tw_status tw_stats_read_sized(tw_engine *engine, tw_stats *stats, size_t size);

/** A sample of every figure; they are read one after the other.
 *  Cost: some microseconds, and about one for each open family. For that time it holds the lock
 *  under which families are opened and closed; no other call waits for it.
 *  Answers: TW_OK. */
static inline tw_status tw_stats_read(tw_engine *engine, tw_stats *stats) {
    return tw_stats_read_sized(engine, stats, sizeof(tw_stats));
}

/** The `format` of tw_metrics_write(), and the Content-Type that its page is to be served with. */
enum tw_metrics { TW_METRICS_PROMETHEUS = 0, TW_METRICS_OPENMETRICS = 1 };
#define TW_METRICS_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define TW_METRICS_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
/* Added to TW_METRICS_OPENMETRICS: without "# EOF" at the end, as more follows. */
#define TW_METRICS_NO_EOF 256

/** The statistics as a page of metrics.
 *    format  TW_METRICS_PROMETHEUS is the text format that every scraper takes;
 *            TW_METRICS_OPENMETRICS is OpenMetrics 1.0, for scrapers whose Accept header asks for
 *            application/openmetrics-text
 *    write   is called with pieces of the page, each of whole lines; false ends it
 *  Each sample bears the labels of tw_options.metrics_labels.
 *  One page together with the program's own metrics: write those before this call's, or behind them
 *  (in OpenMetrics with TW_METRICS_NO_EOF, and "# EOF\n" at the very end). None of their names may
 *  begin with tallywheel_. Two engines have two pages: a page describes each metric once.
 *  After the engine's figures come those of each family of which a limit was asked, under
 *  {family="NAME"}: tallywheel_family_limit_admitted, _denied, _near, _shadow_denied (counters; as
 *  in tw_stats). They begin at 0 when the family is opened. Soft families with Redis whose windows
 *  end also have tallywheel_family_limit_overshoot_ratio, a histogram. It is of counters that came
 *  near their limit here (at most 1024 at a time): the part of the limit by which all engines
 *  together had passed it when the window was over; 0.01 is 1 %. The greatest limit that was named
 *  counts, and tw_add() counts along.
 *  Answers:
 *    TW_OK
 *    TW_DENIED       `write` answered false
 *    TW_ERR_OPTIONS  no such format: `write` was not called
 *    TW_ERR_MEMORY   `write` was not called */
TW_API tw_status tw_metrics_write(tw_engine *engine, uint32_t format,
                                  bool (*write)(void *ctx, const char *text, size_t size),
                                  void *ctx);

/* ==== 15. Audit ============================================================================== */

/** What an audit finds. The numbers are fixed for ever. */
enum tw_audit_kind {
    TW_AUDIT_LEDGER = 1,    /* a ledger is gone, differs from ours, or has a batch cut short */
    TW_AUDIT_NO_EXPIRY = 2, /* a key that should end never will */
    TW_AUDIT_TOTAL = 3,     /* Redis holds another count than the file says */
    TW_AUDIT_NO_COUNT = 4,  /* a counter of the file is no number in Redis */
    TW_AUDIT_MEMORY = 5,    /* Redis evicts, may evict, or is nearly full */
    TW_AUDIT_LINE = 6,      /* a line of the file is no key<TAB>count; `text` names file and line */
    TW_AUDIT_STRAY = 7      /* in a cluster: a key lies at a node that does not serve its slot */
};

/** The library owns it: it is valid inside `found` only. */
typedef struct tw_finding {
    int kind;                /* enum tw_audit_kind */
    tw_key name;             /* in Redis; size 0: of no key */
    int64_t expected, found; /* 0 and 0 where neither is a number */
    const char *text;        /* a sentence */
    tw_key inner;            /* a total of a hash: the field; of a sorted set: the member */
    uint64_t reserved[2];
} tw_finding;

/** New fields are appended. */
typedef struct tw_audit_report {
    uint64_t findings;
    uint64_t ledgers, keys, lines;            /* looked at */
    uint64_t cut_off;                         /* 1: there were more keys than keys_max */
    int64_t memory_used, memory_max, evicted; /* as Redis reports; -1: it does not */
    uint64_t reserved[8];
} tw_audit_report;

/** What is looked at. Fill with tw_audit_options_init(). */
typedef struct tw_audit_options {
    size_t size;
    char *error_text; /* what is wrong with an option, or with Redis or the file */
    size_t error_size;

    /* Without an engine: as in tw_options. With one: NULL. */
    const char *redis_url;
    const char *redis_prefix;

    /* Keys that must have an expiry, as SCAN's MATCH has it. NULL: with an engine those of its
     * families that end, without one none. */
    const char *pattern;
    uint64_t keys_max; /* at most so many keys are asked for theirs; default 10 million */

    /* What a database says: a file of lines key<TAB>count; in keys \t \n \\ \xHH stand for their
     * bytes. NULL: none. */
    const char *totals_path;
    const char *totals_name; /* the name in Redis of a key of the file: %k the key, before it
                                perhaps {%t}, %% a percent sign; default "%k". Hash: %k is the
                                subject. Sorted set: neither %k nor {%t}; no default */

    uint32_t timeout_ms; /* one answer; 1..600000, default 1000 */
    uint64_t redis_tags; /* of totals_name: as the family's; default 128 */

    /* Without an engine: as in tw_options. */
    const char *sentinel_user;
    int (*sentinel_password)(void *ctx, char *out, size_t size);
    void *sentinel_password_ctx;
    const char *redis_tls_ca_file;
    const char *redis_tls_cert_file;
    const char *redis_tls_key_file;
    const char *redis_tls_server_name;
    uint32_t redis_tls_insecure;

    /* Of the totals, as the family's. */
    uint32_t redis_shape; /* enum tw_redis_shape */
    char key_separator;   /* TW_REDIS_HASH: default '|' */
} tw_audit_options;

#define tw_audit_options_init(options) tw_audit_options_init_sized((options), sizeof *(options))
TW_API void tw_audit_options_init_sized(tw_audit_options *options, size_t size);

/** tw_audit() with the size of the caller's report: `size` bytes of it are written; what is longer
 *  than the library's is zeroed. For other languages. */
TW_API tw_status tw_audit_sized(tw_engine *engine, const tw_audit_options *options,
                                void (*found)(void *ctx, const tw_finding *finding), void *ctx,
                                tw_audit_report *report, size_t size);

/** Compares, over connections of its own, and changes nothing: ledgers against our own numbers
 *  (with an engine), each ledger in itself, keys without an expiry, totals against a file, Redis's
 *  memory and eviction. In a cluster every master is asked, each key is looked at once, and the
 *  figures of memory are sums; what stops the audit at one master does not stop it at the others.
 *    engine  NULL: without one
 *    found   is called for each difference, and may not call the engine; or NULL
 *    report  or NULL
 *  The file is read to its end; what other programs count meanwhile shows as a difference.
 *  Cost: a SCAN of all keys for ledgers and one for each pattern, in pages of some hundred; a GET,
 *  HGET or ZSCORE for each line of the file.
 *  Answers:
 *    TW_OK           whatever was found
 *    TW_ERR_OPTIONS  an option is refused
 *    TW_ERR_REDIS    no Redis, or it refused; in a cluster: a master is away, nobody serves some
 *                    slots, or slots began to move: a part was looked at, error_text says which
 *                    was not
 *    TW_ERR_TIMEOUT  a part was looked at; or nothing, if the engine's turn took as long
 *    TW_ERR_MODE     host-driven engine, inside a function of the host's, tw_enter()
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
static inline tw_status tw_audit(tw_engine *engine, const tw_audit_options *options,
                                 void (*found)(void *ctx, const tw_finding *finding), void *ctx,
                                 tw_audit_report *report) {
    return tw_audit_sized(engine, options, found, ctx, report, sizeof(tw_audit_report));
}

/* ==== 16. Calls that answer later ============================================================
 * A call that waits for Redis blocks its thread. An event loop starts it instead: each call that
 * waits has a form whose name ends in _async. Those of acquire, hold and the like work in every
 * family, so one line serves all of them:
 *
 *     request->done = on_verdict;  request->ctx = client;
 *     if (tw_acquire_async(request, orders, key, 1, 500) != TW_STARTED) on_verdict(request);
 *
 * THE ONE RULE. The call answers at once: then its result is the answer, the request is filled and
 * `done` is not called. Or it answers TW_STARTED: then `done` is called exactly once, unless the
 * request is cancelled. What never waits (soft, hard and local families) answers at once, and so do
 * refused arguments, a Redis that is known to be away, and a full calls_max (TW_ERR_BUSY).
 *
 * Whose thread   With a queue: the thread that calls tw_queue_run(). Without, in a host-driven
 *                engine: inside tw_turn(), and inside tw_flush(), tw_ready() and tw_close(), which
 *                make turns. Without, in an engine with a thread of its own: a second thread of the
 *                engine, one `done` after the other. The first call that waits starts that thread.
 *                `done` is never called inside a call of ..._async.
 * Inside `done`  You may start others, cancel, count and read. Calls that wait, tw_turn(),
 *                tw_close(), tw_family_close() and tw_queue_close() answer TW_ERR_MODE.
 *                tw_error_text() says why the call was refused. `done` returns, and blocks nobody
 *                for long: one that takes more than 100 ms is logged (TW_EVENT_CALLBACK). The
 *                request is yours when `done` is called: start it again, or free it.
 * Time           timeout_ms counts from the start to the answer. When it is over, the answer is
 *                what the call without _async says of its time; a loop that comes late reads the
 *                replies that are there before it looks at the clock.
 * Memory         Keys and tokens are copied; totals and visit_ctx lie where they are until the
 *                answer. A visitor is called just before `done`, by its thread. Once warm a call
 *                allocates nothing (keys of up to 256 bytes; fetches apart).
 * Outages        As of the call without _async: on_outage decides, or TW_ERR_REDIS.
 * Closing        tw_stop() ends every call that is under way: TW_ERR_CLOSED for what was never
 *                sent, TW_ERR_TIMEOUT for what was sent and not answered. Each `done` is called, by
 *                tw_close() at the latest and in its thread. With queues: tw_stop(), tw_queue_run()
 *                until it answers 0, tw_queue_close(), tw_close(). A family that is closed is
 *                freed when the last of its requests is answered.
 * Fork           Calls under way are the parent's: in a child their `done` is not called, and
 *                their requests may be used again at once. A child asks for tw_queue_fd() again.
 */

/** One call under way. It is yours: in a pool, or inside your own request. Fill it with
 *  tw_request_init() before its first use, then use it again and again. Between TW_STARTED and the
 *  answer it is not moved, not read and not used for another call. Its size is fixed for ever. */
struct tw_request {
    void (*done)(tw_request *request); /* set these four before a call of ..._async */
    void *ctx;
    tw_queue *queue;            /* whose tw_queue_run() calls done; NULL: see above */
    uint32_t timeout_ms;        /* 0: redis_timeout_ms */
    tw_status status;           /* the answer, as the call without _async has it */
    tw_verdict verdict;         /* acquire, reserve, hold */
    int64_t taken, rank, total; /* acquire_some: taken; fetch_rank: the others */
    uint64_t fence;             /* lock */
    bool first;                 /* once */
    char token[TW_TOKEN_SIZE];  /* lock, reserve */
    uint64_t own[8];            /* the library's */
};

/** Makes a request idle. Not for one that is under way. */
static inline void tw_request_init(tw_request *request) {
    memset(request, 0, sizeof *request);
}

/** Takes a call back: `done` will not be called, and the request is yours at once. What Redis did
 *  for the call is taken back as well: units and reservations return, the lock or the slot is free.
 *  The units of a TW_SHAPE_GCRA family return only where Redis has not answered yet. A release, a
 *  confirmation or an extension that was sent stays.
 *  After tw_stop() units return within the time of tw_close(). Where no request can be sent any
 *  more (after tw_stop(), or while Redis is away), a lock, a slot or a reservation that Redis has
 *  given ends by its own time, and what tw_once_async() has marked stays marked.
 *  Threads: any.
 *  Answers:
 *    TW_OK       taken back; also of a request that is idle
 *    TW_PENDING  `done` runs in another thread just now. Never for the thread that runs the
 *                request's queue, nor for that of a host-driven engine */
TW_API tw_status tw_request_cancel(tw_request *request);

/** Answers for one event loop: one queue a loop. Not for host-driven engines alone: there, too, it
 *  says whose thread calls `done`.
 *  Answers: TW_OK; TW_ERR_MEMORY (also: no file descriptor), TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_queue_open(tw_engine *engine, tw_queue **queue);

/** A descriptor that is readable while answers wait. Wait for reading. It is the same for the
 *  queue's life; a forked child asks again. */
TW_API int tw_queue_fd(const tw_queue *queue);

/** Calls `done` of at most `most` answers, and says of how many. One thread at a time for each
 *  queue. Inside `done`: 0. */
TW_API size_t tw_queue_run(tw_queue *queue, size_t most);

/** Closes the queue (of NULL: nothing). Before tw_close(), which answers TW_ERR_MODE while a queue
 *  is open.
 *  Answers: TW_OK; TW_ERR_MODE (calls are under way with it, or from inside a function of your own:
 *  nothing was done). */
TW_API tw_status tw_queue_close(tw_queue *queue);

/** Each as the call of the same name without _async, which says what is answered; outputs come in
 *  the request. Not for a request that is under way: TW_ERR_MODE. (A call that never waits looks
 *  neither for that nor at `done`.) May be called inside `done`, inside hooks and inside
 *  tw_enter(), and of host-driven engines.
 *  Cost: of families that never wait as the call without _async, and a store. Otherwise a lock for
 *  some nanoseconds, a copy of the request, and a system call where the other side sleeps.
 *  Answers: TW_STARTED; or the answer, as above, and
 *    TW_ERR_BUSY     calls_max calls are under way; nothing was done
 *    TW_ERR_OPTIONS  `done` is NULL; nothing was done
 *  tw_lock_release_async(), tw_hold_release_async() and tw_reserve_cancel_async() take NULL for the
 *  request: it is sent, and nobody is told. Where that cannot be done they answer TW_ERR_BUSY
 *  (counted in tw_stats.asks_forgotten) or TW_ERR_REDIS, and the lock, slot or reservation ends by
 *  its own time. */
TW_API tw_status tw_acquire_async(tw_request *request, tw_family *family, tw_key key, int64_t n,
                                  int64_t limit);
TW_API tw_status tw_acquire_some_async(tw_request *request, tw_family *family, tw_key key,
                                       int64_t n_max, int64_t limit);
TW_API tw_status tw_acquire_wait_async(tw_request *request, tw_family *family, tw_key key,
                                       int64_t n, int64_t limit);
TW_API tw_status tw_limits_acquire_async(tw_request *request, tw_limits *limits, const char *family,
                                         tw_key key, int64_t n);
TW_API tw_status tw_limited_acquire_async(tw_request *request, tw_limited *limited, tw_key key,
                                          int64_t n);
TW_API tw_status tw_once_async(tw_request *request, tw_family *family, tw_key key);
TW_API tw_status tw_once_cancel_async(tw_request *request, tw_family *family, tw_key key);
TW_API tw_status tw_lock_async(tw_request *request, tw_family *family, tw_key key, uint32_t ttl_ms);
TW_API tw_status tw_lock_extend_async(tw_request *request, tw_family *family, tw_key key,
                                      const char *token, uint32_t ttl_ms);
TW_API tw_status tw_lock_release_async(tw_request *request, tw_family *family, tw_key key,
                                       const char *token);
TW_API tw_status tw_reserve_async(tw_request *request, tw_family *family, tw_key key, int64_t n,
                                  int64_t limit, uint32_t ttl_ms, tw_key buyer);
TW_API tw_status tw_reserve_confirm_async(tw_request *request, tw_engine *engine,
                                          const char *token);
TW_API tw_status tw_reserve_cancel_async(tw_request *request, tw_engine *engine, const char *token);
TW_API tw_status tw_hold_async(tw_request *request, tw_family *family, tw_key key, int64_t limit);
TW_API tw_status tw_hold_release_async(tw_request *request, tw_family *family, tw_key key);
TW_API tw_status tw_fetch_async(tw_request *request, tw_family *family, const tw_key *keys,
                                size_t count, int64_t *totals);
TW_API tw_status tw_fetch_fields_async(tw_request *request, tw_family *family, tw_key subject,
                                       int64_t unix_ms,
                                       bool (*visit)(void *ctx, tw_key field, int64_t total),
                                       void *visit_ctx);
TW_API tw_status tw_fetch_top_async(tw_request *request, tw_family *family, int64_t unix_ms,
                                    size_t n,
                                    bool (*visit)(void *ctx, tw_key member, int64_t total),
                                    void *visit_ctx);
TW_API tw_status tw_fetch_rank_async(tw_request *request, tw_family *family, tw_key member,
                                     int64_t unix_ms);
TW_API tw_status tw_flush_async(tw_request *request, tw_engine *engine);
TW_API tw_status tw_ready_async(tw_request *request, tw_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
