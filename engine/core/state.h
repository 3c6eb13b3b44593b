/* state.h -- the engine: owner of the arena, the clock, the families and the turn. As a rule a process has one.
 *
 * The TURN is the background work, in bounded rounds of clock, roll-over (rollover.c), sync (through port/) and
 * reclamation. One thread at a time owns the turn (processes.h): the background thread, or, in a host-driven engine,
 * the thread that calls tw_turn(), tw_flush() or tw_close(). In an engine that processes share, one process makes the
 * turns (processes.h).
 * Always true: only the owner of the turn touches what is owned by the turn. A user's hook runs inside a turn and never
 * inside a section. */
#ifndef TWI_CORE_STATE_H
#define TWI_CORE_STATE_H

#include "engine/base/check.h"
#include "engine/port/messages.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/random.h"
#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "engine/memory/epoch.h"
#include "engine/base/event_count.h"
#include "engine/base/descriptor.h"
#include "engine/table/sketch.h"
#include "engine/table/table.h"
#include "engine/memory/arena.h"

#include <pthread.h>
#include <stdalign.h>

/* ---- lease table ----
 * all leases of an engine: which leases are listed for the turn, and for each store the epoch in which
 * they are valid. limit/lease.h has a single lease.
 *
 * One Redis is one store. Where keys have hash tags, a store is what lies in one key slot (store_map.h), and it has a
 * separate epoch. The script of a lease needs both in one slot.
 * Always true: any thread uses `requested` and the hints. Only the turn uses the rest. A lease belongs to one store for
 * its life, and is in at most one of the chains and once in the queue of that store. */

#define TWI_LEASE_REQUESTED_MAX 128u

/* The leases of one store, and its epoch. */
struct twi_lease_store {
    uint32_t index;
    bool is_used;        /* a lease was placed here; with one Redis it plays no part */
    uint32_t listed;     /* a chain of the leases that callers have listed, by next_listed */
    uint32_t head, tail; /* a queue of leases that have units left, or a message to send, by next_active */
    uint32_t active;
    uint32_t restating; /* leases whose full statement has not been re-sent yet */
    /* leases with granted or returned units, of windows that are still held; only they are stated again */
    uint32_t holding;
    uint64_t serial; /* the connection on which the epoch was requested last */
    bool known;      /* the epoch was answered on that connection, so leases may send */
    bool awaiting_epoch;
    bool is_leaving; /* the engine stays open and leaves this store; until that is acknowledged, no lease sends */
    bool left;       /* the engine is being closed, and has left */
    int64_t request_at_ms, walk_at_ms;
    int64_t unused_ms;          /* monotonic time since which no lease is held or requested here; 0 means that one is */
    int64_t requested_since_ms; /* by Redis's clock */
    uint64_t incarnation;       /* differs for each incarnation that Redis reports; 0 means that none was reported */
    struct twi_lease_epoch epoch;
    char others[TWI_LEASE_OTHERS_MAX][34]; /* named in the reply that is being read: "+INSTANCE", "-INSTANCE" */
    uint32_t other_count;
    uint64_t requested_names[TWI_LEASE_REQUESTED_MAX];
    uint32_t requested_count;
};

struct twi_leases {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t requested; /* newest lease on the turn's list; any thread */
    _Atomic bool exist;                                 /* a family has leases; any thread */
    _Atomic int32_t awaiting_first_grant;               /* warmed leases whose first units have not come */
    /* owned by the turn */
    uint32_t unplaced;            /* a chain of leases whose store found no memory, by next_listed */
    uint64_t incarnations;        /* how many were reported, by all stores */
    uint32_t names;               /* how often this engine got another id (twin.c) */
    struct twi_lease_store first; /* the leases of the first store, or the only one */
    /* the stores from index 1 on; NULL means that the engine takes no part in leases there */
    struct twi_lease_store **more;
    uint32_t room; /* room of `more` */
};

/* ---- engine parts ----
 * the named parts of an engine. Each part belongs to one room or file; a function takes the part that
 * it touches.
 *
 * Always true: only the owner of the turn touches what is owned by the turn. */

struct tw_family;
struct twi_calls;
struct twi_hold_book;
struct twi_left;
struct twi_rejected;
struct twi_reserve_local;
struct twi_restore_stores;
struct twi_store_map;
struct twi_thread;
struct tw_watch;

