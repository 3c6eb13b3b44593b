/* engine_parts.h -- the named parts of an engine, each of what one room or file is about. A function takes the part that it touches.
 *
 * Always true: what is said to be the turn's own is touched by the owner of the turn alone. */
#ifndef TWI_CORE_ENGINE_PARTS_H
#define TWI_CORE_ENGINE_PARTS_H

#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "engine/memory/epoch.h"
#include "engine/base/event_count.h"
#include <pthread.h>

struct tw_family;
struct twi_delayed;
struct twi_thread;

struct twi_shard {
    alignas(TWI_LINE_BYTES) _Atomic int64_t increments;
};

/* A counter that came near its limit (overshoot.h). */
struct twi_note {
    _Atomic uint64_t of; /* line of its generation << 32 | of its cell; 0: none */
    _Atomic int64_t limit;
    int64_t request_again_ms; /* monotonic; this and the next: the turn's own */
    bool requests;            /* Redis is to be asked for its total */
};
#define TWI_NOTES 1024u

/* What the engine says of itself (report.h, services.h). */
#define TWI_REPORT_EVENTS 32u
#define TWI_REPORT_ERROR_MAX 128u

struct twi_report {
    _Atomic int64_t stats[sizeof(tw_stats) / sizeof(int64_t)];
    int64_t logged_ms[TWI_REPORT_EVENTS]; /* monotonic, per event: its last line; 0: none. The turn's */
    uint32_t left_out[TWI_REPORT_EVENTS]; /* lines since */
    pthread_mutex_t lock;                 /* last_error */
    char last_error[TWI_REPORT_ERROR_MAX];
};

/* Which families the turn has to look at (agenda.h). */
struct twi_agenda {
    _Atomic(struct tw_family *) news;
    struct twi_appointment *by_time, *by_mono;
    struct tw_family *always;
    struct tw_family *searched; /* the search goes on there; NULL: from the beginning */
    int64_t searched_ms;        /* monotonic */
};

/* Which families there are (roster.h). */
struct twi_roster {
    _Atomic(struct tw_family *) first;    /* all; the turn reads without the lock, only the turn unlinks */
    _Atomic(struct tw_family *) specials; /* gauges, and those of TW_CLOSED_BY_ONE: by next_special, as `first` */
    pthread_mutex_t lock;
    struct tw_family **names; /* chains, by a hash of the name */
    uint32_t names_log2, named;
    _Atomic uint32_t count;       /* those that are being closed, too; the turn reads it for a hint */
    uint64_t bytes;               /* of them, outside of the arena */
    uint32_t blocks, block_count; /* of the arena, which they are in place of */
};

