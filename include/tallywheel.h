/* tallywheel.h -- counters for servers that count faster than a network can answer.
 *
 * This header is the manual. An ENGINE lives once per process and owns memory, clock and threads. A FAMILY is a set of
 * counters that share a window, a Redis key template and a policy. A COUNTER is a family, a key (any bytes) and a
 * window.
 *
 *     tw_engine *engine;  tw_family *views;  int64_t now;
 *     tw_options options;               tw_options_init(&options);
 *     tw_family_options family_options; tw_family_options_init(&family_options);
 *     family_options.name = "views";                            // hour-aligned, forgets by itself
 *     if (tw_open(&options, &engine) != TW_OK) ...
 *     if (tw_family_open(engine, &family_options, &views) != TW_OK) ...
 *     tw_add(views, tw_str("/index.html"), 1, &now);            // nanoseconds; no lock, no system call
 *     tw_close(engine, 1000);
 *
 * What is promised (P1..P9; README.md has them in full):
 *   P1 no loss: when all adders have returned, a read is the exact sum of the deltas that were answered TW_OK.
 *   P2 one place: with Redis, every delta is in exactly one of: a counter, a frozen batch, Redis.
 *   P3 own adds: a thread's read includes its own earlier adds.
 *   P4 never over: a hard limit is not passed, as long as Redis keeps what it acknowledged.
 *   P5 sold out: a hard limit is admitted to the last unit, while those who hold units live and reach Redis.
 *   P6 bounded: memory never passes memory_bytes_max, and unsent counts are never evicted.
 *   P7 on time: no counter is seen past its end, none vanishes before it, by the engine's clock.
 *   P8 nothing silent: every departure from the above is counted in tw_stats and reported.
 *   P9 never waits: tw_add, tw_get and tw_acquire on an existing key (in this window) take no lock, make no
 *      system call, call no allocator and wait for no other thread. A first insert is lock-free.
 *
 * Threads: unless a call says otherwise, any thread may make it, along with every other call but tw_close() and
 * tw_family_close(). Threads need not register; what is kept for one is released when it exits.
 * dlclose: close the engines first, as with any library that has threads. The shared library then stays in the process, for
 * threads that have counted come back to it when they end. A module that the static library is linked into may be unloaded
 * once its engines are closed and none of its calls, and no thread that has counted and is just ending, is inside of it.
 * Fork: a child's engine starts as a new instance with no counts (the parent still has them); calls work as before.
 * After vfork() or in a signal handler no call may be made.
 * Time: windows go by ENGINE TIME, which is the wall clock as long as that goes with the monotonic clock, and never goes
 * back. A wall clock that is set forward by more than 5 s is believed when it has stood so for 5 s. One that is set back
 * is waited for if it is up to 5 s; if it is more, engine time goes on by the monotonic clock as if nothing had happened:
 * no limit holds anybody for longer, windows end when they would have ended, and retry_after_ms stays true. Engine time is
 * then ahead of the wall clock (clock_ahead_ms in tw_stats, TW_EVENT_CLOCK in the log) until that is set forward or the
 * engine is opened anew: windows bear the times of the clock of before, and tw_add_at() measures lateness against them.
 * A machine whose clock was hours wrong at its start and was then set right wants its programs restarted.
 * Units: times are milliseconds (Unix time in UTC where a moment is meant), sizes are bytes, counts are units.
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

/* ---- words ------------------------------------------------------------------------------------------------------- */

typedef struct tw_engine tw_engine;
typedef struct tw_family tw_family;

/** Bytes that name a counter: any bytes, NUL included, 1..TW_KEY_SIZE_MAX of them. Calls copy what they keep. */
typedef struct tw_key {
    const void *data;
    size_t size;
} tw_key;

#define TW_KEY_SIZE_MAX 1024
#define TW_COUNT_MAX INT64_C(2305843009213693951) /* 2^61 - 1: a count stays within +-TW_COUNT_MAX */
#define TW_DELTA_MAX INT64_C(9007199254740992)    /* 2^53: one delta, n or limit stays within +-TW_DELTA_MAX */

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

/* ---- status ------------------------------------------------------------------------------------------------------ */

/** What a call answers. 0: done. Positive: an answer that is no error. Negative: an error; nothing has changed, or,
 *  from -100 on, the outcome is unknown or only a part was done (each call says which). Numbers are fixed for ever. */
typedef int tw_status;
enum {
    TW_OK = 0,
    TW_DENIED = 1,     /* the limit is reached; the call did not count */
    TW_PENDING = 2,    /* ask again: units may yet come */
    TW_OVERFLOWED = 3, /* counted, but in the family's overflow counter: the table is full */

    TW_ERR_KEY = -1,     /* key of size 0, above TW_KEY_SIZE_MAX, or of a reserved name */
    TW_ERR_OPTIONS = -2, /* an option or argument is refused; options name it in error_text */
    TW_ERR_FULL = -3,    /* no room for a new key, and the family rejects */
    TW_ERR_MEMORY = -4,  /* the system gave no memory */
    TW_ERR_RANGE = -5,   /* the delta or the sum is out of range */
    TW_ERR_LATE = -6,    /* the window takes no more counts, or is no longer readable */
    TW_ERR_EARLY = -7,   /* the window lies too far ahead */
    TW_ERR_MODE = -8,    /* not in this kind of family or engine, or not from inside a hook */
    TW_ERR_CLOSED = -9,  /* tw_stop() or tw_close() was called */
    TW_ERR_FORKED = -10, /* this process is a forked child and a new engine could not be made in it */
    TW_ERR_REDIS = -11,  /* Redis refused, or none is configured */
    TW_ERR_UNKNOWN_TOKEN = -12,

    TW_ERR_TIMEOUT = -100 /* the time was up; each call says what may have been done */
};

/** "TW_ERR_FULL". For a number that is no status: "TW_STATUS_UNKNOWN". Never NULL. */
TW_API const char *tw_status_name(tw_status status);
/** One sentence in English. Never NULL. */
TW_API const char *tw_status_text(tw_status status);
/** Why this thread's last refused call was refused (a call that answered a negative status): one sentence that names the field,
 *  the argument or the rule, in the words of error_text where there is one: "limit_mode: tw_reserve() is not for TW_LIMIT_HARD ...".
 *  Never NULL; valid until the thread's next refused call, and until the thread ends. Any thread, before any engine is there, too.
 *  No password is in it. The words may change; decide on the status. */
TW_API const char *tw_error_text(void);
/** The version of the library that is running, as "0.1.0". */
TW_API const char *tw_version(void);

/* ---- engine ------------------------------------------------------------------------------------------------------ */

enum { TW_THREADS_OWN = 0, TW_THREADS_HOST = 1 };                     /* tw_options.threads */
enum { TW_MERGE_SCRIPT = 0, TW_MERGE_MULTI = 1, TW_MERGE_SETNX = 2 }; /* tw_options.merge */
enum { TW_CLOCK_WALL = 0, TW_CLOCK_MONOTONIC = 1 };                   /* kinds asked of clock_now_ns */
enum { TW_LOG_ERROR = 0, TW_LOG_WARNING = 1, TW_LOG_INFO = 2, TW_LOG_DEBUG = 3 };

/** Why on_lost was called. */
enum {
    TW_LOST_EXPIRED = 1,   /* the window's retention in Redis was over before Redis could be reached */
    TW_LOST_LATE = 2,      /* Redis's own clock says that the window is dead */
    TW_LOST_ROLLBACK = 3,  /* Redis forgot acknowledged counts and they could not be restored */
    TW_LOST_UNCERTAIN = 4, /* sent, and it cannot be known whether it was counted */
    TW_LOST_POISON = 5,    /* Redis refuses this key (wrong type, overflow) */
    TW_LOST_CLOSED = 6     /* tw_close() ran out of time */
};

/** Log events. Fixed for ever; new ones get new numbers. */
enum {
    TW_EVENT_MEMORY = 1, /* of memory_bytes_max less than a fifth can be had */
    TW_EVENT_CLOCK = 2,  /* the wall clock leapt, or was set back */
    TW_EVENT_STALL = 3,  /* a thread holds up reclamation */
    TW_EVENT_BARRIER =
        4, /* membarrier(2) is refused, as by a sandbox entered after tw_open(): memory is not used again */
    TW_EVENT_CRUMBS = 5,     /* memory is free, but in runs so short that new keys were refused */
    TW_EVENT_CONNECTED = 10, /* Redis answers */
    TW_EVENT_LOST_CONNECTION = 11,
    TW_EVENT_REFUSED = 12,    /* Redis refuses (authentication, permission, read-only, out of memory ...) */
    TW_EVENT_POISON = 13,     /* one key is refused by Redis */
    TW_EVENT_ROLLBACK = 14,   /* Redis forgot acknowledged batches */
    TW_EVENT_IDENTITY = 15,   /* two engines under one identity, or a ledger that is gone */
    TW_EVENT_START = 16,      /* what a start-up check found */
    TW_EVENT_LOST = 17,       /* counts were given up */
    TW_EVENT_REWRITE = 18,    /* Redis's append-only file is to be written anew, after it went back */
    TW_EVENT_REGRESSION = 19, /* a key holds less than Redis had acknowledged, and nothing explains it */
    TW_EVENT_UNCERTAIN = 20,  /* counts were sent again that may have been counted: other merges than the script's */
    TW_EVENT_REPLICAS = 21,   /* fewer replicas than wait_replicas have what Redis acknowledged */
    TW_EVENT_AUDIT = 22,      /* what an audit found (audit_interval_ms) */
    TW_EVENT_CLOSED = 23,     /* a window, or what came late into one, that no hook was told of */
    TW_EVENT_LATE = 24        /* counts by event time came too late, and no lateness_ms is set */
};

