/* tallywheel.h -- counters for servers that count faster than a network can answer.
 *
 * This header is the manual. It begins with the ten calls that most programs need. The chapters
 * after them have everything else. docs/OPTIONS.md explains each option at length, docs/LIMITS.md
 * explains limits, and docs/KEYS.md describes the keys in Redis.
 *
 *   ENGINE    owns memory, clock and threads. Normally there is one in a process.
 *   FAMILY    is a set of counters with one window, one template of names in Redis and one policy.
 *   COUNTER   is the count of one key (any bytes) in one window of a family.
 *   VIEW      is the count as this process knows it. It is the sum of its own adds and of what
 *             Redis last reported of the other processes.
 *   TURN      is one iteration of the background work: clock, roll-over, hooks, sync.
 *
 *     tw_engine *engine;  tw_family *views;  int64_t now;
 *     tw_options options;               tw_options_init(&options);
 *     tw_family_options family_options; tw_family_options_init(&family_options);
 *     family_options.name = "views";                   // windows of one hour, by default
 *     if (tw_open(&options, &engine) != TW_OK) ...
 *     if (tw_family_open(engine, &family_options, &views) != TW_OK) ...
 *     tw_add(views, tw_str("/index.html"), 1, &now);   // nanoseconds; no lock, no system call
 *     tw_close(engine, 1000);
 *
 * Promises:
 *   P1 no loss      When all adders have returned, a read is the exact sum of all deltas whose
 *                   calls returned TW_OK.
 *   P2 one place    With Redis, every delta is in exactly one place: in a counter, in a frozen
 *                   batch, or in Redis. A batch whose reply is lost is sent again unchanged, under
 *                   the same number, and the script in Redis counts it once. A killed process
 *                   loses at most its unsent counts, and doubles none.
 *   P3 own adds     A thread's read includes its own earlier adds, also while batches are in
 *                   flight or lost.
 *   P4 never over   A hard limit is never exceeded, whatever fails, as long as Redis keeps what it
 *                   has acknowledged.
 *   P5 sold out     A hard limit is admitted to the last unit, while the processes that have units
 *                   live and reach Redis. Before that, no call is denied as finally sold out.
 *   P6 bounded      Memory never exceeds memory_bytes_max. Unsent counts are never evicted. A key
 *                   without memory counts in an overflow counter or is refused, and the status
 *                   shows which.
 *   P7 on time      By the engine's clock, no counter is seen after its end, and no counter
 *                   disappears before it. A late delta counts in its own window or is reported.
 *   P8 not silent   Every count for which these promises could not be kept is in tw_stats, and is
 *                   reported to on_lost with its key. Only of acknowledged counts that Redis has
 *                   lost, and that no counter and no replay buffer (replay_bytes_max) has any more,
 *                   the sum alone is known: it is in tw_stats and in the log, without keys.
 *   P9 never waits  tw_add, tw_get and tw_acquire of a key that exists in this window take no lock,
 *                   make no system call, allocate no memory and wait for no other thread, also
 *                   during growth, roll-over, sync and outages. The first insert of a key is
 *                   lock-free. The exception is tw_acquire of a strict limit with Redis, which
 *                   waits for Redis.
 *
 * Threads   Any thread may make any call at any time, unless the call's comment excludes it. The
 *           exceptions are tw_close() and tw_family_close(). Threads need not register: the first
 *           call of a thread does that, with a system call. What the library keeps for a thread
 *           serves another one when the thread has ended. 65,535 threads may use it at once; more
 *           are refused with TW_ERR_MEMORY.
 * dlclose   Close the engines first. The shared library then stays in the process. A module that is
 *           linked with the static library may be unloaded once its engines are closed and no call
 *           is running. Its threads may end later.
 * Fork      A child's engine starts as a new instance without counts. The parent keeps the counts.
 *           Calls work as before. With tw_options.shared parent and children share one engine
 *           (tw_lead()). After vfork() and in a signal handler no call may be made.
 *           fork() closes the engines' file descriptors in the child before it returns there. So
 *           the child may close all that it has inherited, and open files under any number. An
 *           engine makes descriptors of the child with the child's first call. If the child closes
 *           these, too, its files stay as they are, but its engine may be late. After clone() the
 *           copies stay open.
 * Units     Times are milliseconds. A moment is Unix time in UTC. Sizes are bytes. Counts are
 *           units.
 * Time      Windows follow ENGINE TIME. This is the wall clock as long as the wall clock agrees
 *           with the monotonic clock. Engine time never goes back.
 *           - If the wall clock is set forward by more than 5 s, engine time follows after 5 s.
 *           - If the wall clock is set back by up to 5 s, engine time pauses until the wall clock
 *             catches up. The retry_after_ms of a denial contains this pause.
 *           - If the wall clock is set back by more than 5 s, engine time does not follow. It
 *             continues with the monotonic clock: no limit lasts longer, windows end when they
 *             would have ended, and retry_after_ms stays true. Engine time is then ahead of the
 *             wall clock (tw_stats.clock_ahead_ms, TW_EVENT_CLOCK), until the wall clock is set
 *             forward or the engine is opened again. Windows keep the timestamps of the old clock,
 *             and tw_add_at() measures lateness with them.
 *           If a machine started with a clock that was wrong by hours, set the clock and restart
 *           the programs.
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

/** Bytes that name a counter: 1..TW_KEY_SIZE_MAX bytes of any values, NUL included. A call copies
 *  the bytes that it keeps. */
typedef struct tw_key {
    const void *data;
    size_t size;
} tw_key;

#define TW_KEY_SIZE_MAX 1024
#define TW_COUNT_MAX INT64_C(2305843009213693951) /* 2^61 - 1. A count is within +-TW_COUNT_MAX */
#define TW_DELTA_MAX INT64_C(9007199254740992)    /* 2^53. Deltas, n, limits: +-TW_DELTA_MAX */

#define TW_SECOND INT64_C(1000)
#define TW_MINUTE INT64_C(60000)
#define TW_HOUR INT64_C(3600000)
#define TW_DAY INT64_C(86400000)
#define TW_UNBOUNDED INT64_MAX /* a time or a bound without end */
#define TW_NONE INT64_C(-1)    /* history_ms: keep no history */
#define TW_NOW INT64_MIN       /* tw_each(): the window that is open now */
#define TW_TOKEN_SIZE 64       /* size of a buffer for a token, with its NUL */
#define TW_HOLD_NOTE_BYTES 512 /* of the memory of tw_hold_notes(), for a slot */

static inline tw_key tw_bytes(const void *data, size_t size) {
    tw_key key;
    key.data = data;
    key.size = size;
    return key;
}

static inline tw_key tw_str(const char *text) {
    return tw_bytes(text, strlen(text));
}

/* ==== 2. Statuses ============================================================================ */

/** The result of a call. 0 means success. A positive status is a result that is no error. A
 *  negative status is an error. With -1 to -99 nothing has changed, unless the comment of the call
 *  says otherwise (calls for many items). With -100 and below the outcome is unknown, or only a
 *  part was done, as the comment of each call describes. The numbers never change. */
typedef int tw_status;
enum tw_status_number {
    TW_OK = 0,
    TW_DENIED = 1,     /* the limit is reached, and the call did not count */
    TW_PENDING = 2,    /* try again later, because units may still arrive */
    TW_OVERFLOWED = 3, /* counted in the family's overflow counter, because the table is full */
    TW_STARTED = 4,    /* a call that ends in _async: the result will be passed to request->done */

    TW_ERR_KEY = -1,     /* the key has size 0, exceeds TW_KEY_SIZE_MAX, has a reserved name, or
                            has no field */
    TW_ERR_OPTIONS = -2, /* an option or argument is refused; error_text names the option */
    TW_ERR_FULL = -3,    /* there is no memory for a new key, and the family rejects new keys; or
                            there is no memory to begin the window, whatever on_full is */
    TW_ERR_MEMORY = -4,  /* the system gave no memory */
    TW_ERR_RANGE = -5,   /* the delta or the sum is out of range */
    TW_ERR_LATE = -6,    /* the window accepts no more counts, or can no longer be read */
    TW_ERR_EARLY = -7,   /* the window is too far in the future */
    TW_ERR_MODE = -8,    /* the call is not for this kind of family or engine, or not allowed inside
                            a hook or another function of your own */
    TW_ERR_CLOSED = -9,  /* tw_stop() or tw_close() was called */
    TW_ERR_FORKED = -10, /* this process is a forked child, and no new engine could be made in it */
    TW_ERR_REDIS = -11,  /* Redis refused, is unreachable, or is not configured */
    TW_ERR_UNKNOWN_TOKEN = -12,
    TW_ERR_BUSY = -13, /* calls_max calls are already under way, or more than Redis answers in
                          their time */

    TW_ERR_TIMEOUT = -100 /* the time was over; each call describes what may have been done */
};

/* GENERAL ERRORS. Where a comment below lists "general errors", the call may also return
 * TW_ERR_KEY, TW_ERR_MEMORY, TW_ERR_CLOSED and TW_ERR_FORKED, with the meaning above.
 * A WAITING CALL waits for Redis, for redis_timeout_ms at most. It returns TW_ERR_MODE in a
 * host-driven engine, in a hook and inside tw_enter(). Its form that ends in _async does not.
 * TW_ERR_BUSY means that calls_max other calls were under way during all of the time, or that
 * Redis answers others and could not answer this one in its time; nothing was sent. After
 * tw_stop() it returns TW_ERR_TIMEOUT if Redis may have executed it, otherwise TW_ERR_CLOSED. A
 * call that gives back (tw_lock_release(), tw_hold_release(), tw_reserve_cancel()) is repeated
 * until Redis answers, also after its result, and last within the time of tw_close(), which logs
 * how many are left (TW_EVENT_LOST). At most half of calls_max such calls may wait for that, and
 * another one returns TW_ERR_BUSY. In a shared engine a waiting call also returns TW_ERR_OPTIONS if
 * this process cannot read the files of redis_tls_*.
 * NULL. A call needs its handles, strings, structs, functions and arrays. If one of them is NULL,
 * the call has no effect and returns TW_ERR_OPTIONS, and tw_error_text() names the argument. A
 * call without a status returns NULL, 0, -1 for a descriptor, or UINT32_MAX for a time. Outputs
 * that are figures, flags, readings or verdicts may be NULL, and so may error_text, deltas, ctx,
 * an array of no elements, and a pointer whose call says so. The families in tw_acquire_all() must
 * not be NULL. Some calls do not look at `family` and `keys`, which must not be NULL. These are
 * tw_add(), tw_add_at(), tw_add_many(), tw_add_many_at(), tw_get(), tw_get_at() and tw_reset(). */

/** The name of a status, for example "TW_ERR_FULL". Returns "TW_STATUS_UNKNOWN" for a number that
 *  is no status, and never NULL. */
TW_API const char *tw_status_name(tw_status status);

/** The meaning of a status as one English sentence. Never NULL. */
TW_API const char *tw_status_text(tw_status status);

/** The version of the library that is running, for example "0.1.0". */
TW_API const char *tw_version(void);

/* ==== 3. The ten calls that most programs need =============================================== */

/** Sets every option to its default (zero). Then set the options that you need. */
#define tw_options_init(options) tw_options_init_sized((options), sizeof *(options))
TW_API void tw_options_init_sized(tw_options *options, size_t size);

/** Makes an engine. It reserves addresses and starts one thread (TW_OWN_THREAD; a shared engine's
 *  thread starts in tw_lead()). It does not wait for Redis: counting begins at once.
 *  Returns:
 *    TW_OK
 *    TW_ERR_OPTIONS  an option is refused; error_text names the field
 *    TW_ERR_MEMORY   there was no memory, or no thread could be started
 *    TW_ERR_MODE     root, while another user shares an engine, and TW_OWN_THREAD without `shared`
 *                    (tw_lead())
 *    TW_ERR_REDIS    redis_url is set, and the library was built without Redis */
TW_API tw_status tw_open(const tw_options *options, tw_engine **engine);

/** Same as tw_options_init(), for a family. */
#define tw_family_options_init(options) tw_family_options_init_sized((options), sizeof *(options))
TW_API void tw_family_options_init_sized(tw_family_options *options, size_t size);

/** Opens a family. The same name with the same options gives the same handle. Close the handle as
 *  often as it was opened.
 *  Cost: takes a lock and allocates memory. With Redis the family's template is compared with the
 *  templates of all open families. An idle family costs memory (a part of memory_bytes_max), but no
 *  time.
 *  Returns:
 *    TW_OK
 *    TW_ERR_OPTIONS  an option is refused; error_text names the field
 *    TW_ERR_MODE     a shared engine, after the first fork
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_family_open(tw_engine *engine, const tw_family_options *options,
                                tw_family **family);

/** Adds `delta` to counter `key` in the window that is open now. A new counter begins at 0.
 *    view   becomes the count right after this add, as known in this process. NULL if you do not
 *           need it
 *  The view is exact in the sense of P1 and P3: no two adds of 1 get the same view. The exception
 *  is described under HOT KEYS (below). Adds without a view can be faster there.
 *  Cost: one hash and one atomic add if the key exists (P9). A new key uses prepared memory and is
 *  inserted lock-free.
 *  Returns:
 *    TW_OK
 *    TW_OVERFLOWED  the table is full. The delta counts in the overflow counter, whose view is
 *                   *view
 *    TW_ERR_RANGE   the delta or the sum is out of range
 *    TW_ERR_FULL    the table is full, and the family rejects new keys; or there is no memory to
 *                   begin the window, whatever on_full is
 *    general errors */
TW_API tw_status tw_add(tw_family *family, tw_key key, int64_t delta, int64_t *view);

/** Reads the count in the window that is open now. An unknown key has the count 0. With Redis,
 *  reading an unknown key also fetches its global total at a later sync, while at least a quarter
 *  of the memory and of keys_max is free.
 *  Cost: same as tw_add() without the add.
 *  Returns TW_OK or one of the general errors. */
TW_API tw_status tw_get(tw_family *family, tw_key key, int64_t *view);

/** Takes `n` units of `key` if the count then stays within `limit`. Otherwise it changes nothing.
 *  Only TW_OK admits. "Rules of tw_acquire()", below, has the details.
 *    n         0 looks without taking units
 *    verdict   is filled on every return, also with an error. NULL if you do not need it
 *  Without Redis exactly `limit` units are admitted in this process, for any number of threads.
 *  With Redis the family's limit_mode defines how exact the limit is over all processes
 *  (docs/LIMITS.md).
 *  Cost: same as tw_add(), with a compare-and-swap. A call that is denied on a known key only loads
 *  (on a hot key from its second denial on).
 *  Returns:
 *    TW_OK         admitted
 *    TW_DENIED     the limit is reached
 *    TW_PENDING    hard families with Redis: try again after verdict->retry_after_ms
 *    TW_ERR_RANGE  n or limit is negative or out of range
 *    TW_ERR_FULL   the table is full, and on_full_limit denies new keys
 *    TW_ERR_MODE   a family of TW_KIND_DISTINCT; strict families: see A WAITING CALL
 *    general errors */
TW_API tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit,
                            tw_verdict *verdict);

/** Visits each counter of one window, in no particular order, until `visit` returns false.
 *    unix_ms   a moment in the window, or TW_NOW
 *  A key that exists during the whole call is visited exactly once. The walk is no snapshot: other
 *  threads may count meanwhile. The key is valid inside `visit` only. `visit` may call the engine.
 *  It must return: if it leaves by an exception or longjmp(), the memory of the window is not freed
 *  before its thread ends. It may walk itself, but not inside the visitor of another visitor.
 *  Cost: a small buffer on the stack.
 *  Returns:
 *    TW_OK
 *    TW_ERR_LATE   the window can no longer be read here
 *    TW_ERR_MODE   a moment other than TW_NOW in a family of TW_WINDOW_FROM_FIRST; inside two
 *                  visitors
 *    TW_ERR_RANGE  the moment is not in the years 1000 to 9998
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_each(tw_family *family, int64_t unix_ms,
                         bool (*visit)(void *ctx, const tw_count *count), void *ctx);

/** Why this thread's last refused call (a call with a negative status) was refused. It is one
 *  sentence that names the field, the argument or the rule, for example
 *  "limit_mode: tw_reserve() is not for TW_LIMIT_HARD ...". Never NULL. The text is valid until the
 *  thread's next refused call, and until the thread ends. You may call this before an engine
 *  exists.
 *  The text never contains a password. The words may change, so decide by the status. */
TW_API const char *tw_error_text(void);

/** A ready log_write. It writes "tallywheel LEVEL: TEXT" as one line to standard error. It never
 *  waits, and no signal ends the program: where nobody reads (a full pipe, a closed one), the line
 *  is lost. At most 20 lines a second in each process. The next line then has the number of lines
 *  that were left out. A line costs a few system calls. Needs no engine, no `ctx`. Any thread. */
TW_API void tw_log_stderr(void *ctx, int level, int event, const char *text);

/** Stops the engine, flushes within the time, returns leases, runs the last closing hooks
 *  (TW_CLOSED_PARTIAL for windows that are still open) and frees everything. No other call may be
 *  running or follow. The time is the system's, also if clock_now_ns is set. The engine is gone
 *  after every status except TW_ERR_MODE. If Redis could not take back the units of a lease in the
 *  time, the units stay in that lease (tw_lease_reclaim()).
 *  A shared engine lives as long as a process has it: see Closing before tw_lead().
 *  Returns:
 *    TW_OK
 *    TW_ERR_TIMEOUT  Redis has not acknowledged some counts, and on_lost was called for them; or a
 *                    hook returned false until the end
 *    TW_ERR_MODE     called inside a function of your own or inside tw_enter(), or another thread
 *                    of this process leads this shared, host-driven engine, or a queue is open
 *                    (tw_queue_open()). Nothing was done, but that with an open queue counts were
 *                    sent within the time, as by tw_flush() (not in a shared engine) */