/* The thread that audits now and then (audit.c). */
struct twi_auditor {
    pthread_t thread;
    bool runs, stops; /* stops: under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

/* What is known of Redis and of the other engines that count in it (peers.h). The turn alone writes it. */
struct twi_peers {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t
        live_engines;               /* as Redis last said, this one included; 0: not known, or not for long */
    _Atomic uint32_t live_reported; /* as Redis last said; 0: it has not, or may not */
    _Atomic int64_t away_since_ms;  /* monotonic: Redis has failed to answer since; 0: it answers, or was never tried */
    _Atomic bool is_connected;      /* Redis answers */
    _Atomic int64_t
        live_meeting_ms; /* for how long after Redis's first number others may be as late as this engine was */
    _Atomic int64_t live_repeated_ms; /* how long after its first number the last one came */
    _Atomic int64_t
        live_since_ms; /* monotonic: when the first one came; INT64_MIN: none may come. Before: when we opened */
    _Atomic int64_t outage_began_ms, outage_ended_ms; /* monotonic: of the last outage that is over */
    int64_t live_rose_ms;    /* monotonic: when live_reported last became more. The turn's own, as the next */
    int64_t clock_offset_ms; /* Redis's clock minus this engine's */
};

/* How keys are hashed. Set before sharing. */
struct twi_hashing {
    twi_hash_fn *fn;
    struct twi_hash_secret secret;
};

/* What kind of engine it is, and whether it takes calls. The first two are set before sharing. */
struct twi_life {
    bool host_driven, has_redis;
    _Atomic bool stopped; /* calls answer TW_ERR_CLOSED */
    _Atomic bool gate;    /* stopped or broken: nobody takes the hot path */
    _Atomic bool broken;  /* a forked child whose engine could not be made anew */
    bool opening;         /* it is being made: no other thread knows it */
};

/* What the turn collects for Redis. `marked` is any thread's; the rest is the turn's own. */
struct twi_collector {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t marked; /* generations with marked counters: newest; taken by the turn */
    uint32_t pending;     /* generations being collected: some as they came, then by their end in Redis */
    uint32_t pending_new; /* how many as they came */
    bool requested;       /* a full collection was begun and waits for its grace period */
    bool running;         /* its grace period is over; done when one collection has come to its end */
    _Atomic bool done;
    uint64_t stamp;
    int64_t items_out;           /* collected counters with a delta that is not settled */
    int64_t unsent_look_ms;      /* monotonic: unsent_keys is sampled again then */
    struct twi_delayed *delayed; /* delayed.h */
    int64_t
        forgot_mono_ms; /* when Redis was last found to have forgotten: that a total has fallen since is explained */
};

/* What is unlinked and waits until no section can hold it. `new_maps` is any thread's; the rest is the turn's own. */
struct twi_unlinked {
    _Atomic uint32_t new_maps; /* replaced maps of windows, for the turn to retire */
    uint32_t generations;      /* unlinked generations, by next_all */
    uint32_t maps;             /* unlinked maps waiting for their stamp to be reached */
    uint64_t maps_stamp;
};

/* The counter that is to have stripes (contention.h). */
struct twi_stripe_request {
    uint32_t log2;       /* of a striped counter, by the number of processors */
    _Atomic uint64_t of; /* lines of a generation << 32 and of its cell (stripe.c); 0: none */
    _Atomic int64_t limit;
};

/* Counters that came near their limit and are to be sent early (share.h). Any thread. */
struct twi_near_ring {
    _Atomic bool any;                           /* there are counters near their limit */
    _Atomic uint64_t slots[TWI_NEAR_LIMIT_MAX]; /* line of a generation << 32 | of its cell; 0: free */
};

/* The turn: who owns it, what time it is in it, what it has logged. */
struct twi_turn_state {
    struct twi_event_count ended; /* who waits for turns sleeps on it */
    _Atomic bool owned;
    _Atomic int64_t next_ms; /* monotonic: when there is something to do */
    int64_t now_ms;          /* engine time of this turn */
    int64_t mono_ms;
    bool closing; /* tw_close(): every window is treated as over */
    bool hooks_partial;
    _Atomic(struct twi_thread *) hook_thread; /* the thread that is in a hook on a closed window */
    uint64_t refused_seen;                    /* pieces that the arena had refused when it was last looked at */
    bool reclaimed;                           /* this turn gave something back: there may be more */
    bool refusal_logged;
    int64_t clock_logged_ms,
        clock_logged_at_ms;  /* how far the wall was from engine time when that was last logged; 0: near */
    int64_t epoch_raised_ms; /* monotonic */
    int64_t epoch_seen_ms;   /* since when the oldest section has been what it is */
    uint64_t epoch_seen;
};

/* What syncs with Redis, and the name that this engine has there. */
struct twi_remote {
    const struct twi_driver *driver; /* NULL: none */
    struct twi_sync *sync;
    const struct twi_transport *transport; /* a simulator's */
    void *transport_ctx;
    char id[33]; /* who it is in Redis (port.h); a forked child has another */
};

/* Where random bytes come from. */
struct twi_random_source {
    _Atomic uint64_t state; /* 0: the system's */
    bool failed;            /* while it was being made: the system had no random bytes */
};

/* The background thread, and the one that audits. */
struct twi_background {
    struct twi_auditor auditor;
    pthread_t thread;
    bool runs;
    int wake_fd; /* wakes it; -1: none */
    _Atomic bool stops;
};

#endif