/** How an engine is made. Fill with tw_options_init(), then set what you need; zero always means the default.
 *  Strings are copied by tw_open(). */
typedef struct tw_options {
    size_t size; /* set by tw_options_init() */

    /* Where a refused option or URL is named, with what is wrong: a caller's buffer, or NULL. Passwords never
     * appear. */
    char *error_text;
    size_t error_size;

    uint64_t memory_bytes_max; /* all counting memory, families beyond the first 64 (some 1.3 KB each) included; default
                                  1 GiB of addresses, committed as used; at least 1 MiB */
    uint32_t threads;          /* TW_THREADS_OWN: one background thread does the turns. TW_THREADS_HOST: the host calls
                                  tw_turn(); no thread is made */

    /* The clock, in nanoseconds; NULL: the system's. Called on every call that needs the time, from any thread.
     * TW_CLOCK_WALL is Unix time and decides windows; TW_CLOCK_MONOTONIC never goes back, decides deadlines and back-off, and
     * windows too while the wall clock is not to be believed (see Time, above). */
    int64_t (*clock_now_ns)(void *ctx, int kind);
    void *clock_ctx;

    /* Log lines: level TW_LOG_*, event TW_EVENT_*. Called from background work only; never with a password. */
    void (*log_write)(void *ctx, int level, int event, const char *text);
    void *log_ctx;

    /* Redis. NULL: count locally, no socket. Else redis://[user:password@]host[:port][/db] or
     * unix://[user:password@]/path[?db=N]. tw_open() does not wait for it: counting begins at once. */
    const char *redis_url;
    int (*redis_password)(void *ctx, char *out, size_t size); /* asked at each connect, instead of one in the URL: */
    void *redis_password_ctx;                                 /* writes a C string, returns its length, or -1      */
    const char *redis_prefix;  /* before every key and ledger name, for ACLs; default none */
    uint32_t sync_interval_ms; /* how long a count may wait before it is sent; 1..60000, default 100 */
    uint32_t redis_timeout_ms; /* one reply; 1..600000, default 100; ten times that to connect, and to greet */
    /* Acknowledged counts that are kept, to be sent again to a Redis that forgets them: for so long, and so many bytes.
     * What Redis forgets beyond that is lost, and counted; if it lost everything, the counters held here say it again. */
    uint32_t replay_ms;        /* for a Redis that goes back; 1..86400000, default 30 s */
    uint64_t replay_bytes_max; /* at most memory_bytes_max; default 64 MiB or an eighth of memory_bytes_max */

    /* P8, by key: counts that will not reach Redis. Called from a turn or from tw_close(); may not call the engine. */
    void (*on_lost)(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason);
    void *lost_ctx;

    /* How counts are merged into Redis. TW_MERGE_SCRIPT (default): one Lua script a batch, exactly once whatever fails (P2). For
     * servers that allow no scripts: TW_MERGE_MULTI, a transaction a batch; TW_MERGE_SETNX, SET ... NX and INCRBY in a
     * pipeline. They cannot promise P2: a batch whose answer is lost is sent again and may count twice (its units are in
     * tw_stats.uncertain), and what Redis forgets is neither noticed nor sent again. */
    uint32_t merge;

    /* Acknowledged is what so many replicas have, too (WAIT): before that no flush is done, and no batch leaves the replay
     * window; while that is full, counts wait in their counters. 0..1000, default 0. Needs TW_MERGE_SCRIPT. */
    uint32_t wait_replicas;

    /* After an outage: how many keys a second are sent at most until what has piled up is gone; what dies first in Redis
     * goes first, and a quarter is kept for open windows. Flushes and tw_close() keep to it. Default 200,000. */
    uint32_t flush_keys_per_s;

    /* Not 0: an audit (tw_audit) of this engine's keys and ledgers that often, by a thread of its own; what it finds is one
     * log line (TW_EVENT_AUDIT) and tw_stats.audit_findings. TW_HOUR is a good choice; 1000 or more, not with TW_THREADS_HOST.
     * redis_password is then called from that thread, too. */
    uint32_t audit_interval_ms;

    /* While Redis cannot be reached it is tried again after a random time, longer with each failure, this at most: so long may
     * an engine take to find that it is back (a third of it in the mean), and over so long many engines come back. A refused
     * login is tried again after 2 to 4 s. 10..5000, default 1000. */
    uint32_t retry_max_ms;

    /* How many engines will count on the same limits. One that does not know yet how many live spends at most limit / this many of
     * a soft limit (or / as many as Redis last told, if that is more), instead of the whole: at a cold start, for some
     * milliseconds. 0 (default): it takes itself for alone until Redis has answered. Up to 1,000,000. */
    uint32_t engines_expected;

    /* On each sample of tw_metrics_write(): name="value", more of them behind commas, without spaces: service=\"shop\",zone=\"a\" in C.
     * In values \\ \" \n (a backslash and a letter) stand for a backslash, a quote, a line's end. At most 512 bytes; the names family,
     * le and version are taken. */
    const char *metrics_labels;
} tw_options;

#define tw_options_init(options) tw_options_init_sized((options), sizeof *(options))
TW_API void tw_options_init_sized(tw_options *options, size_t size);

/** Makes an engine. Cost: reserves addresses, starts one thread (TW_THREADS_OWN); does not wait for Redis.
 *  Answers: TW_OK; TW_ERR_OPTIONS (error_text names the field), TW_ERR_MEMORY (also: no thread could be made),
 *  TW_ERR_REDIS (a redis_url is given and the library was built without Redis). */
TW_API tw_status tw_open(const tw_options *options, tw_engine **engine);

/** Waits until what this thread added before the call, and what other threads' adds that had returned by then added, is
 *  acknowledged by Redis. Without Redis: TW_OK at once. In a host-driven engine it does the turns itself.
 *  Answers: TW_OK; TW_ERR_REDIS (some of it was refused, late or uncertain: on_lost names it); TW_ERR_TIMEOUT (not all
 *  yet; it stays queued); TW_ERR_CLOSED; TW_ERR_MODE (from inside a hook, or inside tw_enter). */
TW_API tw_status tw_flush(tw_engine *engine, uint32_t timeout_ms);

/** Waits until this engine knows what it must know to decide well on limits over Redis: Redis has answered; how many engines live
 *  has been known for a tenth of a second, in which others that start now have come; what tw_lease_warm() asked for is here. Until then
 *  a soft limit is spent from with care (docs/LIMITS.md). Changes nothing. In a host-driven engine it does the turns itself.
 *  Answers: TW_OK (without Redis at once); TW_ERR_TIMEOUT (not yet); TW_ERR_CLOSED; TW_ERR_MODE (from inside a hook, or inside
 *  tw_enter). */
TW_API tw_status tw_ready(tw_engine *engine, uint32_t timeout_ms);

/** From now on calls that count answer TW_ERR_CLOSED. Safe beside running calls. Answers: TW_OK. */
TW_API tw_status tw_stop(tw_engine *engine);

/** Stops, flushes within the time, runs the last closing hooks (TW_CLOSED_PARTIAL for windows still open), frees
 *  everything. No call may be running or follow. The engine is gone whatever is answered.
 *  Answers: TW_OK; TW_ERR_TIMEOUT (some counts were not acknowledged, and on_lost told which; or a hook answered
 *  false to the end); TW_ERR_MODE (from inside a
 *  hook or inside tw_enter: nothing was done). */
TW_API tw_status tw_close(tw_engine *engine, uint32_t timeout_ms);

/** Host-driven engines: one bounded round of background work (clock, roll-over, hooks, sync), by one thread at a time.
 *  Cost: at most some milliseconds, hooks not counted; never waits for the network.
 *  Answers: TW_OK; TW_PENDING (another thread is in a turn); TW_ERR_CLOSED; TW_ERR_MODE (own-thread engine, hook,
 *  inside tw_enter). */
TW_API tw_status tw_turn(tw_engine *engine);
/** The socket to wait on for tw_turn(), or -1 while there is none. May change at each turn. Wait for reading, and also
 *  for writing when tw_timeout_ms() says 0. */
TW_API int tw_fd(const tw_engine *engine);
/** How long tw_turn() need not be called, in ms. */
TW_API uint32_t tw_timeout_ms(tw_engine *engine);

/** Optional brackets around many calls of one thread: saves a few ns for each call between them; they nest. Keep the
 *  section short: while it lasts, dropped memory is not reused (tw_stats.sections_oldest_ms shows it). Time and
 *  windows go on. */
TW_API void tw_enter(tw_engine *engine);
TW_API void tw_leave(tw_engine *engine);

/* ---- families ---------------------------------------------------------------------------------------------------- */

/** tw_family_options.window */
enum {
    TW_WINDOW_ALIGNED = 0,    /* [n * window_ms, (n + 1) * window_ms), shifted by utc_offset_ms */
    TW_WINDOW_FROM_FIRST = 1, /* each key lives window_ms from its first count */
    TW_WINDOW_FOREVER = 2,    /* no end */
    TW_WINDOW_DAY = 3,        /* civil days, weeks and months in the offset's time */
    TW_WINDOW_WEEK = 4,
    TW_WINDOW_MONTH = 5
};