struct twi_shard {
    alignas(TWI_LINE_BYTES) _Atomic int64_t increments;
};

/* A counter that came near its limit (limit_stats.h). */
struct twi_note {
    _Atomic uint64_t of; /* line of the generation << 32 | line of the cell; 0 means none */
    _Atomic int64_t limit;
    int64_t request_again_ms; /* monotonic; this field and the next are owned by the turn */
    bool requests;            /* its total must be requested from Redis */
};
#define TWI_NOTES 1024u

/* What the engine reports about itself (report.h, services.h). */
#define TWI_REPORT_EVENTS 32u
#define TWI_REPORT_AT_ONCE 8 /* lines of one event; after that one a second */
#define TWI_REPORT_ERROR_MAX 128u

struct twi_report {
    _Atomic int64_t stats[sizeof(tw_stats) / sizeof(int64_t)];
    pthread_mutex_t lock; /* protects what follows */
    /* the monotonic time at which each event has room for TWI_REPORT_AT_ONCE lines again */
    int64_t rested_ms[TWI_REPORT_EVENTS];
    uint32_t left_out[TWI_REPORT_EVENTS];      /* lines left out since the last one that was written */
    _Atomic bool has_left_out;                 /* a line of any event; changed under the lock, read without */
    uint8_t left_out_level[TWI_REPORT_EVENTS]; /* of the worst of them */
    char last_error[TWI_REPORT_ERROR_MAX];
    int64_t last_error_ms; /* monotonic time */
};

/* Which families the turn examines (agenda.h). */
struct twi_agenda {
    _Atomic(struct tw_family *) news;
    struct twi_appointment *by_time, *by_mono;
    /* families by the time when they have something to send (gauge.c, engine/turn/closing.c) */
    struct twi_appointment *gauges, *closings;
    struct tw_family *always;
    /* families with news that the turn has taken off the list; their flag stays set until the round */
    struct tw_family *taken;
    struct tw_family *round;    /* families that the turn still has to examine */
    struct tw_family *searched; /* the search continues here; NULL means at the beginning */
    int64_t searched_ms;        /* monotonic */
};

/* Which families there are (roster.h). */
struct twi_roster {
    /* All families. The turn reads without the lock, and only the turn unlinks. twi_roster_add() releases `first`, with
     * entry.next; each walk acquires both, and so sees whole families. */
    _Atomic(struct tw_family *) first;
    pthread_mutex_t lock;
    _Atomic uint32_t count;       /* including those being closed; the turn reads it as a hint */
    uint64_t bytes;               /* memory of the families, outside the arena */
    uint32_t blocks, block_count; /* blocks of the arena that stand for these bytes */
};