TW_API tw_status tw_close(tw_engine *engine, uint32_t timeout_ms);

/* ==== 4. Options of an engine ================================================================
 * Fill the struct with tw_options_init(), then set the fields that you need. Zero always means the
 * default. tw_open() copies the strings. docs/OPTIONS.md explains each field at length.
 *
 * YOUR OWN FUNCTIONS. These rules apply to every function of yours that an engine calls:
 * on_window_closed, log_write, on_lost, redis_password and sentinel_password.
 *  - The function may block. Meanwhile the engine's background work (sync, roll-over and other
 *    hooks) waits for it. Calls do not wait, windows end in time, and no call sees a time that is
 *    more than 20 ms late.
 *  - The function may count, acquire and read, and it may open, change and find families. on_lost
 *    may not call the engine. Calls that wait, tw_turn(), tw_close(), tw_family_close() and
 *    tw_limits_close() return TW_ERR_MODE inside the function.
 *  - When tw_family_set() has removed a hook, no call of that hook is running: tw_family_set()
 *    waits for such a call, except inside the hook itself. So do not hold a lock that the hook
 *    needs. The other functions belong to the engine until tw_close() has returned.
 *  - The function must return. It must not end by an exception, by longjmp() or by ending its
 *    thread.
 * Visitors (the functions that tw_each(), tw_top() and similar calls call) run in the thread that
 * makes the call. They may make every call except tw_close(), and except tw_family_close() of their
 * own family. A visitor must return, too: otherwise the memory of its window is not freed before
 * its thread ends. Inside a visitor one more walk may run (tw_each(), tw_top(), tw_each_field()),
 * not two.
 * clock_now_ns is called in every call. It must neither block nor call the engine. */

enum tw_threads {
    TW_OWN_THREAD = 0, /* one background thread makes the turns */
    TW_HOST_DRIVEN = 1 /* the host calls tw_turn(). The engine has no thread, except one that lives
                          while a host name is looked up */
};

/** Whether forked processes share an engine (tw_lead()). */
enum tw_shared {
    TW_SHARED_NO = 0,     /* a child's engine starts as a new instance */
    TW_SHARED_BY_FORK = 1 /* children count in the engine of their parent. Not with clock_now_ns,
                             audit_interval_ms, redis+cluster:// or a merge other than
                             TW_MERGE_SCRIPT */
};

/** How counts are merged into Redis. Only the script keeps promise P2. */
enum tw_merge {
    TW_MERGE_SCRIPT = 0, /* one Lua script for each batch; counts exactly once, whatever fails */
    TW_MERGE_MULTI = 1,  /* one transaction for each batch */
    TW_MERGE_SETNX = 2   /* SET ... NX and INCRBY in a pipeline */
};

/** The clocks that the engine reads with clock_now_ns. */
enum tw_clock {
    TW_CLOCK_WALL = 0,     /* Unix time; decides windows */
    TW_CLOCK_MONOTONIC = 1 /* never goes back; decides deadlines and back-off, and also windows
                              while engine time does not follow the wall clock (see Time, above) */
};

enum tw_log { TW_LOG_ERROR = 0, TW_LOG_WARNING = 1, TW_LOG_INFO = 2, TW_LOG_DEBUG = 3 };

/** Why on_lost was called. */
enum tw_lost {
    TW_LOST_EXPIRED = 1,   /* the retention was over before Redis could be reached */
    TW_LOST_LATE = 2,      /* the window is over by Redis's own clock */
    TW_LOST_ROLLBACK = 3,  /* Redis lost acknowledged counts, and they could not be restored */
    TW_LOST_UNCERTAIN = 4, /* sent, but whether Redis counted it cannot be known */
    TW_LOST_POISON = 5,    /* Redis rejects this key (wrong type, overflow) */
    TW_LOST_CLOSED = 6     /* the time of tw_close() was over */
};

/** Log events. The numbers never change, and a new event gets a new number. A line ends with its
 *  event. A warning or an error also ends with what to do: "... [TW-E012: give Redis what the line
 *  names; ...]". docs/WATCH.md has a table of all events. */
enum tw_event {
    TW_EVENT_MEMORY = 1,           /* less than a fifth of the memory that is in no memory_share is
                                      usable */
    TW_EVENT_CLOCK = 2,            /* the wall clock leapt, or was set back */
    TW_EVENT_STALL = 3,            /* a thread delays reclamation */
    TW_EVENT_BARRIER = 4,          /* membarrier(2) is refused, for example by a sandbox that was
                                      entered after tw_open(). Memory is not reused */
    TW_EVENT_CRUMBS = 5,           /* new keys were refused: free memory is in small pieces */
    TW_EVENT_CONNECTED = 10,       /* Redis answers */
    TW_EVENT_LOST_CONNECTION = 11, /* the connection to Redis ended */
    TW_EVENT_REFUSED = 12,         /* Redis refuses (login, permission, read-only, memory ...) */
    TW_EVENT_POISON = 13,          /* Redis rejects one key */
    TW_EVENT_ROLLBACK = 14,        /* Redis lost acknowledged batches */
    TW_EVENT_IDENTITY = 15,        /* two engines have one identity, or a ledger disappeared */
    TW_EVENT_START = 16,           /* a check at the start, or redis_timeout_ms is too short */
    TW_EVENT_LOST = 17,            /* calls of unknown outcome could not be undone before the end */
    TW_EVENT_REWRITE = 18,         /* Redis should rewrite its append-only file after a loss */
    TW_EVENT_REGRESSION = 19,      /* a key has less than was acknowledged, for an unknown reason */
    TW_EVENT_UNCERTAIN = 20,       /* without the script: counts were sent again that Redis may have
                                      counted already */
    TW_EVENT_REPLICAS = 21,        /* fewer replicas than wait_replicas have acknowledged data */
    TW_EVENT_AUDIT = 22,           /* findings of an audit (audit_interval_ms) */
    TW_EVENT_CLOSED = 23,          /* a window, or late counts in one, was reported to no hook */
    TW_EVENT_LATE = 24,            /* counts by event time came too late, and lateness_ms is 0; or
                                      distinct counts came to Redis after the end of their window */
    TW_EVENT_TLS = 25,             /* TLS was refused, certificates were read again, or
                                      redis_tls_insecure is set */
    TW_EVENT_SPLIT = 26,           /* a cluster slot lost a ledger, but not all of its keys; or the
                                      keys of a slot have been on two masters for ten seconds */
    TW_EVENT_CALLBACK = 27,        /* a `done` of a tw_request took more than 100 ms */
    TW_EVENT_DIED = 28,            /* a process that shared the engine ended without tw_close() */
    TW_EVENT_SAVED = 29            /* tw_save() has left out the families that the line names */
};

struct tw_options {
    size_t size; /* set by tw_options_init() */

    /* Errors. tw_open() writes here which option is refused, and why. A buffer of yours, or NULL.
     * The text never contains a password. */
    char *error_text;
    size_t error_size;

    /* Memory and threads */
    uint64_t memory_bytes_max; /* all counting memory. Default 1 GiB of addresses, committed as
                                  they are used. At least 1 MiB */
    uint32_t threads;          /* enum tw_threads */

    /* Clock, in nanoseconds. NULL uses the system's clocks. `kind` is an enum tw_clock. Every call
     * that needs the time calls it, from any thread. */
    int64_t (*clock_now_ns)(void *ctx, int kind);
    void *clock_ctx;

    /* Log lines. `level` is an enum tw_log, `event` an enum tw_event. The function is called by one
     * thread at a time: in turns, and in tw_open() and tw_close(). The text never contains a
     * password. tw_log_stderr() is a ready one. NULL writes nothing, unless the environment has
     * TALLYWHEEL_LOG=error, warn or info: then lines up to that level go to standard error. It is
     * read in tw_open(), and never in a program that has more rights than its user (setuid). */
    void (*log_write)(void *ctx, int level, int event, const char *text);
    void *log_ctx;

    /* Redis. NULL counts locally, without a socket. One server:
     * redis://[user:password@]host[:port][/db] or unix://[user:password@]/path[?db=N].
     * The master that sentinels name:
     * redis+sentinel://[user:password@]host[:port][,host[:port]...]/name-of-the-master[/db].
     * A cluster, by some of its nodes:
     * redis+cluster://[user:password@]host[:port][,host[:port]...].
     * With rediss in place of redis the connections use TLS. */
    const char *redis_url;
    /* In place of a password in the URL. It is called at each connect. It writes a C string and
     * returns its length, or -1. */
    int (*redis_password)(void *ctx, char *out, size_t size);
    void *redis_password_ctx;
    const char *redis_prefix;  /* put before every name in Redis, for ACLs. Default: no prefix */
    uint32_t sync_interval_ms; /* how long a count may wait before it is sent. 1..60000, default
                                  100. tw_flush() and tw_close() do not wait for it */
    uint32_t redis_timeout_ms; /* time for one reply, or for one call that waits. 1..600000. To
                                  connect, up to ten times as long. Default (0): 100 ms, and for
                                  calls that wait four measured round trips, at least 100 ms, at
                                  most 2 s (1 s until measured). Replies to counts have more time
                                  if measurements of the link show the need (OPTIONS) */

    /* Acknowledged counts are kept for this time, and in this many bytes, to be sent again to a
     * Redis that lost them. In a shared engine the next leader has them, too. */
    uint32_t replay_ms;        /* 1..86400000, default 30 s */
    uint64_t replay_bytes_max; /* at most memory_bytes_max; default 64 MiB or an eighth of it */

    /* P8, by key: counts that will not reach Redis (P8 names the exception). `reason` is an enum
     * tw_lost. `delta` is 0 for a distinct count, because the number of elements that Redis lacks
     * cannot be known. It is called from a turn or from tw_close(). It may not call the engine. */
    void (*on_lost)(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                    int reason);
    void *lost_ctx;

    /* More of Redis */
    uint32_t merge;            /* enum tw_merge */
    uint32_t wait_replicas;    /* a count is acknowledged when this many replicas have it (WAIT).
                                  0..1000, default 0. Needs TW_MERGE_SCRIPT */
    uint32_t flush_keys_per_s; /* after an outage so many keys are sent each second, until all keys
                                  of the outage are sent. Default 200,000 */

    /* If not 0, a separate thread calls tw_audit() at this interval. TW_HOUR is a good choice. At
     * least 1000. Needs a redis_url. Not with TW_HOST_DRIVEN or TW_SHARED_BY_FORK: there the host
     * calls tw_audit(), in the process that leads. */
    uint32_t audit_interval_ms;

    uint32_t retry_max_ms;     /* the longest time between two tries while Redis is unreachable.
                                  10..5000, default 1000 */
    uint32_t engines_expected; /* how many engines will count on the same limits. 0..1,000,000. It
                                  helps in the first milliseconds of a cold start */

    /* Labels on each sample of tw_metrics_write(), in C: "service=\"shop\",zone=\"a\"". At most
     * 512 bytes. */
    const char *metrics_labels;

    /* With redis+sentinel://: the login at the sentinels. The login in the URL is that of Redis.
     * sentinel_password works like redis_password. */
    const char *sentinel_user; /* default: the default user */
    int (*sentinel_password)(void *ctx, char *out, size_t size);
    void *sentinel_password_ctx;

    /* TLS, for a redis_url that begins with rediss. Files are PEM. tw_open() reads them. They are
     * read again when a connection is made after one of them has changed. */
    const char *redis_tls_ca_file;     /* the trusted authorities; default: those of the system */
    const char *redis_tls_cert_file;   /* our certificate, if Redis requires one */
    const char *redis_tls_key_file;    /* the key of our certificate, not encrypted */
    const char *redis_tls_server_name; /* the name that each certificate must have; default: the
                                          host of the URL */
    uint32_t redis_tls_insecure;       /* 1: certificates are not checked. For trials only. Each
                                          connect logs it (TW_EVENT_TLS) */

    /* A unix socket with which `tallywheel top`, `show` and `exporter` read this engine while it
     * runs. The path is absolute. %p becomes the process id, and %% a percent sign. Only this user
     * may connect (mode 0600). Without watch_writes it changes no count. A separate thread serves
     * it, and no call waits for that thread. If the path cannot be used, the engine opens without
     * the socket and logs it (TW_EVENT_START). NULL: no socket. Not with TW_HOST_DRIVEN. See
     * docs/WATCH.md. */
    const char *watch_path;

    uint32_t calls_max; /* the most calls that wait for Redis at once, including calls that Redis
                           must still undo. 16..65536, default 1024 */
    uint32_t shared;    /* enum tw_shared: whether forked processes share the engine (tw_lead()) */

    /* 1 lets `tallywheel reset` set a key to 0 through watch_path, as tw_reset() does. Otherwise it
     * is refused. */
    uint32_t watch_writes;
};

/* ==== 5. Options of a family =================================================================
 * Fill the struct with tw_family_options_init(), then set the fields that you need. Zero always
 * means the default. Strings are copied. docs/OPTIONS.md explains each field at length. */

enum tw_window {
    TW_WINDOW_ALIGNED = 0,    /* [n * window_ms, (n + 1) * window_ms), shifted by utc_offset_ms */
    TW_WINDOW_FROM_FIRST = 1, /* a window of window_ms for each key, from the key's first count */
    TW_WINDOW_FOREVER = 2,    /* without end */
    TW_WINDOW_DAY = 3,        /* calendar days, weeks and months in the time of utc_offset_ms */
    TW_WINDOW_WEEK = 4,
    TW_WINDOW_MONTH = 5
};

/** The result of an add of a new key when the table is full. */
enum tw_on_full {
    TW_ON_FULL_OVERFLOW = 0,  /* counts in one overflow counter and returns TW_OVERFLOWED */
    TW_ON_FULL_REJECT = 1,    /* returns TW_ERR_FULL */
    TW_ON_FULL_EVICT_IDLE = 2 /* keys not used for idle_ms are evicted (TW_WINDOW_FOREVER, Redis).
                                 Aligned and calendar windows, without Redis: soft limits forget
                                 keys (docs/LIMITS.md) */
};

/** The result of tw_acquire() and tw_once() for a new key when the table is full. */
enum tw_full_limit { TW_FULL_LIMIT_ADMIT = 0, TW_FULL_LIMIT_DENY = 1 };

/** Flags of on_window_closed. */
enum tw_closed {
    TW_CLOSED_PARTIAL = 1, /* before the end of the window or of lateness_ms: the engine or family
                              closes, and others may still count */
    TW_CLOSED_LOCAL = 2,   /* Redis did not acknowledge everything (also if some of it was given up,
                              see on_lost), or some totals could not be fetched */
    TW_CLOSED_AGAIN = 4    /* TW_CLOSED_BY_ONE: reported before, and that report was not complete.
                              Any family: the last call did not return, because its process or
                              thread ended */
};

/** Which engines call on_window_closed. */
enum tw_closed_by {
    TW_CLOSED_BY_EACH = 0, /* every engine, for its own counts */
    TW_CLOSED_BY_ONE = 1   /* with Redis: one engine for each window, with the totals of all. A
                              killed engine, or a wiped Redis, delays a window by at most 40 s
                              (docs/OPTIONS.md) */
};

enum tw_kind {
    TW_KIND_COUNTER = 0,
    TW_KIND_GAUGE = 1,   /* the present value, over all live processes; TW_WINDOW_FOREVER */
    TW_KIND_DISTINCT = 2 /* how many different elements: tw_distinct_add() */
};

/** How Redis stores the counters of a family. */
enum tw_redis_shape {
    TW_REDIS_STRING = 0, /* a string for each key */
    TW_REDIS_HASH = 1,   /* a hash for each subject; keys are "subject|field" */
    TW_REDIS_ZSET = 2    /* a sorted set for each window; the keys are its members */
};

enum tw_limit_mode {
    TW_LIMIT_SOFT = 0,  /* decides by the counts that this process knows; never waits */
    TW_LIMIT_HARD = 1,  /* with Redis: never exceeded by all processes together; never waits */
    TW_LIMIT_STRICT = 2 /* with Redis: each call is decided by Redis and waits */
};

enum tw_limit_shape {
    TW_SHAPE_FIXED = 0,   /* `limit` units in each window */
    TW_SHAPE_SLIDING = 1, /* about `limit` units in any stretch of one window's length. This is an
                             estimate, exceeded by at most limit / sub_windows. Strict with Redis:
                             exact */
    TW_SHAPE_GCRA = 2     /* a bucket that empties evenly: `limit` in window_ms, `burst` at once.
                             It has no counts: calls that add to one or read one return
                             TW_ERR_MODE. tw_each() shows its keys, with times of its own */
};

/** How limits decide while Redis is unreachable. */
enum tw_outage {
    TW_OUTAGE_LOCAL = 0,                  /* by the counts that this process knows */
    TW_OUTAGE_FAIL_OPEN = 1,              /* every call is admitted, and counted */
    TW_OUTAGE_FAIL_CLOSED = 2,            /* every call is denied */
    TW_OUTAGE_SHARE = 3,                  /* up to this engine's share */
    TW_OUTAGE_OPEN = TW_OUTAGE_FAIL_OPEN, /* the earlier short names */
    TW_OUTAGE_CLOSED = TW_OUTAGE_FAIL_CLOSED
};

/** The result of a strict call, or of tw_hold() with Redis, when calls_max calls are under way, or
 *  more than Redis answers in their time. That is no outage: Redis answers others. */