enum { TW_ON_FULL_OVERFLOW = 0, TW_ON_FULL_REJECT = 1, TW_ON_FULL_EVICT_IDLE = 2 }; /* tw_family_options.on_full */
enum { TW_FULL_LIMIT_ADMIT = 0, TW_FULL_LIMIT_DENY = 1 };                 /* tw_family_options.on_full_limit */
enum { TW_CLOSED_PARTIAL = 1, TW_CLOSED_LOCAL = 2, TW_CLOSED_AGAIN = 4 }; /* flags of on_window_closed */
enum { TW_CLOSED_BY_EACH = 0, TW_CLOSED_BY_ONE = 1 };                     /* tw_family_options.closed_by */
enum { TW_KIND_COUNTER = 0, TW_KIND_GAUGE = 1 };                          /* tw_family_options.kind */
enum { TW_LIMIT_SOFT = 0, TW_LIMIT_HARD = 1, TW_LIMIT_STRICT = 2 };       /* tw_family_options.limit_mode */
enum { TW_SHAPE_FIXED = 0, TW_SHAPE_SLIDING = 1, TW_SHAPE_GCRA = 2 };     /* tw_family_options.limit_shape */
/** tw_family_options.on_outage */
enum { TW_OUTAGE_LOCAL = 0, TW_OUTAGE_FAIL_OPEN = 1, TW_OUTAGE_FAIL_CLOSED = 2, TW_OUTAGE_SHARE = 3 };

/** How a family is made. Fill with tw_family_options_init(), then set what you need; zero always means the default.
 *  Strings are copied. */
typedef struct tw_family_options {
    size_t size; /* set by tw_family_options_init() */
    char *error_text;
    size_t error_size;

    const char *name; /* required, unique in the engine; 1..64 bytes of letters, digits and . _ - */

    uint32_t window;       /* TW_WINDOW_ALIGNED (default) ... */
    int64_t window_ms;     /* any multiple of 1000; default TW_HOUR. Not for endless and calendar windows */
    int64_t utc_offset_ms; /* shifts alignment and stamps, within +-14 h and in whole minutes:
                              +8 h makes days begin at midnight in Shanghai */
    uint32_t week_start;   /* first day of a calendar week: 0 = Monday ... 6 = Sunday */

    /* Aligned and calendar windows only. */
    /* How long after its end a window still takes tw_add_at(); TW_UNBOUNDED: until tw_close_until(). Default 0: a window that is counted
     * by the clock has all when it ends, and its hook should not wait. Who counts by event time sets it, or a watermark: what comes too
     * late is answered TW_ERR_LATE, counted (late_increments) and, where this is 0, logged once. */
    int64_t lateness_ms;
    int64_t earliness_ms; /* how far ahead tw_add_at() may open windows; default one window */
    int64_t history_ms;   /* how long a closed window stays readable here, packed; default one window; TW_NONE */

    /* Redis */
    int64_t retention_ms; /* how long a window lives on in Redis after its end, and so how late a flush may land;
                             default the greater of 24 h and one window; not less than one window. A TW_WINDOW_FROM_FIRST
                             key ends in Redis exactly at its end, and in an endless family never */
    /* Template of the names in Redis: %k key (once), %n name, %Y %m %d %H %M %S the window's start in the offset's time,
     * %% a percent sign; default "%n:%k" and, where windows have starts, ":" and a stamp as fine as the window
     * ("...:%Y%m%d%H" for an hour). One that renders two windows or two families alike is refused. Overflow counts go to
     * "tw:overflow:" and the template rendered with an empty key. */
    const char *redis_key;

    /* Memory */
    uint64_t keys_max;     /* keys in one window; 0: bounded by memory only */
    uint64_t memory_share; /* bytes this family may count on and not exceed; 0: first come, first served */
    uint32_t on_full;      /* TW_ON_FULL_OVERFLOW (default): adds of new keys go to one overflow counter and answer
                               TW_OVERFLOWED; TW_ON_FULL_REJECT: they answer TW_ERR_FULL; TW_ON_FULL_EVICT_IDLE (TW_WINDOW_FOREVER
                               with Redis only): keys that were not used for idle_ms make room, see there */
    uint32_t
        on_full_limit; /* what tw_acquire() and tw_once() say of a new key then: TW_FULL_LIMIT_ADMIT (default), TW_FULL_LIMIT_DENY */

    /* Aligned and calendar windows: called for each window that counted something, when it takes no more counts and Redis has
     * acknowledged all of it (or 60 s later: TW_CLOSED_LOCAL); in each engine or in one, see closed_by. Once; a second time with
     * TW_CLOSED_AGAIN alone. In each engine a family's windows are told in order of time. tw_each(family, start_ms, ...) inside lists
     * the final counts. False: call me again later; the windows after it wait as well. Called from a turn or from tw_close(). Inside,
     * tw_each, tw_get, tw_get_at, tw_read, tw_add, tw_close_until may be called; tw_turn, tw_flush, tw_close, tw_family_close answer
     * TW_ERR_MODE.
     * TW_CLOSED_PARTIAL: it is closed before its time, because its engine or family is: it has not ended, or (with Redis, or in a family
     * opened anew) others may count in it until its lateness_ms is over.
     * TW_CLOSED_AGAIN, with TW_CLOSED_BY_ONE: it was told before, and that was not all: counts came since, or it was told before its
     * time. What tw_each() shows takes the place of what you wrote for the same keys; what you wrote for others stands. */
    bool (*on_window_closed)(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags);
    void *closed_ctx;

    /* How many keys a window will have, if you know: their memory is then taken when the family is opened and before each
     * window, and each add finds its counter with one access to memory instead of two. 0 (default): as many as the windows
     * before had; the first grows from small. Too small a number costs speed only. One that memory_share, or the engine's
     * memory, could never hold is refused (64 bytes a key, with Redis 96, index not reckoned). Where so many find no room beside
     * what is there, nothing is taken ahead, and the window grows from small. Not for TW_WINDOW_FROM_FIRST (no effect). */
    uint64_t keys_expected;

    /* TW_ON_FULL_EVICT_IDLE: a key that is not used for this long may leave memory, and sooner where the family nears
     * keys_max, memory_share or the engine's memory; what it counted is then in Redis, all of it. Default TW_HOUR, at
     * least 100. Half of keys_max (at least 2) is for keys in use; what finds no room, because keys come faster than Redis
     * takes their counts or Redis is away, goes to the overflow counter as with TW_ON_FULL_OVERFLOW. A key that comes back
     * is of unknown total until Redis has told it: tw_read() says known = false, tw_get() shows what was counted since,
     * tw_acquire() decides on that and says TW_BY_OUTAGE. Such a family's totals are not restored to a Redis that lost
     * everything; they count as lost. */
    int64_t idle_ms;

    /* TW_KIND_COUNTER (default). TW_KIND_GAUGE: what is present now (users online, connections in flight), counted up and down by tw_add();
     * TW_WINDOW_FOREVER, with Redis TW_MERGE_SCRIPT. With Redis each engine's part is said whole every few seconds and ends by itself:
     * an engine that was killed is gone from the sum within 15 s, one that was stopped for longer says all of it again, one that
     * closes leaves at once. tw_get() shows the sum of all; a count below 0 of one engine counts while others are above (until it
     * has heard of them, it shows that alone). */
    uint32_t kind;
    /* TW_CLOSED_BY_EACH (default): on_window_closed is called in every engine, for what it has counted itself.
     * TW_CLOSED_BY_ONE, with Redis: in one engine for each window, chosen in Redis when every live engine that has the family open has
     * drained the window, and with the figures of all: tw_each() lists each key that any of them counted, view is its total. Of those
     * that counted something there one is chosen; some may have no hook; all must say TW_CLOSED_BY_ONE. (family, start_ms) is the key for
     * what you write: it is written once, unless the chosen engine stands still in its hook for longer than 30 s, or dies between your
     * writing and its word to Redis: then another is called. A hook that needs longer, or fails, answers false: it is called again, and
     * after a minute of that another engine's is. An engine that was not heard of for 30 s is taken for dead and not waited for, and one
     * that has not drained a minute after Redis answers neither: what they send later, and what an engine counts whose clock is behind,
     * is told in another call, with TW_CLOSED_AGAIN (where no engine that has such counts has a hook: tw_stats.windows_untold).
     * TW_CLOSED_LOCAL: not everything could be had. Redis has not answered for a minute: each engine is called with what it knows; or
     * totals or memory for others' keys were short. tw_close() before a window's end and lateness_ms are over leaves the window to the
     * others, silently; the last engine is called with TW_CLOSED_PARTIAL, and the next that opens the family (with a hook) calls again
     * when the window is over, with all (TW_CLOSED_AGAIN). Aligned and calendar windows, TW_MERGE_SCRIPT. Without Redis as
     * TW_CLOSED_BY_EACH. Cost: at its end each engine sends the names of a window's keys, which Redis keeps until it is closed, and the
     * chosen one asks for all totals. */
    uint32_t closed_by;

    /* Limits */

    /* TW_LIMIT_STRICT, with Redis: tw_acquire() asks Redis for every call and waits for the answer, redis_timeout_ms at most; with
     * TW_THREADS_OWN only, not in a hook or inside tw_enter() (TW_ERR_MODE). Exact over all processes while Redis answers; the verdict
     * says TW_BY_REDIS, error_bound 0. Up to eight calls are under way at once, each over a connection of its own (for which
     * redis_password is called by the thread that calls). An answer that is lost is asked for again, under the same number, and the
     * call is charged once. Where Redis does not decide (away, refused, no answer in time, a key that is no number) on_outage does,
     * and the verdict says TW_BY_OUTAGE: TW_OUTAGE_LOCAL: as a soft limit on what is known here; _FAIL_OPEN: admitted; _FAIL_CLOSED: denied;
     * _SHARE: as a soft limit's share. Within outage_grace_ms what is known here decides, whatever is set (_SHARE: the share); a
     * key that is no number has no such grace.
     * What is admitted so reaches Redis as any count does. If Redis charged the call as well, unheard, that is taken back before the
     * next question goes over the same connection: until then it knows a call too much, never one too little.
     * TW_SHAPE_FIXED: the family's window. TW_SHAPE_SLIDING (TW_WINDOW_ALIGNED): the last window_ms by Redis's clock, exactly, from a log of
     * all admissions: some 100 bytes in Redis for each call within the window. What is counted otherwise (tw_add(), a fallback,
     * a refund) counts until the end of its aligned window. TW_SHAPE_GCRA: one bucket for all processes, by Redis's clock; in any
     * stretch of time no more than the burst and what the rate gives, exactly. On an outage LOCAL and OPEN go on with a bucket of this
     * engine, as full as Redis last said; afterwards the later of the two times holds (docs/LIMITS.md). Needs TW_MERGE_SCRIPT.
     * Without Redis: as TW_LIMIT_SOFT, exact. */
    /* TW_LIMIT_HARD: with Redis the sum admitted by all processes never passes the limit, as long as Redis keeps what it acknowledged
     * (appendfsync always, or wait_replicas). Each process spends a lease that Redis gave it, drawn ahead of need and called back when
     * others run dry; tw_acquire() neither asks nor waits, and answers TW_PENDING while units may yet come. An engine is granted nothing
     * in its first 1.2 s, and after a restart or wipe of Redis nobody is before all living engines have said again what they were
     * granted, some seconds at most (docs/SYNC.md): open the family, or call tw_lease_warm(), before the sale. Not with Redis for
     * TW_WINDOW_FROM_FIRST and TW_ON_FULL_EVICT_IDLE; needs TW_MERGE_SCRIPT. tw_add() counts beside the limit. Without Redis it is as
     * TW_LIMIT_SOFT: exact. */
    uint32_t limit_mode; /* TW_LIMIT_SOFT (default) */
    /* TW_SHAPE_FIXED (default): `limit` units in each window.
     * TW_SHAPE_SLIDING: in any stretch of one window's length, taking for granted that what the window before counted came evenly:
     * used = this window's count + the one before's * the part of it that the stretch still covers, rounded up. Aligned and
     * calendar windows, history_ms at least one window. tw_get() shows this window's count alone. With Redis both counts are the
     * totals of all, as far as known here, and shares and on_outage hold as for fixed windows; error_bound is TW_UNBOUNDED until the
     * window before is told as it was left: two sync intervals and redis_timeout_ms after its end. Windows are then kept open
     * one window longer, and on_window_closed comes that much later. With TW_LIMIT_STRICT and Redis: exact, a log of every call. Not for TW_LIMIT_HARD.
     * TW_SHAPE_GCRA: a bucket that empties evenly, `limit` units in window_ms, and holds at most `burst` (default, and at most:
     * the limit of the call; where it is to be above that, name a longer window and as much higher a limit). A new key's bucket is
     * empty. remaining is what can be taken at once, used what is in the bucket, reset_after_ms when it is empty.
     * TW_WINDOW_ALIGNED windows, whose length decides alone, history_ms at least one; not for TW_LIMIT_HARD. With Redis: TW_LIMIT_STRICT only
     * (see there); what it is by Redis's clock is exact, without it to 2^-57 of a window. It keeps times and no counts: other calls
     * than tw_acquire, _some, _wait and, without Redis, _all answer TW_ERR_MODE, also tw_refund; tw_each() shows the times kept
     * here, in 2^-57 windows from the window's start. */
    uint32_t limit_shape;
    int64_t burst;
    /* TW_OUTAGE_LOCAL (default): on what is known here (soft limits, where other engines live: from a second after Redis failed to
     * answer; until then by their shares); _FAIL_OPEN: everything is admitted, and counted;
     * _FAIL_CLOSED: nothing is;
     * _SHARE: no more than this engine's share of what remained, or, of a key of unknown total, limit / live engines. Hard limits:
     * LOCAL spends the lease in hand, then denies, CLOSED denies at once; the others are refused. docs/LIMITS.md has a table of
     * what is answered when. */
    uint32_t on_outage;
    /* How long Redis may be silent before that; default 0, at most a day. One clock for a whole outage. Until then soft limits go on
     * by their shares, hard ones answer TW_PENDING where the lease is spent, and where Redis was to be asked what is known here
     * decides: strict limits, tw_once() in strict families, tw_hold(). */
    uint32_t outage_grace_ms;
    /* Decide, never deny: what would be denied (or pending) answers TW_OK with verdict->allowed = 0, is in
     * tw_stats.limit_shadow_denied, and is not counted as used. tw_acquire_some() then says n_max. May be turned on and off by
     * tw_family_set(). tw_once() and the like are no limits in this sense. */
    bool shadow;
} tw_family_options;

