/* state.h -- the engine: one per process as a rule, owner of the arena, the clock, the families and the turn.
 *
 * The TURN is the background work, in bounded rounds: clock, roll-over (rollover.c), sync (through port.h), reclamation.
 * It has one owner at a time (turn_owner): the background thread, or whoever calls tw_turn(), tw_flush() or tw_close()
 * in a host-driven engine.
 * Always true: what is said to be the turn's own is touched by the owner of the turn alone; a user's hook runs inside a
 * turn and never inside a section. */
#ifndef TWI_CORE_STATE_H
#define TWI_CORE_STATE_H

#include "engine/memory/arena.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/core/lease_table.h"
#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "engine/memory/epoch.h"
#include "engine/base/event_count.h"
#include "engine/table/table.h"

#include <pthread.h>

#define TWI_IDLE_MS 1000u    /* the longest that a host may leave an engine alone */
#define TWI_WORK_TURN 16384u /* units of work (slots, lines) in one turn for each kind of work: some 100 microseconds */

/* Memory faulted in ahead of inserts in one turn, in lines: 4 MiB, or 64,000 records in 5 ms; about half a millisecond. */
#define TWI_WORK_AHEAD 65536u

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
    struct tw_family **names; /* chains, by a hash of the name */
    uint32_t names_log2, named;
    _Atomic uint32_t families;    /* those that are being closed, too; the turn reads it for a hint */
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

struct twi_reserve_local;
struct twi_delayed;
struct twi_hold_book;
struct twi_restore;

struct tw_engine {
    /* set before sharing, then read by all */
    twi_hash_fn *hash;
    struct twi_hash_secret secret;
    struct twi_shard *shards;
    bool host_driven, has_redis;
    _Atomic bool stopped;  /* calls answer TW_ERR_CLOSED */
    _Atomic bool gate;     /* stopped or broken: nobody takes the hot path */
    _Atomic bool broken;   /* a forked child whose engine could not be made anew */
    uint32_t stripes_log2; /* of a striped counter, by the number of processors */
    alignas(TWI_LINE_BYTES) struct twi_clock clock;
    struct twi_arena arena;

    /* any thread, lock-free */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t marked; /* generations with marked counters: newest; taken by the turn */
    _Atomic uint32_t retired_maps;                   /* replaced maps of windows, for the turn to retire */
    _Atomic uint64_t stripes_requested; /* lines of a generation << 32 and of its cell (stripe.c); 0: none */
    _Atomic int64_t stripes_requested_limit;
    _Atomic bool any_near_limit;                     /* there are counters near their limit */
    _Atomic uint64_t near_limit[TWI_NEAR_LIMIT_MAX]; /* line of a generation << 32 | of its cell; 0: free */
    struct twi_note notes[TWI_NOTES];                /* by the lines of their cells (overshoot.h) */
    _Atomic uint32_t live_engines;  /* as Redis last told, this one included; 0: not known, or not for long (share.h) */
    _Atomic uint32_t live_reported; /* as Redis last told; 0: it has not, or may not */
    int64_t live_rose_ms;           /* monotonic: when that last became more. The turn's own */
    _Atomic int64_t live_meeting_ms;  /* for how long after that first word others may be as late as we were */
    _Atomic int64_t live_repeated_ms; /* how long after it the last word came */
    _Atomic int64_t live_since_ms;    /* monotonic: when it first did; INT64_MIN: it may not. Before: when we opened */
    _Atomic int64_t outage_began_ms, outage_ended_ms; /* monotonic: of the last outage that is over (share.h) */
    struct twi_report report;
    struct twi_event_count turned;     /* who waits for turns sleeps on it */
    struct twi_event_count given_back; /* tw_acquire_wait(): a refund was made here */
    _Atomic bool turn_owned;
    _Atomic int64_t next_turn_ms; /* monotonic: when there is something to do */

    /* under `lock`: opening and closing families */
    pthread_mutex_t lock;
    _Atomic(struct tw_family *) families; /* all; the turn reads without the lock, only the turn unlinks */
    _Atomic(struct tw_family *) specials; /* gauges, and those of TW_CLOSED_BY_ONE: by next_special, as `families` */
    struct twi_roster roster;

    /* the turn's own, its news apart */
    struct twi_agenda agenda;
    uint32_t pending;       /* generations being collected: some as they came, then by their end in Redis */
    uint32_t pending_new;   /* how many as they came */
    bool collect_requested; /* a full collection was begun and waits for its grace period */
    bool collect_running;   /* its grace period is over; done when one collection has come to its end */
    _Atomic bool collect_done;
    uint64_t collect_stamp;
    bool closing; /* tw_close(): every window is treated as over */
    bool hooks_partial;
    _Atomic(struct twi_thread *) hook_thread; /* the thread that is in a hook on a closed window */
    int64_t items_out;                        /* collected counters with a delta that is not settled */
    int64_t unsent_look_ms;                   /* monotonic: unsent_keys is sampled again then */
    struct twi_delayed *delayed;              /* delayed.h */
    struct twi_restore *restore;              /* restore.h */
    struct twi_reserve_local *reservations;   /* reserve_local.h; under its own lock */
    struct twi_hold_book *holds;              /* hold.h; under its own lock */
    int64_t
        forgot_mono_ms; /* when Redis was last found to have forgotten: that a total has fallen since is explained */
    uint32_t retired;   /* unlinked generations, by next_all */
    uint32_t maps;      /* unlinked maps waiting for their stamp to be reached */
    uint64_t maps_stamp;
    uint64_t refused_seen; /* pieces that the arena had refused when it was last looked at */
    bool reclaimed;        /* this turn gave something back: there may be more */
    bool refusal_logged;
    int64_t turn_ms; /* engine time of this turn */
    int64_t turn_mono_ms;
    int64_t clock_logged_ms,
        clock_logged_at_ms;  /* how far the wall was from engine time when that was last logged; 0: near */
    int64_t epoch_raised_ms; /* monotonic */
    int64_t epoch_seen_ms;   /* since when the oldest section has been what it is */
    uint64_t epoch_seen;

    /* sync */
    const struct twi_driver *driver; /* NULL: none */
    struct twi_sync *sync;
    const struct twi_transport *transport; /* a simulator's */
    void *transport_ctx;
    _Atomic uint64_t random_state; /* 0: the system's */
    char id[33];                   /* who it is in Redis (port.h); a forked child has another */
    bool opening, random_failed;   /* while it is being made, alone: the system had no random bytes for it */

    struct twi_leases leases; /* of hard limits (lease.h) */

    /* the background thread */
    struct twi_auditor auditor;
    pthread_t thread;
    bool thread_runs;
    int wake_fd; /* wakes it; -1: none */
    _Atomic bool thread_stop;

    tw_options options; /* strings are ours */
    struct tw_engine *next_engine;
};

/* Answers how many the thread (or all that share its place) had counted before. */
TWI_INLINE int64_t twi_count_increments(tw_engine *engine, struct twi_thread *self, int64_t n) {
    uint32_t shard = self->shard;
    _Atomic int64_t *count = &engine->shards[shard].increments;
    if (twi_unlikely(shard == TWI_SHARD_SHARED)) return twi_add_relaxed(count, n);
    int64_t before = twi_load_relaxed(count);
    twi_store_relaxed(count, before + n); /* its only writer */
    return before;
}

#endif