enum tw_busy {
    TW_BUSY_REFUSE = 0,   /* TW_ERR_BUSY; TW_ERR_TIMEOUT if the call was sent. It is not admitted */
    TW_BUSY_AS_OUTAGE = 1 /* on_outage decides, so limits may be exceeded in a crowd although Redis
                             is well */
};

struct tw_family_options {
    size_t size;      /* set by tw_family_options_init() */
    char *error_text; /* same as in tw_options */
    size_t error_size;

    const char *name; /* required, unique in the engine; 1..64 bytes of letters, digits, . _ - */

    /* Window */
    uint32_t window;       /* enum tw_window */
    int64_t window_ms;     /* a multiple of 1000; default TW_HOUR. Not for endless and calendar
                              windows */
    int64_t utc_offset_ms; /* shifts windows and stamps, within +-14 h, in whole minutes. With
                              +8 h days begin at midnight in Shanghai */
    uint32_t week_start;   /* first day of a calendar week: 0 = Monday ... 6 = Sunday */

    /* Event time and history: aligned and calendar windows only */
    int64_t lateness_ms;  /* how long after its end a window accepts tw_add_at(). Default 0.
                              TW_UNBOUNDED: until tw_close_until() */
    int64_t earliness_ms; /* how far ahead of the time tw_add_at() may open windows; default one
                              window */
    int64_t history_ms;   /* how long a closed window can be read in this process; default one
                              window (window_ms); or TW_NONE */

    /* Redis */
    int64_t retention_ms;  /* how long Redis keeps an aligned or calendar window after its end.
                              Default the greater of 24 h and one window; at least one window */
    const char *redis_key; /* template of the names: %k is the key (exactly once), %n the name,
                              %Y %m %d %H %M %S the start of the window, %% a percent sign. {%t}
                              before %k is a hash tag of Redis Cluster. Default "%n:%k" and a
                              stamp, in a cluster "%n:{%t}:%k" and a stamp. Hash: %k is the
                              subject. Sorted set: without %k and %t, default "%n" and a stamp */

    /* Memory */
    uint64_t keys_max;      /* the most keys in one window; 0: only memory bounds them */
    uint64_t memory_share;  /* bytes that are reserved for this family alone when it is opened. The
                               family never uses more. If they cannot be reserved, opening is
                               refused. 0: the family shares memory with others */
    uint32_t on_full;       /* enum tw_on_full */
    uint32_t on_full_limit; /* enum tw_full_limit */

    /* Called for each window that has counts, as soon as it accepts no more counts and Redis has
     * acknowledged all of it, or a minute later (TW_CLOSED_LOCAL). `flags` are enum tw_closed.
     * Return false to be called again later. */
    bool (*on_window_closed)(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms,
                             uint32_t flags);
    void *closed_ctx;

    uint64_t keys_expected; /* how many keys a window will have. Its index is prepared in advance if
                               memory allows it. Memory for the counters is certain only with
                               memory_share. 0: as many as in previous windows */
    int64_t idle_ms;        /* TW_ON_FULL_EVICT_IDLE with TW_WINDOW_FOREVER: a key not used for
                               this long may be evicted.
                               At least 100, default TW_HOUR */
    uint32_t kind;          /* enum tw_kind */
    uint32_t closed_by;     /* enum tw_closed_by */

    /* Limits */
    uint32_t limit_mode;      /* enum tw_limit_mode */
    uint32_t limit_shape;     /* enum tw_limit_shape */
    int64_t burst;            /* TW_SHAPE_GCRA: the size of the bucket; default the call's limit */
    uint32_t on_outage;       /* enum tw_outage */
    uint32_t outage_grace_ms; /* how long Redis may be silent before on_outage decides. Default 0,
                                 at most a day */
    bool shadow;              /* decide but never deny: a call that would be denied returns TW_OK
                                 with verdict->allowed = 0 */

    /* Redis Cluster */
    uint64_t redis_tags; /* into how many groups %t of redis_key divides the keys: a power of two,
                            1..1024, default 128. The number is part of the names and must never
                            change */

    /* Hashes and sorted sets. They need TW_KIND_COUNTER and do not work with TW_WINDOW_FROM_FIRST.
     * Limits that are hard, strict, sliding or a rate, tw_hold(), tw_reserve() and tw_lock() need
     * strings. */
    uint32_t redis_shape; /* enum tw_redis_shape */
    char key_separator;   /* TW_REDIS_HASH: its last place in the key separates subject and field.
                             Default '|'. A key without it or with an empty part is a TW_ERR_KEY */
    const char *fields;   /* TW_REDIS_HASH: the allowed fields, for example "views,likes,shares", at
                             most 64. A key with another field is a TW_ERR_KEY. NULL: any field */

    uint32_t sub_windows; /* TW_SHAPE_SLIDING without Redis, TW_WINDOW_ALIGNED: how many windows
                             window_ms is divided into, 1..TW_SUB_WINDOWS_MAX. In any stretch of
                             window_ms at most limit + limit / sub_windows units are admitted.
                             Default 1: the estimate from two windows. Above 1 the family's windows
                             are window_ms / sub_windows long (rounded up to a ms) for all calls and
                             hooks */
    uint32_t on_busy;     /* enum tw_busy: strict families, and tw_hold() with Redis, when calls_max
                             calls are under way, or more than Redis answers in their time */
};
#define TW_SUB_WINDOWS_MAX 64

/* ==== 6. Engines and families ================================================================ */

/** Waits until Redis has acknowledged every add that returned before this call. Without Redis it
 *  returns TW_OK at once. In a host-driven engine it makes the turns itself.
 *  Returns:
 *    TW_OK
 *    TW_ERR_REDIS    some of these counts were refused, late or uncertain, or other counts were
 *                    given up since the last flush. on_lost was called for them
 *    TW_ERR_TIMEOUT  some counts are not acknowledged yet; they will still be sent
 *    TW_ERR_MODE     called inside a function of your own or inside tw_enter()
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_flush(tw_engine *engine, uint32_t timeout_ms);

/** Waits until this engine is ready to decide on limits with Redis. It is ready when Redis has
 *  answered, when the number of live engines has been known for a tenth of a second (so that other
 *  engines which start now are included), and when the leases that tw_lease_warm() requested are
 *  here. Before that the engine spends soft limits carefully (docs/LIMITS.md). The call changes
 *  nothing. In a host-driven engine it makes the turns itself.
 *  Returns:
 *    TW_OK           without Redis at once
 *    TW_ERR_TIMEOUT  not ready yet
 *    TW_ERR_MODE     called inside a function of your own or inside tw_enter()
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_ready(tw_engine *engine, uint32_t timeout_ms);

/** From now on calls that count or read return TW_ERR_CLOSED, and calls that wait end: before it
 *  returns, every call under way of this process has its answer in its queue. It is safe while
 *  other calls are running, and waits for none of your functions. A shared engine stops for all
 *  processes.
 *  Returns TW_OK, or TW_ERR_MODE in a process that does not lead a shared engine (tw_lead()). */
TW_API tw_status tw_stop(tw_engine *engine);

/** Host-driven engines: makes one bounded round of background work (clock, roll-over, hooks, sync).
 *  One thread at a time can make a turn.
 *  Cost: at most some milliseconds, without the time of hooks. It never waits for the network.
 *  Returns:
 *    TW_OK
 *    TW_PENDING   another thread is making a turn; or another process or thread leads this shared
 *                 engine, or none does. Then the call moves the engine's time, and drives the calls
 *                 of this process that wait
 *    TW_ERR_MODE  the engine has its own thread; or called inside a function of your own or inside
 *                 tw_enter()
 *    TW_ERR_MEMORY, TW_ERR_CLOSED */
TW_API tw_status tw_turn(tw_engine *engine);

/** Host-driven engines: the loop has woken up. Calls of this process use the time that it reads
 *  until the next tick, so they need not read the clock. A call looks at the clock itself after 64
 *  calls of its thread, and when the time is some milliseconds old (at most 1 s). So a loop may
 *  tick as often or as rarely as it likes, and a host that never ticks loses only some nanoseconds
 *  a call. tw_turn() ticks, too. With several engines, tick each of them.
 *  It does nothing for NULL, for an engine with its own thread or with clock_now_ns, after
 *  tw_stop(), and in a forked child that has not made another call yet.
 *  Cost: some 30 ns. Any thread, at any time. */
TW_API void tw_tick(tw_engine *engine);

/** The descriptor to wait on for tw_turn(), for reading only. Every host-driven engine has one,
 *  with Redis and without, and it stays the same while the engine lives. It is an epoll descriptor
 *  for all sockets of the engine, and for other threads that wake the loop. Level-triggered and
 *  edge-triggered loops may watch it. The engine owns it: do not read from it or close it. A forked
 *  child must call tw_fd() again. -1 means that the engine has its own thread. */
TW_API int tw_fd(const tw_engine *engine);

/** How long no tw_turn() is needed, in ms, unless tw_fd() becomes readable before. Call it after
 *  each turn. 0 means that there is more work: call tw_turn() again, and serve other descriptors in
 *  between. While a connection is being made, or accepts no more bytes, the result is not 0. */
TW_API uint32_t tw_timeout_ms(tw_engine *engine);

/** Optional brackets around many calls of one thread. They save a few ns for each call between
 *  them. They nest. Keep the section short: until it ends, freed memory is not reused
 *  (tw_stats.sections_oldest_ms shows its age). Time and windows continue meanwhile. */
TW_API void tw_enter(tw_engine *engine);
TW_API void tw_leave(tw_engine *engine);

/** The family with this name, or NULL. */
TW_API tw_family *tw_family_find(tw_engine *engine, const char *name);

/** Changes policies, sizes, times and hooks. The following must be the same as when the family was
 *  opened: name, window, window_ms, utc_offset_ms, week_start, redis_key, redis_tags, redis_shape,
 *  key_separator, fields, kind, closed_by, limit_mode, limit_shape, sub_windows, and whether
 *  on_full is TW_ON_FULL_EVICT_IDLE.
 *  A longer lateness_ms applies to windows that still accept counts. A window that is already
 *  sealed, or was never opened in its time, stays closed (TW_ERR_LATE). In the same way a longer
 *  history_ms does not bring back windows that are already freed.
 *  If on_window_closed or closed_ctx changes, the call waits until a running call of the old hook
 *  has returned, except inside that hook. After that the old closed_ctx may be freed.
 *  In a shared engine the change is one for all processes, whoever makes it. After the first fork
 *  on_window_closed, closed_ctx and memory_share must stay the same, because other processes would
 *  not see them.
 *  Returns TW_OK. Nothing changed with TW_ERR_OPTIONS, TW_ERR_MEMORY, TW_ERR_CLOSED, and
 *  TW_ERR_MODE (one of these three, in a shared engine after the first fork). */
TW_API tw_status tw_family_set(tw_family *family, const tw_family_options *options);

/** Closes the family in the background: its unsent counts are sent, its windows are reported to
 *  on_window_closed in the same way as in tw_close(), then it is freed. No call with this handle
 *  may be running or follow, except in its hook. closed_ctx must stay valid until tw_close(),
 *  unless you remove the hook with tw_family_set() before. A hook that returns false is called
 *  again for a minute. After that the window is given up, logged, and counted in
 *  tw_stats.windows_untold.
 *  Returns TW_OK, or TW_ERR_MODE inside a function of your own, or in a shared engine after the
 *  first fork. */
TW_API tw_status tw_family_close(tw_family *family);

/* ==== 7. Counting ============================================================================
 * Out-parameters may be NULL.
 *
 * HOT KEYS. When several threads contend for a counter with adds that pass no view, the engine
 * stripes the counter: each thread then adds to a cache line of its own, and the threads no longer
 * slow each other down. Reads stay exact: they contain every add that returned before the read
 * began. But the view of an add to such a counter is no longer unique. It includes this add and
 * every add that had returned, and possibly some that are still running. Two adds may get the same
 * view. If all deltas are positive, the view is a lower bound of the count when the call returns. A
 * counter whose callers all pass a view is never striped. Keys of TW_WINDOW_FROM_FIRST are never
 * striped either. */

/** Same as tw_add(), into the window of `unix_ms`. This is event time, for logs and queues. Aligned
 *  and calendar windows only.
 *  Returns the same as tw_add(), and
 *    TW_ERR_LATE   the window accepts no more counts
 *    TW_ERR_EARLY  the window is further ahead than earliness_ms
 *    TW_ERR_MODE   the family has other windows
 *    TW_ERR_RANGE  also: the moment is not in the years 1000 to 9998 */
TW_API tw_status tw_add_at(tw_family *family, tw_key key, int64_t delta, int64_t unix_ms,
                           int64_t *view);

/** Adds each item separately, in the same way as tw_add().
 *    deltas  NULL means that all are 1
 *    views   one for each item; the view of a refused item is not written
 *    each    one status for each item
 *  Returns the lowest negative status of the items. If no status is negative, it returns the
 *  highest positive one, or TW_OK. */
TW_API tw_status tw_add_many(tw_family *family, const tw_key *keys, const int64_t *deltas,
                             size_t count, int64_t *views, tw_status *each);

/** Adds each item separately, in the same way as tw_add_at().
 *    unix_ms  one moment for each item; may not be NULL
 *  The other parameters and the result are those of tw_add_many(). */
TW_API tw_status tw_add_many_at(tw_family *family, const tw_key *keys, const int64_t *deltas,
                                size_t count, const int64_t *unix_ms, int64_t *views,
                                tw_status *each);

/** A watermark. It declares that no more events before `unix_ms` will arrive. From then on windows
 *  that end at or before it accept no more counts (TW_ERR_LATE), whatever lateness_ms is. Turns
 *  report them to on_window_closed in order of time. With Redis the hook is called after Redis has
 *  all counts of the window; with TW_CLOSED_BY_ONE, after all engines have closed the window, each
 *  by its own watermark or lateness_ms. For sliding limits with Redis the hook is called up to one
 *  window later. After that the windows can be read for history_ms.
 *  A watermark only rises: an earlier one changes nothing. If it is ahead of the clock, it applies
 *  to each window when that window ends. A program that counts by event time only may set
 *  lateness_ms to TW_UNBOUNDED. Then this call alone closes windows. It may be called in a hook.
 *  Aligned and calendar windows only.
 *  Cost: some nanoseconds.
 *  Returns:
 *    TW_OK
 *    TW_ERR_EARLY  further ahead than earliness_ms; nothing was changed
 *    TW_ERR_MODE   the family has other windows or TW_SHAPE_GCRA
 *    TW_ERR_RANGE  not in the years 1000 to 9998
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_close_until(tw_family *family, int64_t unix_ms);

/** Subtracts the view from the count. Adds that other threads make meanwhile are kept. `*last`
 *  becomes the view that was subtracted. The view includes units that are reserved or in use
 *  (tw_reserve(), tw_hold()). They are subtracted, too, and other callers may then get them while
 *  they are still in use. Returns the same as tw_add(). */
TW_API tw_status tw_reset(tw_family *family, tw_key key, int64_t *last);

/** A pin remembers where one counter is. An add through it skips the hash and the search. It
 *  follows its key into each next window, and its first add there creates the counter. Hot keys are
 *  striped in the same way as with tw_add().
 *  Threads: one thread at a time may use a pin. Any number of pins may name the same key. Close a
 *  pin before its family.
 *  Cost: tw_pin_open() allocates memory. tw_pin_add() is one atomic add. In a family of
 *  TW_WINDOW_FROM_FIRST or TW_ON_FULL_EVICT_IDLE it costs the same as tw_add(), because a key's
 *  counter may change there at any time.
 *  tw_pin_open() returns TW_OK, TW_ERR_KEY, TW_ERR_MEMORY or TW_ERR_CLOSED. tw_pin_add() returns
 *  the same as tw_add(). */
typedef struct tw_pin tw_pin;
TW_API tw_status tw_pin_open(tw_family *family, tw_key key, tw_pin **pin);
TW_API tw_status tw_pin_add(tw_pin *pin, int64_t delta, int64_t *view);
TW_API void tw_pin_close(tw_pin *pin);

/** Makes a key for the network of an address, such as "10.1.2.0/24" or "2001:db8:1:2::/64". One
 *  client of IPv6 has at least 2^64 addresses, so a limit for each address would not limit it.
 *    address      `size` bytes of text with an IPv4 or IPv6 address, without a NUL. Nothing outside
 *                 of them is read. All spellings of an address give one key. ::ffff:1.2.3.4 counts
 *                 as 1.2.3.4. The scope of an IPv6 address ("%eth0") is ignored
 *    bits4        bits that name a network of IPv4, 0..32, usually 24
 *    bits6        bits that name a network of IPv6, 0..128, usually 64, or 48 for a whole site
 *    buffer       gets the text, as RFC 5952 writes it, and a NUL. It may overlap the address. An
 *                 error does not change it
 *    buffer_size  64 or more
 *    key          becomes the text, which lies in `buffer`. May be NULL
 *  Cost: 550 instructions for IPv4, 1,300 for IPv6. Memory: none. Threads: any. It needs no engine.
 *  Returns:
 *    TW_OK
 *    TW_ERR_KEY      the text is no address, or has more than one, such as a port or a blank
 *    TW_ERR_OPTIONS  bits4 above 32, bits6 above 128, buffer_size below 64, or NULL */
TW_API tw_status tw_key_network(const char *address, size_t size, unsigned bits4, unsigned bits6,
                                char *buffer, size_t buffer_size, tw_key *key);