#define tw_family_options_init(options) tw_family_options_init_sized((options), sizeof *(options))
TW_API void tw_family_options_init_sized(tw_family_options *options, size_t size);

/** Opens a family. The same name with the same options gives the same handle (and must be closed as often as opened).
 *  Cost: takes a lock, allocates; with Redis, its template is compared with those of all open families. A family at rest costs
 *  memory (memory_bytes_max) and no time. Answers: TW_OK; TW_ERR_OPTIONS (error_text names the field); TW_ERR_MEMORY;
 *  TW_ERR_CLOSED. */
TW_API tw_status tw_family_open(tw_engine *engine, const tw_family_options *options, tw_family **family);
/** The family of that name, or NULL. */
TW_API tw_family *tw_family_find(tw_engine *engine, const char *name);
/** Changes policies, sizes, times and hooks; name, window, window_ms, utc_offset_ms, week_start, redis_key, kind, closed_by, limit_mode
 *  and limit_shape must be the same as at opening (and on_full as far as it is TW_ON_FULL_EVICT_IDLE or not). A longer lateness_ms holds for windows that still take counts: what is over stays over (TW_ERR_LATE),
 *  sealed or never opened; so does what a longer history_ms comes too late for. Answers: TW_OK; TW_ERR_OPTIONS (nothing changed). */
TW_API tw_status tw_family_set(tw_family *family, const tw_family_options *options);
/** Lets the family go: what it owes is sent, its windows are told to on_window_closed as in tw_close(), then it is freed, in the
 *  background. No call with this handle may be running or follow, but in its hook; closed_ctx must last until tw_close() (or take the
 *  hook away with tw_family_set() before). A hook that answers false is asked for a minute; then the window is given up, logged and
 *  in tw_stats.windows_untold. Answers: TW_OK; TW_ERR_MODE (from inside a hook). */
TW_API tw_status tw_family_close(tw_family *family);

/* ---- counting and reading (out-parameters may be NULL) ----------------------------------------------------------- */

/** Adds `delta` to counter `key` in the window that is open now, creating it at 0 first. `*view` becomes the count as
 *  known here: what this process added plus what Redis last told of others. The view is exact in the sense of P1 and
 *  P3: the count right after this add, so that no two adds of 1 get the same one. There is one exception.
 *  Hot keys: pass NULL for `view` where you do not need it. A counter to which threads add without a view, and which they
 *  contend for, is striped by itself: each thread then adds to a line of its own, and cores do not slow each other down.
 *  Reads stay exact: they contain every add that returned before they began. But the view of an add to such a counter is no
 *  longer a place in a row: it contains this add and all that had returned before, and of those under way any part; two
 *  adds may get the same one, and where all deltas are positive it is a lower bound of the count when the call returns.
 *  Where every caller asks for the view, nothing is ever striped. Not for TW_WINDOW_FROM_FIRST.
 *  Cost: one hash, one atomic add once the key exists (P9); a new key takes prepared memory, lock-free.
 *  Answers: TW_OK; TW_OVERFLOWED (counted elsewhere; *view is the overflow counter's); TW_ERR_KEY, TW_ERR_RANGE,
 *  TW_ERR_FULL, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_add(tw_family *family, tw_key key, int64_t delta, int64_t *view);
/** The same into the window of `unix_ms`: event time, for logs and queues. Aligned and calendar windows.
 *  Answers also: TW_ERR_LATE, TW_ERR_EARLY, TW_ERR_MODE, TW_ERR_RANGE (a time outside of the years 1000 to 9998). */
TW_API tw_status tw_add_at(tw_family *family, tw_key key, int64_t delta, int64_t unix_ms, int64_t *view);
/** A watermark: by event time all is there up to `unix_ms`. From then on windows that end at or before it take no more counts
 *  (TW_ERR_LATE), whatever lateness_ms is, and are told to on_window_closed without waiting for it, in order of time (by a turn, as
 *  ever: with Redis when that has all of them; with TW_CLOSED_BY_ONE when all engines are as far, each by its own watermark or
 *  lateness_ms). They stay readable for history_ms from then on. It only rises: an earlier one than before changes nothing. One that is
 *  ahead of the clock holds for each window from the window's end on. For sliding limits with Redis the hook comes up to a window later.
 *  Who counts by event time alone may set lateness_ms to TW_UNBOUNDED: then nothing but this closes windows. May be called from a hook.
 *  Aligned and calendar windows. Cost: some nanoseconds. Answers: TW_OK; TW_ERR_EARLY (further ahead than earliness_ms: nothing was
 *  changed); TW_ERR_MODE; TW_ERR_RANGE (outside of the years 1000 to 9998); TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_close_until(tw_family *family, int64_t unix_ms);
/** Adds each item by itself. NULL deltas: all 1. `views` and `each` (one status an item) may be NULL.
 *  Answers: the lowest negative status of the items, else the highest positive one, else TW_OK. */