/* The thread that audits from time to time (engine/audit.c). */
struct twi_auditor {
    pthread_t thread;
    bool runs, stops; /* `stops` is written under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

/* Whether redis_timeout_ms suffices (turn_check.c). */
struct twi_timeout_check {
    int64_t look_ms, logged_ms; /* monotonic times when the next look is due, and when it was logged last */
    int64_t timeouts, unsent;   /* tw_stats.ask_timeouts at the last look, and those of calls that were never sent */
    int64_t more, more_unsent;  /* those between the last two looks, which no line has reported */
    bool was_away;              /* Redis did not reply at some time since the last look */
    uint32_t short_looks;       /* looks in a row at which it was less than three round trips */
};

/* The state of Redis and of the other engines that count in it (peers.h). Only the turn writes it, apart from
 * redis_ahead_ms. */
struct twi_peers {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t
        live_engines; /* the last reported number, with this engine; 0 means unknown, or not known for long */
    _Atomic uint32_t live_reported;    /* as last reported by Redis; 0 means never, or it may not report */
    _Atomic int64_t away_since_ms;     /* monotonic time since which Redis, or some store, has not replied; 0 means that
                                        * all reply, or were never tried */
    _Atomic int64_t all_away_since_ms; /* the same, but 0 while any store replies */
    struct twi_store_map *stores;      /* which slot is which store, and the clock of each; NULL: there is one store */
    _Atomic bool is_connected;         /* Redis replies */
    _Atomic int64_t live_meeting_ms;   /* how long after the first report others may be as late as this engine */
    _Atomic int64_t live_repeated_ms;  /* time from the first report to the last */
    /* monotonic time of the first report, before that of the opening; INT64_MIN means that no report may come */
    _Atomic int64_t live_since_ms;
    _Atomic int64_t outage_began_ms, outage_ended_ms; /* monotonic times of the last outage that is over */
    _Atomic int64_t redis_ahead_ms;  /* the greatest that Redis's clock was ahead of this engine's monotonic one, by
                                     * replies and by fencing tokens; 0 means unknown */
    _Atomic int64_t way_us;          /* the round trip to Redis; 0 means not measured yet */
    _Atomic uint32_t timeout_ms;     /* the redis_timeout_ms that follows from it; 0 means not measured yet */
    _Atomic int64_t unsent_timeouts; /* calls whose time was over while they had no connection; any thread adds */
    struct twi_timeout_check check;  /* owned by the turn, as the next */
    int64_t live_rose_ms;            /* monotonic: when live_reported last rose */
    int64_t clock_offset_ms;         /* Redis's clock minus this engine's */
    int64_t closing_pause_ms;        /* monotonic time before which no window is closed for all; owned by the turn */
};

/* How keys are hashed. Set before sharing. */
struct twi_hashing {
    twi_hash_fn *fn;
    struct twi_hash_secret secret;
};

/* The kind of engine, and whether it takes calls. The first two fields are set before sharing. */
struct twi_life {
    bool host_driven, has_redis;
    bool is_shared; /* forked children join it; set before sharing, too */
    /* The next three are released by the thread that sets them, and acquired by calls. A call that sees one of them set
     * sees all that was done before. */
    _Atomic bool stopped; /* calls return TW_ERR_CLOSED */
    _Atomic bool gate;    /* the engine is stopped or broken, so no call uses the hot path */
    _Atomic bool broken;  /* a forked child whose engine could not be renewed */
    bool opening;         /* the engine is being made, and no other thread can reach it */
    /* twi_thread.process of the thread that stopped it; a forked child has another */
    _Atomic uint32_t stopped_in;
};

/* The state of the turn's collection for Redis. Any thread uses `marked`; the turn owns the rest. */
struct twi_collector {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t marked; /* newest generation with marked counters; taken by the turn */
    /* generations that are being collected, first some in order of arrival, then the others by their expiry in Redis */
    uint32_t pending;
    uint32_t pending_new; /* how many are in order of arrival */
    bool requested;       /* a full collection has begun and waits for its grace period */
    bool running;         /* its grace period is over; it is done when one collection has reached its end */
    bool hurried;         /* the next collection does not wait for the interval ... */
    int64_t whole_at_ms;  /* ... except for a pause since this one, the last that took all; monotonic */
    _Atomic bool done;
    uint64_t stamp;
    int64_t items_out;                 /* collected counters with an unsettled delta */
    int64_t unsent_look_ms;            /* monotonic: when unsent_keys is sampled next */
    struct twi_rejected *rejected;     /* the counters that wait (port/items.h) */
    struct twi_restore_stores *stores; /* restore_notes.h */
    _Atomic uint64_t given_up;         /* counters whose counts Redis will never get, so far ... */
    _Atomic uint64_t given_up_told;    /* ... and those that a tw_flush() has reported; any thread */
    int64_t forgot_mono_ms;            /* when Redis was last found to have lost data; totals may fall after that */
};

/* Unlinked pieces that wait until no section can hold them. Any thread uses `new_maps`; the turn owns the rest. */
struct twi_unlinked {
    _Atomic uint32_t new_maps; /* replaced maps of windows; the turn retires them */
    uint32_t generations;      /* dropped generations, by dropped.next */
    uint32_t maps;             /* unlinked maps waiting for their stamp to be reached */
    uint64_t maps_stamp;
    struct twi_sketch_retired sketches; /* pieces of sketches that have grown */
};

/* The counter that gets stripes next (dirty.h). */
struct twi_stripe_request {
    uint32_t log2;       /* stripes per striped counter, by the number of processors */
    _Atomic uint64_t of; /* line of a generation << 32 | line of its cell (dirty.c); 0 means none */
    _Atomic int64_t limit;
};

/* Counters that came near their limit and are sent early (share.h). Any thread. */
struct twi_near_ring {
    _Atomic bool any;                           /* there are counters near their limit */
    _Atomic uint64_t slots[TWI_NEAR_LIMIT_MAX]; /* line of a generation << 32 | line of its cell; 0 means free */
};

/* Counting keys of endless windows again, one family after the other (recover.c). */
struct twi_recount {
    uint32_t ended_inside; /* how many threads had ended inside a section when this last began */
    uint64_t serial;       /* of the family whose keys are being counted; 0 means none */
    uint64_t before;       /* how many keys it seemed to have, */
    uint64_t stamp;        /* and the epoch stamp of that moment */
    uint64_t found;
    struct twi_cursor cursor;
};

/* What the log has about counts that Redis does not get. */
struct twi_lost_log {
    int64_t late, expired; /* tw_stats.late_deltas and expired_unsynced at the last line */
    int64_t at_ms;         /* monotonic; 0: there was no line */
    uint64_t keys, units;  /* given up so far; from the end of the engine on: since then */
};

/* The owner of the turn, its time, and the lines that it has logged. */
struct twi_turn_state {
    struct twi_event_count ended; /* threads that wait for a turn sleep on it */
    _Atomic uint32_t owned;       /* the number of the thread that owns it (processes.h), or 0 */
    bool has_doubts;              /* flags are set that perhaps promise nothing any more (recover.c) */
    struct twi_recount recount;
    _Atomic int64_t next_ms; /* monotonic: when the next turn has work */
    int64_t now_ms;          /* engine time of this turn */
    int64_t mono_ms;
    bool closing; /* tw_close() sets it; every window is treated as over */
    /* From when the last candidate hands over to nobody, until a process leads again: leases are returned, and Redis
     * does not count this engine any more (lead.c). */
    _Atomic bool leaves_redis;
    bool hooks_again; /* while the engine closes: hooks that have returned false are called again in this turn */
    bool hooks_partial;
    uint64_t refused_seen; /* pieces that the arena had refused by the last check */
    bool reclaimed;        /* this turn gave memory back, and there may be more */
    bool refusal_logged;
    struct twi_lost_log lost_log;
    int64_t stall_logged_ms, low_logged_ms, crumbs_logged_ms; /* monotonic; 0: that is over, or was never so */
    int64_t clock_logged_ms, clock_logged_at_ms; /* last logged distance of the wall clock from engine time; 0: small */
    int64_t epoch_raised_ms;                     /* monotonic */
    int64_t epoch_seen_ms;                       /* since when the oldest section has been the same */
    uint64_t epoch_seen;
};

/* The driver that syncs with Redis. In a shared engine `sync` is there only in the process that leads. */
struct twi_remote {
    const struct twi_driver *driver; /* NULL: none */
    struct twi_sync *sync;
    /* of a shared engine: makes the calls of this process that wait, and no turns; NULL: none yet (operation.h) */
    _Atomic(struct twi_sync *) asks;
    const struct twi_transport *transport; /* set by a simulator */
    void *transport_ctx;
    struct twi_tuning tuning; /* set before sharing */
    const uint32_t *shorts;   /* of a cluster (port/driver.h). NULL means one Redis. Set before sharing */
    /* of a shared engine: the number of this sync (twi_in_redis.made), and when the next try to make one is due */
    uint64_t made;
    int64_t again_ms;
};

/* What Redis knows this engine by. All processes of a shared engine have it together, and one of them after the other
 * has the sync. */
struct twi_in_redis {
    char id[33]; /* the engine's id (port/services.h); only the turn changes it (twin.c) */
    /* what one sync leaves to the next (remote.c); NULL: the engine is not shared, or has no Redis */
    struct twi_left *left;
    size_t left_bytes;
    void *estate;  /* the part of it that belongs to sync/ (port/driver.h) */
    uint64_t made; /* how many syncs the processes have made; owned by the turn */
};

/* Where random bytes come from. */
struct twi_random_source {
    _Atomic uint64_t state;    /* 0 means random bytes of the system */
    struct twi_random_key key; /* for the time when the system refuses them */
    bool failed;               /* the system had no random bytes while the engine was made */
};

/* The thread that answers on watch_path (engine/stats.c). */
struct twi_watcher {
    struct tw_watch *watch; /* NULL: none */
    struct tw_family *held; /* the turn does not free it; under the roster's lock */
};

/* The thread that drives the calls that wait for Redis (calls.h). */
struct twi_second {
    pthread_mutex_t lock; /* the lock for starting it */
    pthread_t thread;
    int wake_fd;
    _Atomic bool runs, stops;
};

/* The thread that shows other processes when this one ends (witness.h). */
struct twi_witness {
    pthread_mutex_t lock; /* for starting it, and for taking a place */
    pthread_t thread;
    struct twi_event_count stage; /* 1: it has tried to register; 2: it stops */
    bool runs;                    /* under the lock */
};

/* The thread that makes the turns (engine/turn/turn.c). */
struct twi_background {
    pthread_t thread;
    bool runs;
    _Atomic bool stops;
};

/* The open families by name, under the roster's lock (roster.c). */
struct twi_family_names {
    struct tw_family **chains; /* by a hash of the name */
    uint32_t log2, count;
};

/* Which process makes the turns of a shared engine, and which processes share it (processes.h). Any thread. */
struct twi_leader {
    pthread_mutex_t held;          /* robust: the thread that leads has it */
    struct twi_event_count called; /* candidates try to lead when it rises */
    _Atomic int64_t turned_ms;     /* monotonic time of its last turn; 0 means that there was none */
    _Atomic uint32_t turns;        /* that have begun */
    _Atomic uint32_t process;      /* that leads, or led last */
    _Atomic uint32_t place;        /* of that process (processes.h) */
    _Atomic bool has_ended;        /* a process has closed it for all */
};

/* The part of this process in that (processes.h). Any thread. */
struct twi_lead {
    _Atomic bool is_candidate;
    _Atomic uint64_t thread;      /* serial number of the thread of this process that leads; 0 means none */
    _Atomic uint32_t called;      /* the value of twi_leader.called at the last try */
    _Atomic int64_t look_ms;      /* monotonic: when the next try is due */
    struct twi_event_count tried; /* raised by the background thread after its first try */
    pthread_mutex_t lock;         /* for starting that thread */
    bool has_succeeded;           /* the previous leader died, which is not reported yet; owned by the turn */
    _Atomic int64_t close_by_ms;  /* monotonic: until when tw_close() may wait */
    uint32_t forks;               /* twi_epoch_forks() when it opened the engine */
};

/* The hook on a closed window that is being called (host.h). */
struct twi_hook_run {
    _Atomic(struct twi_thread *) thread;
    struct tw_family *family; /* under the roster's lock, as the next */
    uint64_t call;            /* the number of that call, from 1 on */
};

/* tw_flush() of all processes that share an engine, which the leader serves (turn/turn.h). */
struct twi_flushes {
    _Atomic uint64_t wanted;  /* the last number that was given to a caller */
    _Atomic uint64_t served;  /* all up to this one are served */
    _Atomic uint64_t refused; /* the last one of a round in which Redis refused something */
};

/* The round of flushes that this process serves, while it leads. */
struct twi_flush_round {
    uint64_t until;  /* the last one of the round; 0 means that there is none */
    uint64_t ticket; /* of the sync with the number `made` */
    uint64_t made;
};

/* Slots of processes that have gone (reserve/hold_shared.c), while this process leads. */
struct twi_slot_recovery {
    uint32_t place;           /* of the process whose slots are given back; 0 means none */
    struct tw_family *family; /* whose keys are looked at, from the cursor on */
    struct twi_cursor cursor;
};

/* What this process has of a shared engine, besides the arena: mappings, and texts of the heap (0 bytes). It is noted
 * before another process can write the pointers to it (processes.c). */
struct twi_block {
    void *at;
    size_t bytes;
};
struct twi_blocks {
    struct twi_block *all;
    uint32_t count, room;
};

/* What a process has to know of a shared engine that it may not read (memory/supervisor.h). */
struct twi_unread {
    struct twi_blocks blocks;
    size_t engine_bytes;    /* of the block of the engine */
    _Atomic bool *has_left; /* of its place among the processes; NULL: it has none */
    bool has_to_join;       /* a child that supervises has not joined it */
};

/* What belongs to one process: its threads, descriptors, locks, calls under way, holds and reservations, and its
 * connections to Redis. It is allocated when the engine is opened. So after a fork each process has a copy of its own,
 * at the same address. In a forked child begin_here() begins it again, except what tw_open() has set (engine.c). */
struct twi_here {
    struct tw_engine *engine;
    struct twi_here *next; /* of this process (engine.c) */
    void *map;             /* the arena's: root may not read it in the engine, which other users write */
    size_t map_bytes;
    struct twi_unread unread;
    bool is_shared;
    bool has_joined;          /* this process was forked after the engine was opened, and shares it */
    _Atomic bool is_turning;  /* a thread of this process may be changing what the turn owns; for a forked child */
    _Atomic uint32_t process; /* its place among the processes that share the engine (processes.h); 0: none */
    struct twi_remote remote;
    struct twi_random_source random;
    struct twi_socket_set waits; /* tw_fd(), for which the thread waits that makes the turns */
    struct twi_background background;
    struct twi_auditor auditor;
    struct twi_watcher watcher;
    struct twi_second second;
    struct twi_witness witness;
    struct twi_lead lead;
    struct twi_hook_run hook;
    struct twi_family_names names;
    struct twi_calls *calls;                /* operation.h */
    struct twi_reserve_local *reservations; /* reserve_local.h; under the lock of that book */
    struct twi_hold_book *holds;            /* hold_book.h; under the lock of that book */
    struct twi_slot_recovery recovery;      /* owned by the turn, as the next */
    struct twi_flush_round flushes;
};

#define TWI_IDLE_MS 1000u /* the longest pause between turns of a host-driven engine */
/* units of work (slots, lines) per turn and kind of work, which is some 100 microseconds */
#define TWI_WORK_TURN 16384u

/* Lines faulted in per turn, ahead of inserts: 4 MiB, or 64,000 records in 5 ms; takes half a millisecond. */
#define TWI_WORK_AHEAD 65536u

struct twi_restore;
struct twi_processes;

struct tw_engine {
    /* set before sharing, then read by all */
    struct twi_hashing hashing;
    struct twi_shard *shards;
    struct twi_life life;
    alignas(TWI_LINE_BYTES) struct twi_clock clock;
    struct twi_arena arena;