/* ==== 8. Reading =============================================================================
 *   call             what                      where it looks
 *   tw_get           the view                  this process, open window
 *   tw_get_at        the view                  this process, the window of a moment
 *   tw_read          view, total and more      this process, open window
 *   tw_each          every key's view          this process, any readable window
 *   tw_each_field    the views of a subject    this process, any readable window
 *   tw_fetch         the total                 Redis, open window (waits)
 *   tw_fetch_fields  the totals of a subject   Redis, any window that exists there (waits)
 *   tw_fetch_top     the highest totals        Redis, any window that exists there (waits)
 *   tw_fetch_rank    a member's place          Redis, any window that exists there (waits) */

/** Same as tw_get(), in the window of `unix_ms`, while it can be read here.
 *  Returns the same as tw_get(), and TW_ERR_LATE, TW_ERR_MODE, TW_ERR_RANGE. */
TW_API tw_status tw_get_at(tw_family *family, tw_key key, int64_t unix_ms, int64_t *view);

/** The result of tw_read(). New fields are appended. */
struct tw_reading {
    int64_t view;        /* same as tw_get() */
    int64_t local;       /* the adds of this process in this window */
    int64_t total;       /* the total that Redis last reported; 0 if not known */
    int64_t unsent;      /* the part of local that Redis has not acknowledged */
    int64_t age_ms;      /* how old the total is; TW_UNBOUNDED if not known */
    int64_t error_bound; /* |view - truth| at most: 0 without Redis, TW_UNBOUNDED with Redis */
    bool known;          /* Redis has reported this key's total; without Redis: true */
    uint64_t reserved[8];
};

/** Writes the first `size` bytes of a tw_reading. Bytes beyond the library's struct become 0. For
 *  other languages. C and C++ call tw_read(). */
TW_API tw_status tw_read_sized(tw_family *family, tw_key key, tw_reading *reading, size_t size);

/** Reads all that this process knows of a counter. Returns the same as tw_get(). */
static inline tw_status tw_read(tw_family *family, tw_key key, tw_reading *reading) {
    return tw_read_sized(family, key, reading, sizeof(tw_reading));
}

/** Requests the totals of the open window from Redis and waits for them.
 *    totals  totals[i] becomes the total of keys[i] in Redis
 *  Returns:
 *    TW_OK
 *    TW_ERR_REDIS    Redis is not configured; or Redis has no count for one of these keys, because
 *                    it rejects the key or another type is stored there. tw_error_text() names the
 *                    key. Other keys that Redis rejects change nothing here
 *    TW_ERR_FULL     there is no memory to keep a key's total
 *    TW_ERR_MODE     see A WAITING CALL; or the family is one of TW_SHAPE_GCRA
 *    TW_ERR_TIMEOUT  totals were not written
 *    general errors */
TW_API tw_status tw_fetch(tw_family *family, const tw_key *keys, size_t count, uint32_t timeout_ms,
                          int64_t *totals);

/** A counter that tw_each() and tw_top() show. The library owns it. It is valid inside `visit`
 *  only. */
struct tw_count {
    tw_key key; /* size 0: the overflow counter of the window (tw_each() only) */
    int64_t view;
    int64_t local;
    int64_t start_ms; /* 0 and TW_UNBOUNDED in an endless family */
    int64_t end_ms;
    int64_t error; /* view and local may be too high by this much. Not 0 only in tw_top(), for keys
                      without memory for a counter */
    uint64_t reserved[3];
};

/** Visits the heaviest keys of one window, by their views, the heaviest first. Keys with equal
 *  views come in byte order. It ends when `visit` returns false.
 *    n         how many keys at most, 1..10000
 *    unix_ms   a moment in the window, or TW_NOW
 *  The order is exact for all counters in this process. These include keys that other processes
 *  count, too, with the views that tw_get() shows. The walk is no snapshot: other threads may count
 *  meanwhile. Packed windows of the history can be read in the same way. The overflow counter is
 *  not shown. `visit` is called after the walk, and may call the engine. It must return, same as in
 *  tw_each().
 *  If the window overflowed (TW_OVERFLOWED), heavy keys without a counter are shown, too. Their
 *  `error` says by how much `view` and `local` may be too high: this process added at most `local`
 *  and at least `local` - `error` to the key. Each key with more than 1 % of what overflowed is
 *  found (2 % for keys above 480 bytes in an engine without free memory). Negative deltas make the
 *  errors larger, and may hide a key. A sketch of bounded memory records these keys: Space-Saving
 *  (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data
 *  Streams", 2005).
 *  Memory of the sketch: 32 KiB for keys of up to 32 bytes, up to 192 KiB more for each kind of
 *  longer keys, and up to 8 times that if many threads overflow at once. It is allocated when a
 *  window overflows for the first time (in large windows before memory is full), and freed with the
 *  window. It is a part of memory_bytes_max and of memory_share. Some memory is reserved for it: a
 *  128th (at most 2 MiB) of a memory_bytes_max of at least 16 MiB (with Redis, of at least 19 MiB),
 *  and an eighth (at most 128 KiB) of a memory_share of at least 64 KiB. With less memory the
 *  sketch is smaller and finds fewer keys. A window that overflows when no memory is left has no
 *  sketch (tw_stats.overflow_sketches_refused). In a TW_WINDOW_FROM_FIRST family, keys without a
 *  counter have no window of their own: they are shown with their counts in this and the previous
 *  calendar window.
 *  Cost: this thread looks at every counter of the window, in pieces of at most 2048 counters. It
 *  delays the reuse of memory for one piece at most (inside tw_enter(), for the whole walk). No
 *  other thread waits. It allocates memory outside memory_bytes_max and frees it before it returns:
 *  n times 96 bytes and the keys, rounded up to a power of two, 12 MiB at most, and three times the
 *  sketch.
 *  Returns:
 *    TW_OK
 *    TW_ERR_RANGE   n is out of range, or the moment is not in the years 1000 to 9998
 *    TW_ERR_LATE    the window can no longer be read here
 *    TW_ERR_MODE    a moment other than TW_NOW in a family of TW_WINDOW_FROM_FIRST; a family of
 *                   TW_SHAPE_GCRA; inside two visitors
 *    TW_ERR_MEMORY  `visit` was not called
 *    TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_top(tw_family *family, size_t n, int64_t unix_ms,
                        bool (*visit)(void *ctx, const tw_count *count), void *ctx);

/* DISTINCT COUNTS. A family of TW_KIND_DISTINCT counts how many different elements each key had in
 * a window, for example the visitors of a page or the senders of a message. For each key it keeps a
 * sketch (a HyperLogLog, the same as in Redis) and not the elements: 64 bytes for the first 14
 * elements, 16 KiB from some 1500 elements on. The estimate equals that of PFCOUNT in Redis for the
 * same elements, to the unit. Its standard error is 0.81 %. Elements are hashed without a secret,
 * so a person who can choose the elements can choose the estimate.
 * Windows, history, tw_each(), tw_top(), on_window_closed and tw_family_close() work in the same
 * way as for counters. The view and the local count of a tw_count are the estimate. Windows in the
 * history keep the estimates only.
 * The overflow counter is not used: a new key, or a sketch that must grow, returns TW_ERR_FULL if
 * there is no memory, whatever on_full is. Calls that add to a count, read one or take from one
 * return TW_ERR_MODE.
 * With Redis the key there is a HyperLogLog that PFCOUNT and PFADD can use. The elements of each
 * engine are merged into it. Merging twice changes nothing, so no element that a living engine has
 * is lost or uncertain. tw_distinct_get() shows the union of all engines as last reported by Redis,
 * and requests it again, at most once in a sync interval. A closing hook shows the union at the
 * moment when Redis got this engine's elements. Another engine that was cut off may add more. */

/** Adds `element` to the elements of `key` in the window that is open now.
 *    element  any bytes of any size, also none; it is not kept
 *    changed  becomes true if the sketch changed, which means that the element is new. False means
 *             that it was there before, or that the sketch cannot distinguish it from others
 *  Adding an element again changes nothing. If several threads add the same element at once, only
 *  one of them gets true.
 *  Cost: same as tw_add(), and the hash of the element (P9). A sketch that grows is copied.
 *  Returns:
 *    TW_OK
 *    TW_ERR_FULL  there is no memory for the key or for a larger sketch; nothing was changed
 *    TW_ERR_MODE  not a family of TW_KIND_DISTINCT
 *    TW_ERR_KEY   also: the element has a size and no data
 *    general errors */
TW_API tw_status tw_distinct_add(tw_family *family, tw_key key, tw_key element, bool *changed);

/** Same as tw_distinct_add(), into the window of `unix_ms` (event time). Aligned and calendar
 *  windows only.
 *  Returns the same as tw_distinct_add(), and TW_ERR_LATE, TW_ERR_EARLY, TW_ERR_RANGE in the same
 *  cases as tw_add_at(), and
 *    TW_ERR_MODE  also: the family has other windows */
TW_API tw_status tw_distinct_add_at(tw_family *family, tw_key key, tw_key element, int64_t unix_ms,
                                    bool *changed);

/** Adds each element in the same way as tw_distinct_add(), with one lookup of the key for many
 *  elements.
 *    changed  becomes the number of elements that changed the sketch
 *  Returns the same as tw_distinct_add(), and
 *    TW_ERR_FULL    there was no memory for some elements. The others were added, and *changed is
 *                   their number of changes. You may make the same call again
 *    TW_ERR_CLOSED  also: tw_stop() was called meanwhile, and the first elements may have been
 *                   added */
TW_API tw_status tw_distinct_add_many(tw_family *family, tw_key key, const tw_key *elements,
                                      size_t count, size_t *changed);

/** The estimated number of different elements of `key` in the window that is open now; 0 for an
 *  unknown key. It includes each element whose add returned before this call.
 *  Cost: reads the sketch, which takes some microseconds for a large one.
 *  Returns TW_OK, TW_ERR_MODE (not a family of TW_KIND_DISTINCT) or one of the general errors. */
TW_API tw_status tw_distinct_get(tw_family *family, tw_key key, int64_t *estimate);

/** Same as tw_distinct_get(), in the window of `unix_ms`, while it can be read here.
 *  Returns the same as tw_distinct_get(), and TW_ERR_LATE, TW_ERR_MODE, TW_ERR_RANGE in the same
 *  cases as tw_get_at(). */
TW_API tw_status tw_distinct_get_at(tw_family *family, tw_key key, int64_t unix_ms,
                                    int64_t *estimate);

/* SUBJECTS. In a family of TW_REDIS_HASH a key is "subject|field", for example "article:7|views".
 * All fields of a subject are one hash in Redis. These two calls read all fields of a subject. */

/** Visits the fields of `subject` whose view in one window is not 0, until `visit` returns false.
 *    unix_ms  a moment in the window, or TW_NOW
 *  With tw_family_options.fields the fields come in that order, and each is read in the same way as
 *  by tw_get(): in TW_NOW this also fetches the totals of all processes at a later sync. Without
 *  that option they come in no particular order, and the call looks at all counters of the window
 *  in the same way as tw_each(). In both cases this is no snapshot. The field is valid inside
 *  `visit` only. `visit` may call the engine. It must return, same as in tw_each().
 *  Cost: with `fields` one tw_get() for each field. Otherwise same as tw_each(), but only the
 *  subject is copied.
 *  Returns:
 *    TW_OK         also if this process knows no field of the subject
 *    TW_ERR_KEY    the subject is empty or too long; with `fields` also: it is a reserved name
 *    TW_ERR_MODE   not a family of TW_REDIS_HASH; without `fields` also: inside two visitors
 *    TW_ERR_LATE   the window can no longer be read here
 *    TW_ERR_RANGE  the moment is not in the years 1000 to 9998
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_each_field(tw_family *family, tw_key subject, int64_t unix_ms,
                               bool (*visit)(void *ctx, tw_key field, int64_t view), void *ctx);

/** Requests the hash of `subject` from Redis, and visits its fields when all of them are here:
 *  sorted by field, in byte order, until `visit` returns false. A WAITING CALL, for timeout_ms at
 *  most.
 *    unix_ms     a moment in any window, or TW_NOW. The window need no longer exist in this process
 *    timeout_ms  0 means redis_timeout_ms
 *  Counts that a process has not synced yet are not in Redis yet (sync_interval_ms; tw_flush()).
 *  Fields that other programs wrote are shown, too. Fields are skipped if their value is no whole
 *  number, or if they have more than TW_KEY_SIZE_MAX bytes. A hash of up to some hundred fields is
 *  read at one moment. A larger one is read in pieces (HSCAN): each field that exists during the
 *  whole call is shown once, with its total at some moment of the call. `visit` may call the
 *  engine.
 *  Cost: one request for every 256 fields. It allocates memory outside memory_bytes_max and frees
 *  it before it returns: 40 bytes a field, and the fields.
 *  Returns:
 *    TW_OK           also if Redis has no such hash
 *    TW_ERR_KEY      the subject is empty, a reserved name, or too long for its first field
 *    TW_ERR_MODE     not a family of TW_REDIS_HASH; or see A WAITING CALL
 *    TW_ERR_RANGE    the moment is not in the years 1000 to 9998
 *    TW_ERR_REDIS    Redis is not configured, is unreachable or refused; or another type is stored
 *                    under the name
 *    TW_ERR_TIMEOUT  `visit` was not called
 *    TW_ERR_MEMORY   also: more than 1,000,000 fields, or 64 MiB of fields
 *    TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_fetch_fields(tw_family *family, tw_key subject, int64_t unix_ms,
                                 uint32_t timeout_ms,
                                 bool (*visit)(void *ctx, tw_key field, int64_t total), void *ctx);

/* RANKINGS. In a family of TW_REDIS_ZSET each window is one sorted set in Redis whose members are
 * the keys. It is the ranking of all processes. tw_top() ranks the views of this process. The next
 * two calls read the ranking from Redis. */

/** Visits the first `n` members of a window's ranking, the highest total first. Members with equal
 *  totals come in reverse byte order (the order of Redis). It ends when `visit` returns false. A
 *  WAITING CALL, for timeout_ms at most.
 *    n           1..10000
 *    unix_ms, timeout_ms  same as in tw_fetch_fields(), also for counts that are not in Redis yet
 *  Members that other programs wrote are shown, too. Members are skipped if their score is no whole
 *  number within +-TW_DELTA_MAX, or if they have more than TW_KEY_SIZE_MAX bytes. Others follow in
 *  their place. The ranking is that of one moment, unless some members were skipped or the members
 *  have more than 900,000 bytes together: then the rest is requested separately. `visit` is called
 *  when all members are here, and may call the engine.
 *  Cost: normally one request. Redis works for some 2 microseconds for each member, without a
 *  break.
 *  Returns:
 *    TW_OK           also if Redis has no such set, or fewer members
 *    TW_ERR_RANGE    n is out of range, or the moment is not in the years 1000 to 9998
 *    TW_ERR_MODE     not a family of TW_REDIS_ZSET; or see A WAITING CALL
 *    TW_ERR_REDIS    Redis is not configured, is unreachable or refused; or another type is stored
 *                    under the name
 *    TW_ERR_TIMEOUT  `visit` was not called
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_fetch_top(tw_family *family, int64_t unix_ms, size_t n, uint32_t timeout_ms,
                              bool (*visit)(void *ctx, tw_key member, int64_t total), void *ctx);

/** The place of `member` in a window's ranking, in the order of tw_fetch_top(). A WAITING CALL, for
 *  timeout_ms at most.
 *    rank   0 is the first place, and -1 means that the set has no such member. All members of the
 *           set count, whatever their scores are
 *    total  0 if the set has no such member
 *  Returns the same as tw_fetch_top(), and
 *    TW_ERR_REDIS  also: the member's score is no whole number within +-TW_DELTA_MAX
 *    TW_ERR_KEY    the member is no valid key */
TW_API tw_status tw_fetch_rank(tw_family *family, tw_key member, int64_t unix_ms,
                               uint32_t timeout_ms, int64_t *rank, int64_t *total);

/* ==== 9. Limits: only == TW_OK admits ======================================================== */

/** Who or what decided a call. */
enum tw_decided_by {
    TW_BY_LOCAL = 0,  /* without Redis: exact (see below for hot keys and sliding limits) */
    TW_BY_VIEW = 1,   /* soft limits: the view of this process */
    TW_BY_LEASE = 2,  /* hard limits: a lease that Redis gave to this process */
    TW_BY_REDIS = 3,  /* strict limits: Redis decided */
    TW_BY_OUTAGE = 4, /* the key's total is unknown, or Redis did not decide. Then on_outage
                         decided, or the counts that this process knows */
    TW_BY_FULL = 5,   /* the table is full: on_full_limit decided */
    TW_BY_BUYER = 6   /* tw_reserve(): the buyer already has a reservation */
};

/** Why a call was denied, is pending, or got no answer: what the limit knows, whoever decided. */
enum tw_cause {
    TW_CAUSE_LIMIT = 0,  /* the units are spent. Also 0: the call was admitted, or it is a wrong
                            call */
    TW_CAUSE_SHARE = 1,  /* what this engine may spend is spent; other engines may have units. Also
                            those that died: nobody can use their units yet */
    TW_CAUSE_OUTAGE = 2, /* nobody can know: Redis is silent, refuses, or has a key of another
                            type */
    TW_CAUSE_BUSY = 3,   /* the way to Redis is full (on_busy, TW_ERR_BUSY) */
    TW_CAUSE_FULL = 4,   /* there is no memory (TW_ERR_FULL, TW_ERR_MEMORY) */
    TW_CAUSE_BUYER = 5,  /* tw_reserve(): the buyer has a reservation, or has bought */
    TW_CAUSE_NEVER = 6   /* n is above the limit, or the burst, and can never be admitted */
};

/** The details of a decision. It is filled on every return, also with an error. Its size never
 *  changes: verdicts are used on hot paths, where a size would cost an argument and a branch for
 *  each call. New fields use reserved words, which are 0 until then. */