TW_API tw_status tw_add_many(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count, int64_t *views,
                             tw_status *each);
TW_API tw_status tw_add_many_at(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count,
                                const int64_t *unix_ms, int64_t *views, tw_status *each);

/** The count in the window that is open now; 0 for an unknown key. With Redis, asking takes a bounded interest in the
 *  key: its total comes with a later sync. Cost: as tw_add() without the add. Answers: TW_OK; TW_ERR_KEY,
 *  TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_get(tw_family *family, tw_key key, int64_t *view);
/** The same in the window of `unix_ms`, while it is readable here. Answers also: TW_ERR_LATE, TW_ERR_MODE,
 *  TW_ERR_RANGE. */
TW_API tw_status tw_get_at(tw_family *family, tw_key key, int64_t unix_ms, int64_t *view);

typedef struct tw_reading {
    int64_t view;        /* as tw_get() */
    int64_t local;       /* what this process added in this window */
    int64_t total;       /* what Redis last said; 0 if not known */
    int64_t unsent;      /* the part of local that Redis has not acknowledged */
    int64_t age_ms;      /* how old the total is; TW_UNBOUNDED if not known */
    int64_t error_bound; /* |view - truth| at most: 0 without Redis, else TW_UNBOUNDED */
    bool known;          /* Redis has been asked about this key; without Redis: true */
    uint64_t reserved[8];
} tw_reading;
/** Everything known of a counter. Answers: as tw_get(). */
TW_API tw_status tw_read(tw_family *family, tw_key key, tw_reading *reading);

/** A pin keeps the way to one counter: adding through it skips the hash and the search. It follows its key into each next
 *  window, creating it there at its first add. Cost: tw_pin_open() allocates; tw_pin_add() is one atomic add. Of hot keys and
 *  views the same holds as for tw_add().
 *  Threads: a pin is used by one thread at a time; any number of pins may name one key. Close it before its family.
 *  Answers: tw_pin_open(): TW_OK, TW_ERR_KEY, TW_ERR_MEMORY, TW_ERR_CLOSED. tw_pin_add(): as tw_add(). */
typedef struct tw_pin tw_pin;
TW_API tw_status tw_pin_open(tw_family *family, tw_key key, tw_pin **pin);
TW_API tw_status tw_pin_add(tw_pin *pin, int64_t delta, int64_t *view);
TW_API void tw_pin_close(tw_pin *pin);

/** Asks Redis for the totals of the open window and waits for them. `totals[i]` is what Redis holds for keys[i].
 *  Answers: TW_OK; TW_ERR_REDIS (no Redis), TW_ERR_KEY, TW_ERR_FULL, TW_ERR_MODE (host-driven engine, hook, tw_enter);
 *  TW_ERR_TIMEOUT (nothing is written to totals). */
TW_API tw_status tw_fetch(tw_family *family, const tw_key *keys, size_t count, uint32_t timeout_ms, int64_t *totals);

/** Adds the negative of the view, so that what others add meanwhile survives; `*last` becomes the view taken away.
 *  Answers: as tw_add(). */
TW_API tw_status tw_reset(tw_family *family, tw_key key, int64_t *last);

typedef struct tw_count {
    tw_key key; /* size 0: the overflow counter of the window */
    int64_t view;
    int64_t local;
    int64_t start_ms; /* 0 and TW_UNBOUNDED in an endless family */
    int64_t end_ms;
    uint64_t reserved[4];
} tw_count;
/** Visits each counter of the window that holds `unix_ms` (or TW_NOW), in no order, until `visit` answers false. A key
 *  that is present throughout is visited exactly once; it is no snapshot: others may count meanwhile. The key is valid
 *  inside `visit` only, which may call the engine. Cost: memory for one small buffer on the stack.
 *  Answers: TW_OK; TW_ERR_LATE (not readable here any more), TW_ERR_MODE (a moment other than TW_NOW in a family from
 *  first), TW_ERR_RANGE, TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_each(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count),
                         void *ctx);

/* ---- limits. Only == TW_OK admits
 * ----------------------------------------------------------------------------------- */

/** tw_verdict.decided_by */
enum {
    TW_BY_LOCAL = 0,
    TW_BY_VIEW = 1,
    TW_BY_LEASE = 2,
    TW_BY_REDIS = 3,
    TW_BY_OUTAGE = 4,
    TW_BY_FULL = 5,
    TW_BY_BUYER = 6
};

/** Filled on every return, errors included. */
typedef struct tw_verdict {
    int64_t limit, used, remaining; /* units */
    /* reset: when all of it is unused if nobody calls. retry: 0 if admitted; else when the same call is admitted if nobody else calls
     * meanwhile, or -1 when n can never be admitted */
    int64_t reset_after_ms, retry_after_ms;
    int64_t error_bound;     /* |used - truth| at most; TW_UNBOUNDED when nothing can be said */
    int64_t window_start_ms; /* for tw_refund(); TW_WINDOW_FROM_FIRST: when the key's life began; endless: 0 */
    /* TW_BY_LOCAL: no Redis, exact (hot keys: see tw_acquire()). TW_BY_VIEW: what is known here. TW_BY_FULL.
       TW_BY_OUTAGE: the key's total is not known (again) yet, or Redis is away or was to decide and did not; decided on what is
       known here, or as on_outage says. TW_BY_REDIS: strict limits. TW_BY_BUYER: tw_reserve(). */
    uint32_t decided_by;
    uint16_t claim;         /* tw_acquire_all(): the one that decided */
    uint8_t allowed, final; /* allowed: equals TW_OK, except upon an error: the policy's advice */
    uint64_t reserved[8];
} tw_verdict;

/** Takes `n` units of `key` if the count then stays within `limit`, else changes nothing. n = 0 looks without taking.
 *  Hard families with Redis (decided_by TW_BY_LEASE): TW_OK, a unit of the lease; TW_PENDING, others hold unspent units, or Redis
 *  has not answered yet: ask again after retry_after_ms; TW_DENIED with final = 1: Redis has said that all of `limit` is spent (asked
 *  anew at most a second later, as units may be refunded); TW_DENIED without: n is more than is left, or what is left is stranded in an
 *  engine that died, or Redis is away (outage_grace_ms) and the lease is spent. A call that names a smaller limit than the lease was
 *  drawn under sends it back first. What is admitted never passes the greatest limit in force at an admission.
 *  Without Redis exactly the limit is admitted, for any number of threads. With Redis this is the soft mode: it decides
 *  on the view, so several processes together may pass the limit by what each has not yet heard of the others. That is kept small:
 *  between two totals a process admits at most what remains / live engines (of a key of unknown total, and in all for an interval and a
 *  half after its first, limit / live engines; at least one call), and a key near its limit, or unknown, is synced at once. A call that finds its process's share spent is
 *  denied, with a retry_after_ms of some milliseconds. `error_bound` says how far off `used` may be: it rests on what the
 *  others may spend, and on the pace at which they were seen to count (docs/LIMITS.md); TW_UNBOUNDED where Redis is away.
 *  Hot keys: what is left of a limit that threads contend for is cut into slices, and each thread spends its own, then the
 *  others'; still exactly the limit is admitted, and nobody is denied while a unit is left. An admission from a slice does
 *  not add all of them up: `used` is then the count when some thread last did (each does every 64 units), `remaining` is
 *  limit - used, and error_bound, else 0 without Redis, says how far off `used` may be. A denial, and n = 0, are exact.
 *  Slices stand while calls name the same limit or a higher one and nobody adds to the key (tw_add() of a negative delta,
 *  a refund, is no obstacle); otherwise the call decides on the whole, as on any other key. Not for TW_WINDOW_FROM_FIRST.
 *  Table full: on_full_limit decides (TW_OK with decided_by TW_BY_FULL, or TW_ERR_FULL); never the overflow counter.
 *  Cost: as tw_add(), by compare-and-swap; a denied call on a known key only loads (on a hot one, from the second denial).
 *  Answers: TW_OK, TW_DENIED; TW_ERR_KEY, TW_ERR_RANGE (n < 0, limit < 0, or out of range), TW_ERR_FULL, TW_ERR_MEMORY,
 *  TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

/** As many units of `key` as there are, at most `n_max`: *taken says how many (0 unless TW_OK). The verdict is that of the last
 *  try; where nothing could be had it says when one unit may come. n_max = 0 looks without taking.
 *  Cost: as tw_acquire(), a few times where fewer than n_max are left. Answers: as tw_acquire(); TW_DENIED: not one unit. */
TW_API tw_status tw_acquire_some(tw_family *family, tw_key key, int64_t n_max, int64_t limit, int64_t *taken,
                                 tw_verdict *verdict);

/** tw_acquire(), and where units may yet come, again until they have or the time is up. The thread sleeps meanwhile: until the
 *  verdict says that it is time, until a tw_refund() in this process, and at most 100 ms at a stretch. Nothing is kept for
 *  those who wait, so somebody who comes later may be first. n above the limit is denied at once; so is who is told `final`
 *  (a word of Redis of at most a second ago), unless retry_after_ms lies within the time: the end of the window is waited for.
 *  Answers: as tw_acquire(): at the end of the time TW_DENIED or TW_PENDING, as it stands then; TW_ERR_MODE (host-driven engine, hook,
 *  tw_enter). tw_stop() ends it with TW_ERR_CLOSED. */