    /* any thread, lock-free */
    alignas(TWI_LINE_BYTES) struct twi_collector collector;
    struct twi_unlinked unlinked;
    struct twi_stripe_request stripes;
    alignas(TWI_LINE_BYTES) struct twi_near_ring near_ring;
    struct twi_note notes[TWI_NOTES]; /* indexed by the line of the cell (limit_stats.h) */
    struct twi_peers peers;
    struct twi_in_redis in_redis; /* remote.h */
    struct twi_report report;
    struct twi_flushes flushes;
    struct twi_event_count given_back; /* a refund was made in a process that has this engine (tw_acquire_wait()) */
    struct twi_turn_state turn;

    struct twi_leader leader; /* of a shared engine */

    /* opening and closing families */
    struct twi_roster roster;

    /* owned by the turn, except the agenda's news */
    struct twi_agenda agenda;
    struct twi_restore *restore; /* restore_notes.h */
    struct twi_leases leases;    /* leases of hard limits (limit/lease.h) */

    /* set before sharing */
    tw_options options;              /* strings are copies */
    struct twi_here *here;           /* what belongs to this process; never NULL */
    struct twi_processes *processes; /* that share it (processes.h); NULL: it is not shared */
};

/* Returns true if a thread owns the turn. It is for checks of functions that only the owner may call. */
TWI_INLINE bool twi_turn_is_owned(const tw_engine *engine) {
    return twi_load_relaxed(&engine->turn.owned) != 0;
}

/* The process whose threads may count in the engine; 0 means more than one (epoch.h). */
TWI_INLINE uint32_t twi_engine_process(const tw_engine *engine) {
    return engine->life.is_shared ? 0 : twi_process_number();
}

/* Returns how many increments the thread (or all threads that share its shard) had counted before. */
TWI_INLINE int64_t twi_count_increments(tw_engine *engine, struct twi_thread *self, int64_t n) {
    uint32_t bytes = self->shard_bytes;
    static_assert(sizeof(struct twi_shard) == TWI_LINE_BYTES, "shard_bytes is a number of lines");
    _Atomic int64_t *count = &((struct twi_shard *)((char *)engine->shards + bytes))->increments;
    if (twi_unlikely(bytes == TWI_SHARD_SHARED * TWI_LINE_BYTES)) return twi_add_relaxed(count, n);
    int64_t before = twi_load_relaxed(count);
    twi_store_relaxed(count, before + n); /* this thread is its only writer */
    return before;
}

#endif