struct tw_verdict {
    int64_t limit, used, remaining; /* units */
    int64_t reset_after_ms;         /* time until the full limit is available again if nobody calls.
                                       0: it is available now. TW_UNBOUNDED in an endless family:
                                       only a refund can free units */
    int64_t retry_after_ms;         /* 0: admitted. Otherwise sleep for this time, then call again.
                                       TW_CAUSE_LIMIT: the same call is then admitted, if nobody
                                       else calls meanwhile. TW_UNBOUNDED in an endless family, same
                                       as above. Another cause: asking is worth it then, 1 ms to
                                       60 s. -1: TW_CAUSE_NEVER, or the buyer has bought */
    int64_t error_bound;            /* at most |used - truth|; TW_UNBOUNDED: no bound is known */
    int64_t window_start_ms;        /* for tw_refund(). TW_WINDOW_FROM_FIRST: when the key's window
                                       began. Endless: 0 */
    uint32_t decided_by;            /* enum tw_decided_by */
    uint16_t claim;                 /* tw_acquire_all(): the number of the claim that decided */
    uint8_t allowed;                /* 1: the limit admits. 0: it denies, also in shadow mode.
                                       With an error: what the policy recommends */
    uint8_t final;                  /* Redis reported that the whole limit is spent */
    uint8_t cause;                  /* enum tw_cause: why the limit does not admit. TW_CAUSE_OUTAGE
                                       and _BUSY: then `remaining` is 0, as nothing is known */
    uint8_t reserved_bytes[7];
    uint64_t reserved[7];
};

/* Rules of tw_acquire(). docs/LIMITS.md explains them at length.
 *
 * Soft, without Redis   Exactly `limit` units are admitted in this process, for any number of
 *                       threads.
 * Sliding               This rule is for TW_SHAPE_SLIDING, except strict with Redis. `used` is an
 *                       estimate. It assumes that the counts of a window came evenly, if the
 *                       stretch covers only a part of that window. In a stretch of one window's
 *                       length, up to `limit` more units may be admitted with sub_windows = 1, and
 *                       up to limit / N more with sub_windows = N. error_bound is the greatest
 *                       error of `used`.
 * Soft, with Redis      The view of this process decides. Several processes together may exceed the
 *                       limit by units that others have admitted and that Redis has not yet
 *                       reported to this process. Between two totals from Redis a process admits
 *                       at most the remaining units / live engines (at least one call). While a
 *                       key's total is unknown, and for 1.5 sync intervals after its first total,
 *                       a process admits at most limit / live engines of this key, or a little
 *                       more if the others hardly use it. A key that is near its limit or unknown
 *                       is synced at once. If the share of a process is spent, its call is denied
 *                       with TW_CAUSE_SHARE. Then retry_after_ms is some milliseconds.
 *                       error_bound is calculated from what the other engines may spend and from
 *                       the rate at which they have counted. It is TW_UNBOUNDED while Redis is
 *                       unreachable, except with TW_OUTAGE_SHARE.
 * Hard, with Redis      decided_by is TW_BY_LEASE.
 *                       TW_OK means that a unit of the lease was taken.
 *                       TW_PENDING means that other engines have unspent units, or that Redis has
 *                       not answered yet. Call again after retry_after_ms.
 *                       TW_DENIED with final = 1 means that Redis has reported that all of `limit`
 *                       is spent. Units may be refunded, so the engine checks again at most a
 *                       second later.
 *                       TW_DENIED with final = 0 has one of three causes:
 *                       - n is more than the number of units that are left (TW_CAUSE_LIMIT).
 *                       - The units that are left belong to an engine that died (TW_CAUSE_SHARE).
 *                       - Redis is unreachable (outage_grace_ms), and the lease is spent, or
 *                         on_outage is TW_OUTAGE_FAIL_CLOSED (TW_CAUSE_OUTAGE).
 *                       A call with a smaller limit than that of the lease first sends the lease
 *                       back. The admitted units never exceed the greatest limit that was in force
 *                       at an admission.
 * Strict, with Redis    A WAITING CALL. Redis decides. If Redis does not answer, on_outage decides.
 *                       If Redis answers others, but has more calls than it answers in their time,
 *                       on_busy decides: as many as it can answer are sent, and the others cost
 *                       nothing. By default those are not admitted: TW_ERR_BUSY, or TW_ERR_TIMEOUT
 *                       for a call that was sent (what it was charged is undone).
 * Table full            on_full_limit decides: TW_OK with decided_by TW_BY_FULL, or TW_ERR_FULL.
 *                       No call of a limit uses the overflow counter.
 * Hot keys              If several threads contend for a limit, the remaining units are divided
 *                       into slices. Each thread first spends its own slice, then those of
 *                       others. All threads together admit exactly the limit, and a call is
 *                       denied only when no unit is left. After an admission from a slice, `used`
 *                       may be old, because a thread adds up all slices only once in 64 units.
 *                       remaining is limit - used. error_bound is the greatest error of `used`, 0
 *                       without Redis and slices. A denial, and a call with n = 0, have exact
 *                       figures. Slices stay valid while all calls name the same limit or a higher
 *                       one and no thread adds to the key. tw_add() of a negative delta and
 *                       tw_refund() do not end them. Without valid slices the call decides by the
 *                       whole count. Keys of TW_WINDOW_FROM_FIRST have no slices. */

/** Takes as many units of `key` as are left, but at most `n_max`.
 *    n_max    0 looks without taking units
 *    taken    becomes the number of units; 0 unless the status is TW_OK
 *    verdict  is that of the last try. If no unit was left, retry_after_ms is the time until one
 *             may be free
 *  Cost: same as tw_acquire(), several times if fewer than n_max are left.
 *  Returns the same as tw_acquire(). TW_DENIED means that not one unit was left. */
TW_API tw_status tw_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit,
                                 int64_t *taken, tw_verdict *verdict);

/** Repeats tw_acquire() until the units are admitted or the time is over. Between two tries the
 *  thread sleeps until retry_after_ms is over, until a tw_refund() in this process or in one that
 *  shares the engine, or for 100 ms, whichever comes first. After TW_PENDING the end of a turn
 *  wakes the thread, and a refund does
 *  not. Waiting threads have no queue, so a thread that came later may be served first. If n is
 *  above the limit, the denial ends the wait at once. A `final` denial (reported by Redis at most a
 *  second ago) also ends the wait. But if the window ends within the time, the call waits for the
 *  next window.
 *  TW_SHAPE_GCRA without Redis: units for which the thread waited count as taken when they became
 *  free, so callers that wait get the whole rate although each one wakes up late.
 *  Returns the same as tw_acquire(), and
 *    TW_DENIED, TW_PENDING  the result of the last try
 *    TW_ERR_MODE            host-driven engine, hook, or tw_enter()
 *    TW_ERR_CLOSED          tw_stop() ended the wait */
TW_API tw_status tw_acquire_wait(tw_family *family, tw_key key, int64_t n, int64_t limit,
                                 uint32_t timeout_ms, tw_verdict *verdict);

/** One of several amounts that a caller takes together. */
typedef struct tw_claim {
    tw_family *family;
    tw_key key;
    int64_t n, limit;
} tw_claim;
#define TW_CLAIMS_MAX 64

/** Takes all claims or none, for example per second, per day and per customer in one call.
 *    verdict  the verdict of one claim, whose number is verdict->claim. After a denial this is the
 *             claim that was denied. After an admission it is the claim with the fewest units left
 *  Several claims may name the same key. Their units are added, and each claim is checked against
 *  its own limit. The call first looks at all claims, so a caller that cannot have all of them
 *  takes no unit. The call may take some units, be denied the others, and give the first ones
 *  back. Another caller may be denied meanwhile. If a window ends during the call, units
 *  that the call has taken from that window may stay taken.
 *  Cost: two calls of tw_acquire() for each claim.
 *  Returns the same as tw_acquire() for the claim that decided, and
 *    TW_ERR_RANGE  also: no claim, or more than TW_CLAIMS_MAX
 *    TW_ERR_MODE   a strict family with Redis; a family of TW_KIND_DISTINCT */
TW_API tw_status tw_acquire_all(const tw_claim *claims, size_t count, tw_verdict *verdict);

/** Gives back `n` units that were admitted in the window that began at `window_start_ms`
 *  (verdict->window_start_ms), for example after a cancelled order. n = 0 does nothing. Units of a
 *  window that has ended are not added to the next one. The count does not fall below 0 if this
 *  process knows all of it: without Redis, and after Redis has reported the key's total. Strict
 *  limits with Redis have no such check.
 *  Cost: same as tw_acquire(), and a system call if a thread sleeps in tw_acquire_wait().
 *  Returns:
 *    TW_OK
 *    TW_ERR_LATE   that window is over
 *    TW_ERR_EARLY  that window has not begun
 *    TW_ERR_RANGE  n is negative, out of range, or more than the count
 *    TW_ERR_FULL   there is no memory for a new key
 *    TW_ERR_MODE   this shape of limit cannot take units back
 *    general errors */
TW_API tw_status tw_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms);

/* ==== 10. Leases of hard limits ============================================================== */

/** Requests a first lease of `key` under that limit from Redis, before the sale opens. The engine
 *  keeps the lease until calls spend from it or other engines need it. The call does not wait: the
 *  units arrive some turns later, and tw_ready() waits for them (tw_acquire() with n = 0 does not
 *  show them). Without Redis the call does nothing.
 *  Cost: same as tw_acquire() of a new key.
 *  Returns:
 *    TW_OK
 *    TW_ERR_MODE   the family is not TW_LIMIT_HARD
 *    TW_ERR_RANGE  limit is negative or out of range
 *    TW_ERR_FULL   there is no memory for a new key
 *    general errors */
TW_API tw_status tw_lease_warm(tw_family *family, tw_key key, int64_t limit);

/** Frees the units of this family's limits that were granted to an engine that died. These are its
 *  granted units, less the units that it reported as spent, and less the units that the counters
 *  contain and no engine has reported. The engine may have sold some of the freed units without
 *  sending that. A limit may then be exceeded, by *units at most. A WAITING CALL, for
 *  redis_timeout_ms for each page of leases. In a cluster it searches all masters, in the same way
 *  as an audit. If some leases cannot be read or freed, the call continues with the others, and
 *  tw_error_text() has the number. If a server cannot report the engine's last heartbeat, the call
 *  frees nothing. No unit is freed twice.
 *    instance  the engine's name in Redis, 32 digits
 *    units     becomes the number of freed units
 *  `tallywheel reclaim --force` does the same. An engine that was only paused, and then continues,
 *  sells those units a second time. Be sure that its process has ended.
 *  Returns:
 *    TW_OK
 *    TW_DENIED             Redis had a heartbeat of that engine within the last 5 s
 *    TW_ERR_UNKNOWN_TOKEN  not an instance; or it has no lease of this family, and tw_error_text()
 *                          names some instances that have one
 *    TW_ERR_MODE           the family is not TW_LIMIT_HARD; or see A WAITING CALL
 *    TW_ERR_REDIS          Redis is not configured, is unreachable or refused; in a cluster also:
 *                          some leases were not read or not freed
 *    TW_ERR_TIMEOUT        some units may have been freed: call again
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_lease_reclaim(tw_family *family, const char *instance, int64_t *units);

/** The number of units that tw_lease_reclaim() would free now. It changes nothing.
 *  Cost and statuses are those of tw_lease_reclaim(). */
TW_API tw_status tw_lease_stranded(tw_family *family, const char *instance, int64_t *units);

/* ==== 11. Once, and locks ==================================================================== */

/** Tells the first caller for a key and window from all later callers.
 *    first  becomes true for the first caller. It is forgotten together with the window
 *  The key's count becomes 1.
 *  Without Redis, and in strict families (A WAITING CALL), exactly one caller is first. If a reply
 *  is lost, the call repeats its request within its time, and is still the first. After
 *  TW_ERR_TIMEOUT, until the mark is undone, no caller is the first. In soft families with Redis
 *  the call decides by the counts that this process knows, and then sends its own. So callers in
 *  two processes may both be first, if both call before either process knows of the other (one
 *  sync_interval_ms, or an outage).
 *  While Redis is unreachable, on_outage decides. LOCAL and SHARE decide by the counts known here.
 *  With FAIL_OPEN every caller is first, and the count may exceed 1. With FAIL_CLOSED no caller is
 *  first in soft families, and strict families return TW_ERR_REDIS or TW_ERR_TIMEOUT.
 *  Families: counters of TW_SHAPE_FIXED, soft or strict; without Redis also hard ones.
 *  Returns:
 *    TW_OK           also with TW_FULL_LIMIT_ADMIT and a full table: first is then true
 *    TW_ERR_FULL     the table is full, and TW_FULL_LIMIT_DENY is set
 *    TW_ERR_MODE     wrong family; strict: see A WAITING CALL
 *    TW_ERR_REDIS    strict: Redis refused or is unreachable
 *    TW_ERR_TIMEOUT  strict: the outcome is unknown. If the caller was the first, this is undone
 *    general errors */
TW_API tw_status tw_once(tw_family *family, tw_key key, bool *first);

/** For a first caller that could not do its work: the key's count in the open window becomes 0, and
 *  the next caller of tw_once() is the first. Call it only if you were the first. In a strict
 *  family Redis is changed at once, in a soft family with the next sync.
 *  Returns TW_OK, also if no call was the first; otherwise the same as tw_once(). While Redis is
 *  unreachable, strict families return TW_ERR_REDIS or TW_ERR_TIMEOUT. After TW_ERR_TIMEOUT it was
 *  perhaps done, and is not done later. A second call also undoes a caller that has become the
 *  first since. */
TW_API tw_status tw_once_cancel(tw_family *family, tw_key key);

/** Takes a lock. It has one owner at a time, over all processes with this Redis and prefix. A
 *  WAITING CALL.
 *    ttl_ms  the lock ends automatically after this time. An owner that works for longer has lost
 *            the lock without notice
 *    token   names this lock of yours. Empty unless the status is TW_OK
 *    fence   the fencing token: each lock of the key gets a greater number. Pass it to the system
 *            that the lock protects. That system should refuse a number smaller than the greatest
 *            that it has seen
 *
 *      char token[TW_TOKEN_SIZE];
 *      uint64_t fence;
 *      if (tw_lock(jobs, tw_str("report"), 10000, token, &fence) == TW_OK) {
 *          write_report(fence);
 *          tw_lock_release(jobs, tw_str("report"), token);
 *      }
 *
 *  Any family of strings with Redis can be used. A lock has no window and no count. One script
 *  decides, by Redis's clock.
 *  The fencing token is Redis's time in microseconds, or 1 more than the last one if that is
 *  greater. If a reply is lost, the request is repeated, and the winner is still the winner. This
 *  is safe as long as Redis keeps what it acknowledged. A failover may lose a lock. After a
 *  failover the fencing token still rises, even if the clock of the new server is behind: each
 *  engine requests a number greater than every token of the last day that it knows, and greater
 *  than the clock of the previous server, as it measured that clock. The token may fall only if all
 *  of this is true: the clock of the new server is behind, the new server lacks the last token, and
 *  the engine has never been connected to the previous server.
 *  Returns:
 *    TW_OK
 *    TW_DENIED       the lock has another owner
 *    TW_ERR_RANGE    ttl_ms is 0
 *    TW_ERR_MODE     see A WAITING CALL; or the family uses hashes or sorted sets (redis_shape)
 *    TW_ERR_REDIS    Redis is not configured, is unreachable or refused
 *    TW_ERR_TIMEOUT  perhaps locked. It is released when Redis answers again, at the latest after
 *                    ttl_ms
 *    general errors */
TW_API tw_status tw_lock(tw_family *family, tw_key key, uint32_t ttl_ms, char token[TW_TOKEN_SIZE],
                         uint64_t *fence);

/** Extends the lock to `ttl_ms` from now on. It never becomes shorter.
 *  Returns the same as tw_lock(), and
 *    TW_ERR_LATE           the lock of this token has ended
 *    TW_ERR_UNKNOWN_TOKEN  malformed
 *    TW_ERR_TIMEOUT        perhaps done, call again */
TW_API tw_status tw_lock_extend(tw_family *family, tw_key key, const char *token, uint32_t ttl_ms);

/** Releases the lock. If it is late, it leaves alone whoever owns the lock by then.
 *  Returns the same as tw_lock_extend(), except
 *    TW_ERR_TIMEOUT  Redis has not answered. The release is repeated until it does
 *    TW_ERR_REDIS    Redis is not configured, or the key holds something else */
TW_API tw_status tw_lock_release(tw_family *family, tw_key key, const char *token);

/* ==== 12. Reservations, and slots in use ===================================================== */