TW_API tw_status tw_acquire_wait(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t timeout_ms,
                                 tw_verdict *verdict);

/** One of several units that are wanted together. */
typedef struct tw_claim {
    tw_family *family;
    tw_key key;
    int64_t n, limit;
} tw_claim;
#define TW_CLAIMS_MAX 64

/** Takes all claims, or none: per second, per day and per customer in one call. verdict->claim is the claim that decided: the one
 *  that was denied, or of those admitted the one with the fewest units left; the verdict is that claim's. The same key may
 *  be claimed more than once: its units add up, each under its own limit. First all are looked at, so who cannot have all
 *  takes nothing; between two callers who want the same few units, one may be denied because the other holds some for a moment
 *  and then cannot have the rest. A window that ends during the call may keep what was taken from it.
 *  Cost: as twice as many calls of tw_acquire(). Threads, waiting: as tw_acquire().
 *  Answers: as tw_acquire(), of the claim that decided; TW_ERR_RANGE also: no claim, or more than TW_CLAIMS_MAX; TW_ERR_MODE: a
 *  family whose limit is strict. */
TW_API tw_status tw_acquire_all(const tw_claim *claims, size_t count, tw_verdict *verdict);

/** Gives back `n` units that were admitted in the window that began at `window_start_ms` (verdict->window_start_ms): an order that
 *  was cancelled. The next window gets nothing of an ended one. The count does not go below 0, wherever all of it is known
 *  here: without Redis, and where Redis has told its total. n = 0 does nothing.
 *  Cost: as tw_acquire(); a system call if a thread sleeps in tw_acquire_wait().
 *  Answers: TW_OK; TW_ERR_LATE (that window is over), TW_ERR_EARLY (it has not begun), TW_ERR_RANGE (n < 0 or out of range, or more
 *  than the count), TW_ERR_KEY, TW_ERR_FULL, TW_ERR_MODE (a shape that has nothing to give back to), TW_ERR_MEMORY,
 *  TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms);

/** Hard families: asks Redis for a first lease of `key` under that limit, before the sale opens, and keeps it until it is
 *  spent from or others want it. Does not wait: the units come some turns later (tw_acquire() with n = 0 tells nothing of
 *  them). Without Redis there is nothing to do. Cost: as a tw_acquire() of a new key.
 *  Answers: TW_OK; TW_ERR_MODE (no hard family), TW_ERR_RANGE (limit), TW_ERR_KEY, TW_ERR_FULL, TW_ERR_MEMORY, TW_ERR_CLOSED,
 *  TW_ERR_FORKED. */
TW_API tw_status tw_lease_warm(tw_family *family, tw_key key, int64_t limit);

/** Hard families with Redis: frees what an engine that died was granted of this family's limits and had not said to be spent, in
 *  all windows; `*units` is how many. `instance`: its 32 digits in Redis (docs/SYNC.md). Nothing does so by itself before a window
 *  ends: an engine that was only paused, and goes on, would sell those units a second time. Be sure that it is gone. Waits for
 *  Redis, up to redis_timeout_ms for each page of leases. `tallywheel reclaim` does the same.
 *  Answers: TW_OK; TW_DENIED (Redis heard of that engine within the last 5 s), TW_ERR_UNKNOWN_TOKEN (no instance), TW_ERR_MODE (no
 *  hard family; host-driven engine, hook, tw_enter), TW_ERR_REDIS, TW_ERR_CLOSED, TW_ERR_FORKED, TW_ERR_MEMORY; TW_ERR_TIMEOUT
 *  (some may have been freed: ask again). */
TW_API tw_status tw_lease_reclaim(tw_family *family, const char *instance, int64_t *units);

/** True in `*first` for the first caller per key and window; it forgets with the window. The key's count becomes 1.
 *  Without Redis, and in strict families (TW_LIMIT_STRICT, the call waits for Redis as tw_acquire() does there): for exactly one
 *  caller; one whose answer is lost on the way asks again and is still the first. In soft families with Redis it is decided on
 *  what is known here and then sent: callers in two processes may both be told that they are the first, if both come before
 *  either has heard of the other (one sync_interval_ms, or an outage).
 *  Redis away, strict: on_outage decides. LOCAL: as soft; OPEN: everybody is first; CLOSED: TW_ERR_REDIS, or TW_ERR_TIMEOUT.
 *  Families: counters of TW_SHAPE_FIXED, soft or strict; without Redis hard ones, too.
 *  Answers: TW_OK; TW_ERR_FULL (on_full_limit = TW_FULL_LIMIT_DENY; with TW_FULL_LIMIT_ADMIT: TW_OK and first = true), TW_ERR_MODE (the family; strict
 *  also: host-driven engine, hook, tw_enter), TW_ERR_KEY, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED; strict: TW_ERR_REDIS
 *  (Redis refused or is away), TW_ERR_TIMEOUT (unknown; if there was a first, it is taken back). */
TW_API tw_status tw_once(tw_family *family, tw_key key, bool *first);
/** The first caller could not do what it was first for: the key's count in the open window becomes 0, and the next caller of
 *  tw_once() is the first. Whoever calls it must know that it was. Strict: in Redis, at once; soft: sent with the next sync.
 *  Answers: TW_OK (also where there was no first); else as tw_once(), but strict with Redis away: TW_ERR_REDIS, TW_ERR_TIMEOUT. */
TW_API tw_status tw_once_cancel(tw_family *family, tw_key key);

/** One holder at a time, over all processes with this Redis and prefix, for `ttl_ms` at most: whoever holds it longer has lost
 *  it without being told. So hand `fence` to whatever the lock protects, and let that refuse a smaller number than the greatest
 *  it has seen: each lock of the key gets a greater one (Redis's time in microseconds, at least 1 more than the last).
 *
 *      char token[TW_TOKEN_SIZE];
 *      uint64_t fence;
 *      if (tw_lock(jobs, tw_str("report"), 10000, token, &fence) == TW_OK) {
 *          write_report(fence);
 *          tw_lock_release(jobs, tw_str("report"), token);
 *      }
 *
 *  Any family with Redis; a lock has no window and no count. One script decides, by Redis's clock; the call waits for it,
 *  redis_timeout_ms at most. An answer that is lost is asked for again: the winner is still the winner.
 *  Safe as long as Redis keeps what it acknowledged: a failover may forget a lock, the fence then still rises.
 *  Answers: TW_OK; TW_DENIED (held by another); TW_ERR_RANGE (ttl_ms 0), TW_ERR_KEY, TW_ERR_MODE (host-driven engine, hook,
 *  tw_enter), TW_ERR_REDIS (no Redis, refused, away), TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED; TW_ERR_TIMEOUT: perhaps locked;
 *  given back when Redis answers again, at the latest when the hold is over. `token` is empty but after TW_OK. */
TW_API tw_status tw_lock(tw_family *family, tw_key key, uint32_t ttl_ms, char token[TW_TOKEN_SIZE], uint64_t *fence);
/** The hold lasts `ttl_ms` from now on; never less than it did. Answers: TW_OK; TW_ERR_LATE (not held under this token any
 *  more); TW_ERR_UNKNOWN_TOKEN (malformed); TW_ERR_TIMEOUT (perhaps done, ask again); the others as tw_lock(). */
TW_API tw_status tw_lock_extend(tw_family *family, tw_key key, const char *token, uint32_t ttl_ms);
/** Free for the next. Answers: as tw_lock_extend(). */
TW_API tw_status tw_lock_release(tw_family *family, tw_key key, const char *token);

/** Reserves `n` units of a stock of `limit` for `ttl_ms`: nobody else can have them meanwhile, and unless tw_reserve_confirm() says
 *  that they are sold they return by themselves. The stock is the count of `key` in the window that is open: units sold and
 *  held together, which never pass `limit`. `token` names the reservation; with Redis any process may confirm or cancel it.
 *  `buyer` (size 0: anybody) gets one reservation for each key and window: who holds one, or has bought, is denied before
 *  anything is deducted; a cancelled one, or one whose time was over, does not count.
 *
 *      char token[TW_TOKEN_SIZE];
 *      if (tw_reserve(sale, tw_str("sku:7"), 1, 500, 15 * 60000, tw_str(user), token, NULL) == TW_OK)
 *          ...  // pay; then, here or in any other process:
 *          sold = tw_reserve_confirm(engine, token) == TW_OK;
 *
 *  Without Redis: exact, and the hold's end goes by the monotonic clock. With Redis: one script decides for all processes, by
 *  Redis's clock; the call waits for it, redis_timeout_ms at most; what is reserved shows in tw_get() with the next sync. What was
 *  added to the key by tw_add() or tw_acquire() counts as sold, once Redis has it.
 *  Families: counters, soft or strict, of TW_SHAPE_FIXED, not TW_WINDOW_FROM_FIRST, not TW_ON_FULL_EVICT_IDLE, not `shadow`.
 *  A reservation costs some 128 bytes until it is over; sold ones as long as their answers are repeated (a day after the hold's
 *  end) and their buyer is remembered (to the end of the window; in an endless family for ever).
 *  Answers: TW_OK. TW_DENIED: verdict->decided_by is TW_BY_BUYER, or the stock is out: retry_after_ms says when some may come
 *  back, and with Redis `final` that nothing can: all of it is sold. TW_ERR_RANGE (n < 1, ttl_ms 0, out of range), TW_ERR_KEY
 *  (key or buyer), TW_ERR_FULL (no memory left; or, without Redis, reservations have half of it), TW_ERR_MODE (the
 *  family; with Redis also: a host-driven engine, a hook, tw_enter), TW_ERR_REDIS (Redis refused, or is away), TW_ERR_LATE (the window is over in Redis), TW_ERR_MEMORY,
 *  TW_ERR_CLOSED, TW_ERR_FORKED; TW_ERR_TIMEOUT: perhaps reserved; `token` may be cancelled, else the units return by
 *  themselves. Else an answer that is not TW_OK leaves `token` empty. */
