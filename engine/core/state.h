/* state.h -- the engine: owner of the arena, the clock, the families and the turn. As a rule a process has one.
 *
 * The TURN is the background work, in bounded rounds of clock, roll-over (rollover.c), sync (through port/) and
 * reclamation. One thread at a time owns the turn (turn_owner.h): the background thread, or, in a host-driven engine,
 * the thread that calls tw_turn(), tw_flush() or tw_close(). In an engine that processes share, one process makes the
 * turns (leader.h).
 * Always true: only the owner of the turn touches what is owned by the turn. A user's hook runs inside a turn and never
 * inside a section. */
#ifndef TWI_CORE_STATE_H
#define TWI_CORE_STATE_H

#include "engine/memory/arena.h"
#include "engine/base/clock.h"
#include "engine/core/engine_parts.h"
#include "engine/core/lease_table.h"
#include "engine/port/driver.h"
#include "engine/memory/epoch.h"
#include "engine/base/event_count.h"
#include "engine/table/table.h"

#include <pthread.h>

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
    struct twi_note notes[TWI_NOTES]; /* indexed by the line of the cell (overshoot.h) */
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