/** Reserves `n` units of a stock of `limit`. No other caller can have them meanwhile. Unless
 *  tw_reserve_confirm() marks them as sold, they return automatically.
 *    ttl_ms   how long the reservation lasts
 *    buyer    gets one reservation for each key and window. A buyer that has one, or has bought, is
 *             denied before any unit is deducted. A cancelled or expired reservation does not
 *             count. Size 0: no buyer is checked
 *    token    names the reservation. With Redis any process may confirm or cancel it. Empty unless
 *             the status is TW_OK or TW_ERR_TIMEOUT
 *  The stock is the count of `key` in the window that is open: units sold and reserved together,
 *  which never exceed `limit`.
 *
 *      char token[TW_TOKEN_SIZE];
 *      if (tw_reserve(sale, tw_str("sku:7"), 1, 500, 15 * TW_MINUTE, tw_str(user), token, NULL)
 *          == TW_OK)
 *          ...  // pay; then, here or in any other process:
 *          sold = tw_reserve_confirm(engine, token) == TW_OK;
 *
 *  Without Redis the stock is exact, and reservations end by the monotonic clock. If many end at
 *  the same time, turns and calls return their units in several steps. A denial meanwhile has a
 *  retry_after_ms of some milliseconds.
 *  With Redis it is A WAITING CALL. One script decides for all processes, by Redis's clock.
 *  tw_get() shows reserved units after the next sync. Expired units return in the first call for
 *  the key, and without one as soon as they expire, by an engine that has reserved of the key and
 *  lives: if it was killed, and no other one has, the count in Redis has them until that call.
 *  Units that tw_add() or tw_acquire() added to
 *  the key count as sold as soon as Redis has them.
 *  Families: counters, soft or strict, of TW_SHAPE_FIXED and TW_REDIS_STRING; not
 *  TW_WINDOW_FROM_FIRST, not TW_ON_FULL_EVICT_IDLE, not `shadow`.
 *  Cost: some 128 bytes until the reservation is over. A sold reservation is kept while its results
 *  are repeated (a day after its end) and while its buyer is remembered (to the end of the window;
 *  in an endless family without end).
 *  Returns:
 *    TW_OK
 *    TW_DENIED       the buyer has one already (verdict->decided_by is TW_BY_BUYER); or no unit is
 *                    left: retry_after_ms is the time until some return. With Redis `final` means
 *                    that no unit can return
 *    TW_ERR_RANGE    n is below 1, ttl_ms is 0, or a number is out of range
 *    TW_ERR_KEY      the key or the buyer is no valid key
 *    TW_ERR_FULL     no memory is left; or, without Redis, reservations use half of it
 *    TW_ERR_MODE     wrong family; with Redis see A WAITING CALL
 *    TW_ERR_REDIS    Redis refused or is unreachable
 *    TW_ERR_LATE     the window is over in Redis
 *    TW_ERR_TIMEOUT  perhaps reserved. The engine cancels the reservation when Redis answers again,
 *                    and you may cancel `token`. It ends after ttl_ms at the latest
 *    general errors */
TW_API tw_status tw_reserve(tw_family *family, tw_key key, int64_t n, int64_t limit,
                            uint32_t ttl_ms, tw_key buyer, char token[TW_TOKEN_SIZE],
                            tw_verdict *verdict);

/** Marks the units as sold. Any thread may call it, and with Redis any process with the same Redis
 *  and prefix. It may be repeated.
 *  Returns:
 *    TW_OK                 sold, by this call or by an earlier one
 *    TW_ERR_LATE           the units have returned, because the reservation was cancelled or has
 *                          expired or, without Redis, because its family was closed. This is final
 *    TW_ERR_UNKNOWN_TOKEN  malformed; of another engine or Redis; or ended more than a day ago
 *    TW_ERR_TIMEOUT        perhaps done, call again. Only a call of yours repeats it
 *    TW_ERR_REDIS, TW_ERR_MODE, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED
 *                          same as tw_reserve() */
TW_API tw_status tw_reserve_confirm(tw_engine *engine, const char *token);

/** Gives the units back.
 *  Returns the same as tw_reserve_confirm(), except
 *    TW_OK        the units have returned: now, by an earlier call, or because the time was over
 *    TW_ERR_UNKNOWN_TOKEN
 *                 also if the reservation has not reached Redis. If it does within ten minutes, it
 *                 has no effect
 *    TW_ERR_LATE  they are sold. Return sold units with tw_add() of a negative delta
 *    TW_ERR_TIMEOUT
 *                 Redis has not answered. The cancel is repeated until it does */
TW_API tw_status tw_reserve_cancel(tw_engine *engine, const char *token);

/** Takes a slot under `key`, if at most `limit` slots are then in use. Slots are for connections,
 *  running jobs and the like. tw_hold_release() ends the use.
 *  Families: endless ones (TW_WINDOW_FOREVER) of TW_SHAPE_FIXED and TW_REDIS_STRING, counters or
 *  gauges, soft or strict; not TW_ON_FULL_EVICT_IDLE, not `shadow`.
 *
 *      if (tw_hold(downloads, tw_str(user), 3, NULL) != TW_OK) return busy();
 *      ...
 *      tw_hold_release(downloads, tw_str(user));
 *
 *  Without Redis it counts in this process, same as tw_acquire(). In a shared engine it counts in
 *  all processes that share it, together. Slots of a process that has ended, however it ended, are
 *  free within a second while some process leads. tw_get() does not show these slots, but
 *  verdict->used does. With Redis a shared engine has no slots.
 *  With Redis it is A WAITING CALL, and one script decides for all processes. A process repeats
 *  every few seconds which slots it uses. After kill -9 its slots are free within 15 s, with
 *  tw_hold_notes() at once. A process that was stopped for longer reports its slots again. Until
 *  then other processes may have taken them. tw_get() does not show these slots, but verdict->used
 *  does. While Redis is unreachable, on_outage decides. TW_OUTAGE_LOCAL decides by the slots of
 *  this process.
 *  Returns:
 *    TW_OK
 *    TW_DENIED
 *    TW_ERR_RANGE  limit is negative or out of range
 *    TW_ERR_FULL   there is no memory for a new key; or, in a shared engine, 16,777,215 slots of
 *                  the key are in use
 *    TW_ERR_MODE   wrong family; a shared engine with Redis; with Redis see A WAITING CALL
 *    TW_ERR_REDIS  Redis refused
 *    TW_ERR_MEMORY also: more than 1,023 processes share the engine, and this one has no place; or
 *                  no thread could be started that shows the end of this process
 *    general errors */
TW_API tw_status tw_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict);

/** Releases a slot: one less is in use. With Redis it is A WAITING CALL, which may last for twice
 *  redis_timeout_ms.
 *  Returns:
 *    TW_OK         also if Redis has not answered: the release is repeated until it does. If that
 *                  is for longer, the slot is free within 15 s
 *    TW_ERR_BUSY   nothing changed: the slot is in use. Call again
 *    TW_ERR_RANGE  this process uses no slot of this key; nothing changed. If many threads use the
 *                  key, one release too many may stay unnoticed while another one is running
 *    TW_ERR_MODE   wrong family; a shared engine with Redis; with Redis see A WAITING CALL
 *    general errors */
TW_API tw_status tw_hold_release(tw_family *family, tw_key key);

/** With Redis, makes slots of killed processes free at once. The engine notes its slots in memory
 *  that outlives its process, and releases the slots that an earlier process noted there. It is for
 *  processes that fork from one parent. Each of them has an engine.
 *  The engine notes its slots in the first memory that it is given. It only clears later ones.
 *      parent: maps shared memory (MAP_SHARED) for each child, all bytes 0
 *      child:  tw_hold_notes(engine, mine, bytes), after tw_open()
 *      later, with the memory of a child that has ended: the same call, until it returns TW_OK.
 *             `bytes` is the size that this child used
 *  The caller promises that no other living process notes slots in `memory`. A robust mutex that
 *  the process keeps locked is a proof: a caller that gets EOWNERDEAD may use the memory. A process
 *  id is none, because another process may have it later. Keep `memory` mapped until tw_close().
 *  A slot is noted before Redis is asked for it. So after a kill at any moment the slot is noted,
 *  or Redis was not asked. A slot is not noted if there is no room, or if its name in Redis has
 *  more than TW_HOLD_NOTE_BYTES - 72 bytes. Then it is free within 15 s.
 *  bytes: TW_HOLD_NOTE_BYTES for each slot that this process uses at the same time.
 *  Never waits. Any thread. Allocates no memory.
 *  Returns:
 *    TW_OK        no slot of an earlier process is noted there
 *    TW_PENDING   slots of an earlier process are being released. Call again after a turn
 *    TW_ERR_OPTIONS
 *                 memory is NULL or not at a multiple of 8; bytes is too small, or too large
 *    TW_ERR_FULL  sixteen memories are not cleared yet. Call again
 *    TW_ERR_MODE  a shared engine
 *    TW_ERR_REDIS the engine has no Redis
 *    general errors */
TW_API tw_status tw_hold_notes(tw_engine *engine, void *memory, size_t bytes);

/* ==== 13. Limits from a file =================================================================
 * Each line gives the limit in a window for the keys of a family that match a pattern:
 *
 *      # family  key         limit      window  words
 *      login     *           5          1m                         # any key
 *      login     ip:10.*     unlimited                             # * only at a pattern's end
 *      login     ip:10.6.6.6 0          1m                         # this one key: never
 *      api       user:*      1000       1h      from-first
 *      stock     sku:*       500        1d      mode=hard outage=fail-closed
 *
 * Which line     The closest line that matches is used: a line with the key itself, otherwise the
 *                longest pattern. The order of the lines has no meaning. Two lines
 *                with the same family and key are an error.
 * Limits         0 to TW_DELTA_MAX, or unlimited.
 * Windows        A number with s, m, h or d.
 * Words          The family's options: from-first, shadow, mode=soft|hard|strict,
 *                shape=fixed|sliding|gcra, burst=N, sub-windows=N,
 *                outage=local|fail-open|fail-closed|share, busy=refuse|outage. Each at most once.
 *                All lines of a family and window must have the same words.
 * Text           In keys, \\ \* \t \n \xHH are bytes. Blanks separate words. A # at the beginning
 *                of a word starts a comment. The last line ends with a newline, too.
 * Bounds         4 MiB; 100,000 limits; 256 families and windows (of all reloads together).
 *
 * For each family and window the engine opens a family with both names, for example "login.1m". So
 * a changed window begins from 0, and a changed limit keeps the units that were used.
 * tw_family_find() returns such a family for reading. */
typedef struct tw_limits tw_limits;

/** A family of the file, found once, so that later calls need not search for its name. */
typedef struct tw_limited tw_limited;

/** Reads the file and opens the families that it names.
 *  Cost: reads a file, and needs memory of its size and that of the families.
 *    error_text  becomes "FILE:LINE: " and the error; or NULL
 *  Returns TW_OK, or TW_ERR_OPTIONS, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED, or TW_ERR_MODE (a
 *  shared engine after the first fork), which mean that nothing changed. */
TW_API tw_status tw_limits_open(tw_engine *engine, const char *path, char *error_text,
                                size_t error_size, tw_limits **limits);

/** Reads the file again. From then on all of it applies. After an error all earlier limits still
 *  apply. Calls that run meanwhile do not wait, and each sees either the old limits or the new
 *  ones.
 *  The words of a line (shadow, outage, burst, busy) change family by family, a moment before the
 *  limits. If the reload fails, they change back. It is an error if a family that was in the file
 *  has no line any more, or if a family and window gets another mode, shape, from-first or
 *  sub-windows. Replace the file with rename(), so that the engine never reads a half-written file.
 *  Cost: same as tw_limits_open(). It may wait some microseconds for running lookups.
 *  Returns the same as tw_limits_open(), and TW_PENDING, which means that another thread is
 *  reloading and that nothing was done. */
TW_API tw_status tw_limits_reload(tw_limits *limits, char *error_text, size_t error_size);

/** Calls tw_acquire() with the file's limit for `key`. If no line matches the key, or if it is
 *  unlimited, the call returns TW_OK and counts nothing, and limit and remaining are TW_UNBOUNDED.
 *  A limit of 0 denies with TW_CAUSE_NEVER.
 *  Cost: two binary searches, then tw_acquire(). The searches wait for no thread.
 *  Returns the same as tw_acquire(), and
 *    TW_ERR_OPTIONS  no line names the family; check its spelling in the file */
TW_API tw_status tw_limits_acquire(tw_limits *limits, const char *family, tw_key key, int64_t n,
                                   tw_verdict *verdict);

/** Finds the family and limit that tw_limits_acquire() would use, for all other calls: tw_refund(),
 *  tw_reserve(), tw_get() ... Unlimited keys give NULL and TW_UNBOUNDED. A handle stays valid until
 *  tw_limits_close(). Either pointer may be NULL.
 *  Returns TW_OK, or TW_ERR_OPTIONS (no line names the family) or TW_ERR_KEY. With an error no
 *  result is written. */
TW_API tw_status tw_limits_find(tw_limits *limits, const char *family, tw_key key,
                                tw_family **found, int64_t *limit);

/** Finds a family of the file by its name. The handle stays valid until tw_limits_close(). After a
 *  reload it leads to the new limits.
 *  Returns TW_OK, or TW_ERR_OPTIONS (no line names the family). With an error no result is written.
 */
TW_API tw_status tw_limits_family(tw_limits *limits, const char *family, tw_limited **limited);

/** Same as tw_limits_acquire() and tw_limits_find(), without the search for the name. */
TW_API tw_status tw_limited_acquire(tw_limited *limited, tw_key key, int64_t n,
                                    tw_verdict *verdict);
TW_API tw_status tw_limited_find(tw_limited *limited, tw_key key, tw_family **found,
                                 int64_t *limit);

/** Closes the families and frees the rest. NULL is allowed and does nothing. Call it before
 *  tw_close(). No call with `limits`, or with a handle found in it, may be running or follow.
 *  Returns TW_OK, or TW_ERR_MODE inside a function of your own or in a shared engine after the
 *  first fork, which means that nothing was done. */
TW_API tw_status tw_limits_close(tw_limits *limits);

/* ==== 14. Statistics and metrics ============================================================= */

/** Every field of tw_stats: X(name, kind, text), kind gauge or counter. Append only. */
#define TW_STATS(X) \
    X(increments, counter, \
      "adds that returned TW_OK or TW_OVERFLOWED, and calls whose units a limit counted here") \
    X(entries, gauge, "counters that exist now, in all windows") \
    X(memory_bytes, gauge, "counting memory in use") \
    X(memory_bytes_high, gauge, "the most counting memory that was ever in use") \
    X(memory_bytes_max, gauge, "the bound of counting memory") \
    X(generations, gauge, "windows that exist now, of all families") \
    X(overflow_increments, counter, "adds that counted in an overflow counter") \
    X(rejected_increments, counter, "adds of new keys that returned TW_ERR_FULL") \
    X(late_increments, counter, "adds that returned TW_ERR_LATE") \
    X(windows_closed, counter, "windows sealed") \
    X(windows_packed, counter, "windows in history that were packed") \
    X(packs_refused, counter, "windows not packed because memory was short; tried again later") \
    X(hooks_again, counter, "closing hooks that returned false") \
    X(sections_oldest_ms, gauge, "how long the oldest read section has lasted") \
    X(clock_held_ms, gauge, \
      "how long engine time has paused, or followed the monotonic clock alone, because the wall " \
      "clock was set") \
    X(clock_lag_max_ms, gauge, "the longest time between two refreshes of the engine's clock") \
    X(redis_configured, gauge, "1 with a redis_url") \
    X(redis_connected, gauge, "1 while Redis answers; in a cluster: every store of this engine") \
    X(sync_age_ms, gauge, "time since the last acknowledged batch; -1: there was none yet") \
    X(unsent_keys, gauge, \
      "counters with counts that Redis has not acknowledged, at least; sampled by turns") \
    X(connects, counter, "connections made") \
    X(disconnects, counter, "connections lost") \
    X(batches_sent, counter, "batches sent, including those that were sent again") \
    X(batches_ok, counter, "batches that Redis applied") \
    X(batches_dup, counter, "batches that Redis had applied before") \
    X(batches_gap, counter, "batches refused because their number was not the next one") \
    X(batches_error, counter, "batches that failed with an error") \
    X(poison_keys, counter, "keys that Redis rejected") \
    X(late_deltas, counter, "units that Redis refused as late (absolute values added up)") \
    X(expired_unsynced, counter, \
      "units whose window was over in Redis before Redis could be reached") \
    X(lost, counter, "units known to be lost (absolute values added up)") \
    X(uncertain, counter, "units with an unknown outcome (absolute values added up)") \
    X(rollbacks, counter, "times that Redis had gone back to an earlier state") \
    X(redis_clock_offset_ms, gauge, "Redis's clock minus ours") \
    X(breaker_state, gauge, \
      "0: Redis is used; 1: Redis is not used until a back-off is over; 2: Redis is being tried") \
    X(outage_ms, gauge, \
      "how long Redis has not answered, since its first failure or tw_open; 0 while it answers") \
    X(replayed, counter, \
      "units sent again because Redis had forgotten them (absolute values added up)") \
    X(restored, counter, \
      "units taken from the counters and sent again because Redis had lost everything") \
    X(regressions, counter, \
      "totals below what Redis had acknowledged, without a known reason: a key was deleted, " \
      "evicted or set by hand") \
    X(replicas_short, counter, \
      "times that fewer replicas than wait_replicas had the acknowledged data") \
    X(striped, counter, "counters that got stripes or slices because threads contended for them") \
    X(evicted, counter, \
      "keys that were evicted (TW_ON_FULL_EVICT_IDLE); Redis has their counts, without Redis the " \
      "overflow counter has them") \
    X(limit_admitted, counter, "calls that a limit admitted") \
    X(limit_denied, counter, "calls that a limit did not admit, also in shadow mode") \
    X(limit_near, counter, "calls that were admitted and left a fifth of the limit, or less") \
    X(limit_shadow_denied, counter, \
      "calls admitted in shadow mode that the limit would not have admitted") \
    X(limit_measured, counter, \
      "counters near a soft limit whose total was measured after the end of their window; with " \
      "Redis") \
    X(limit_overshot, counter, "counters of limit_measured whose total exceeded the limit") \
    X(reservations_held, gauge, \
      "reservations made here and not yet confirmed, cancelled or expired; without Redis") \
    X(reservations_expired, counter, \
      "reservations that expired before they were confirmed; without Redis") \
    X(lease_draws, counter, "times that Redis granted units of a hard limit") \
    X(lease_returned, counter, "units of hard limits that were returned unspent") \
    X(lease_stranded, gauge, \
      "units of hard limits in leases of engines that died, in windows that are still open") \
    X(limit_at_risk, counter, \
      "units granted beyond a hard limit because Redis forgot grants, as far as they were " \
      "reported to this engine") \
    X(ask_active, gauge, "calls that wait for Redis now (strict limits, locks)") \
    X(ask_calls, counter, "requests of calls that wait for Redis, also those that were not sent") \
    X(ask_ms, counter, "how long they waited, all together; without cancelled calls") \
    X(ask_connects, counter, "connections made for them") \
    X(ask_timeouts, counter, \
      "tries without a reply in time, and calls whose time ended before they could be sent") \
    X(ask_refused, counter, "tries that Redis refused") \
    X(ask_dropped, counter, "tries whose connection failed") \
    X(ask_away, counter, "calls that were not sent, because Redis was unreachable") \
    X(asked_again, counter, "tries after one whose reply was lost") \
    X(asks_unknown, counter, "calls that Redis may or may not have executed") \
    X(strict_fallbacks, counter, "calls of strict limits that on_outage decided") \
    X(asks_settled, counter, \
      "calls of asks_unknown whose charge, if any, was undone, and releases that were done later") \
    X(live_engines, gauge, \
      "engines that share this Redis, as last reported by Redis; 0: not known") \
    X(audits, counter, "audits made at their interval") \
    X(audit_findings, gauge, "findings of the last of them; -1: it failed") \
    X(clock_ahead_ms, gauge, \
      "engine time minus the wall clock; above 5 s the wall clock was set back") \
    X(windows_again, counter, \
      "windows reported to the hook again, because counts came after they had been closed") \
    X(windows_untold, counter, \
      "windows, or late counts in a window closed by another engine, that no hook accepted: it " \
      "returned false, or there is none") \
    X(memory_free_bytes, gauge, "counting memory that is free within the bound") \
    X(memory_usable_bytes, gauge, \
      "free memory that families without a share can use at once: in pieces long enough for any " \
      "key and any window") \
    X(tls_refused, counter, \
      "connections that TLS refused: a certificate, a name, a version; see last_error") \
    X(redis_nodes, gauge, "masters of a Redis Cluster that this engine is connected to") \
    X(stores, gauge, \
      "ledgers of this engine in Redis: one, or in a cluster one for each key slot in use") \
    X(stores_away, gauge, "stores whose server does not answer") \
    X(stores_split, gauge, \
      "stores whose slot is split: the ledger has disappeared while another master has " \
      "keys of the slot, or requests have been redirected for ten seconds") \
    X(moved, counter, "requests that a cluster answered by MOVED") \
    X(asked, counter, "requests that a cluster answered by ASK") \
    X(tryagain, counter, "requests that a cluster answered by TRYAGAIN") \
    X(map_refreshes, counter, "times the map of the cluster was read (CLUSTER SLOTS)") \
    X(stores_waiting, gauge, \
      "stores that wait until others were written: at most 1,024 at a time are written") \
    X(overflow_sketches_refused, counter, \
      "windows that overflowed without memory to record their heavy keys (tw_top)") \
    X(ask_unsettled, gauge, \
      "calls whose caller no longer waits, and whose charge, if any, is being undone; and " \
      "releases that are repeated") \
    X(ask_busy, counter, \
      "calls that were not sent because calls_max others were under way, or more than Redis " \
      "answers in their time") \
    X(ask_cancelled, counter, "calls that tw_request_cancel() undid") \
    X(asks_forgotten, counter, \
      "calls whose charge was not undone, and releases that Redis did not answer") \
    X(done_ms_max, gauge, "the longest that a `done` of yours has taken") \
    X(load_skipped, counter, \
      "counts that tw_load() left out, because their window was final already") \
    X(processes, gauge, "processes that share this engine, with this one; 1: it is not shared") \
    X(processes_died, counter, "processes that shared this engine and ended without tw_close()") \
    X(leaders_died, counter, "those of them that led it") \
    X(leader_age_ms, gauge, \
      "time since the last turn of the process that leads this shared engine; -1: there was none") \
    X(recovered_keys, counter, \
      "counters whose work was finished for a thread or process that had ended in the middle of " \
      "it") \
    X(ask_window, gauge, \
      "calls that a connection to Redis may have under way now, where that is the fewest; it " \
      "follows from how long answers take") \
    X(ask_unsent, gauge, "calls that wait for that, and were not sent") \
    X(ask_units_kept, counter, \
      "units that these calls may have charged and that stay charged, because Redis could not " \
      "return them or was away until the end; a release, also of a reservation, counts as one")