TW_API tw_status tw_reserve(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t ttl_ms, tw_key buyer,
                            char token[TW_TOKEN_SIZE], tw_verdict *verdict);
/** The units are sold. From any thread; with Redis from any process with the same Redis and prefix. Repeatable.
 *  Answers: TW_OK (sold, now or by an earlier call); TW_ERR_LATE (returned: cancelled, or its time was over; for ever);
 *  TW_ERR_UNKNOWN_TOKEN (malformed; of another engine or Redis; older than a day after its hold's end); TW_ERR_REDIS,
 *  TW_ERR_MODE, TW_ERR_CLOSED, TW_ERR_FORKED as tw_reserve(); TW_ERR_TIMEOUT: perhaps done, ask again. */
TW_API tw_status tw_reserve_confirm(tw_engine *engine, const char *token);
/** The units go back. As tw_reserve_confirm(). Answers: TW_OK (returned: now, by an earlier call, or by itself); TW_ERR_LATE (sold: what
 *  is sold goes back by tw_add() of a negative delta); the others as tw_reserve_confirm(). */
TW_API tw_status tw_reserve_cancel(tw_engine *engine, const char *token);

/** One more in flight under `key`, if there are then at most `limit`: connections, running jobs. Ended by tw_hold_release(). Endless
 *  families (TW_WINDOW_FOREVER) only.
 *
 *      if (tw_hold(downloads, tw_str(user), 3, NULL) != TW_OK) return busy();
 *      ...
 *      tw_hold_release(downloads, tw_str(user));
 *
 *  Without Redis: a count of this process, as tw_acquire(). With Redis: one script decides for all processes, and the call waits
 *  for it, redis_timeout_ms at most. What a process holds is said again every few seconds while it lives: after kill -9 it is free
 *  within 15 s; a process that was stopped for longer says anew what it holds, and until then others may have had its place. tw_get() does
 *  not show it there; verdict->used does. Redis away: on_outage decides: TW_OUTAGE_LOCAL on what this process holds.
 *  Answers: TW_OK, TW_DENIED; TW_ERR_RANGE (limit < 0 or out of range), TW_ERR_KEY, TW_ERR_FULL, TW_ERR_MODE (the family;
 *  with Redis also: a host-driven engine, a hook, tw_enter), TW_ERR_REDIS (Redis refused), TW_ERR_MEMORY, TW_ERR_CLOSED,
 *  TW_ERR_FORKED. */
TW_API tw_status tw_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict);
/** One less. Answers: TW_OK (with Redis away, too: it is free there within 15 s); TW_ERR_RANGE (this process holds none: nothing
 *  changed, so the count is never below 0); TW_ERR_KEY, TW_ERR_MODE, TW_ERR_MEMORY, TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_hold_release(tw_family *family, tw_key key);

/* ---- limits from a file ------------------------------------------------------------------------------------------ */

/** Limits that stand in a file, and can be changed there while the program runs. A line says what the keys of a family that
 *  begin so may use in a window:
 *
 *      # family  key         limit      window  words
 *      login     *           5          1m                         # any key
 *      login     ip:10.*     unlimited                             # * stands for what follows, at the end of a pattern only
 *      login     ip:10.6.6.6 0          1m                         # this one key: never
 *      api       user:*      1000       1h      from-first
 *      stock     sku:*       500        1d      mode=hard outage=fail-closed
 *
 *  Of the lines that match, the closest decides: the key itself before patterns, the longer pattern before the shorter;
 *  their order says nothing. Two lines of the same family and key are an error. Limits: 0 to TW_DELTA_MAX, or unlimited.
 *  Windows: a number with s, m, h or d. Words, as the family's options: from-first, shadow, mode=soft|hard|strict,
 *  shape=fixed|sliding|gcra, burst=N, outage=local|fail-open|fail-closed|share. In keys \\ \* \t \n \xHH are bytes. Blanks stand
 *  between words; what follows a # at a word's beginning is a comment. The last line ends like all others. At most 4 MiB,
 *  100,000 limits, 256 families and windows (of all reloads together).
 *
 *  For each family and window a family of the engine is opened, under both names: "login.1m". So a window that is changed
 *  begins from 0, and a limit that is changed goes on with what has been used. tw_family_find() gives it for reading. */
typedef struct tw_limits tw_limits;

/** Reads the file and opens what it names. Cost: a file, memory of its size, families.
 *  Answers: TW_OK; TW_ERR_OPTIONS, TW_ERR_MEMORY, TW_ERR_CLOSED: nothing has changed, and `error_text` (or NULL) says
 *  "FILE:LINE: " and what is wrong. */
TW_API tw_status tw_limits_open(tw_engine *engine, const char *path, char *error_text, size_t error_size,
                                tw_limits **limits);
/** Reads the file again: all of it holds from then on, or, upon an error, all that held before. Calls that run meanwhile do
 *  not wait, and each sees the old limits or the new. A family that was in the file and has no line any more is an error;
 *  so is another mode or shape for a family and window. Replace the file by rename(), so that no half of it is read.
 *  Cost: as tw_limits_open(); may wait some microseconds for lookups under way.
 *  Answers: as tw_limits_open(); TW_PENDING (another thread is reloading; nothing was done). */
TW_API tw_status tw_limits_reload(tw_limits *limits, char *error_text, size_t error_size);
/** tw_acquire() under the file's limit for `key`. Where no line speaks of the key, or it is unlimited: TW_OK, nothing is
 *  counted, and limit and remaining are TW_UNBOUNDED. Cost: a binary search, then tw_acquire(); the search waits for nobody.
 *  Answers: as tw_acquire(); TW_ERR_OPTIONS (no line names the family: is it spelled so in the file?). */
TW_API tw_status tw_limits_acquire(tw_limits *limits, const char *family, tw_key key, int64_t n, tw_verdict *verdict);
/** What tw_limits_acquire() would go by, for every other call: tw_refund(), tw_reserve(), tw_get() ... Unlimited: NULL and
 *  TW_UNBOUNDED. A handle stays good until tw_limits_close(). Either pointer may be NULL.
 *  Answers: TW_OK; TW_ERR_OPTIONS (no line names the family), TW_ERR_KEY: nothing is written. */
TW_API tw_status tw_limits_find(tw_limits *limits, const char *family, tw_key key, tw_family **found, int64_t *limit);
/** A family of the file, found once: tw_limited_acquire() and tw_limited_find() are tw_limits_acquire() and tw_limits_find()
 *  without the search for the name. A reload changes what it leads to and leaves the handle good, until tw_limits_close().
 *  Answers: TW_OK; TW_ERR_OPTIONS (no line names the family): nothing is written. */
typedef struct tw_limited tw_limited;
TW_API tw_status tw_limits_family(tw_limits *limits, const char *family, tw_limited **limited);
TW_API tw_status tw_limited_acquire(tw_limited *limited, tw_key key, int64_t n, tw_verdict *verdict);
TW_API tw_status tw_limited_find(tw_limited *limited, tw_key key, tw_family **found, int64_t *limit);
/** Closes the families and frees the rest (of NULL: nothing). Before tw_close(); no call with `limits` or with a handle found
 *  in it may be running or follow. Answers: TW_OK; TW_ERR_MODE (from inside a hook: nothing was done). */
TW_API tw_status tw_limits_close(tw_limits *limits);

/* ---- seeing what goes on
 * ------------------------------------------------------------------------------------------- */