#define TW_STATS_ROOM 160 /* space for this many figures; unused ones are reserved */
#define TW_STATS_ONE(name, kind, text) +1
/** The result of tw_stats_read(). */
struct tw_stats {
#define TW_STATS_FIELD(name, kind, text) int64_t name;
    TW_STATS(TW_STATS_FIELD)
#undef TW_STATS_FIELD
    int64_t reserved[TW_STATS_ROOM - (0 TW_STATS(TW_STATS_ONE))];
    char last_error[128]; /* the last error of Redis or of the connection. That of an outage is
                             cleared when Redis answers. Empty: no error */
};
#undef TW_STATS_ONE

/** Writes the first `size` bytes of a tw_stats. Bytes beyond the library's struct become 0. For
 *  other languages. C and C++ call tw_stats_read(). */
TW_API tw_status tw_stats_read_sized(tw_engine *engine, tw_stats *stats, size_t size);

/** Reads every figure, one after the other.
 *  Cost: some microseconds, and about one for each open family. Meanwhile families cannot be opened
 *  or closed. No other call waits.
 *  Returns TW_OK, or TW_ERR_MODE for root, if another user shares the engine (tw_lead()). */
static inline tw_status tw_stats_read(tw_engine *engine, tw_stats *stats) {
    return tw_stats_read_sized(engine, stats, sizeof(tw_stats));
}

/** The `format` of tw_metrics_write(), and the Content-Type with which to serve the page. */
enum tw_metrics { TW_METRICS_PROMETHEUS = 0, TW_METRICS_OPENMETRICS = 1 };
#define TW_METRICS_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define TW_METRICS_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
/* Add this to TW_METRICS_OPENMETRICS to leave out the "# EOF" at the end, if more text follows. */
#define TW_METRICS_NO_EOF 256

/** Writes the statistics as a page of metrics.
 *    format  TW_METRICS_PROMETHEUS is the text format that every scraper accepts.
 *            TW_METRICS_OPENMETRICS is OpenMetrics 1.0, for scrapers whose Accept header has
 *            application/openmetrics-text
 *    write   is called with pieces of the page, each of whole lines. Return false to end the page
 *  Each sample has the labels of tw_options.metrics_labels.
 *  You may put the program's own metrics on the same page: write them before or after this call (in
 *  OpenMetrics with TW_METRICS_NO_EOF, and "# EOF\n" at the very end). None of their names may
 *  begin with tallywheel_. Two engines need two pages, because a page describes each metric once.
 *  After the engine's figures come those of each family whose limit was used, with the label
 *  {family="NAME"}: tallywheel_family_limit_admitted, _denied, _near, _shadow_denied. These are
 *  counters with the meaning of tw_stats, and begin at 0 when the family is opened. Soft families
 *  with Redis and aligned or calendar windows also have a histogram,
 *  tallywheel_family_limit_overshoot_ratio. It shows for counters that came near their limit here
 *  (at most 1024 at a time) by which part of the limit all engines together had exceeded it at the
 *  end of the window. 0.01 is 1 %. If calls named several limits, it uses the greatest one. Counts
 *  of tw_add() are included.
 *  Returns:
 *    TW_OK
 *    TW_DENIED       `write` returned false
 *    TW_ERR_OPTIONS  unknown format; `write` was not called
 *    TW_ERR_MODE     same as tw_stats_read(); `write` was not called
 *    TW_ERR_MEMORY   `write` was not called */
TW_API tw_status tw_metrics_write(tw_engine *engine, uint32_t format,
                                  bool (*write)(void *ctx, const char *text, size_t size),
                                  void *ctx);

/** A watch socket of the host, with which `tallywheel top`, `show` and `reset` look at families of
 *  one engine or several, also in a host-driven engine. The host listens at a path and accepts
 *  clients, so it decides who may connect. tw_watch_open() starts a thread that serves them, as
 *  with tw_options.watch_path.
 *    families  at least one. Their names differ. They stay open until tw_watch_close()
 *    writes    1 lets `tallywheel reset` set a key to 0. Otherwise it is refused
 *  Figures of several engines are joined: counters and amounts are added up, of a time or a state
 *  the worst is shown. Requests for a page of metrics are refused (tw_metrics_write()).
 *  tw_watch_take() gives the thread a connected stream socket. The library closes it, also after an
 *  error. It never waits.
 *  tw_watch_close() ends the thread. It waits for an answer that is being made, not for its reader.
 *  Threads: any for tw_watch_take(). tw_watch_open() and tw_watch_close() are for the process whose
 *  thread it is, not for one that was forked from it.
 *  Returns:
 *    TW_OK
 *    TW_ERR_RANGE   no family, or two of one name
 *    TW_ERR_MEMORY  no memory, no thread or no descriptor
 *    TW_ERR_BUSY    tw_watch_take(): thousands wait already */
typedef struct tw_watch tw_watch;
TW_API tw_status tw_watch_open(tw_family *const *families, size_t count, uint32_t writes,
                               tw_watch **watch);
TW_API tw_status tw_watch_take(tw_watch *watch, int fd);
TW_API void tw_watch_close(tw_watch *watch);

/* ==== 15. Audit ============================================================================== */

/** What an audit finds. The numbers never change. */
enum tw_audit_kind {
    TW_AUDIT_LEDGER = 1,    /* a ledger has disappeared, differs from ours, or has half a batch */
    TW_AUDIT_NO_EXPIRY = 2, /* a key should have an expiry and has none */
    TW_AUDIT_TOTAL = 3,     /* the count in Redis differs from that in the file */
    TW_AUDIT_NO_COUNT = 4,  /* a counter of the file is no number in Redis */
    TW_AUDIT_MEMORY = 5,    /* Redis evicts keys, may evict keys, or is nearly full */
    TW_AUDIT_LINE = 6,      /* a line of the file is no key<TAB>count; `text` names file and line */
    TW_AUDIT_STRAY = 7      /* in a cluster: a key is on a node that does not serve its slot */
};

/** The library owns it. It is valid inside `found` only. */
typedef struct tw_finding {
    int kind;                /* enum tw_audit_kind */
    tw_key name;             /* the key in Redis; size 0 if the finding is about no key */
    int64_t expected, found; /* 0 and 0 if they are no numbers */
    const char *text;        /* a sentence */
    tw_key inner;            /* for a total of a hash the field, of a sorted set the member */
    uint64_t reserved[2];
} tw_finding;

/** New fields are appended. */
typedef struct tw_audit_report {
    uint64_t findings;
    uint64_t ledgers, keys, lines;            /* how many were checked */
    uint64_t cut_off;                         /* 1: there were more keys than keys_max */
    int64_t memory_used, memory_max, evicted; /* as reported by Redis; -1: not reported */
    uint64_t reserved[8];
} tw_audit_report;

/** What an audit checks. Fill with tw_audit_options_init(). */
typedef struct tw_audit_options {
    size_t size;
    char *error_text; /* the error of an option, of Redis or of the file */
    size_t error_size;

    /* Without an engine: same as in tw_options. With an engine: NULL. */
    const char *redis_url;
    const char *redis_prefix;

    /* Keys that must have an expiry, as a pattern of SCAN's MATCH. NULL: with an engine the keys of
     * its families whose windows end, without an engine no keys. */
    const char *pattern;
    uint64_t keys_max; /* the most keys whose expiry is checked; default 10 million */

    /* Totals of a database: a file of lines key<TAB>count. In keys \t \n \\ \xHH are bytes. NULL:
     * no totals. */
    const char *totals_path;
    const char *totals_name; /* the name in Redis of a key of the file: %k is the key, {%t} may be
                                before it, %% is a percent sign; default "%k". Hash: %k is the
                                subject. Sorted set: without %k and {%t}; no default */

    uint32_t timeout_ms; /* time for one reply; 1..600000, default 1000 */
    uint64_t redis_tags; /* for totals_name: same as in the family; default 128 */

    /* Without an engine: same as in tw_options. */
    const char *sentinel_user;
    int (*sentinel_password)(void *ctx, char *out, size_t size);
    void *sentinel_password_ctx;
    const char *redis_tls_ca_file;
    const char *redis_tls_cert_file;
    const char *redis_tls_key_file;
    const char *redis_tls_server_name;
    uint32_t redis_tls_insecure;

    /* For the totals, same as in the family. */
    uint32_t redis_shape; /* enum tw_redis_shape */
    char key_separator;   /* TW_REDIS_HASH: default '|' */
} tw_audit_options;

#define tw_audit_options_init(options) tw_audit_options_init_sized((options), sizeof *(options))
TW_API void tw_audit_options_init_sized(tw_audit_options *options, size_t size);

/** tw_audit() with the size of the caller's report: it writes `size` bytes of the report. Bytes
 *  beyond the library's struct become 0. For other languages. */
TW_API tw_status tw_audit_sized(tw_engine *engine, const tw_audit_options *options,
                                void (*found)(void *ctx, const tw_finding *finding), void *ctx,
                                tw_audit_report *report, size_t size);

/** Checks Redis over separate connections, and changes nothing. It checks ledgers against our own
 *  numbers (with an engine), each ledger in itself, keys without an expiry, totals against a file,
 *  and Redis's memory and eviction. In a cluster it checks every master, and each key once. Its
 *  figures of memory are then sums. A failure at one master does not end the audit at the others.
 *    engine  NULL: without an engine
 *    found   is called for each difference, and may not call the engine; or NULL
 *    report  or NULL
 *  The file is read to its end. If other programs count meanwhile, this shows as a difference.
 *  Cost: a SCAN of all keys for ledgers, and one for each pattern, in pages of some hundred keys. A
 *  GET, HGET or ZSCORE for each line of the file.
 *  Returns:
 *    TW_OK           the audit is complete, with or without findings
 *    TW_ERR_OPTIONS  an option is refused
 *    TW_ERR_REDIS    Redis is not configured, is unreachable or refused. In a cluster also: a
 *                    master is unreachable, no master serves some slots, or slots began to move. A
 *                    part was checked, and error_text names the other part
 *    TW_ERR_TIMEOUT  a part was checked; or nothing, if the engine's turn lasted for all of the
 *                    time
 *    TW_ERR_MODE     host-driven engine, inside a function of your own, or inside tw_enter()
 *    TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED */
static inline tw_status tw_audit(tw_engine *engine, const tw_audit_options *options,
                                 void (*found)(void *ctx, const tw_finding *finding), void *ctx,
                                 tw_audit_report *report) {
    return tw_audit_sized(engine, options, found, ctx, report, sizeof(tw_audit_report));
}

/* ==== 16. Calls that answer later ============================================================
 * A call that waits for Redis blocks its thread. An event loop starts it instead: each call that
 * waits has a form whose name ends in _async. The forms of acquire, hold and similar calls work in
 * every family, so one line serves all of them:
 *
 *     request->done = on_verdict;  request->ctx = client;
 *     if (tw_acquire_async(request, orders, key, 1, 500) != TW_STARTED) on_verdict(request);
 *
 * THE ONE RULE. If the call returns TW_STARTED, `done` is called exactly once, unless the request
 * is cancelled. If it returns another status, that status is the result, the request is filled, and
 * `done` is not called. Calls that never wait (soft, hard and local families) return their result
 * at once. So do calls with refused arguments, calls while Redis is known to be unreachable, except
 * releases, and calls beyond calls_max (TW_ERR_BUSY). TW_ERR_BUSY may also come after TW_STARTED:
 * Redis answers others, but could not answer this call in its time.
 *
 * Whose thread   With a queue, `done` is called by the thread that calls tw_queue_run(). Without a
 *                queue, in a host-driven engine, it is called inside tw_turn(), and inside
 *                tw_flush(), tw_ready() and tw_close(), which make turns. Without a queue, in an
 *                engine with its own thread, a second thread of the engine calls it, one `done`
 *                after the other. The first call that waits starts that thread. `done` is never
 *                called inside a call of ..._async.
 * Inside `done`  You may start other calls, cancel, count and read. Calls that wait, tw_turn(),
 *                tw_close(), tw_family_close() and tw_queue_close() return TW_ERR_MODE.
 *                tw_error_text() gives the reason of a refused call. `done` must return and should
 *                not block for long: more than 100 ms is logged (TW_EVENT_CALLBACK). When `done` is
 *                called, the request belongs to you again: start it again, or free it.
 * Time           timeout_ms counts from the start to the result. When it is over, the result is the
 *                one of the call without _async. A loop that is late first reads the replies that
 *                have arrived, and then looks at the clock.
 * Memory         Keys and tokens are copied. totals and visit_ctx must stay valid until the result.
 *                A visitor is called just before `done`, by the same thread. After some calls no
 *                more memory is allocated if key and buyer have at most 256 bytes together.
 *                Exceptions are fetches, and tw_acquire_wait_async() of strict limits.
 * Outages        Same as the call without _async: on_outage decides, or TW_ERR_REDIS.
 * Closing        tw_stop() ends every call that is under way. The result is TW_ERR_CLOSED if it was
 *                never sent, and TW_ERR_TIMEOUT if it was sent and has no reply, or is a release
 *                (of a slot: TW_OK).
 *                Each `done` is called, by tw_close() at the latest and in its thread. With
 *                queues, call tw_stop(), tw_queue_run() until it returns 0, tw_queue_close(),
 *                tw_close(). A family that is closed is freed when the last of its requests has
 *                its result.
 * Fork           Calls under way belong to the parent. In a child their `done` is not called, and
 *                their requests may be used again at once. A child must call tw_queue_fd() again.
 */