/** Every field of tw_stats: X(name, kind, text), kind gauge or counter. */
#define TW_STATS(X) \
    X(increments, counter, "adds that answered TW_OK or TW_OVERFLOWED") \
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
    X(clock_held_ms, gauge, "how long engine time has stood still or run alone because the wall clock was set") \
    X(clock_lag_max_ms, gauge, "the longest that the engine's cached clock was not refreshed") \
    X(redis_configured, gauge, "1 with a redis_url") \
    X(redis_connected, gauge, "1 while Redis answers") \
    X(sync_age_ms, gauge, "time since the last acknowledged batch; -1: none yet") \
    X(unsent_keys, gauge, "counters with counts that Redis has not acknowledged, at least; sampled by turns") \
    X(connects, counter, "connections made") \
    X(disconnects, counter, "connections lost") \
    X(batches_sent, counter, "batches sent, again-sent ones included") \
    X(batches_ok, counter, "batches that Redis applied") \
    X(batches_dup, counter, "batches that Redis had applied before") \
    X(batches_gap, counter, "batches refused because their number was not the next") \
    X(batches_error, counter, "batches answered by an error") \
    X(poison_keys, counter, "keys refused by Redis") \
    X(late_deltas, counter, "units answered LATE by Redis, magnitudes added up") \
    X(expired_unsynced, counter, "units whose window was over in Redis before it could be reached") \
    X(lost, counter, "units known to be lost, magnitudes added up") \
    X(uncertain, counter, "units of unknown outcome, magnitudes added up") \
    X(rollbacks, counter, "times Redis was found to have gone back") \
    X(redis_clock_offset_ms, gauge, "Redis's clock minus ours") \
    X(breaker_state, gauge, "0: Redis is used; 1: left alone until a back-off is over; 2: being tried") \
    X(outage_ms, gauge, "how long Redis has not answered, from its first failure or tw_open on; 0 while it does") \
    X(replayed, counter, "units sent again because Redis had forgotten them, magnitudes added up") \
    X(restored, counter, "units owed again, out of the counters, because Redis had lost everything") \
    X(regressions, counter, \
      "totals below what Redis had acknowledged, unexplained: a key deleted, evicted, set by hand") \
    X(replicas_short, counter, "times fewer replicas than wait_replicas had what Redis acknowledged") \
    X(striped, counter, "counters that were given stripes or slices because threads contended for them") \
    X(evicted, counter, "idle keys that left memory (TW_ON_FULL_EVICT_IDLE); Redis has their counts") \
    X(limit_admitted, counter, "calls that a limit admitted") \
    X(limit_denied, counter, "calls over a limit; those in the shadow, too") \
    X(limit_near, counter, "calls that were admitted and left a fifth of the limit, or less") \
    X(limit_shadow_denied, counter, "calls let through that a limit would not have admitted (shadow)") \
    X(limit_measured, counter, \
      "counters near a soft limit whose total was measured when their window was over; with Redis") \
    X(limit_overshot, counter, "of those, counters whose total was above the limit") \
    X(reservations_held, gauge, "reservations made here and not yet confirmed, cancelled or over; without Redis") \
    X(reservations_expired, counter, "reservations whose hold was over before they were confirmed; without Redis") \
    X(lease_draws, counter, "times units of a hard limit were drawn from Redis") \
    X(lease_returned, counter, "units of hard limits that were given back unspent") \
    X(lease_stranded, gauge, \
      "units of hard limits that are seen in leases of engines that are gone, windows still open") \
    X(limit_at_risk, counter, \
      "units granted beyond a hard limit, because Redis forgot grants: of them, what this engine was told of") \
    X(ask_active, gauge, "calls that wait for Redis now (strict limits, locks)") \
    X(ask_calls, counter, "calls that asked Redis and waited") \
    X(ask_ms, counter, "how long they waited, all together") \
    X(ask_connects, counter, "connections made for them") \
    X(ask_timeouts, counter, "tries without an answer in time") \
    X(ask_refused, counter, "tries that Redis refused") \
    X(ask_dropped, counter, "tries whose connection failed") \
    X(ask_away, counter, "calls that could not be asked: Redis was left alone, or all connections were in use") \
    X(asked_again, counter, "tries after one whose answer was lost") \
    X(asks_unknown, counter, "calls of which it is not known whether Redis executed them") \
    X(strict_fallbacks, counter, "calls of strict limits that on_outage decided") \
    X(asks_settled, counter, "of those, calls whose charge, if any, was taken back") \
    X(live_engines, gauge, "engines that share this Redis, as it last told; 0: not known") \
    X(audits, counter, "audits done at their interval") \
    X(audit_findings, gauge, "what the last of them found; -1: it could not be done") \
    X(clock_ahead_ms, gauge, "engine time minus the wall clock: beyond 5 s the wall clock was set back") \
    X(windows_again, counter, \
      "windows that the hook was told of again, because counts came after they had been closed") \
    X(windows_untold, counter, \
      "windows, or late counts in one that others had closed, that no hook was told of: it answered false, or there is none") \
    X(memory_free_bytes, gauge, "counting memory that is free within the bound") \
    X(memory_usable_bytes, gauge, "of it, what can be had at once: runs long enough for any key and any window")

#define TW_STATS_ROOM 160 /* figures that there is room for; what is not used is reserved */
#define TW_STATS_ONE(name, kind, text) +1
typedef struct tw_stats {
#define TW_STATS_FIELD(name, kind, text) int64_t name;
    TW_STATS(TW_STATS_FIELD)
#undef TW_STATS_FIELD
    int64_t reserved[TW_STATS_ROOM - (0 TW_STATS(TW_STATS_ONE))];
    char last_error[128]; /* of Redis or of the connection; empty: none */
} tw_stats;
#undef TW_STATS_ONE
/** A sample of every figure; they are read one after the other. Cost: some microseconds. Answers: TW_OK. */
TW_API tw_status tw_stats_read(tw_engine *engine, tw_stats *stats);
/** tw_metrics_write()'s `format`, and the Content-Type that its page is to be served with. */
enum { TW_METRICS_PROMETHEUS = 0, TW_METRICS_OPENMETRICS = 1 };
#define TW_METRICS_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define TW_METRICS_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define TW_METRICS_NO_EOF 256 /* added to TW_METRICS_OPENMETRICS: without "# EOF" at the end, as more follows */

/** The same as a page of metrics. `write` is called with pieces of it, each of whole lines; false ends it.
 *  TW_METRICS_PROMETHEUS is the text format that every scraper takes; TW_METRICS_OPENMETRICS is OpenMetrics 1.0, for scrapers whose
 *  Accept header asks for application/openmetrics-text. Each sample bears the labels of tw_options.metrics_labels.
 *  One page together with the program's own metrics: write those before this call's, or behind them (in OpenMetrics with
 *  TW_METRICS_NO_EOF, and "# EOF\n" at the very end); none of their names may begin with tallywheel_. Two engines have two pages: a
 *  page tells of each metric once.
 *  Behind the engine's figures stand those of each family of which a limit was asked, under {family="NAME"}:
 *  tallywheel_family_limit_admitted, _denied, _near, _shadow_denied (counters; as in tw_stats). They begin at 0 when the family is
 *  opened. Soft families with Redis whose windows end also have tallywheel_family_limit_overshoot_ratio, a histogram: of counters
 *  that came near their limit here (at most 1024 at a time), the part of the limit by which all engines together had passed it
 *  when the window was over: 0.01 is 1 %. The greatest limit that was named counts, and tw_add() counts along.
 *  Answers: TW_OK; TW_DENIED (`write` answered false); TW_ERR_OPTIONS (no such format), TW_ERR_MEMORY: `write` was not called. */
TW_API tw_status tw_metrics_write(tw_engine *engine, uint32_t format,
                                  bool (*write)(void *ctx, const char *text, size_t size), void *ctx);

/* ---- audit ------------------------------------------------------------------------------------------------------- */

/** What an audit finds. Numbers are fixed for ever. */
enum {
    TW_AUDIT_LEDGER = 1,    /* a ledger is gone, says other than we do, or tells of a batch that was cut short */
    TW_AUDIT_NO_EXPIRY = 2, /* a key that should end never will */
    TW_AUDIT_TOTAL = 3,     /* Redis holds another count than the file says */
    TW_AUDIT_NO_COUNT = 4,  /* a key of the file holds no number */
    TW_AUDIT_MEMORY = 5,    /* Redis evicts, may evict, or is nearly full */
    TW_AUDIT_LINE = 6       /* a line of the file is no key<TAB>count; `text` names file and line */
};

typedef struct tw_finding {
    int kind;
    tw_key name;             /* in Redis; size 0: of no key. Valid inside the call only, as `text` */
    int64_t expected, found; /* 0 and 0 where neither is a number */
    const char *text;        /* a sentence */
    uint64_t reserved[4];
} tw_finding;

typedef struct tw_audit_report {
    uint64_t findings;
    uint64_t ledgers, keys, lines;            /* looked at */
    uint64_t cut_off;                         /* 1: there were more keys than keys_max */
    int64_t memory_used, memory_max, evicted; /* as Redis says; -1: it does not */
    uint64_t reserved[8];
} tw_audit_report;

/** What is looked at. Fill with tw_audit_options_init(). */
typedef struct tw_audit_options {
    size_t size;
    char *error_text; /* what is wrong with an option, or with Redis or the file, is said here */
    size_t error_size;

    /* Without an engine: as in tw_options. With one: NULL. */
    const char *redis_url;
    const char *redis_prefix;

    const char
        *pattern; /* keys that must have an expiry, as SCAN's MATCH has it; NULL: with an engine those of its families
                            that end, without one none */
    uint64_t keys_max; /* at most so many keys are asked for theirs; default 10 million */

    /* What a database says: a file of lines key<TAB>count; in keys \t \n \\ \xHH stand for their bytes. NULL: none. */
    const char *totals_path;
    const char *totals_name; /* the name in Redis of a key of the file: %k the key, %% a percent sign; default "%k" */

    uint32_t timeout_ms; /* one answer; 1..600000, default 1000 */
} tw_audit_options;

#define tw_audit_options_init(options) tw_audit_options_init_sized((options), sizeof *(options))
TW_API void tw_audit_options_init_sized(tw_audit_options *options, size_t size);

/** Compares, over a connection of its own, and changes nothing: ledgers against our own numbers (with an engine), each ledger in
 *  itself, keys without an expiry, totals against a file, Redis's memory and eviction. `found` (may be NULL) is called for
 *  each difference, and may not call the engine; `report` may be NULL. The file is read to its end; what other programs count
 *  meanwhile shows as a difference. Cost: a SCAN of all keys for ledgers and one for each pattern, in pages of some hundred.
 *  Answers: TW_OK, whatever was found; TW_ERR_OPTIONS, TW_ERR_REDIS (no Redis, or it refused), TW_ERR_TIMEOUT (a part was
 *  looked at), TW_ERR_MEMORY, TW_ERR_MODE (host-driven engine, hook, tw_enter), TW_ERR_CLOSED, TW_ERR_FORKED. */
TW_API tw_status tw_audit(tw_engine *engine, const tw_audit_options *options,
                          void (*found)(void *ctx, const tw_finding *finding), void *ctx, tw_audit_report *report);

#ifdef __cplusplus
}
#endif
#endif