/** One call under way. It belongs to you, in a pool or inside your own request. Fill it with
 *  tw_request_init() before its first use, then use it again and again. Between TW_STARTED and the
 *  result you may not move it, read it, or use it for another call. Its size never changes. */
struct tw_request {
    void (*done)(tw_request *request); /* set these four before a call of ..._async */
    void *ctx;
    tw_queue *queue;            /* its tw_queue_run() calls done; NULL: see above */
    uint32_t timeout_ms;        /* 0: redis_timeout_ms */
    tw_status status;           /* the result of the call without _async */
    tw_verdict verdict;         /* acquire, reserve, hold */
    int64_t taken, rank, total; /* acquire_some: taken; fetch_rank: rank and total */
    uint64_t fence;             /* lock */
    bool first;                 /* once */
    char token[TW_TOKEN_SIZE];  /* lock, reserve */
    uint64_t own[8];            /* for the library */
};

/** Makes a request idle. Not for one that is under way. */
static inline void tw_request_init(tw_request *request) {
    memset(request, 0, sizeof *request);
}

/** Cancels a call. `done` will not be called, and the request belongs to you at once. What Redis
 *  did for the call is undone as well: units and reservations return, the lock or the slot is free,
 *  and the next caller of tw_once() is the first. The engine repeats this until Redis answers, also
 *  after tw_stop(), within the time of tw_close(). tw_stats.ask_units_kept counts units that have
 *  not returned by then. If the call reaches Redis later, it has no effect.
 *  A release, of a lock, a slot or a reservation, is done all the same. A confirmation or an
 *  extension that was sent, and tw_once_cancel(), stay as far as Redis has executed them.
 *  Threads: any.
 *  Returns:
 *    TW_OK       cancelled, or the request was idle
 *    TW_PENDING  `done` is running in another thread. Never for the thread that runs the request's
 *                queue, and never for the thread of a host-driven engine */
TW_API tw_status tw_request_cancel(tw_request *request);

/** Opens a queue for the results of one event loop. Each loop needs one. In a host-driven engine a
 *  queue works as well, and decides which thread calls `done`.
 *  Returns TW_OK, TW_ERR_MEMORY (also if there is no file descriptor), TW_ERR_CLOSED or
 *  TW_ERR_FORKED. */
TW_API tw_status tw_queue_open(tw_engine *engine, tw_queue **queue);

/** A descriptor that is readable while results wait in the queue. Wait for reading. It stays the
 *  same while the queue exists. A forked child must call this again. */
TW_API int tw_queue_fd(const tw_queue *queue);

/** Calls `done` for at most `most` results, and returns for how many. It never waits. After
 *  tw_stop() 0 means that none is left, so the queue can be closed. One thread at a time for each
 *  queue. Inside `done` it returns 0. */
TW_API size_t tw_queue_run(tw_queue *queue, size_t most);

/** Closes the queue. NULL is allowed and does nothing. Close queues before tw_close(), which
 *  returns TW_ERR_MODE while a queue is open.
 *  Returns TW_OK, or TW_ERR_MODE if calls are under way with it or inside a function of your own,
 *  which means that nothing was done. */
TW_API tw_status tw_queue_close(tw_queue *queue);

/** Each starts the call of the same name without _async. That call's comment describes the result,
 *  and outputs are written into the request. A request that is under way, or whose queue is of
 *  another engine, is refused with TW_ERR_MODE. (A call that never waits checks neither this nor
 *  `done`.) You may make these calls inside `done`, inside hooks, inside tw_enter(), and in
 *  host-driven engines.
 *  Cost: in families that never wait, same as the call without _async, and a store. In other
 *  families a lock for some nanoseconds, a copy of the request, and a system call if the other
 *  thread sleeps.
 *  Returns TW_STARTED, or the result as described above, or
 *    TW_ERR_BUSY     calls_max calls are under way, or more than Redis answers in their time (also
 *                    after TW_STARTED); nothing was done
 *    TW_ERR_OPTIONS  `done` is NULL; nothing was done
 *  tw_lock_release_async(), tw_hold_release_async() and tw_reserve_cancel_async() accept NULL for
 *  the request. They are then sent without a result, and repeated until Redis answers. If half of
 *  calls_max wait for that already, the release of a slot waits, too. The other two return
 *  TW_ERR_BUSY (counted in tw_stats.asks_forgotten): nothing was done, call again. */
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

/* ==== 17. Planned restarts without Redis =====================================================
 * Without Redis the counts end with their process. A file can carry them to the next one:
 *
 *     tw_stop(engine);                              // the old process; then its threads end
 *     if (tw_save(engine, "/var/lib/shop/counts") != TW_OK) puts(tw_error_text());
 *     tw_close(engine, 1000);
 *
 *     if (access("/var/lib/shop/counts", F_OK) == 0 &&          // the new process opens its
 *         tw_load(engine, "/var/lib/shop/counts") < TW_OK)      // families, loads, then serves
 *         puts(tw_error_text());
 *
 * One rule       What is in the file is PARTIAL in the old process and final in the new one, also
 *                if its time ends in between. tw_close() in the old process reports such a window
 *                with TW_CLOSED_PARTIAL, or its thread does, at the end of the window. The new
 *                process reports it at its end, or soon after tw_load() if that has passed, with
 *                all counts. Replace the part; do not add to it.
 * Saved          The counters of windows that on_window_closed has not yet got as final, of
 *                TW_KIND_COUNTER families with aligned, calendar and endless windows; and the
 *                windows before them, as far as a sliding limit looks at them. Windows without
 *                counts are not saved. Counts of an overflow counter stay together, and tw_top() no
 *                longer knows their keys.
 * Left out       Gauges, and every family in which tw_hold() took a slot: they describe the old
 *                process. tw_save() returns TW_OK; then tw_error_text() and one line of the log
 *                (TW_EVENT_SAVED) name them. A tw_hold() that was refused or denied takes none.
 *                Reservations: units that are not sold return, tokens end, and a buyer who has
 *                bought may buy again. The history.
 * Refused        A family of TW_WINDOW_FROM_FIRST, TW_SHAPE_GCRA or TW_KIND_DISTINCT. Close it
 *                before, if the others are to be saved without it. An engine with Redis.
 * Loaded counts  are like counts that were added: limits, reads, tw_top(), the history and
 *                on_window_closed include them.
 * The file       is readable by its owner only. It is written as `path` with ".new" behind it,
 *                and locked (flock) until it gets its name. A saver that is killed may leave that
 *                file; the next one uses it. The file stays after tw_load(), so a process that is
 *                killed begins with the counts of the last planned restart. Remove the file after
 *                the load if it should begin from 0. Processes need separate files. */

/** Writes the counters into a new file, and then puts it in the place of `path`. Until then, and
 *  after an error, the file at `path` stays as it was. Call it after tw_stop() and before
 *  tw_close(), when no other call is running: a count that is being added may be missing. It waits
 *  for the end of a hook that runs. It may be repeated.
 *    path  its folder must exist. A link, or a file of another user, is not replaced. Another saver
 *          of the same path is waited for, at most some 10 s
 *  Threads: one. No family may be opened or closed meanwhile.
 *  Cost: some 60 ns for each counter, and the disk (fdatasync). Memory outside memory_bytes_max:
 *  some 70 KiB, 8 bytes for each window of a family, and a copy of the reservations.
 *  Returns:
 *    TW_OK           tw_error_text() has "Every family was saved.", or names those left out
 *    TW_ERR_OPTIONS  the file could not be written; tw_error_text() has the reason of the system. A
 *                    limit on file sizes (RLIMIT_FSIZE) is such a reason, and no signal
 *    TW_ERR_MODE     the engine has Redis, or tw_stop() was not called; a family is refused (see
 *                    above), and tw_error_text() names it; a hook runs and does not end; inside a
 *                    function of your own or inside tw_enter()
 *    TW_ERR_FORKED   also: a parent process called tw_stop()
 *    TW_ERR_MEMORY */
TW_API tw_status tw_save(tw_engine *engine, const char *path);

/** Adds the counters of a file of tw_save() to the families with the same names. All of the file is
 *  checked before the first counter is added. Families that are in the file must be open, with the
 *  same kind, window, window_ms, utc_offset_ms, week_start, limit_shape, sub_windows, redis_shape
 *  and key_separator. Windows whose time is over are loaded, too, and reported soon. Left out
 *  (tw_stats.load_skipped) is only what the old process has reported as final, if no sliding limit
 *  looks at it any more. Files of earlier versions load.
 *    path  a file of this user, no link
 *  Threads: one. No other call may count in these families, and none may be closed, before it
 *  returns.
 *  Cost: some 350 ns for each counter. The file is read three times. Some 70 KiB of memory outside
 *  memory_bytes_max.
 *  Returns:
 *    TW_OK
 *    TW_OVERFLOWED   loaded, but some counts are in an overflow counter, because there was no room
 *                    for their keys
 *    TW_ERR_OPTIONS  there is no such file, it is damaged, of a later format or of another kind; or
 *                    a family is not open or differs. tw_error_text() names it
 *    TW_ERR_MODE     a family of the file has counted already, or a file was loaded before; the
 *                    engine has Redis; a hook runs and does not end; inside a function of your own
 *                    or inside tw_enter()
 *    TW_ERR_EARLY    counts are further ahead than earliness_ms: the clock was set back
 *    TW_ERR_KEY      the family cannot have a key of the file (`fields`)
 *    TW_ERR_FULL     there was no room, and the family rejects new keys
 *    TW_ERR_RANGE, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED
 *  After an error no count has changed, and the load can be repeated. (After TW_ERR_FULL, and if
 *  the file can no longer be read, some keys may exist, with the count 0, in windows that the
 *  family had already: keys_expected.) */
TW_API tw_status tw_load(tw_engine *engine, const char *path);

/* ==== 18. One engine for several processes ===================================================
 * A server that forks has one process for each core, or for each request. With
 * tw_options.shared = TW_SHARED_BY_FORK they have one table: a limit of 100 admits 100 in all of
 * them together, and counts of a process that ends or is killed stay.
 *
 *     options.shared = TW_SHARED_BY_FORK;
 *     tw_open(&options, &engine);                // the parent opens the engine and its families
 *     tw_family_open(engine, &rate, &family);
 *     if (fork() == 0) {                         // each child:
 *         tw_lead(engine);                       // one of them makes the turns
 *         serve(family);
 *         tw_close(engine, 1000);
 *     }
 *
 * Joining        A child joins with its first call. It uses the same handles. All calls that count,
 *                acquire and read work as in one process, at about the same cost.
 * Families       are opened and closed before the first fork. After that these calls return
 *                TW_ERR_MODE in every process. Each process may change policies for all
 *                (tw_family_set()). TW_KIND_GAUGE is refused, and so is TW_ON_FULL_EVICT_IDLE with
 *                TW_WINDOW_FOREVER.
 *                Without Redis tw_reserve() returns TW_ERR_MODE.
 * Waiting        tw_acquire_wait() and calls that are answered later work in each process. Each has
 *                its own queues and its own calls_max. A refund in one process wakes callers of all
 *                processes. A host-driven process drives its calls by tw_turn(), also if it does
 *                not lead. tw_stop() by the leader ends the waits of all.
 * Statistics     tw_stats_read() and tw_metrics_write() show the whole engine, in each process. The
 *                leader alone shows sync_age_ms, breaker_state, outage_ms, redis_nodes, stores,
 *                stores_away, stores_split, stores_waiting and tls_refused.
 * The leader     One process makes the turns: windows end, hooks are called, memory returns. It is
 *                one of the candidates, which are the processes that called tw_lead(). Before that,
 *                processes count, and no window ends in memory. Hooks, log lines and watch_path are
 *                the leader's, with its own copy of each ctx. So ctx may hold no connection from
 *                before the fork.
 * Redis          The leader sends the counts of all processes over one connection. The next leader
 *                continues with the same ledger and leases, and reads the files of redis_tls_*
 *                itself. It sends batches without a reply again, and each counts once. Until a
 *                process leads, counts wait in memory. redis+cluster:// and other values of merge
 *                are refused. For strict limits, tw_once(), tw_lock(), tw_reserve() and
 *                tw_fetch_...() each process makes a connection of its own, before its first such
 *                call. tw_flush(), tw_fetch() and tw_ready() wait for the leader in each process.
 *                If nobody leads, they return TW_ERR_TIMEOUT, and the text says so. With Redis
 *                tw_hold() returns TW_ERR_MODE, and tw_audit() does so in a process that does not
 *                lead.
 * If it ends     by kill, exit or exec, another candidate leads within a second, or at once after
 *                tw_process_died(). Host-driven candidates look in tw_turn(). A host-driven leader
 *                is a thread: if it ends, the process does not lead any more. The end of a process
 *                without tw_close() is logged (TW_EVENT_DIED). An exception is the process that
 *                called tw_open(), if it is no candidate: the first process of a daemon forks the
 *                daemon and exits.
 * Slots          of tw_hold() belong to the process that took them, and only that process releases
 *                them. They return when it ends by kill, exit or exec, or calls tw_close(),
 *                whoever its user is, and also if it has a namespace of process ids of its own.
 *                The end of a thread shows the end of the process: that of the main thread, or of
 *                a thread of ours (below). So if the main thread ends by pthread_exit(), slots
 *                return when no thread lives that has made calls.
 * A killed call  has counted, or not. What it had been answered counts.
 * Closing        tw_close() in a process leaves the engine, and the others continue. A leader hands
 *                over to the next candidate. If there is none, the counts stay for processes that
 *                are forked later. Before that, within timeout_ms, Redis gets all counts, and the
 *                units that leases have left. With Redis tw_close() of a candidate therefore waits,
 *                at most timeout_ms, until another candidate has led for a whole turn: one that
 *                only exists may have been killed. That takes 0.2 s at most if the leader's host
 *                makes its turns. tw_stop() by the leader stops the engine for all.
 *                Then tw_close() of a candidate ends it as in one process. So does tw_close() of
 *                the process that called tw_open(), if it is a candidate and no other process has
 *                joined or is left.
 * Threads        One more in each candidate (TW_OWN_THREAD). It makes the turns, or waits until it
 *                may. tw_open() starts none. A process has another one from its first call that
 *                waits for Redis or is answered later. A child that joins by a call of another
 *                thread than its main thread has one more, which only sleeps (also with
 *                TW_HOST_DRIVEN). So has the process that called tw_open(), if another thread than
 *                its main thread calls tw_lead() or tw_hold(). If it cannot be started, these two
 *                calls return TW_ERR_MEMORY there.
 * Memory         memory_bytes_max is for all processes together. It is anonymous shared memory. A
 *                page belongs to the control group of the process that used it first.
 * Trust          All processes can write the engine's memory, also the pointers in it. There is no
 *                protection between processes that use it.
 *                A process supervises from its first fork on, if it has only opened engines and
 *                families, or called from the one thread that forks, and does not lead. Then
 *                tw_process_died() and tw_close() follow nothing that other processes can write,
 *                and return within 2 s whatever is written there. So open the engine as root, fork,
 *                change the user in the child, and call tw_lead() there. Any other call ends that,
 *                also tw_family_close(): the process then trusts its workers, until it forks again.
 *                A child of clone() may not supervise in its parent's place.
 *                Root that supervises may open the next shared engine and its families, as a server
 *                does that is reloaded, and close the previous one. Its other calls return
 *                TW_ERR_MODE from then on. When it has closed each engine that others may have, the
 *                next tw_open() makes all calls possible again.
 *                Root that does not supervise makes no call once a process of another user has
 *                joined: calls return TW_ERR_MODE (tw_add() and the like after at most 1,024 more
 *                calls of the thread), also of its other engines. A root process that leads hands
 *                over. tw_process_died() and tw_close() return TW_OK, and root may open another
 *                engine (TW_OWN_THREAD only if shared). tw_close() then gives back its descriptors
 *                and the memory of the counters (TW_HOST_DRIVEN), and no more. This guards against
 *                mistakes. A hostile worker can take it away, so root should only supervise.
 * Needs          Linux with robust mutexes, and glibc. Otherwise tw_open() refuses the option. A
 *                thread whose end the kernel would not report makes no call (TW_ERR_MEMORY): in a
 *                child of the system call clone(), or where a sandbox refuses get_robust_list. */

/** Makes this process a candidate. It leads from now on if no other process leads.
 *  Cost: with TW_OWN_THREAD the first call starts a thread.
 *  Threads: with TW_HOST_DRIVEN the calling thread leads, and makes the turns. If another thread of
 *  this process leads, the result is TW_PENDING.
 *  Returns:
 *    TW_OK          this process leads (TW_HOST_DRIVEN: this thread)
 *    TW_PENDING     another process leads. This one takes over within a second of its end
 *    TW_ERR_MODE    the engine is not shared; or this process is root, and another user shares the
 *                   engine; or called inside a function of your own or inside tw_enter()
 *    TW_ERR_MEMORY  no thread could be started; or 1,023 other processes share the engine
 *    TW_ERR_CLOSED, TW_ERR_FORKED */
TW_API tw_status tw_lead(tw_engine *engine);

/** Says that a process has ended, for example after waitpid(). If it was the leader, a candidate
 *  leads at once. It is a hint: without it candidates find out within a second. A process of any
 *  user may call it.
 *  Cost: one atomic add, and a system call if candidates wait.
 *  Returns TW_OK, or TW_ERR_MODE if the engine is not shared. */
TW_API tw_status tw_process_died(tw_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
